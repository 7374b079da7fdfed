"""When what rows say was over, and what took its place."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from kemem.ports.request import Context, Key, key_of
from kemem.records import Message, Micros, Note, Row, Where
from kemem.store.database import Space, Values, in_list
from kemem.store.read import named
from kemem.store.schema import note, note_history, note_source
from kemem.store.tables import TABLES, one_of

Numbers = Mapping[Key, tuple[type[Row], int]]
_CHAIN = 8  # times that one thing takes the place of another, as far as it is followed


class _End(NamedTuple):
    """When a note was over, and how that came."""

    at: Micros | None
    note_id: str
    rewritten: bool = False  # its text was replaced by another
    in_vain: bool = False  # it was to begin later, and never did


_citing = (
    sa.select(
        *(note_source.c.space_no, note_source.c.message_id, note.c.note_id, note.c.valid_until),
        (note.c.update_time > note.c.create_time).label("updated"),
        (note.c.valid_until < note.c.valid_from).label("in_vain"),
    )
    .join_from(
        note_source,
        note,
        sa.and_(note_source.c.space_no == note.c.space_no, note_source.c.note_row == note.c.id),
    )
    .where(
        one_of(note_source.c.space_no, "spaces"),
        in_list(note_source.c.message_id, "names"),
        note.c.kind != "experience",  # which tells what happened, and never ends
    )
)
_rewritten = (  # when the text of notes was last changed by hand
    sa.select(
        *(note_history.c.space_no, note_history.c.note_id),
        sa.func.max(note_history.c.create_time),
    )
    .where(
        one_of(note_history.c.space_no, "spaces"),
        in_list(note_history.c.note_id, "names"),
        *(note_history.c.before.is_not(None), note_history.c.after.is_not(None)),
    )
    .group_by(note_history.c.space_no, note_history.c.note_id)
)
_successors = (
    sa.select(note.c.space_no, note.c.supersedes, note.c.note_id, note_source.c.message_id)
    .join_from(
        note,
        note_source,
        sa.and_(note_source.c.space_no == note.c.space_no, note_source.c.note_row == note.c.id),
        isouter=True,
    )
    .where(one_of(note.c.space_no, "spaces"), in_list(note.c.supersedes, "names"))
)


def endings(
    connection: sa.Connection,
    spaces: Sequence[Space],
    rows: Mapping[Key, Row],
    cited: Iterable[Any],
    at: Micros | None,
) -> dict[Key, dict[str, Any]]:
    """The endings, as fields of a Context, of rows of which all was over at a time, or ever is;
    and what took the place of a part of others.
    """
    owners = {space.space_no: (space.agent_id, space.user_id) for space in spaces}
    notes: dict[Key, list[_End]] = defaultdict(list)
    if messages := {key: row.ts for key, row in rows.items() if isinstance(row, Message)}:
        notes |= _cited_ends(connection, owners, messages, cited)
    for key, row in rows.items():
        if isinstance(row, Note):
            in_vain = row.valid_until is not None and row.valid_until < row.valid_from
            notes[key].append(_End(row.valid_until, row.id, in_vain=in_vain))
        elif row.valid_until is not None and (at is None or row.ended(at)):
            notes[key] = [_End(row.valid_until, row.id)]  # whatever notes say
    over: dict[Key, _End] = {}
    parts: dict[Key, list[str]] = {}
    for key, some in notes.items():
        ends = [it for it in some if it.at is not None and (at is None or it.at <= at)]
        if len(ends) == len(some):
            over[key] = max(ends)
        elif ends:
            parts[key] = [it.note_id for it in ends]
    names = {it.note_id for it in over.values()}.union(*parts.values())
    successors = _successors_of(connection, owners, names)
    found: dict[Key, dict[str, Any]] = {}
    for key, (end, name, rewritten, in_vain) in over.items():
        by = name if rewritten else next(iter(successors.get((*key[:2], name), ())), None)
        following = _following(key, [name], successors) | ({name} if rewritten else set())
        found[key] = {"ended": end, "superseded_by": by, "in_vain": in_vain}
        found[key]["successors"] = frozenset(following)
    for key, some_names in parts.items():
        found[key] = {"of_parts": frozenset(_following(key, some_names, successors))}
    return found


def _following(
    key: Key, names: Iterable[str], successors: Mapping[Key, Mapping[str, Sequence[str]]]
) -> set[str]:
    """What took the place of notes, and of that, with their messages."""
    following, instead = [*names], set[str]()
    while following:
        new = successors.get((*key[:2], following.pop()), {})
        following += [note_id for note_id in new if note_id not in instead]
        instead |= {it for note_id in new for it in (note_id, *new[note_id])}
    return instead


def ask_citing(
    connection: sa.Connection, spaces: Sequence[Space], keys: Sequence[Key], numbers: Numbers
) -> Iterable[Any]:
    """The notes that cite the messages among some keys."""
    names = sorted({key[-1] for key in keys if numbers.get(key, (Message,))[0] is Message})
    values = {"spaces": [space.space_no for space in spaces], "names": names}
    return connection.execute(_citing, values) if names else ()


def _cited_ends(
    connection: sa.Connection,
    owners: Mapping[int, tuple[str, str]],
    messages: Mapping[Key, Micros],
    citing: Iterable[Any],
) -> dict[Key, list[_End]]:
    """When the notes that cite messages ended, or their texts were replaced after the messages."""
    values: Values = {"spaces": [*owners]}
    cited = [it for it in citing if (*owners[it.space_no], it.message_id) in messages]
    rewritten: dict[tuple[int, str], Micros] = {}
    if updated := sorted({it.note_id for it in cited if it.updated}):
        for space_no, name, time in connection.execute(_rewritten, {**values, "names": updated}):
            rewritten[space_no, name] = time
    ends: dict[Key, list[_End]] = defaultdict(list)
    for space_no, message_id, name, until, _, in_vain in cited:
        key = (*owners[space_no], message_id)
        time = rewritten.get((space_no, name))
        is_replaced = time is not None and time > messages[key]
        end = _End(time, name, rewritten=True) if is_replaced else _End(until, name)
        ends[key].append(end._replace(in_vain=bool(in_vain) and not is_replaced))
    return ends


def _successors_of(
    connection: sa.Connection, owners: Mapping[int, tuple[str, str]], names: set[str]
) -> dict[Key, dict[str, list[str]]]:
    """The notes that took the place of others, with their messages; and what took theirs."""
    found: dict[Key, dict[str, list[str]]] = {}
    known, rounds = set[str](), 0
    while names and rounds < _CHAIN:
        known, rounds = known | names, rounds + 1
        values = {"spaces": [*owners], "names": sorted(names)}
        names = set()
        for space_no, name, note_id, message_id in connection.execute(_successors, values):
            notes = found.setdefault((*owners[space_no], name), {})
            notes.setdefault(note_id, []).extend([message_id] if message_id else [])
            names |= {note_id} - known
    return found


def instead(
    connection: sa.Connection,
    where: Where,
    spaces: Sequence[Space],
    contexts: Mapping[Key, Context],
    rows: Mapping[Key, Row],
) -> dict[Key, Row]:
    """Visible rows that took the place of ended ones, where none of them is among the rows."""
    names = {
        name
        for key, context in contexts.items()
        if not any((*key[:2], it) in rows for it in context.successors)
        for name in context.successors
    }
    if not names:
        return {}
    found = [it.row for table in TABLES for it in named(connection, table, spaces, names)]
    return {key_of(row): row for row in found if where.matches(row)}
