"""Whose data a call reads and writes: from its arguments, its filters and the handle's own ids."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from reprlib import repr as shown

from kemem.errors import InvalidArgument, NotFound, PermissionDenied
from kemem.records import MESSAGES, NOTES, ROLES, Checkpoint, Micros, Scope, Where
from kemem.records.filters import Filter
from kemem.records.times import to_micros
from kemem.text.filters import check_satisfiable, required, split_filters
from kemem.text.ids import check_id, encode

Id = str | None  # an id that may be left out
Cursor = str | None  # the `next_cursor` of the page before
Time = str | datetime  # RFC 3339, or a datetime with a time zone
DEFAULT = "default"  # the user and the agent of a call that names neither
_NAMES = ("user_id", "agent_id", "session_id")


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of messages that name none themselves."""

    user_id: str
    agent_id: str = DEFAULT
    session_id: str = DEFAULT
    fixed: frozenset[str] = frozenset()  # ids that a message must not name otherwise


@dataclass(frozen=True, slots=True)
class CallScope:
    """The ids of a call, each checked; the ids of a user-scoped handle are always among them."""

    user_id: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    sensitive: bool = True  # whether sensitive rows are visible
    filters: Filter | None = None  # what the call's filters demand beside ids

    @property
    def scope(self) -> Scope:
        """The rows that carry all these ids; at least one id is required."""
        return self.or_default.named if self.is_bound else self.named

    @property
    def named(self) -> Scope:
        """The same, but a session alone may be that of any user."""
        if not self.is_bound:
            raise InvalidArgument("user_id, agent_id or session_id is required", field="user_id")
        return Scope(self.agent_id, self.user_id, self.session_id)

    @property
    def is_bound(self) -> bool:
        """Whether any id is set, as on a user-scoped handle."""
        return any(getattr(self, name) is not None for name in _NAMES)

    @property
    def or_default(self) -> "CallScope":
        """This scope; without a user and an agent, the one that `add` writes to then."""
        is_owned = self.user_id is not None or self.agent_id is not None
        return self if is_owned else replace(self, user_id=DEFAULT, agent_id=DEFAULT)

    @property
    def shared(self) -> str | None:
        """The agent whose shared notes are visible beside the scope's own rows."""
        return None if self.session_id else self.agent_id or DEFAULT

    def where(
        self,
        kinds: frozenset[str],
        since: Time | None = None,
        until: Time | None = None,
        *,
        as_of: Time | None = None,
        now: Micros | None = None,
    ) -> Where:
        """The rows of this scope, in a range of time; with `now` those true now, or `as_of`."""
        when = to_time(as_of, "as_of")
        check_satisfiable(self.filters, kinds)
        return Where(
            self.scope,
            *to_range(since, until),
            kinds=kinds,
            valid_at=None if now is None else now if when is None else when,
            known_by=when,
            filters=self.filters,
            sensitive=self.sensitive,
        )

    def check_unbound(self) -> None:
        """Refuse, on a user-scoped handle, what only the application's own memory may do."""
        if self.is_bound:
            raise PermissionDenied("not available on a user-scoped handle")

    def of_user(self, user_id: Id, *ids: Id) -> "CallScope":
        """This scope narrowed by the ids of a call that needs a user."""
        if self.user_id is None:
            check_id(user_id, "user_id")
        return self.restrict(user_id, *ids)

    def messages(
        self, user_id: Id, since: Time | None, until: Time | None, role: str | None, *ids: Id
    ) -> Where:
        """The messages that a call about one user's messages may see."""
        where = self.of_user(user_id, *ids).where(MESSAGES, since, until)
        return replace(where, role=check_role(role))

    @property
    def lets_models_see(self) -> bool:
        """Whether sensitive rows may enter a prompt: on a user's handle that was granted them.

        Without one an application sees them, and what it gets for a model leaves them out.
        """
        return self.user_id is not None and self.sensitive

    def grant(self, sensitive: bool) -> "CallScope":
        """This scope; it sees sensitive rows if it did and they are granted."""
        return replace(self, sensitive=check_flag(sensitive, "sensitive") and self.sensitive)

    def visible(self, state: Checkpoint) -> Checkpoint:
        """A checkpoint without the notes that may not be seen; its layers never quote those."""
        notes = tuple(note for note in state.notes if self.sensitive or not note.sensitive)
        return replace(state, notes=notes)

    def to_owner(self, handle: "CallScope") -> Owner:
        """The owner of what is added: an agent without a user means all users of the agent.

        No message may name other ids than those of the handle.
        """
        fixed = frozenset(name for name in _NAMES if getattr(handle, name) is not None)
        is_shared = self.user_id is None and self.agent_id is not None
        user_id = "" if is_shared else self.user_id or DEFAULT
        return Owner(user_id, self.agent_id or DEFAULT, self.session_id or DEFAULT, fixed)

    def restrict(
        self,
        user_id: Id = None,
        agent_id: Id = None,
        session_id: Id = None,
        run_id: Id = None,
        filters: object = None,
    ) -> "CallScope":
        """This scope narrowed by the ids and filters of a call; never a wider one."""
        filter_ids, rest = split_filters(filters)
        sources = (
            {"user_id": user_id, "agent_id": agent_id, "session_id": session_id},
            {"session_id": run_id},
            filter_ids,
        )
        ids: dict[str, str] = {}
        for source in sources:
            for name, value in source.items():
                if value is None:
                    continue
                if ids.setdefault(name, check_id(value, name)) != value:
                    raise InvalidArgument(
                        f"{name} is given as {ids[name]!r} and as {value!r}", field=name
                    )
        for name in _NAMES:
            own = getattr(self, name)
            if own is not None and ids.setdefault(name, own) != own:
                raise NotFound("not found")
        return CallScope(**ids, sensitive=self.sensitive, filters=rest)


