"""Memories in the dashboard: listed, shown with where they come from, changed and erased."""

import json
import re
from difflib import SequenceMatcher
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from kemem.errors import InvalidArgument, KeMemError
from kemem.memory import AsyncMemory
from kemem.records import NOTE_KINDS, NOTES, Change, Message, Note, Relation
from kemem.records.times import to_rfc3339
from kemem.results import Item
from kemem.serve.dashboard.fields import Fields
from kemem.serve.dashboard.page import DashboardRoute, page
from kemem.serve.http.routing import Memory

HOME = "/dashboard/memories"
KINDS = ("notes", *NOTE_KINDS, "message")
PAGE = 50
CHUNK, MAX_SCANNED = 100, 5_000  # rows of a list with a filter: of one read, of a whole page
SUGGESTED = 200  # users
CONTEXTS, BESIDE = 5, 2  # sources that are shown, and messages around each
RELATIONS, CHANGES = 1_000, 50  # that are read
_MAX_WORDS = 2_000  # two long texts that share little take minutes to compare
_WORD = re.compile(r"[^\W\u3040-\u30ff\u3400-\u9fff]+|\s+|.", re.DOTALL)

Piece = tuple[str, str]  # the name of an element, "" for none, and its text
Ids = dict[str, str | None]

router = APIRouter(route_class=DashboardRoute)


@router.get(HOME)
async def list_memories(request: Request, memory: Memory) -> Response:
    """Notes or messages, newest first; as long as nobody is chosen, the users to choose from."""
    fields = Fields(request.query_params)
    chosen = any(_ids(fields).values())
    items: list[Item] = []
    cursor, scanned, people, problem = fields.text("cursor"), 0, None, None
    try:
        if chosen:
            items, cursor, scanned = await _list(fields, cursor, memory)
        else:
            people = await memory.users(limit=PAGE, cursor=cursor)
            cursor = people.next_cursor
    except KeMemError as error:
        cursor, problem = None, error
    return page(
        request,
        "memories.html",
        status=problem.status if problem else 200,
        given=request.query_params,
        kinds=KINDS,
        chosen=chosen,
        items=items,
        scanned=scanned,
        link_to=link_to,
        people=people.items if people else (),
        next_cursor=cursor,
        user_ids=await suggested_users(memory),
        problem=problem,
    )


@router.get(HOME + "/{memory_id:path}")
async def show_memory(request: Request, memory_id: str, memory: Memory) -> Response:
    """One memory with its history, its sources in context and its relations."""
    item = await memory.get(memory_id, **_ids(Fields(request.query_params)))
    if request.query_params.get("ask") == "delete":
        return page(request, "memories_delete.html", item=item, link=link_to(item.row))
    return await _show(request, item, memory)


@router.post(HOME + "/{memory_id:path}")
async def change_memory(request: Request, memory_id: str, memory: Memory) -> Response:
    """A note with other words or metadata, or a memory erased."""
    form = await request.form()
    fields = Fields(form)
    item = await memory.get(memory_id, **_ids(Fields(request.query_params)))
    owner = _owner(item.row)
    try:
        if fields.one_of("action", ("edit", "delete"), "") == "delete":
            await memory.delete(memory_id, **owner)
            return RedirectResponse(f"{HOME}?{_query(owner)}", status_code=303)
        text = str(form.get("text", "")).replace("\r\n", "\n")  # as browsers send a line's end
        await memory.update(memory_id, text, fields.mapping("metadata") or {}, **owner)
    except InvalidArgument as problem:
        return await _show(request, item, memory, problem, form)
    return RedirectResponse(link_to(item.row), status_code=303)


def link_to(row: Message | Note) -> str:
    """Where the dashboard shows a memory; a message id is unique only within its owner."""
    return f"{HOME}/{quote(row.id)}?{_query(_owner(row))}"


async def suggested_users(memory: AsyncMemory) -> list[str]:
    """Users that a form suggests."""
    users = await memory.users(limit=SUGGESTED)
    return sorted({entry.id for entry in users.items if entry.id})


