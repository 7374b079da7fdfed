"""Memories in the dashboard: listed, shown with where they come from, changed and erased."""

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from kemem.errors import InvalidArgument, KeMemError
from kemem.memory import AsyncMemory
from kemem.records import NOTE_KINDS, NOTES, Change, Message, Note, Relation, Scope, Where
from kemem.results import Item
from kemem.serve.dashboard.fields import Fields
from kemem.serve.dashboard.guard import DashboardRoute
from kemem.serve.dashboard.marked import Piece, changed
from kemem.serve.dashboard.page import page
from kemem.serve.http.routing import Memory

HOME = "/dashboard/memories"
KINDS = ("notes", *NOTE_KINDS, "message")
PAGE = 50
CHUNK, LOOKED_AT = 100, 5_000  # rows of a list with a filter: of one read, of a whole page
SUGGESTED = 200  # users
CONTEXTS, BESIDE = 5, 2  # sources that are shown, and messages around each
RELATIONS, CHANGES = 50, 50

router = APIRouter(route_class=DashboardRoute)


@dataclass(frozen=True, slots=True)
class Listed:
    """A page of memories; `looked_at` counts the rows that a filter saw."""

    items: tuple[Item, ...] = ()
    next_cursor: str | None = None
    looked_at: int = 0


@dataclass(frozen=True, slots=True)
class Told:
    """A change of a note and, word by word, what became of its text."""

    change: Change
    pieces: list[Piece]


@router.get(HOME)
async def list_memories(request: Request, memory: Memory) -> Response:
    """Notes or messages, newest first; as long as nobody is chosen, the users to choose from."""
    fields = Fields(request.query_params)
    chosen = any(_ids(fields).values())
    listed, people, problem = Listed(), None, None
    try:
        if chosen:
            listed = await _listed(fields, memory)
        else:
            people = await memory.users(limit=PAGE, cursor=fields.text("cursor"))
    except KeMemError as error:
        problem = error
    suggested = people or await memory.users(limit=SUGGESTED)
    return page(
        request,
        "memories.html",
        status=problem.status if problem else 200,
        given=request.query_params,
        kinds=KINDS,
        chosen=chosen,
        listed=listed,
        link_to=link_to,
        people=people.items if people else (),
        next_cursor=people.next_cursor if people else listed.next_cursor,
        user_ids=sorted({entry.id for entry in suggested.items if entry.id}),
        problem=problem,
    )


@router.get(HOME + "/{memory_id:path}")
async def show_memory(request: Request, memory_id: str, memory: Memory) -> Response:
    """One memory with its history, its sources in context and its relations."""
    ids = _ids(Fields(request.query_params))
    item = await memory.get(memory_id, **ids)
    if request.query_params.get("ask") == "delete":
        return page(request, "memories_delete.html", item=item, link=link_to(item))
    return await _shown(request, item, memory)


@router.post(HOME + "/{memory_id:path}")
async def change_memory(request: Request, memory_id: str, memory: Memory) -> Response:
    """A note with other words or metadata, or a memory erased."""
    given = await request.form()
    fields, ids = Fields(given), _ids(Fields(request.query_params))
    item = await memory.get(memory_id, **ids)
    owner = _owner(item)
    try:
        if fields.one_of("action", ("edit", "delete"), "") == "delete":
            await memory.delete(memory_id, **owner)
            return RedirectResponse(f"{HOME}?{_query(owner)}", status_code=303)
        text = str(given.get("text", "")).replace("\r\n", "\n")  # as browsers send a line's end
        await memory.update(memory_id, text, fields.mapping("metadata") or {}, **owner)
    except InvalidArgument as problem:
        return await _shown(request, item, memory, problem, given)
    return RedirectResponse(link_to(item), status_code=303)


def link_to(item: Item) -> str:
    """Where the dashboard shows a memory; the id of a message means one only with its owner."""
    return f"{HOME}/{quote(item.id)}?{_query(_owner(item))}"


