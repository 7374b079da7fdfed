"""Memories in the dashboard: listed, shown with their sources, changed, erased, and searched."""

import json
import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import partial
from time import perf_counter
from typing import Any

from fastapi import APIRouter, Request, Response

from kemem.errors import InvalidArgument, KeMemError
from kemem.memory import AsyncMemory
from kemem.records import NOTE_KINDS, NOTES, Message, Micros, Note, Relation, Scope
from kemem.records.filters import Filter
from kemem.records.ontology import NOTE_TYPES
from kemem.records.times import to_micros, to_rfc3339
from kemem.results import Hit, Item
from kemem.runtime import counts_hits
from kemem.serve.dashboard import page as pages
from kemem.serve.dashboard.display import Piece
from kemem.serve.dashboard.fields import Fields, refusal
from kemem.serve.dashboard.labels import label, labels
from kemem.serve.dashboard.page import DashboardRoute, page
from kemem.serve.dashboard.users import read_counts, unknown_owner, with_counts
from kemem.serve.http.routing import Memory

HOME = "/dashboard/memories"
KINDS = ("notes", *NOTE_KINDS, "message")
PAGE = 50
CHUNK, MAX_SCANNED = 100, 5_000  # rows of a list with a filter: of one read, of a whole page
CONTEXTS, BESIDE = 5, 2  # sources that are shown, and messages around each
RELATIONS, CHANGES = 1_000, 50  # that are read
MODES = ("hybrid", "lexical", "semantic")
LIMIT, MAX_LIMIT = 10, 50  # hits in the playground
_MAX_WORDS = 2_000  # two long texts that share little take minutes to compare
_WORD = re.compile(r"[^\W\u3040-\u30ff\u3400-\u9fff]+|\s+|.", re.DOTALL)
_COMMA = re.compile(r"[,，、;；\n]")
_SIGNAL = re.compile(r"(lexical|semantic|rerank)(?:#(\d+))? (\d\.\d+)")

router = APIRouter(route_class=DashboardRoute)


@router.get(HOME)
async def list_memories(request: Request, memory: Memory) -> Response:
    """Notes or messages, newest first; as long as nobody is chosen, the users to choose from."""
    fields = Fields(request.query_params)
    values: dict[str, Any] = {"items": [], "people": (), "scanned": 0, "next_cursor": None}
    values |= {"unknown": None, "problem": None, "as_of": None, "texts": {}, "holding": None}
    status = 200
    try:
        if any(fields.ids.values()):
            values |= await _list(fields, memory)
            if as_of := fields.datetime("as_of"):
                values["as_of"] = at = to_micros(as_of, "as_of")
                values["texts"] = await texts_at(values["items"], at, memory)
            if not values["items"]:
                values["unknown"] = await unknown_owner(*fields.owner, memory)
            user_id, agent_id = fields.owner
            if user_id is not None and not values["unknown"]:
                values["holding"] = (await read_counts([Scope(agent_id, user_id)], memory))[0]
        else:
            users = await memory.users(limit=PAGE, cursor=fields.text("cursor"))
            values |= {"people": await with_counts(users.items, memory)}
            values["next_cursor"] = users.next_cursor
    except KeMemError as problem:
        status, values["problem"] = problem.status, problem
    values |= {"chosen": any(fields.ids.values()), "user_ids": await pages.suggested_users(memory)}
    values |= {"types": (await memory.ontology.get()).notes, "built_in": sorted(NOTE_TYPES)}
    return page(request, "memories.html", status, kinds=KINDS, **values)


@router.get(HOME + "/{memory_id:path}")
async def show_memory(request: Request, memory_id: str, memory: Memory) -> Response:
    """One memory with its history, its sources in context and its relations."""
    item = await memory.get(memory_id, **Fields(request.query_params).ids)
    if request.query_params.get("ask") == "delete":
        return page(request, "memories_delete.html", item=item, link=pages.link_to(item.row))
    return await _show(request, item, memory)