def changed(before: str, after: str) -> list[Piece]:
    """What became of a text, word by word.  "不吃辣" -> "吃辣": del 不, then 吃辣"""
    old, new = _WORD.findall(before), _WORD.findall(after)
    if max(len(old), len(new)) > _MAX_WORDS:
        return [("del", before), ("ins", after)]
    pieces: list[Piece] = []
    steps = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    for step, old_start, old_end, new_start, new_end in steps:
        removed, added = "".join(old[old_start:old_end]), "".join(new[new_start:new_end])
        if step == "equal":
            pieces.append(("", removed))
        else:
            pieces += [("del", removed)] * bool(removed) + [("ins", added)] * bool(added)
    return pieces


async def _list(
    fields: Fields, cursor: str | None, memory: AsyncMemory
) -> tuple[list[Item], str | None, int]:
    """A page of a list, the cursor of the next, and how many rows a filter has scanned.

    With a filter the size of a page is bounded by what is scanned, not by what matches: a rare
    word among a million rows must not hold the server up.
    """
    kind = fields.one_of("kind", KINDS, "notes")
    options: dict[str, Any] = {
        **_ids(fields),
        "kinds": NOTES if kind == "notes" else [kind],
        "as_of": fields.datetime("as_of"),
    }
    memory_type, words = fields.text("type"), (fields.text("text") or "").casefold()
    if not memory_type and not words:
        rows = await memory.get_all(**options, limit=PAGE, cursor=cursor)
        return list(rows), rows.next_cursor, 0

    def matches(item: Item) -> bool:
        own_type = item.row.memory_type if isinstance(item.row, Note) else None
        return memory_type in (None, own_type) and words in item.memory.casefold()

    items: list[Item] = []
    scanned = 0
    while len(items) < PAGE and scanned < MAX_SCANNED:
        rows = await memory.get_all(**options, limit=CHUNK, cursor=cursor)
        items += filter(matches, rows)
        scanned, cursor = scanned + len(rows), rows.next_cursor
        if cursor is None:
            break
    return items, cursor, scanned


async def _show(
    request: Request,
    item: Item,
    memory: AsyncMemory,
    problem: KeMemError | None = None,
    form: Any = None,
) -> Response:
    """The page of one memory; after a refusal with what was typed."""
    is_note = isinstance(item.row, Note)
    metadata = json.dumps(dict(item.metadata), ensure_ascii=False, indent=2)
    return page(
        request,
        "memories_one.html",
        status=problem.status if problem else 200,
        item=item,
        link=link_to(item.row),
        text=str(form.get("text", "")) if form else item.memory,
        metadata=str(form.get("metadata", "")) if form else metadata,
        history=await _history(item.row, memory) if is_note else (),
        changed=changed,
        contexts=await _contexts(item, memory),
        hidden=max(0, len(item.sources) - CONTEXTS),
        relations=await _relations(item.row, memory),
        problem=problem,
    )


async def _history(row: Message | Note, memory: AsyncMemory) -> list[Change]:
    owner = _owner(row)
    ids = {"user_id": owner["user_id"], "agent_id": owner["agent_id"]}
    return await memory.history(row.id, **ids, limit=CHANGES)


async def _contexts(item: Item, memory: AsyncMemory) -> list[list[Message]]:
    """The messages that a memory was drawn from, each among those around it, none twice."""
    contexts: list[list[Message]] = []
    shown: set[str] = set()
    for source in (await memory.sources(item.id, **_owner(item.row)))[:CONTEXTS]:
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


async def _relations(row: Message | Note, memory: AsyncMemory) -> list[Relation]:
    """The relations that a note supports, as of the time from which on it holds."""
    if not isinstance(row, Note):
        return []
    relations = await memory.graph(
        row.user_id or None, row.agent_id, as_of=to_rfc3339(row.valid_from), limit=RELATIONS
    )
    return [relation for relation in relations if row.id in relation.note_ids]


def _ids(fields: Fields) -> Ids:
    return {name: fields.text(name) for name in ("user_id", "agent_id", "session_id")}


def _owner(row: Message | Note) -> Ids:
    """The ids under which a memory is found; what users share is the agent's."""
    session_id = None if row.user_id or isinstance(row, Note) else row.session_id
    return {"user_id": row.user_id or None, "agent_id": row.agent_id, "session_id": session_id}


def _query(ids: Ids) -> str:
    return urlencode({name: value for name, value in ids.items() if value})