def with_shared(where: Where) -> Where:
    """A Where that also shows what all users of the agent share, as a search does."""
    scope = where.scope
    return where if scope.session_id else replace(where, shared=scope.agent_id or DEFAULT)


def kinds_of(
    kinds: Iterable[str] | None, default: frozenset[str], filters: Filter | None = None
) -> frozenset[str]:
    """The kinds of rows that a call wants, checked: named by an argument or by a filter."""
    if kinds is None:
        return required(filters, "kind") or default
    known = MESSAGES | NOTES
    chosen = frozenset(check_texts(kinds, "kinds"))
    if not chosen or not chosen <= known:
        raise InvalidArgument(
            f"kinds must be some of {', '.join(sorted(known))}, not {shown(kinds)}", field="kinds"
        )
    return chosen


def check_texts(values: object, field: str) -> list[str]:
    """One text or several, as a list."""
    items = values if isinstance(values, Iterable) and not isinstance(values, str) else [values]
    texts: list[str] = []
    for item in items:
        if not isinstance(item, str):
            raise InvalidArgument(f"{field} must be texts, not {shown(values)}", field=field)
        encode(item, field)
        texts.append(item)
    return texts


def check_flag(value: object, field: str) -> bool:
    """True or False, and nothing that merely counts as one of them."""
    if not isinstance(value, bool):
        raise InvalidArgument(f"{field} must be True or False, not {shown(value)}", field=field)
    return value


def check_role(role: str | None) -> str | None:
    """The role of a speaker, if one is asked for."""
    if role is not None and role not in ROLES:
        raise InvalidArgument(
            f"role must be one of {', '.join(ROLES)}, not {role!r:.80}", field="role"
        )
    return role


def to_range(since: Time | None, until: Time | None) -> tuple[Micros | None, Micros | None]:
    """A range of time, open at the ends that are None."""
    first, last = to_time(since, "since"), to_time(until, "until")
    if first is not None and last is not None and first > last:
        problem = f"since must not be later than until, but {since} is later than {until}"
        raise InvalidArgument(problem, field="since")
    return first, last


def to_time(value: Time | None, field: str) -> Micros | None:
    """An optional time in microseconds."""
    return None if value is None else to_micros(value, field)