@router.post(HOME + "/{memory_id:path}")
async def change_memory(request: Request, memory_id: str, memory: Memory) -> Response:
    """A note with other words or metadata, or a memory erased."""
    form = await request.form()
    fields = Fields(form)
    item = await memory.get(memory_id, **Fields(request.query_params).ids)
    owner = pages.owner_of(item.row)
    try:
        if fields.one_of("action", ("edit", "delete"), "") == "delete":
            request.state.operation = "memory.delete"  # for the audit log
            erases = fields.text("sources") is not None
            gone = await memory.delete(memory_id, **owner, sources=erases)
            counts = {"_withdrawn": len(gone.withdrawn), "_erased": len(gone.erased)}
            happened, count = next((pair for pair in counts.items() if pair[1]), ("", 0))
            list_ = pages.address(HOME, owner)
            return pages.done(request, list_, f"memory_deleted{happened}", count=count)
        text = str(form.get("text", "")).replace("\r\n", "\n")  # as browsers send a line's end
        await memory.update(memory_id, text, fields.mapping("metadata") or {}, **owner)
    except InvalidArgument as problem:
        return await _show(request, item, memory, **refusal(problem, fields))
    return pages.done(request, pages.link_to(item.row), "memory_saved")


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


async def _list(fields: Fields, memory: AsyncMemory) -> dict[str, Any]:
    """A page of a list, the cursor of the next, and how many rows a filter has scanned.

    With a filter the size of a page is bounded by what is scanned, not by what matches: a rare
    word among a million rows must not hold the server up.
    """
    kind, cursor = fields.one_of("kind", KINDS, "notes"), fields.text("cursor")
    as_of = fields.datetime("as_of")
    options: dict[str, Any] = {**fields.ids, "kinds": NOTES if kind == "notes" else [kind]}
    options["as_of"] = as_of
    memory_type, words = fields.text("type"), (fields.text("text") or "").casefold()
    if not memory_type and not words:
        rows = await memory.get_all(**options, limit=PAGE, cursor=cursor)
        items = [item for item in rows if not item.withdrawn]  # the transcript shows those
        return {"items": items, "next_cursor": rows.next_cursor}
    of_type = Filter("eq", "memory_type", memory_type) if memory_type else None

    def matches(item: Item) -> bool:
        is_type = of_type is None or of_type.matches(item.row)
        return is_type and not item.withdrawn and words in item.memory.casefold()

    items = []
    scanned = 0
    while len(items) < PAGE and scanned < MAX_SCANNED:
        rows = await memory.get_all(**options, limit=CHUNK, cursor=cursor)
        items += filter(matches, rows)
        scanned, cursor = scanned + len(rows), rows.next_cursor
        if cursor is None:
            break
    return {"items": items, "next_cursor": cursor, "scanned": scanned}


async def texts_at(items: Sequence[Item], at: Micros, memory: AsyncMemory) -> dict[str, str]:
    """What notes said at a time, by their ids, of those that were changed by hand since."""
    texts = {}
    for item in items:
        row = item.row
        if isinstance(row, Note) and row.updated > at:
            history = await memory.history(
                row.id, user_id=row.user_id or None, agent_id=row.agent_id
            )
            changes = sorted(history, key=lambda change: change.at)
            later = next((it for it in changes if it.at > at and it.event == "update"), None)
            if later is not None and later.before and later.before != item.memory:
                texts[item.id] = later.before
    return texts


async def _show(request: Request, item: Item, memory: AsyncMemory, **refused: Any) -> Response:
    """The page of one memory, also after its form was refused."""
    row, owner = item.row, pages.owner_of(item.row)
    shown: dict[str, Any] = {
        "link": pages.link_to(row),
        "text": item.memory,
        "metadata": json.dumps(dict(item.metadata), ensure_ascii=False, indent=2),
        "history": (),
        "contexts": await _contexts(item, memory),
        "hidden": max(0, len(item.sources) - CONTEXTS),
        "relations": (),
        "types": (await memory.ontology.get()).notes,
    }
    if isinstance(row, Note):
        ids = {"user_id": owner["user_id"], "agent_id": row.agent_id}
        shown["history"] = await memory.history(row.id, **ids, limit=CHANGES)
        as_of = to_rfc3339(row.valid_from)  # the time from which on it holds
        relations: list[Relation] = await memory.graph(**ids, as_of=as_of, limit=RELATIONS)
        shown["relations"] = [it for it in relations if row.id in it.note_ids]
    return page(request, "memories_one.html", item=item, changed=changed, **shown, **refused)


