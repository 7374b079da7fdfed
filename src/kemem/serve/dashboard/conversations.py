"""Conversations in the dashboard: who talked, what was said, and what a session keeps of it."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import groupby
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response

from kemem.errors import InvalidArgument, NotFound
from kemem.memory import AsyncMemory
from kemem.records import (
    CHECKPOINTS_KEPT,
    MESSAGES,
    NOTES,
    Checkpoint,
    Entry,
    Layer,
    Message,
    Note,
    Scope,
    Where,
)
from kemem.results import Context, Item
from kemem.serve.dashboard.fields import Fields
from kemem.serve.dashboard.guard import DashboardRoute
from kemem.serve.dashboard.memories import link_to
from kemem.serve.dashboard.page import page
from kemem.serve.http.routing import Memory
from kemem.text.language import count_tokens

HOME = "/dashboard/conversations"
PAGE = 50
SESSIONS = 25  # of a page: each is asked for its newest message
NOTES_READ = 1_000
BESIDE, MOST_BESIDE = 10, 100  # messages before and after the one that is looked at
TOKENS, MOST_TOKENS = 2_000, 1_000_000
LONG = 20_000  # messages of a session whose context takes more than a moment to work out

router = APIRouter(route_class=DashboardRoute)


@dataclass(frozen=True, slots=True)
class Talk:
    """A session and the newest message of it."""

    entry: Entry
    newest: Message | None

    @property
    def count(self) -> int:
        """How many messages it has had: the place of the newest one."""
        return self.newest.sequence_no if self.newest else 0

    @property
    def query(self) -> str:
        """What names it in an address."""
        ids = {
            "user_id": self.entry.user_id,
            "agent_id": self.entry.agent_id,
            "session_id": self.entry.id,
        }
        return urlencode({name: value for name, value in ids.items() if value})


@dataclass(frozen=True, slots=True)
class Said:
    """A message and the notes that were drawn from it, each with where it is shown."""

    message: Message
    notes: tuple[tuple[Note, str], ...] = ()

    @property
    def speaker(self) -> str | None:
        """Who said it, where it was told."""
        speaker = self.message.metadata.get("speaker")
        return speaker if isinstance(speaker, str) else None

    @property
    def day(self) -> date:
        """The day on which it was said, in the time zone of the server."""
        return datetime.fromtimestamp(self.message.ts / 1e6, UTC).astimezone().date()


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a whole that is measured in tokens."""

    name: str
    tokens: int
    whole: int
    layer: Layer | None = None

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return min(1.0, self.tokens / self.whole) if self.whole else 0.0


@router.get(HOME)
async def list_conversations(request: Request, memory: Memory) -> Response:
    """The sessions of a user or agent; as long as nobody is chosen, the users to choose from."""
    fields = Fields(request.query_params)
    user_id, agent_id = fields.text("user_id"), fields.text("agent_id")
    cursor = fields.text("cursor")
    if user_id is None and agent_id is None:
        people = await memory.users(limit=PAGE, cursor=cursor)
        return page(
            request,
            "conversations.html",
            people=people.items,
            next_cursor=people.next_cursor,
        )
    found = await memory.sessions(user_id, agent_id, limit=SESSIONS, cursor=cursor)
    talks = await asyncio.gather(*(_talk(entry, memory) for entry in found.items))
    return page(
        request,
        "conversations_sessions.html",
        user_id=user_id,
        agent_id=agent_id,
        talks=talks,
        next_cursor=found.next_cursor,
    )


@router.get(HOME + "/session")
async def show_session(request: Request, memory: Memory) -> Response:
    """What was said in a session, a page of it in the order of time, the newest page first."""
    fields = Fields(request.query_params)
    talk = await _named(fields, memory)
    cursor = fields.text("cursor")
    found = await memory.get_all(**_ids(talk), kinds=MESSAGES, limit=PAGE, cursor=cursor)
    messages = [item.message for item in reversed(found)]
    notes = await notes_of(messages, _scope(talk.entry), memory)
    return page(
        request,
        "conversations_session.html",
        talk=talk,
        days=_days(messages, notes),
        is_newest=cursor is None,
        next_cursor=found.next_cursor,
    )


