"""Conversations in the dashboard: sessions, their messages, and their short-term memory."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from itertools import groupby
from typing import Any, cast
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from starlette.datastructures import ImmutableMultiDict

from kemem.errors import InvalidArgument
from kemem.memory import AsyncMemory
from kemem.records import MESSAGES, Checkpoint, Entry, Message, Note
from kemem.records.batch import ConfiguredLevel
from kemem.serve.dashboard import users
from kemem.serve.dashboard.fields import Fields, Ids, refusal
from kemem.serve.dashboard.page import DashboardRoute, done, page
from kemem.serve.dashboard.users import find_entry, to_text, unknown_owner, with_counts
from kemem.serve.http.routing import Memory
from kemem.text.language import count_tokens

HOME = "/dashboard/conversations"
PAGE = 50
SESSIONS = 25  # of a page: the newest message of each is read
BESIDE, MAX_BESIDE = 10, 100  # messages before and after the one that is shown
TOKENS, MAX_TOKENS = 2_000, 1_000_000
LONG = 20_000  # messages of a session whose context takes more than a moment to work out

Session = dict[str, Any]  # its entry, its newest message, how many it has had, and what names it

router = APIRouter(route_class=DashboardRoute)


@router.get(HOME)
async def list_conversations(request: Request, memory: Memory) -> Response:
    """The sessions of a user or agent; as long as nobody is chosen, the users to choose from."""
    fields = Fields(request.query_params)
    (user_id, agent_id), cursor = fields.owner, fields.text("cursor")
    if user_id is None and agent_id is None:
        everyone = await memory.users(limit=PAGE, cursor=cursor)
        people, rest = await with_counts(everyone.items, memory), everyone.next_cursor
        return page(request, "conversations.html", people=people, next_cursor=rest)
    return await _sessions_page(request, memory, fields)


async def _sessions_page(
    request: Request, memory: AsyncMemory, fields: Fields, **refused: Any
) -> Response:
    (user_id, agent_id), cursor = fields.owner, fields.text("cursor")
    entries = await memory.sessions(user_id, agent_id, limit=SESSIONS, cursor=cursor)
    return page(
        request,
        "conversations_sessions.html",
        user_id=user_id,
        agent_id=agent_id,
        entry=await find_entry(user_id, agent_id, memory),
        unknown=await unknown_owner(user_id, agent_id, memory),
        to_text=to_text,
        sessions=await asyncio.gather(*(_session(it, memory) for it in entries.items)),
        next_cursor=entries.next_cursor,
        **refused,
    )


@router.post(HOME + "/configure")
async def configure(request: Request, memory: Memory) -> Response:
    """Another name, type or config of an agent, user or session; or it is disabled or enabled."""
    form = await request.form()
    fields = Fields(form)
    level, name = str(form.get("level", "")), str(form.get("id", ""))
    owner = {it: fields.text(it) for it in ("user_id", "agent_id")}
    disabled = {"yes": True, "no": False}.get(str(form.get("disabled")))
    query = {it: value for it, value in {**owner, f"{level}_id": name}.items() if value}
    try:
        await memory.configure(
            *(cast(ConfiguredLevel, level), name),
            user_id=owner["user_id"],
            agent_id=owner["agent_id"],
            name=fields.text("name") or "",
            type=fields.text("type") or "",
            config=fields.mapping("config") or {},
            disabled=disabled,
        )
    except InvalidArgument as problem:
        return await _refused(request, memory, level, query, refusal(problem, fields))
    place = {"session": f"{HOME}/session", "user": users.ONE}.get(level, HOME)
    message = {None: "configured", True: "disabled", False: "enabled"}[disabled]
    return done(request, f"{place}?{urlencode(query)}", message, id=name)


async def _refused(
    request: Request, memory: AsyncMemory, level: str, query: dict[str, str], refused: Any
) -> Response:
    """The page with the form of an agent, user or session, as it was filled in."""
    fields = Fields(ImmutableMultiDict(query))
    if level == "session":
        return await _session_page(request, memory, fields, **refused)
    if level == "user":
        return await users.user_page(request, memory, query["user_id"], None, **refused)
    return await _sessions_page(request, memory, fields, **refused)


@router.get(HOME + "/session")
async def show_session(request: Request, memory: Memory) -> Response:
    """The messages of a session, a page of them in the order of time, the newest page first."""
    return await _session_page(request, memory, Fields(request.query_params))


async def _session_page(
    request: Request, memory: AsyncMemory, fields: Fields, **refused: Any
) -> Response:
    session, _ = await _read_session(fields, memory)
    cursor = fields.text("cursor")
    items = await memory.get_all(**session["ids"], kinds=MESSAGES, limit=PAGE, cursor=cursor)
    messages = [item.message for item in reversed(items)]
    return page(
        request,
        "conversations_session.html",
        session=session,
        to_text=to_text,
        days=_by_day(messages),
        notes=await notes_of(messages, memory),
        is_newest=cursor is None,
        next_cursor=items.next_cursor,
        **refused,
    )


@router.get(HOME + "/message")
async def show_message(request: Request, memory: Memory) -> Response:
    """One message among those before and after it, in whatever session."""
    fields = Fields(request.query_params)
    message_id = fields.text("message_id")
    if message_id is None:
        raise InvalidArgument("message_id is required", field="message_id")
    beside = fields.integer("beside", MAX_BESIDE, BESIDE)
    messages = await memory.neighbors(message_id, fields.text("user_id"), beside, beside)
    chosen = next(message for message in messages if message.id == message_id)
    entry, _ = await memory.session(chosen.session_id, chosen.user_id, chosen.agent_id)
    return page(
        request,
        "conversations_message.html",
        chosen=chosen,
        days=_by_day(messages),
        notes=await notes_of([chosen], memory),
        beside=beside,
        most=MAX_BESIDE,
        session=await _session(entry, memory),
    )


@router.get(HOME + "/memory")
async def show_short_term(request: Request, memory: Memory) -> Response:
    """The State of a session in layers, and what a prompt of some size would be given of it."""
    fields = Fields(request.query_params)
    max_tokens = fields.integer("max_tokens", MAX_TOKENS, TOKENS)
    session, checkpoints = await _read_session(fields, memory)
    context, prompt = None, {}
    if session["count"] <= LONG or fields.text("max_tokens"):
        context = await memory.context(**session["ids"], max_tokens=max_tokens)
        texts = {  # the rest of it are headings and names
            "notes": [note.content for note in context.notes],
            "summaries": context.summaries,
            "messages": [message.content for message in context.messages],
        }
        prompt = {name: sum(map(count_tokens, parts)) for name, parts in texts.items()}
    layers = checkpoints[0].layers if checkpoints else ()
    return page(
        request,
        "conversations_memory.html",
        session=session,
        layers=[(layer, count_tokens(layer.text)) for layer in layers],
        checkpoints=checkpoints,
        state_tokens=memory.settings.state_tokens,
        max_tokens=max_tokens,
        most=MAX_TOKENS,
        context=context,
        prompt=prompt,
    )


async def _read_session(
    fields: Fields, memory: AsyncMemory
) -> tuple[Session, Sequence[Checkpoint]]:
    """The session that an address names, and its checkpoints."""
    session_id = fields.text("session_id")
    if session_id is None:
        raise InvalidArgument("session_id is required", field="session_id")
    ids = fields.text("user_id"), fields.text("agent_id")
    entry, checkpoints = await memory.session(session_id, *ids)
    return await _session(entry, memory), checkpoints


async def _session(entry: Entry, memory: AsyncMemory) -> Session:
    ids: Ids = {"user_id": entry.user_id, "agent_id": entry.agent_id, "session_id": entry.id}
    items = await memory.get_all(**ids, kinds=MESSAGES, limit=1)
    newest = items[0].message if items else None
    query = urlencode({name: value for name, value in ids.items() if value})
    count = newest.sequence_no if newest else 0  # the place of the newest
    return {"entry": entry, "newest": newest, "count": count, "ids": ids, "query": query}


async def notes_of(messages: Sequence[Message], memory: AsyncMemory) -> Mapping[str, list[Note]]:
    """Notes by the messages that they were drawn from; all messages are of one user."""
    by_message: defaultdict[str, list[Note]] = defaultdict(list)
    if messages:
        ids, user_id = {message.id for message in messages}, messages[0].user_id
        notes = await memory.notes(user_id or None, messages[0].agent_id, sources=ids)
        for note in notes:
            for message_id in ids.intersection(note.sources if note.user_id == user_id else ()):
                by_message[message_id].append(note)
    return by_message


def _by_day(messages: Iterable[Message]) -> list[tuple[date, list[Message]]]:
    """Messages by their day in the time zone of the server."""

    def day(message: Message) -> date:
        return datetime.fromtimestamp(message.ts / 1e6, UTC).astimezone().date()

    return [(at, list(of_day)) for at, of_day in groupby(messages, key=day)]