async def _contexts(item: Item, memory: AsyncMemory) -> list[list[Message]]:
    """The messages that a memory was drawn from, each among those around it, none twice."""
    contexts: list[list[Message]] = []
    shown: set[str] = set()
    for source in (await memory.sources(item.id, **pages.owner_of(item.row)))[:CONTEXTS]:
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


@router.get("/dashboard/playground")
async def try_search(request: Request, memory: Memory) -> Response:
    """The search playground: one question, one or two ways to ask it, and why each hit is there."""
    fields = Fields(request.query_params)
    columns: list[dict[str, Any]] = []
    if fields.text("query"):
        columns.append(await _search("a", fields, memory))
    if columns and fields.text("compare"):
        columns.append(await _search("b", fields, memory))  # after it: neither slows the other
    other_ranks = [it["ranks"] for it in reversed(columns)] if len(columns) > 1 else [None]
    return page(
        request,
        "playground.html",
        max((it["problem"].status for it in columns if it["problem"]), default=200),
        kinds=KINDS[1:],
        limit=LIMIT,
        most=MAX_LIMIT,
        columns=columns,
        other_ranks=other_ranks,
        key=_key,
        explained=explained,
        explained_reason=partial(explained_reason, language=pages.language_of(request)),
        user_ids=await pages.suggested_users(memory),
        unknown=await unknown_owner(*fields.owner, memory) if columns else None,
    )


async def _search(name: str, fields: Fields, memory: AsyncMemory) -> dict[str, Any]:
    """A search with the settings of one column; its own question, if any, comes first."""
    own = Fields(fields.values, "b_" if name == "b" else "")
    column = {"name": name, "query": own.text("query") or fields.text("query") or ""}
    token = counts_hits.set(False)  # to try a search is not to use what it finds
    try:
        if not any(fields.ids.values()):
            names = ", ".join(fields.ids)
            raise InvalidArgument(f"{names}: one of them is required", field="user_id")
        settings = _settings(own)
        started = perf_counter()
        hits = await memory.search(column["query"], **fields.ids, explain=True, **settings)
    except KeMemError as problem:
        return {**column, "hits": (), "missing": (), "ranks": None, "problem": problem}
    finally:
        counts_hits.reset(token)
    return {
        **column,
        "settings": json.dumps(settings, ensure_ascii=False, default=str),
        "seconds": perf_counter() - started,
        "at": to_micros(as_of, "as_of") if (as_of := settings.get("as_of")) else None,
        "hits": hits,
        "missing": hits.missing,
        "ranks": {_key(hit): rank for rank, hit in enumerate(hits, 1)},
        "problem": None,
    }


def _settings(fields: Fields) -> dict[str, Any]:
    """The arguments of a search; those that are not given are left out."""
    keywords = [word.strip() for word in _COMMA.split(fields.text("keywords") or "")]
    settings = {
        "mode": fields.one_of("mode", MODES, "hybrid"),
        "limit": fields.integer("limit", MAX_LIMIT, LIMIT),
        "threshold": fields.fraction("threshold"),
        "kinds": fields.texts("kinds"),
        "since": fields.datetime("since"),
        "until": fields.datetime("until"),
        "keywords": list(filter(None, keywords)),
        "filters": fields.mapping("filters"),
        "rerank": fields.one_of("rerank", ("yes", "no"), "yes") == "yes",
        "past": True if fields.text("past") else None,
        "as_of": fields.datetime("as_of"),
    }
    return {name: value for name, value in settings.items() if value not in (None, [])}


def explained_reason(reason: str, language: str) -> str:
    """A reason in a language: relations and fixed words have names.  "李明 lives_in 杭州" -> …"""
    if reason in labels()["reason"]:
        return label("reason", reason, language)
    words = (label("relation", it, language) if "_" in it else it for it in reason.split(" "))
    return " ".join(words)


def explained(hit: Hit) -> tuple[list[tuple[str, str, float]], list[Piece]]:
    """The signals of a hit as (name, rank or "", score), and its other reasons as (name, text)."""
    signals, reasons = [], []
    for why in hit.why:
        if match := _SIGNAL.fullmatch(why):
            signals.append((match[1], match[2] or "", float(match[3])))
        else:
            name, _, text = why.partition(": ")
            reasons.append((name, text))
    return signals, reasons


def _key(hit: Hit) -> tuple[str, str, str]:
    """What tells a memory from all others."""
    return (hit.row.agent_id, hit.row.user_id, hit.row.id)