@router.get(HOME + "/message")
async def show_message(request: Request, memory: Memory) -> Response:
    """One message among those said before and after it, in whatever session."""
    fields = Fields(request.query_params)
    user_id, message_id = fields.text("user_id"), fields.text("message_id")
    beside = fields.whole("beside", MOST_BESIDE, BESIDE)
    around = await memory.neighbors(message_id or "", user_id, beside, beside)
    chosen = next(message for message in around if message.id == message_id)
    notes = await notes_of([chosen], Scope(chosen.agent_id, chosen.user_id), memory)
    return page(
        request,
        "conversations_message.html",
        chosen=chosen,
        days=_days(around, notes),
        beside=beside,
        most=MOST_BESIDE,
        talk=Talk(await _entry(_scope(chosen), memory), chosen),
    )


@router.get(HOME + "/memory")
async def show_short_term(request: Request, memory: Memory) -> Response:
    """The State of a session in layers, and what a prompt of some size would be given of it."""
    fields = Fields(request.query_params)
    talk = await _named(fields, memory)
    max_tokens = fields.whole("max_tokens", MOST_TOKENS, TOKENS)
    parts = await memory.runtime.deps()
    kept = await parts.store.checkpoints(_scope(talk.entry), limit=CHECKPOINTS_KEPT)
    waits = talk.count > LONG and fields.text("max_tokens") is None
    context = None if waits else await memory.context(**_ids(talk), max_tokens=max_tokens)
    return page(
        request,
        "conversations_memory.html",
        talk=talk,
        layers=_layers(kept[0]) if kept else [],
        checkpoints=kept,
        state_tokens=memory.settings.state_tokens,
        max_tokens=max_tokens,
        most=MOST_TOKENS,
        context=context,
        prompt=_prompt(context) if context else [],
    )


async def _talk(entry: Entry, memory: AsyncMemory) -> Talk:
    talk = Talk(entry, None)
    found = await memory.get_all(**_ids(talk), kinds=MESSAGES, limit=1)
    return Talk(entry, found[0].message if found else None)


async def _named(fields: Fields, memory: AsyncMemory) -> Talk:
    """The one session that an address names."""
    session_id = fields.text("session_id")
    if session_id is None:
        raise InvalidArgument("session_id is missing", field="session_id")
    scope = Scope(fields.text("agent_id"), fields.text("user_id"), session_id)
    return await _talk(await _entry(scope, memory), memory)


async def _entry(scope: Scope, memory: AsyncMemory) -> Entry:
    parts = await memory.runtime.deps()
    found = await parts.store.directory("session", scope, limit=2)
    if not found:
        raise NotFound(f"no session {scope.session_id!r:.80}", session_id=scope.session_id)
    if len(found) > 1:
        raise InvalidArgument("several have a session of this id: name user and agent")
    return found[0]


def _scope(found: Entry | Message) -> Scope:
    session_id = found.id if isinstance(found, Entry) else found.session_id
    return Scope(found.agent_id, found.user_id or "", session_id)


def _ids(talk: Talk) -> dict[str, Any]:
    entry = talk.entry
    return {"session_id": entry.id, "user_id": entry.user_id, "agent_id": entry.agent_id}


async def notes_of(
    messages: Sequence[Message], scope: Scope, memory: AsyncMemory
) -> Mapping[str, list[Note]]:
    """Notes by the messages that they were drawn from."""
    drawn: dict[str, list[Note]] = defaultdict(list)
    if not messages:
        return drawn
    store = (await memory.runtime.deps()).store
    sources = frozenset(message.id for message in messages)
    where = Where(scope, kinds=NOTES, sources=sources)
    for note in await store.notes(where, limit=NOTES_READ):
        for message in messages:
            if message.id in note.sources:
                drawn[message.id].append(note)
    return drawn


def _days(
    messages: Sequence[Message], notes: Mapping[str, list[Note]]
) -> list[tuple[date, list[Said]]]:
    """Messages by the day on which they were said."""
    said = [
        Said(message, tuple((note, link_to(Item(note))) for note in notes.get(message.id, ())))
        for message in messages
    ]
    return [(day, list(of_day)) for day, of_day in groupby(said, key=lambda each: each.day)]


def _layers(state: Checkpoint) -> list[Part]:
    """The layers of a State, oldest first, against all of it."""
    sizes = [count_tokens(layer.text) for layer in state.layers]
    pairs = zip(state.layers, sizes, strict=True)
    return [Part("layer", size, sum(sizes), layer) for layer, size in pairs]


def _prompt(context: Context) -> list[Part]:
    """What a context is made of; the rest of it are headings and names."""
    parts = {
        "notes": [note.content for note in context.notes],
        "summaries": context.summaries,
        "messages": [message.content for message in context.messages],
    }
    return [
        Part(name, sum(count_tokens(text) for text in texts), context.tokens)
        for name, texts in parts.items()
    ]
