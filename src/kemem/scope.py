"""Whose data a call means: from its arguments, its filters, and what a handle is bound to."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from reprlib import repr as shown

from kemem.add.parse import Owner
from kemem.errors import InvalidArgument, NotFound
from kemem.filters import Filter
from kemem.records import MESSAGES, NOTES, Checkpoint, Micros, Scope
from kemem.text.filters import split_filters
from kemem.text.ids import check_id
from kemem.text.times import to_micros

Time = str | datetime  # RFC 3339, or a datetime with a time zone
_NAMES = ("user_id", "agent_id", "session_id")


@dataclass(frozen=True, slots=True)
class CallScope:
    """The ids of a call, each checked; what a handle is bound to is always among them."""

    user_id: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    sensitive: bool = True  # whether sensitive rows may be seen

    @property
    def scope(self) -> Scope:
        """What may be seen; without any id, nothing."""
        if not self.is_bound:
            raise InvalidArgument(
                "give user_id, agent_id or session_id: no read goes without one", field="user_id"
            )
        return Scope(self.agent_id, self.user_id, self.session_id)

    @property
    def is_bound(self) -> bool:
        """Whether this is the reach of a handle that someone's data was chosen for."""
        return any(getattr(self, name) is not None for name in _NAMES)

    def visible(self, state: Checkpoint) -> Checkpoint:
        """A saved state without the notes that may not be seen; its layers retell none of them."""
        seen = tuple(note for note in state.notes if self.sensitive or not note.sensitive)
        return replace(state, notes=seen)

    def to_owner(self, bound: "CallScope") -> Owner:
        """Who owns what is added: without any user an agent's users share it.

        Without a user and an agent both are "default": the one user of a program for one. What a
        handle is bound to holds for every message.
        """
        fixed = frozenset(name for name in _NAMES if getattr(bound, name) is not None)
        shared = self.user_id is None and self.agent_id is not None
        user_id = "" if shared else self.user_id or "default"
        return Owner(user_id, self.agent_id or "default", self.session_id or "default", fixed)

    def restrict(
        self,
        user_id: str | None = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        run_id: str | None = None,
        filters: object = None,
    ) -> tuple["CallScope", Filter | None]:
        """This reach with the ids of a call, and the filters that are left; never a wider one."""
        named, rest = split_filters(filters)
        given = (
            {"user_id": user_id, "agent_id": agent_id, "session_id": session_id},
            {"session_id": run_id},
            named,
        )
        chosen: dict[str, str] = {}
        for ids in given:
            for name, value in ids.items():
                if value is None:
                    continue
                if chosen.setdefault(name, check_id(value, name)) != value:
                    raise InvalidArgument(
                        f"{name} is given as {chosen[name]!r} and as {value!r}", field=name
                    )
        for name in _NAMES:
            own = getattr(self, name)
            if own is not None and chosen.setdefault(name, own) != own:
                raise NotFound("not found")
        return CallScope(**chosen, sensitive=self.sensitive), rest


def kinds_of(given: Iterable[str] | None, default: frozenset[str]) -> frozenset[str]:
    """The kinds of rows that are asked for."""
    if given is None:
        return default
    known = MESSAGES | NOTES
    kinds = frozenset([given] if isinstance(given, str) else given)
    if not kinds or not kinds <= known:
        raise InvalidArgument(
            f"kinds must be some of {', '.join(sorted(known))}, not {shown(given)}", field="kinds"
        )
    return kinds


def to_range(since: Time | None, until: Time | None) -> tuple[Micros | None, Micros | None]:
    """A span of time, either end of which may be left out."""
    first, last = to_time(since, "since"), to_time(until, "until")
    if first is not None and last is not None and first > last:
        raise InvalidArgument("since must not be later than until", field="since")
    return first, last


def to_time(value: Time | None, field: str) -> Micros | None:
    """A time that may be left out."""
    return None if value is None else to_micros(value, field)
