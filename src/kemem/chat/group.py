"""GroupChatService: one user and several members, each with its own view and its own memories."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b

from kemem.chat.base import (
    ChatBase,
    check_message,
    history_of,
    message_ids,
    messages_before,
    to_chat_messages,
)
from kemem.chat.completions import Json
from kemem.chat.events import DoneEvent, Event, Reply, TextEvent, gather
from kemem.chat.prompts import SILENCE, member_instructions, system_prompt, text
from kemem.chat.recall import (
    MENTIONED,
    OTHERS,
    TurnRecall,
    fixed_tool,
    others_content,
    recall_tool,
)
from kemem.chat.turn import (
    TurnEvent,
    finish_turn,
    stream_reply,
    synthetic_call,
    synthetic_recall,
)
from kemem.errors import InvalidArgument
from kemem.memory import AsyncMemory
from kemem.results import Context
from kemem.text.ids import check_id

MAX_MEMBERS = 20


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group that a model plays; its id is the agent whose memories it has."""

    id: str
    name: str = ""
    instructions: str | None = None

    @property
    def called(self) -> str:
        """The name that others see."""
        return self.name or self.id


@dataclass(frozen=True, slots=True)
class _GroupTurn:
    """One message of the user, to which the members reply one after the other."""

    message: str
    message_id: str | None  # as the application calls it, to send it again
    user_id: str
    group_id: str
    members: tuple[Member, ...]
    mentions: frozenset[str]
    sensitive: bool
    language: str
    histories: dict[str, Context] = field(default_factory=dict)  # by member
    stored: set[str] = field(default_factory=set)  # ids of messages since then, in any log
    lines: list[tuple[str, str]] = field(default_factory=list)  # who has said what

    def called(self, member: Member) -> str:
        """The name that others see; two of the same name are told apart by their ids."""
        alike = [it for it in self.members if it.called == member.called]
        return member.called if len(alike) == 1 else f"{member.called} ({member.id})"

    def instructions(self, member: Member) -> str:
        """What a member is told of itself and of the others."""
        name, others = self.called(member), [self.called(it) for it in self.members if it != member]
        return member_instructions(member.instructions, name, member.id, others, self.language)

    def copy_id(self, member: Member) -> str | None:
        """The message's id in a member's log, where it has one: a retry has the same."""
        if self.message_id is None:
            return None
        name = repr((check_id(self.message_id, "message_id"), self.group_id, member.id))
        return f"m_{blake2b(name.encode(), digest_size=15).hexdigest()}"

    def message_copies(self) -> list[Json]:
        """The user's message, for the log of each member."""
        copy = {"role": "user", "content": self.message}
        return [{**copy, "agent_id": it.id, "message_id": self.copy_id(it)} for it in self.members]

    def reply_copies(self, speaker: Member, reply: str, is_partial: bool) -> list[Json]:
        """A member's reply, for the log of each; in those of others under its name."""
        own = {"partial": True} if is_partial else {}
        named = {"speaker": self.called(speaker), "member_id": speaker.id, **own}
        copy = {"role": "assistant", "content": reply}
        return [
            {**copy, "agent_id": it.id, "metadata": own if it == speaker else named}
            for it in self.members
        ]


