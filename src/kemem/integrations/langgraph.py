"""KeMemStore: LangGraph's long-term memory, one user's, kept as notes."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import ge, gt, le, lt
from typing import Any

from langgraph.store.base import (
    BaseStore,
    GetOp,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    get_text_at_path,
    validate_op_namespace,
)

from kemem.add.parse import check_metadata
from kemem.compat.keyed import KeyedNotes
from kemem.errors import InvalidArgument
from kemem.memory import AsyncMemory
from kemem.ports import Deps
from kemem.records import Micros, Note, Where
from kemem.records.batch import Batch
from kemem.records.filters import Filter
from kemem.records.times import to_datetime
from kemem.search.pages import MAX_PAGE
from kemem.search.recipe import search
from kemem.sync import Memory, UserCalls

# Keys of a note's metadata.
_PATHS, _KEY, _VALUE, _TTL = "langgraph_paths", "langgraph_key", "langgraph_value", "langgraph_ttl"
_MINUTE: Micros = 60_000_000
_ORDERS = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}

Namespace = tuple[str, ...]


class KeMemStore(BaseStore):
    """A store of LangGraph for one user; each item is a note, which KeMem's searches find, too.

        store = KeMemStore(Memory(), user_id="u_1")
        graph = builder.compile(store=store)

    No namespace leads to another user. `fields` are the paths of a value that are searched where
    `put` names none; without, all of it is. A `Memory` serves blocking and async graphs, an
    `AsyncMemory` async ones. Vectors are KeMem's own. An item that has a ttl is gone when it ends.
    """

    supports_ttl = True

    def __init__(
        self,
        memory: Memory | AsyncMemory,
        *,
        user_id: str,
        agent_id: str | None = None,
        fields: Sequence[str] | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        self._calls = UserCalls(memory, user_id, agent_id)
        self._fields = None if fields is None else list(fields)
        self.ttl_config = ttl

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations: reads see what was there before, writes are one transaction."""
        return self._calls.block(self._run(list(ops)))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Run operations: reads see what was there before, writes are one transaction."""
        return await self._calls.wait(self._run(list(ops)))

    async def _run(self, ops: Sequence[Op]) -> list[Result]:
        for op in ops:
            validate_op_namespace(op)
        items = _Items(self._calls.memory, await self._calls.memory.runtime.prepared())
        puts = {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}
        named = [(op.namespace, op.key) for op in ops if isinstance(op, GetOp)]
        notes = await items.read([*named, *puts])
        results: list[Result] = []
        read: list[Note] = []  # whose time to live begins again
        for op in ops:
            match op:
                case GetOp():
                    note = notes.get(items.note_id(op.namespace, op.key))
                    results.append(note and _item(note))
                    read += [note] if note and op.refresh_ttl else []
                case SearchOp():
                    found = await items.search(op)
                    results.append([_item(note, score) for note, score in found])
                    read += [note for note, _ in found if op.refresh_ttl]
                case ListNamespacesOp():
                    results.append(await items.namespaces(op))
                case PutOp():
                    results.append(None)
                case _:
                    raise InvalidArgument(f"no operation of a store: {op!r:.80}")
        await items.write(list(puts.values()), notes, self._fields)
        await items.refresh(note for note in read if _place(note) not in puts)
        return results


class _Items:
    """The items of one user, as notes."""

    def __init__(self, memory: AsyncMemory, deps: Deps) -> None:
        self._notes = KeyedNotes(memory, deps)

    def note_id(self, namespace: Namespace, key: str) -> str:
        return self._notes.note_id("langgraph", namespace, key)

    async def read(self, places: Iterable[tuple[Namespace, str]]) -> dict[str, Note]:
        """The notes at some places, by their ids."""
        return await self._notes.read(self.note_id(*place) for place in places)

    async def search(self, op: SearchOp) -> list[tuple[Note, float | None]]:
        """What answers a query, best first; then the rest without a score, newest first."""
        end = op.offset + op.limit
        where = self._notes.where(Filter("eq", _PATHS, ".".join(op.namespace_prefix)))
        query = (op.query or "").strip()
        notes = await self._all(where) if op.filter or not query else None
        if notes is not None and op.filter:
            notes = [note for note in notes if _matches(note.metadata[_VALUE], op.filter)]
            where = replace(where, ids=frozenset(note.note_id for note in notes))
        ranked: dict[str, tuple[Note, float | None]] = {}
        if query and notes != [] and end > 0:
            hits = await search(query, where, min(end, MAX_PAGE), self._notes.deps, explain=False)
            living = (hit for hit in hits if self._notes.lives(hit.note))
            ranked = {hit.id: (hit.note, hit.score) for hit in living}
        if len(ranked) < end:
            rest = await self._all(where) if notes is None else notes
            ranked |= {note.id: (note, None) for note in rest if note.id not in ranked}
        return list(ranked.values())[op.offset : end]

    async def namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        """The namespaces that have items and match, in order."""
        notes = await self._all(self._notes.where(Filter("eq", _PATHS, "")))
        conditions = op.match_conditions or ()
        places = {_place(note)[0] for note in notes}
        matching = (it for it in places if all(_fits(each, it) for each in conditions))
        return sorted({it[: op.max_depth] for it in matching})[op.offset : op.offset + op.limit]

    async def write(
        self, puts: Sequence[PutOp], stored: Mapping[str, Note], fields: list[str] | None
    ) -> None:
        """Put and delete items, all or none."""
        gone = [self.note_id(op.namespace, op.key) for op in puts if op.value is None]
        notes = [self._note(op, stored, fields) for op in puts if op.value is not None]
        await self._notes.write(notes, gone, stored=stored)

    async def refresh(self, notes: Iterable[Note]) -> None:
        """Let items live as long again from now on, if they are there still."""
        for note in {note.id: note for note in notes if _TTL in note.metadata}.values():
            later = replace(note, expires=self._expiry(note.metadata[_TTL]))
            await self._notes.deps.store.apply(Batch(notes=(later,), present=(note,)))

    async def _all(self, where: Where) -> list[Note]:
        notes = await self._notes.read_all(where)
        return sorted(notes, key=lambda note: (-note.updated, note.metadata[_KEY]))

    def _note(self, op: PutOp, stored: Mapping[str, Note], fields: list[str] | None) -> Note:
        note_id, value = self.note_id(op.namespace, op.key), check_metadata(op.value, "value")
        paths = [".".join(op.namespace[:depth]) for depth in range(len(op.namespace) + 1)]
        metadata = {_PATHS: paths, _KEY: op.key, _VALUE: value}
        metadata |= {_TTL: op.ttl} if op.ttl is not None else {}
        text, expires = _text(op, value, fields), self._expiry(op.ttl)
        return self._notes.note(note_id, text, metadata, stored.get(note_id), expires)

    def _expiry(self, minutes: float | None) -> Micros | None:
        return None if minutes is None else self._notes.now + int(minutes * _MINUTE)


def _text(op: PutOp, value: Mapping[str, Any], fields: list[str] | None) -> str:
    """What a search finds an item by."""
    paths = fields if op.index is None else op.index or []
    if paths is None:
        leaves = list(_leaves(value))
        return "\n".join(f"{name}: {text}" if len(leaves) > 1 else text for name, text in leaves)
    return "\n".join(text for path in paths for text in get_text_at_path(dict(value), path))


def _place(note: Note) -> tuple[Namespace, str]:
    path = note.metadata[_PATHS][-1]
    return tuple(path.split(".")) if path else (), note.metadata[_KEY]


def _item(note: Note, score: float | None = None) -> SearchItem:
    namespace, key = _place(note)
    times = to_datetime(note.created), to_datetime(note.updated)
    return SearchItem(namespace, key, dict(note.metadata[_VALUE]), *times, score)


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The texts in a value with their paths: {"pet": {"name": "Rex"}} -> ("pet.name", "Rex")"""
    match value:
        case dict():
            for key, each in value.items():
                yield from _leaves(each, f"{name}.{key}" if name else key)
        case list():
            for each in value:
                yield from _leaves(each, name)
        case None:
            return
        case _:
            yield name, str(value)


