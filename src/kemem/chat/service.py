"""Chats of one user with a model, or with members of a group: each recalls before it replies."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b

from kemem.chat.base import ChatBase, Said, check_message, history_of, to_chat_messages
from kemem.chat.events import DoneEvent, Event, Reply, collected
from kemem.chat.requests import Json, prompt, system_prompt, text
from kemem.chat.tools import MENTIONED, OTHERS, TurnTools
from kemem.chat.turn import ChatModel, stream_reply
from kemem.errors import InvalidArgument, Unavailable
from kemem.memory import AsyncMemory
from kemem.records import Scope
from kemem.results import Added, Context
from kemem.text.fence import neutralise
from kemem.text.ids import check_id

SILENCE = "[silent]"  # the reply of a member of a group who has nothing to say
MAX_MEMBERS = 20


def _only_reply(replies: list[Reply]) -> Reply:
    """The whole reply, with an error where it broke off; Unavailable where nothing was said."""
    (reply,) = replies
    if reply.error and not reply.text.strip():
        raise Unavailable(reply.error.message)
    return reply


class ChatService(ChatBase):
    """Chats with a model that remembers: each turn recalls first, and no tool call leaks.

    The model is that of the settings, or of any client that speaks OpenAI's API.

        chat = ChatService(memory)
        async for event in chat.turn("我下周去成都", user_id="u_1", session_id="s_1"):
            print(event)
    """

    async def turn(
        self,
        message: str,
        *,
        user_id: str,
        session_id: str,
        agent_id: str | None = None,
        instructions: str | None = None,
        message_id: str | None = None,
        sensitive: bool = False,
    ) -> AsyncGenerator[Event, None]:
        """Events: a recall, pieces of text, tool calls and results, then `done` or `error`.

        Turns of one session follow each other as they came. The user's message is stored before
        the model is asked, the reply when it has come; a reply that breaks off is stored as far as
        it came. Facts are drawn from both afterwards.
        """
        check_message(message, self.memory.settings.content_policy)
        if message_id is not None:
            check_id(message_id, "message_id")
        model = self._chat_model()
        readable = self.memory.for_user(user_id, agent_id=agent_id, sensitive=sensitive)
        memory = readable.for_user(user_id, agent_id=agent_id or "default", sensitive=sensitive)
        own = {"role": "user", "content": message}
        own |= {"message_id": message_id} if message_id is not None else {}
        said = Said(partial(memory.add, [own], session_id=session_id, wait=False))
        session = Scope(memory.scope.agent_id, user_id, session_id)
        events = self._reply_to(own, session_id, instructions, model, (readable, memory), said)
        async with aclosing(self._in_order(session, model, said, events)) as ordered:
            async for event in ordered:
                yield event

    reply = collected(turn, _only_reply)

    async def _reply_to(
        self,
        own: Json,
        session_id: str,
        instructions: str | None,
        model: ChatModel,
        memories: tuple[AsyncMemory, AsyncMemory],  # to read from, to write to
        said: Said[Added],
    ) -> AsyncGenerator[Event, None]:
        message, (readable, memory) = own["content"], memories
        language, history = self._language(message), await history_of(memory, session_id)
        context_ids = {it.message_id for it in history.messages}
        limit = await self._recall_limit(model)
        tools = TurnTools(readable, session_id, context_ids, language, limit=limit)
        recalled = await tools.forced(message)
        added = await said.store()
        tools.context_ids |= {*added.message_ids, *added.ignored}

        async def store(text: str, is_partial: bool) -> str:
            reply = {"role": "assistant", "content": text}
            metadata = {"partial": True} if is_partial else None
            added = await memory.add([reply], session_id=session_id, metadata=metadata, wait=False)
            return next(iter(added.message_ids), "")  # a hook may keep it from being stored

        system = system_prompt(instructions, limit, language, history.summaries)
        messages = [
            {"role": "system", "content": system},
            *to_chat_messages(history, own.get("message_id")),
            {"role": "user", "content": message},
            *tools.synthetic_calls(recalled),
        ]
        yield recalled
        async with aclosing(stream_reply(model, messages, tools, store)) as events:
            async for event in events:
                yield event


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
class _Turn:
    """One message of the user, to which the members reply one after the other."""

    message: str
    message_id: str | None  # as the application calls it, to send it again
    user_id: str
    group_id: str
    members: tuple[Member, ...]
    mentions: tuple[str, ...]
    sensitive: bool
    language: str
    histories: dict[str, Context] = field(default_factory=dict)  # by member
    stored: set[str] = field(default_factory=set)  # ids of messages since then, in any log
    lines: list[tuple[str, str]] = field(default_factory=list)  # who has said what

    def called(self, member: Member) -> str:
        """The name that others see; two of the same name are told apart by their ids."""
        alike = [it for it in self.members if it.called == member.called]
        return member.called if len(alike) == 1 else f"{member.called} ({member.id})"

    def instructions(self, member: Member, *, has_tools: bool) -> str:
        """What a member is told of itself and of the others."""
        others = [self.called(it) for it in self.members if it != member]
        name = "group" if has_tools else "group_note"
        group = prompt(f"{name}_{self.language}.md").format(
            name=self.called(member),
            member_id=member.id,
            others=text("comma", self.language).join(others) or "—",
            silence=SILENCE,
        )
        if not has_tools and member.id not in self.mentions:
            group += "- " + text("may_be_silent", self.language).format(silence=SILENCE)
        return f"{member.instructions}\n\n{group}" if member.instructions else group

    def copy_id(self, member: Member) -> str | None:
        """The message's id in a member's log, where it has one: a retry has the same."""
        if self.message_id is None:
            return None
        name = repr((check_id(self.message_id, "message_id"), self.group_id, member.id))
        return f"m_{blake2b(name.encode(), digest_size=15).hexdigest()}"

    def other_replies(self) -> str:
        """What members said in this round, a line each:  "林：吃火锅" """
        if not self.lines:
            return text("nobody_spoke", self.language)
        colon = text("colon", self.language)
        # One line each, so that a text cannot pose as another member's.
        return "\n".join(
            f"{name}{colon}{' '.join(neutralise(it).split())}" for name, it in self.lines
        )


def _every_reply(replies: list[Reply]) -> tuple[Reply, ...]:
    """The reply of each member; a part that failed has an error."""
    return tuple(replies)


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
        check_message(message, self.memory.settings.content_policy)
        _check_group(members, mentions)
        model = self._chat_model()  # where there is no model, nothing is stored
        members, mentions, language = tuple(members), tuple(mentions), self._language(message)
        turn = _Turn(message, message_id, user_id, group_id, members, mentions, sensitive, language)
        copy = {"role": "user", "content": message}
        ids = [{"agent_id": it.id, "message_id": turn.copy_id(it)} for it in turn.members]
        said = Said(partial(self._store, [{**copy, **own} for own in ids], turn))
        events = self._parts(turn, said)
        session = Scope(None, user_id, group_id)
        async with aclosing(self._in_order(session, model, said, events)) as ordered:
            async for event in ordered:
                yield event

    replies = collected(turn, _every_reply)

    async def _parts(self, turn: _Turn, said: Said[tuple[str, ...]]) -> AsyncGenerator[Event, None]:
        """What all members say to a message, which is stored first."""
        for member in turn.members:
            memory = self._memory_of(member, turn)
            turn.histories[member.id] = await history_of(memory, turn.group_id)
        await said.store()
        for member in turn.members:
            async with aclosing(self._part(member, turn)) as events:
                async for event in events:
                    yield replace(event, member_id=member.id)
        yield DoneEvent("")

    async def _part(self, member: Member, turn: _Turn) -> AsyncGenerator[Event, None]:
        """One member's part of a round."""
        model, memory = self._chat_model(), self._memory_of(member, turn)
        history, language = turn.histories[member.id], turn.language
        context_ids = {it.message_id for it in history.messages} | turn.stored
        mentioned = "mentioned" if member.id in turn.mentions else "not_mentioned"
        answers = {OTHERS: turn.other_replies(), MENTIONED: text(mentioned, language)}
        limit = await self._recall_limit(model)
        tools = TurnTools(
            memory, turn.group_id, context_ids, language, limit=limit, answers=answers
        )
        recalled = await tools.forced(turn.message)
        yield recalled
        instructions = turn.instructions(member, has_tools=limit > 0)
        system = system_prompt(instructions, limit, language, history.summaries)
        messages = [
            {"role": "system", "content": system},
            *to_chat_messages(history, turn.copy_id(member), member.id),
            {"role": "user", "content": turn.message},
            *tools.synthetic_calls(recalled),
        ]
        store = partial(self._store_reply, turn, member)
        async with aclosing(stream_reply(model, messages, tools, store, SILENCE)) as events:
            async for event in events:
                yield event

    async def _store_reply(self, turn: _Turn, member: Member, reply: str, is_partial: bool) -> str:
        """Store a reply where the others read it, under the member's name; returns its own id."""
        turn.lines.append((turn.called(member), reply))
        own = {"partial": True} if is_partial else {}
        named = {"speaker": turn.called(member), "member_id": member.id, **own}
        copy = {"role": "assistant", "content": reply}
        metadata = {it.id: own if it == member else named for it in turn.members}
        copies = [{**copy, "agent_id": it, "metadata": metadata[it]} for it in metadata]
        ids = await self._store(copies, turn)
        return ids[turn.members.index(member)] if len(ids) == len(turn.members) else ""

    async def _store(self, copies: list[Json], turn: _Turn) -> tuple[str, ...]:
        """Store copies in the logs of all members; returns ids, fewer where a hook drops one."""
        added = await self.memory.add(
            copies, user_id=turn.user_id, session_id=turn.group_id, wait=False
        )
        ids = (*added.message_ids, *added.ignored)
        turn.stored.update(ids)
        return ids

    def _memory_of(self, member: Member, turn: _Turn) -> AsyncMemory:
        """What a member can see: its own memories of this user, nobody else's."""
        return self.memory.for_user(turn.user_id, agent_id=member.id, sensitive=turn.sensitive)


def _check_group(members: Sequence[Member], mentions: Sequence[str]) -> None:
    if not 1 <= len(members) <= MAX_MEMBERS:
        reason = f"members must be 1-{MAX_MEMBERS}, not {len(members)}"
        raise InvalidArgument(reason, field="members")
    ids = [check_id(it.id, "members.id") for it in members]
    for member in members:
        check_id(member.called, "members.name")  # lines begin with it
        if ids.count(member.id) > 1:
            raise InvalidArgument(f"the member {member.id!r} is there twice", field="members")
    if isinstance(mentions, str):
        reason = f"mentions must be ids, not the text {mentions!r:.80}"
        raise InvalidArgument(reason, field="mentions")
    for mention in mentions:
        check_id(mention, "mentions")