class GroupChatService(ChatBase):
    """Group chats: each member hears everything that is said, and recalls only what is its own.

    members = [Member("lin", name="林"), Member("amy", name="Amy")]
    async for event in group.turn("今晚吃什么？", user_id="u_1", group_id="g_1", members=members):
        print(event.member_id, event)
    """

    async def turn(
        self,
        message: str,
        *,
        user_id: str,
        group_id: str,
        members: Sequence[Member],
        mentions: Sequence[str] = (),
        message_id: str | None = None,
        sensitive: bool = False,
    ) -> AsyncGenerator[Event, None]:
        """Events of each member in their order, each ending in `done` or `error`; then a `done`.

        A message is stored in the log of every member before the first is asked; a reply when it
        has come. A member that has nothing to say ends with an empty text.
        """
        check_message(message, self.memory.settings.max_content_bytes)
        _check_members(members)
        _check_mentions(mentions)
        self._chat_model()  # where there is no model, nothing is stored
        turn = _GroupTurn(
            message=message,
            message_id=message_id,
            user_id=user_id,
            group_id=group_id,
            members=tuple(members),
            mentions=frozenset(mentions),
            sensitive=sensitive,
            language=self._language(message),
        )
        for member in turn.members:
            turn.histories[member.id] = await history_of(self._memory_of(member, turn), group_id)
        await self._store(turn.message_copies(), turn)
        try:
            for member in turn.members:
                async with aclosing(self._part(member, turn)) as events:
                    async for event in events:
                        yield replace(event, member_id=member.id)
            yield DoneEvent("")
        finally:
            self._start_jobs()

    async def replies(
        self,
        message: str,
        *,
        user_id: str,
        group_id: str,
        members: Sequence[Member],
        mentions: Sequence[str] = (),
        message_id: str | None = None,
        sensitive: bool = False,
    ) -> tuple[Reply, ...]:
        """The reply of each member; a part that failed has an error."""
        events = self.turn(
            message,
            user_id=user_id,
            group_id=group_id,
            members=members,
            mentions=mentions,
            message_id=message_id,
            sensitive=sensitive,
        )
        return tuple(await gather(events))

    async def _part(self, member: Member, turn: _GroupTurn) -> AsyncGenerator[Event, None]:
        """One member's part of a round."""
        model, memory = self._chat_model(), self._memory_of(member, turn)
        limit, language = memory.settings.chat_recall_limit, turn.language
        history = turn.histories[member.id]
        recall = TurnRecall(memory, turn.group_id, message_ids(history) | turn.stored)
        recalled = await recall.forced(turn.message)
        yield recalled
        others = others_content(turn.lines, language)
        is_mentioned = member.id in turn.mentions
        mentioned = text("mentioned" if is_mentioned else "not_mentioned", language)
        messages = [
            *to_chat_messages(messages_before(turn.copy_id(member), history), member.id),
            {"role": "user", "content": turn.message},
            *synthetic_call(OTHERS, {}, others),
            *synthetic_call(MENTIONED, {}, mentioned),
            *synthetic_recall(recalled),
        ]
        tools = [
            recall_tool(recall, language),
            fixed_tool(OTHERS, others, language),
            fixed_tool(MENTIONED, mentioned, language),
        ]
        system = system_prompt(turn.instructions(member), limit, language, history.summaries)
        events = _unless_silent(stream_reply(model, system, messages, tools))
        store = partial(self._store_reply, turn, member)
        async with aclosing(finish_turn(events, store, model.counts)) as finished:
            async for event in finished:
                yield event

    async def _store_reply(
        self, turn: _GroupTurn, member: Member, reply: str, is_partial: bool
    ) -> str:
        """Store a reply where the others read it; returns its id in the member's own log."""
        turn.lines.append((turn.called(member), reply))
        ids = await self._store(turn.reply_copies(member, reply, is_partial), turn)
        return ids[turn.members.index(member)] if len(ids) == len(turn.members) else ""

    async def _store(self, copies: list[Json], turn: _GroupTurn) -> tuple[str, ...]:
        """Store copies in the logs of all members at once; returns the ids there.

        They are fewer where a hook of the memory has left something out.
        """
        added = await self.memory.add(
            copies, user_id=turn.user_id, session_id=turn.group_id, wait=False
        )
        ids = (*added.message_ids, *added.ignored)
        turn.stored.update(ids)
        return ids

    def _memory_of(self, member: Member, turn: _GroupTurn) -> AsyncMemory:
        """What a member can see: its own memories of this user, nobody else's."""
        return self.memory.for_user(turn.user_id, agent_id=member.id, sensitive=turn.sensitive)


async def _unless_silent(
    events: AsyncGenerator[TurnEvent, None],
) -> AsyncGenerator[TurnEvent, None]:
    """All events, without a text that is nothing but the word for silence."""
    held: str | None = ""  # what may still become that word; None: it cannot any more
    async with aclosing(events):
        async for event in events:
            if not isinstance(event, TextEvent):  # a call ends the text before it
                for rest in _released(held):
                    yield rest
                held = ""
            elif held is not None:
                held += event.delta
                if SILENCE.startswith(held.strip()):
                    continue
                event, held = TextEvent(held), None
            yield event
    for rest in _released(held):
        yield rest


def _released(held: str | None) -> list[TextEvent]:
    """The text that was held back, unless it is silence."""
    return [TextEvent(held)] if held and held.strip() not in ("", SILENCE) else []


def _check_members(members: Sequence[Member]) -> None:
    if not 1 <= len(members) <= MAX_MEMBERS:
        raise InvalidArgument(
            f"members must be 1-{MAX_MEMBERS}, not {len(members)}", field="members"
        )
    ids = [check_id(it.id, "members.id") for it in members]
    for member in members:
        check_id(member.called, "members.name")  # lines begin with it
        if ids.count(member.id) > 1:
            raise InvalidArgument(f"the member {member.id!r} is there twice", field="members")


def _check_mentions(mentions: Sequence[str]) -> None:
    if isinstance(mentions, str):
        raise InvalidArgument(
            f"mentions must be ids, not the text {mentions!r:.80}", field="mentions"
        )
    for mention in mentions:
        check_id(mention, "mentions")