def _matches(value: Any, wanted: Any) -> bool:
    """Whether a value has what a filter demands: equal parts, or operators such as $gte."""
    match wanted:
        case dict() if any(name.startswith("$") for name in wanted):
            return all(_compared(value, name, operand) for name, operand in wanted.items())
        case dict():
            parts = value if isinstance(value, dict) else {}
            return all(_matches(parts.get(name), each) for name, each in wanted.items())
        case list() | tuple():
            return isinstance(value, list) and value == json.loads(json.dumps(wanted))
    return bool(value == wanted)


def _compared(value: Any, operator: str, operand: Any) -> bool:
    match operator:
        case "$eq":
            return bool(value == operand)
        case "$ne":
            return bool(value != operand)
    if operator not in _ORDERS:
        known = ", ".join(("$eq", "$ne", *_ORDERS))
        raise InvalidArgument(f"filter has the operator {operator!r:.80}; there are {known}")
    try:
        return bool(_ORDERS[operator](float(value), float(operand)))
    except (TypeError, ValueError):  # what is no number has no order
        return False


def _fits(condition: MatchCondition, namespace: Namespace) -> bool:
    path = condition.path
    if len(namespace) < len(path):
        return False
    part = namespace[: len(path)]
    if condition.match_type == "suffix":
        part = namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for wanted, label in zip(path, part, strict=True))
