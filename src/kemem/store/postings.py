"""Which rows have a phrase: the word index tells, and of large spaces blocks of common phrases do.

To look up a word that every fourth row has takes the index longer than all else in a search. So the
rows of common phrases are stored as they were found once. A block covers 65,536 numbers of a
space's sequence. It is written when no row can come into it any more; the words of a row never
change, and a row that goes is removed from its block. What no block has is looked up, so blocks
need not be complete, and all of them can be made again.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa

from kemem.store.columns import Ids, SpaceSnapshot
from kemem.store.database import (
    Database,
    IndexedText,
    Lookup,
    Space,
    Values,
    bound,
    group,
    in_list,
)
from kemem.store.read import chunks, keyed
from kemem.store.schema import SEQ_BITS, space_posting, space_state
from kemem.store.tables import TABLES, Stored, one_of
from kemem.text.query import Mask, Phrase, index_text, parts_of

BLOCK = 1 << 16  # so that a place in a block takes 16 bits
_SAMPLE = 32  # one of so many rows is read to learn which phrases are common:
_SHARE = 250  # those that one of so many rows has
_LONGEST = 64  # characters of a phrase that is stored
_AT_ONCE = 64  # phrases that are looked up together
_FEW = 64  # rows that are removed from a block; with more of them it goes
_COMMON = 100  # rows; phrases of fewer are looked up fast enough
_REMEMBERED = 512  # phrases of a space
_BUILT = ""  # in the place of a phrase: those that are common are stored

Blocks = Mapping[tuple[int, str], Mapping[int, bytes]]  # of a space and phrase, by number

_this = bound(space_posting, space_no="of_space", number="of_number")
_columns = [space_posting.c[name] for name in ("space_no", "phrase", "number", "body")]
_load = sa.select(*_columns).where(
    one_of(space_posting.c.space_no, "spaces"),
    in_list(space_posting.c.number, "numbers"),
    in_list(space_posting.c.phrase, "phrases"),
)
_numbers = sa.select(space_posting.c.number).where(
    space_posting.c.space_no == sa.bindparam("of_space"), space_posting.c.phrase == _BUILT
)
_bodies = (
    sa.select(space_posting.c.phrase, space_posting.c.body)
    .where(*_this, in_list(space_posting.c.phrase, "phrases"))
    .order_by(space_posting.c.phrase)
    .with_for_update()
)
_this_phrase = (*_this, space_posting.c.phrase == sa.bindparam("of_phrase"))
_update = sa.update(space_posting).where(*_this_phrase).values(body=sa.bindparam("new_body"))
_remove_phrase = sa.delete(space_posting).where(*_this_phrase)
_remove = sa.delete(space_posting).where(*_this)
_state = sa.select(space_state.c.epoch, space_state.c.next_seq).where(
    *bound(space_state, space_no="of_space")
)


class _Wanted(NamedTuple):
    """A phrase that is looked for in a space."""

    view: SpaceSnapshot
    borders: Sequence[int]  # where the rows of each block begin and end
    phrase: Phrase
    mask: Mask  # the rows that have it, as far as they are known

    @property
    def last(self) -> int:
        """The last number that a row of the space can have."""
        return self.view.space.next_seq - 1


def rows_with(
    connection: sa.Connection,
    database: Database,
    views: Sequence[SpaceSnapshot],
    phrases: Sequence[Phrase],
) -> dict[Phrase, Mask]:
    """For each phrase the rows that contain it, of one space after the other.

    Of common phrases the rows are remembered, and only newer ones are looked up.
    """
    starts = np.cumsum([0, *(len(view.ids) for view in views)])
    masks = {phrase: np.zeros(starts[-1], np.bool_) for phrase in phrases}
    wanted = [
        _Wanted(view, borders, phrase, mask[starts[at] : starts[at + 1]])
        for at, view in enumerate(views)
        for borders in [_borders(view)]
        for phrase, mask in masks.items()
    ]
    blocks = _load_blocks(connection, wanted)
    missing = [(it, span) for it in wanted for span in _fill(it, blocks)]
    lookups = [(it.view.space, it.phrase, *span) for it, span in missing]
    for (it, _), rows in zip(missing, lookup(connection, database, lookups), strict=True):
        mark_rows(it.mask, it.view.ids, rows)
    for it in wanted:
        _remember(it)
    return masks


def _fill(wanted: _Wanted, blocks: Blocks) -> list[tuple[int, int]]:
    """Set the rows that are remembered or stored; returns the ids between which none is known."""
    (view, borders, phrase, mask), spans = wanted, list[tuple[int, int]]()
    following, (last, bits) = view.space.first_id, view.postings.get(phrase, (0, None))
    if bits is not None:
        following += last + 1
        held = np.unpackbits(bits, count=min(len(bits) * 8, len(mask)))
        mask[: len(held)] = held
    else:
        for number, body in sorted(blocks.get((view.space.space_no, _text(phrase)), {}).items()):
            first = view.space.first_id + number * BLOCK
            spans.append((following, first - 1))
            rows = slice(*borders[number : number + 2])
            _put(mask[rows], view.ids[rows], first, body)
            following = first + BLOCK
    spans.append((following, view.space.first_id + wanted.last))
    return [(first, last) for first, last in spans if first <= last]


def _borders(view: SpaceSnapshot) -> list[int]:
    """Where the rows of each block begin, and those after the last one."""
    ends = np.arange(view.space.next_seq // BLOCK + 1) * BLOCK + view.space.first_id
    borders: list[int] = np.searchsorted(view.ids, ends).tolist()
    return borders


def _put(mask: Mask, ids: Ids, first: int, body: bytes) -> None:
    """Set those rows of a block that are packed; the first that it can have has this id."""
    held, size = _unpack(body), len(ids)
    if not size or ids[-1] - ids[0] >= size:  # some numbers have no row
        mask[:] = held[ids - first]
    else:
        at = int(ids[0]) - first
        mask[:] = held[at : at + size]


def _remember(wanted: _Wanted) -> None:
    view, _, phrase, mask = wanted
    last, bits = view.postings.pop(phrase, (0, None))
    if bits is None and np.count_nonzero(mask) < _COMMON:
        return
    if bits is None or last < wanted.last:
        last, bits = wanted.last, np.packbits(mask)
    view.postings[phrase] = (last, bits)  # as the one used last
    if len(view.postings) > _REMEMBERED:
        view.postings.popitem(last=False)


def lookup(connection: sa.Connection, database: Database, lookups: Sequence[Lookup]) -> list[Ids]:
    """The rows of each lookup."""
    rows = [np.zeros(0, np.int64)] * len(lookups)
    if lookups:
        for number, numbers in connection.execute(*database.phrase_query(lookups)).all():
            rows[number] = numbers_in(numbers or "") + lookups[number][0].first_id
    return rows


def numbers_in(joined: str) -> Ids:
    """Whole numbers that the database has put together with commas."""
    return np.fromstring(joined, dtype=np.int64, sep=",")


def mark_rows(mask: Mask, ids: Ids, marked: Ids) -> None:
    """Set the places of the ids that are `marked`; `ids` are in order."""
    if not len(ids):
        return
    dense = ids[-1] - ids[0] == len(ids) - 1
    at = marked - ids[0] if dense else np.searchsorted(ids, marked)
    inside = (at >= 0) & (at < len(ids))
    at = at[inside]
    mask[at if dense else at[ids[at] == marked[inside]]] = True


def indexed_texts(rows: Iterable[Stored[Any]]) -> list[IndexedText]:
    """The search texts of rows as they are indexed."""
    return [IndexedText(it.space_no, it.id, index_text(it.row)) for it in rows]


def numbers(connection: sa.Connection, space_no: int) -> set[int]:
    """Which blocks of a space are stored."""
    return {*connection.execute(_numbers, {"of_space": space_no}).scalars()}


def build(database: Database, space: Space, number: int) -> None:
    """Store a block, unless rows of the space have gone since its epoch."""
    first = space.first_id + number * BLOCK
    bodies = {_BUILT: b""}
    with database.reading() as connection:
        state = connection.execute(_state, {"of_space": space.space_no}).one()
        is_full = state.next_seq >= (number + 1) * BLOCK  # not on a replica that is behind
        if state.epoch != space.epoch or not is_full:
            return
        phrases = _common_phrases(connection, first)
        if database.finds_in_ranges:
            lookups = [(space, Phrase((*it.split(),)), first, first + BLOCK - 1) for it in phrases]
            found = dict(zip(phrases, _in_turn(connection, database, lookups), strict=True))
        else:
            found = _read_all(connection, first, phrases)
        bodies |= {text: _pack(ids - first) for text, ids in found.items()}

    def store(connection: sa.Connection) -> None:
        this = {"of_space": space.space_no}
        state = connection.execute(_state.with_for_update(), this).one()
        if state.epoch == space.epoch and number not in numbers(connection, space.space_no):
            key = {"space_no": space.space_no, "number": number}
            rows = [{**key, "phrase": text, "body": body} for text, body in bodies.items()]
            connection.execute(sa.insert(space_posting), rows)

    database.write(store, durable=False)


def _in_turn(
    connection: sa.Connection, database: Database, lookups: Sequence[Lookup]
) -> Iterator[Ids]:
    """The rows of each of many lookups."""
    for start in range(0, len(lookups), _AT_ONCE):
        yield from lookup(connection, database, lookups[start : start + _AT_ONCE])


def _read_all(connection: sa.Connection, first_id: int, phrases: Sequence[str]) -> dict[str, Ids]:
    """The rows of a block that have each phrase, judging by what they say."""
    wanted, found = {*phrases}, {it: list[int]() for it in phrases}
    for ids in chunks(range(first_id, first_id + BLOCK)):
        for row in _texts(connection, [*ids]):
            for part in wanted & parts_of(row.text):
                found[part].append(row.id)
    return {text: np.array(ids, np.int64) for text, ids in found.items()}


def remove(connection: sa.Connection, texts: Sequence[IndexedText]) -> None:
    """Remove rows from their blocks; the transaction raises the epochs of their spaces."""
    for at, rows in group(texts, lambda it: it.id // BLOCK).items():
        first = at * BLOCK
        number = (first & ((1 << SEQ_BITS) - 1)) // BLOCK
        this = {"of_space": first >> SEQ_BITS, "of_number": number}
        if len(rows) > _FEW:
            connection.execute(_remove, this)
            continue
        places = [it.id - first for it in rows]
        phrases = sorted({part for it in rows for part in parts_of(it.text)})
        changed, gone = list[Values](), list[Values]()
        for text, body in connection.execute(_bodies, {**this, "phrases": phrases}):
            mask = _unpack(body)
            mask[places] = False
            left, that = np.flatnonzero(mask), {**this, "of_phrase": text}
            if len(left):
                changed.append({**that, "new_body": _pack(left)})
            else:
                gone.append(that)
        for statement, values in ((_update, changed), (_remove_phrase, gone)):
            if values:
                connection.execute(statement, values)


def clear(connection: sa.Connection) -> None:
    """Remove all blocks."""
    connection.execute(sa.delete(space_posting))


def _load_blocks(connection: sa.Connection, wanted: Sequence[_Wanted]) -> Blocks:
    """The blocks of phrases whose rows are not remembered."""
    unknown = [
        it
        for it in wanted
        if it.last >= BLOCK and not it.phrase.prefix and it.phrase not in it.view.postings
    ]
    blocks = defaultdict[tuple[int, str], dict[int, bytes]](dict)
    if unknown:
        values = {
            "spaces": sorted({it.view.space.space_no for it in unknown}),
            "numbers": [*range(max(it.last for it in unknown) // BLOCK)],
            "phrases": sorted({_text(it.phrase) for it in unknown}),
        }
        for space_no, text, number, body in connection.execute(_load, values):
            blocks[space_no, text][number] = body
    return blocks


def _common_phrases(connection: sa.Connection, first_id: int) -> list[str]:
    """Phrases that many rows of a block have, judging by some of these."""
    some = _texts(connection, [*range(first_id + _SAMPLE // 2, first_id + BLOCK, _SAMPLE)])
    counts = Counter(part for it in some for part in parts_of(it.text))
    least = max(len(some) / _SHARE, 2)
    return sorted(it for it, count in counts.items() if count >= least and len(it) <= _LONGEST)


def _texts(connection: sa.Connection, ids: Sequence[int]) -> list[IndexedText]:
    """What the rows of some ids say, as far as there are any."""
    return indexed_texts(row for table in TABLES for row in keyed(connection, table, ids))


def _text(phrase: Phrase) -> str:
    return " ".join(phrase.tokens)


def _pack(places: Ids) -> bytes:
    """Places in a block: their numbers, or a bit for each place where that is shorter."""
    if len(places) * 16 < BLOCK:
        return places.astype("<u2").tobytes()
    mask = np.zeros(BLOCK, np.bool_)
    mask[places] = True
    return np.packbits(mask).tobytes()


def _unpack(body: bytes) -> Mask:
    """For each place of a block whether it is among those packed."""
    if len(body) * 8 == BLOCK:
        return np.unpackbits(np.frombuffer(body, np.uint8)).view(np.bool_)
    mask = np.zeros(BLOCK, np.bool_)
    mask[np.frombuffer(body, "<u2")] = True
    return mask
