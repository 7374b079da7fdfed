"""ChatService: one user and one model, which recalls before it replies."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from kemem.chat.base import (
    ChatBase,
    check_message,
    history_of,
    message_ids,
    messages_before,
    to_chat_messages,
)
from kemem.chat.events import Event, Reply, gather
from kemem.chat.prompts import system_prompt
from kemem.chat.recall import TurnRecall, recall_tool
from kemem.chat.turn import finish_turn, stream_reply, synthetic_recall
from kemem.errors import Unavailable
from kemem.text.ids import check_id


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

        The user's message is stored before the model is asked, the reply when it has come; a
        reply that breaks off is stored as far as it came. Facts are drawn from both afterwards.
        """
        check_message(message, self.memory.settings.max_content_bytes)
        if message_id is not None:
            check_id(message_id, "message_id")
        model = self._chat_model()
        readable = self.memory.for_user(user_id, agent_id=agent_id, sensitive=sensitive)
        memory = readable.for_user(user_id, agent_id=agent_id or "default", sensitive=sensitive)
        limit, language = memory.settings.chat_recall_limit, self._language(message)
        history = await history_of(memory, session_id)
        recall = TurnRecall(readable, session_id, message_ids(history))
        recalled = await recall.forced(message)
        user_message = {"role": "user", "content": message}
        with_id = {"message_id": message_id} if message_id is not None else {}
        added = await memory.add([{**user_message, **with_id}], session_id=session_id, wait=False)
        recall.context_ids |= {*added.message_ids, *added.ignored}

        async def store(text: str, is_partial: bool) -> str:
            reply = {"role": "assistant", "content": text}
            metadata = {"partial": True} if is_partial else None
            added = await memory.add([reply], session_id=session_id, metadata=metadata, wait=False)
            return next(iter(added.message_ids), "")  # a hook may keep it from being stored

        earlier = to_chat_messages(messages_before(message_id, history))
        events = stream_reply(
            model,
            system_prompt(instructions, limit, language, history.summaries),
            [*earlier, user_message, *synthetic_recall(recalled)],
            [recall_tool(recall, language)],
        )
        try:
            yield recalled
            async with aclosing(finish_turn(events, store, model.counts)) as finished:
                async for event in finished:
                    yield event
        finally:
            self._start_jobs()

    async def reply(
        self,
        message: str,
        *,
        user_id: str,
        session_id: str,
        agent_id: str | None = None,
        instructions: str | None = None,
        message_id: str | None = None,
        sensitive: bool = False,
    ) -> Reply:
        """The whole reply of a turn; raises Unavailable where the model fails."""
        events = self.turn(
            message,
            user_id=user_id,
            session_id=session_id,
            agent_id=agent_id,
            instructions=instructions,
            message_id=message_id,
            sensitive=sensitive,
        )
        (reply,) = await gather(events)
        if reply.error:
            raise Unavailable(reply.error.message)
        return reply
