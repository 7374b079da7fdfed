"""The profile of a user: what is known now, by topic, as a card that fits into a prompt."""

import tomllib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from reprlib import repr as shown
from typing import Protocol

from kemem.errors import InvalidArgument
from kemem.ports import Deps, read_notes
from kemem.ports.entries import check_enabled
from kemem.records import Micros, Note, Where
from kemem.records.filters import Filter
from kemem.results import Item, Profile, ProfileGroup, ProfileLine, next_end
from kemem.text.fence import fenced
from kemem.text.language import count_tokens
from kemem.text.reading import is_about_others
from kemem.text.summary import cut, speaks_chinese

USER_INFO = frozenset({"user_info"})
LEAST_TOKENS = 50
_FENCE = "user_profile"
_LINE = 80  # tokens of one line
_POOL = 1_000  # newest notes that a card is chosen from, beside as many
_IMPORTANT = Filter("gte", "importance", 0.7)  # that are, however old


class ProfileCache(Protocol):
    """Keeps profiles; one that was stored under another mark is never served."""

    def get(self, key: Hashable, mark: str) -> Profile | None: ...
    def put(self, key: Hashable, value: Profile, mark: str) -> None: ...


@dataclass(frozen=True, slots=True)
class _Groups:
    titles: Mapping[str, tuple[str, str]]  # in Chinese and English, in the order of the card
    of_type: Mapping[str, str]  # by types of notes
    of_topic: Mapping[str, str]  # by what a topic names last, of plans
    own: frozenset[str]  # what topics about the user name


@cache
def _groups() -> _Groups:
    table = tomllib.loads((files(__package__) / "profile.toml").read_text("utf-8"))
    titles = {it["name"]: (it["zh"], it["en"]) for it in table["groups"]}
    of_type = {kind: it["name"] for it in table["groups"] for kind in it["types"]}
    of_topic = {it: each["name"] for each in table["groups"] for it in each.get("topics", ())}
    return _Groups(titles, of_type, of_topic, frozenset(table["own"].split()))


async def read_profile(where: Where, max_tokens: int, deps: Deps, cached: ProfileCache) -> Profile:
    """The profile of the user whose current notes a Where admits.

    A cached one is served while nothing has been written and no note of it has ended since.
    """
    if type(max_tokens) is not int or max_tokens < LEAST_TOKENS:
        raise InvalidArgument(
            f"max_tokens must be at least {LEAST_TOKENS}, not {shown(max_tokens)}",
            field="max_tokens",
        )
    await check_enabled(deps.store, where.scope)
    key, mark = (where, max_tokens), await deps.store.generation(where)
    now = deps.clock()  # after the generation: what is read below is at least as new
    known = cached.get(key, mark)
    if known is not None and (known.until is None or now < known.until):
        return known
    current = replace(where, valid_at=now)
    pools = (current, replace(current, filters=_IMPORTANT))
    reads = [await read_notes(deps.store, pool, limit=_POOL) for pool in pools]
    agents = await deps.store.directory("agent", where.scope, limit=_POOL)
    hidden = {agent.id for agent in agents if agent.disabled}
    notes = {(note.agent_id, note.note_id): note for read in reads for note in read}
    served = [note for note in notes.values() if note.agent_id not in hidden]
    profile = compose_profile(where.scope.user_id or "", served, now, max_tokens)
    cached.put(key, profile, mark)
    return profile


def compose_profile(user_id: str, notes: Sequence[Note], now: Micros, max_tokens: int) -> Profile:
    """A card of current notes: the same notes make the same card, in whatever order they come.

    Of two of which one has likely replaced the other, it has that one.
    """
    notes = _latest(notes)
    ranked = sorted(notes, key=_rank)
    chinese = speaks_chinese(note.content for note in ranked)
    room = max_tokens - 2 * count_tokens(f"</{_FENCE}>\n")
    chosen: dict[str, list[Note]] = {}
    for note in ranked:
        group = group_of(note)
        cost = count_tokens(_line(note) + "\n")
        cost += 0 if group in chosen else count_tokens(_heading(group, chinese) + "\n")
        if cost <= room:
            room -= cost
            chosen.setdefault(group, []).append(note)
    groups = [
        ProfileGroup(
            name,
            _groups().titles[name][not chinese],
            tuple(map(_to_line, lines)),
        )
        for name in _groups().titles
        if (lines := chosen.get(name))
    ]
    body = [
        part for it in groups for part in (_heading(it.name, chinese), *map(_line, chosen[it.name]))
    ]
    text = fenced(_FENCE, "\n".join(body)) if body else ""
    return Profile(
        user_id,
        tuple(groups),
        "zh" if chinese else "en",
        omitted=len(notes) - sum(len(it.lines) for it in groups),
        tokens=count_tokens(text),
        text=text,
        until=next_end(notes, now),
    )


def _latest(notes: Sequence[Note]) -> list[Note]:
    """Notes without those that another one has likely replaced; until its end, a note holds."""
    old = {(it.agent_id, it.supersedes) for it in notes}
    return [it for it in notes if it.valid_until or (it.agent_id, it.note_id) not in old]


def group_of(note: Note) -> str:
    """The group of a note, by its type; what is about others is in one of its own."""
    subject, *path = (note.topic or "").split("/")
    if path and (subject != "user" or (len(path) > 1 and path[0] not in _groups().own)):
        return "people"
    if not path and is_about_others(note.content):
        return "people"
    if note.memory_type == "plan" and path and path[-1] in _groups().of_topic:
        return _groups().of_topic[path[-1]]
    return _groups().of_type.get(note.memory_type, "other")


def _rank(note: Note) -> tuple[float, bool, Micros, str, str]:
    """Of what is equally important, what has one value at a time comes first, then the newest."""
    place = (note.topic is None, -note.valid_from, note.note_id, note.agent_id)
    return (-note.importance, *place)


def _heading(group: str, chinese: bool) -> str:
    return f"## {_groups().titles[group][not chinese]}"


def _line(note: Note) -> str:
    return cut(str(Item(note)), _LINE)


def _to_line(note: Note) -> ProfileLine:
    return ProfileLine(note.note_id, cut(note.content, _LINE), note.sources, note.valid_from)