async def _listed(fields: Fields, memory: AsyncMemory) -> Listed:
    """A page of a list. With a filter its size is bound by what is looked at, not by what passes:
    a rare word among a million rows must not hold the server up.
    """
    kind = fields.one_of("kind", KINDS, "notes")
    asked: dict[str, Any] = {
        **_ids(fields),
        "kinds": NOTES if kind == "notes" else [kind],
        "as_of": fields.moment("as_of"),
    }
    wanted, words = fields.text("type"), (fields.text("text") or "").casefold()
    cursor = fields.text("cursor")
    if not wanted and not words:
        found = await memory.get_all(**asked, limit=PAGE, cursor=cursor)
        return Listed(found.items, found.next_cursor)
    kept: list[Item] = []
    looked_at = 0
    while len(kept) < PAGE and looked_at < LOOKED_AT:
        found = await memory.get_all(**asked, limit=CHUNK, cursor=cursor)
        kept += [item for item in found if _passes(item, wanted, words)]
        looked_at, cursor = looked_at + len(found), found.next_cursor
        if cursor is None:
            break
    return Listed(tuple(kept), cursor, looked_at)


def _passes(item: Item, wanted: str | None, words: str) -> bool:
    kind = item.row.memory_type if isinstance(item.row, Note) else None
    return wanted in (None, kind) and words in item.memory.casefold()


async def _shown(
    request: Request,
    item: Item,
    memory: AsyncMemory,
    problem: KeMemError | None = None,
    given: Any = None,
) -> Response:
    """The page of one memory; after a refusal with what was typed."""
    is_note = isinstance(item.row, Note)
    metadata = json.dumps(dict(item.metadata), ensure_ascii=False, indent=2)
    return page(
        request,
        "memories_one.html",
        status=problem.status if problem else 200,
        item=item,
        link=link_to(item),
        text=str(given.get("text", "")) if given else item.memory,
        metadata=str(given.get("metadata", "")) if given else metadata,
        history=await _history(item, memory) if is_note else (),
        contexts=await _contexts(item, memory),
        hidden=max(0, len(item.sources) - CONTEXTS),
        relations=await _relations(item, memory) if is_note else (),
        problem=problem,
    )


async def _history(item: Item, memory: AsyncMemory) -> list[Told]:
    owner = _owner(item)
    lines = await memory.history(
        item.id, user_id=owner["user_id"], agent_id=owner["agent_id"], limit=CHANGES
    )
    return [Told(line, changed(line.before or "", line.after or "")) for line in lines]


async def _contexts(item: Item, memory: AsyncMemory) -> list[list[Message]]:
    """The messages that a memory was drawn from, each among those around it, none twice."""
    contexts: list[list[Message]] = []
    shown: set[str] = set()
    for source in (await memory.sources(item.id, **_owner(item)))[:CONTEXTS]:
        if source.id in shown:
            continue
        around = [source]
        if source.user_id:  # what is said to all users of an agent has no transcript
            around = await memory.neighbors(source.id, source.user_id, BESIDE, BESIDE)
        place = (source.agent_id, source.session_id)
        context = [it for it in around if (it.agent_id, it.session_id) == place]
        contexts.append([it for it in context if it.id not in shown])
        shown |= {it.id for it in context}
    return contexts


async def _relations(item: Item, memory: AsyncMemory) -> list[Relation]:
    """The relations that a note supports, whether or not it still holds."""
    parts = await memory.runtime.deps()
    owner = Scope(item.row.agent_id, item.row.user_id)
    where = Where(owner, kinds=NOTES, ids=frozenset([item.id]))
    return await parts.store.around(where, [], limit=RELATIONS)


def _ids(fields: Fields) -> dict[str, str | None]:
    return dict(
        user_id=fields.text("user_id"),
        agent_id=fields.text("agent_id"),
        session_id=fields.text("session_id"),
    )


def _owner(item: Item) -> dict[str, str | None]:
    """The ids under which a memory is found; what users share is the agent's."""
    row = item.row
    session_id = None if row.user_id or isinstance(row, Note) else row.session_id
    return dict(user_id=row.user_id or None, agent_id=row.agent_id, session_id=session_id)


def _query(ids: dict[str, str | None]) -> str:
    return urlencode({name: value for name, value in ids.items() if value})
