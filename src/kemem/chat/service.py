"""ChatService: one user and one model, which recalls before it replies."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from kemem.chat.events import Event
from kemem.chat.prompts import system
from kemem.chat.recalls import Recalls
from kemem.chat.replies import Reply, finish, gather
from kemem.chat.room import Room, as_items, before, check_message, history_of, shown_ids
from kemem.chat.tools import recalling
from kemem.chat.turn import recalled, speak
from kemem.errors import Unavailable
from kemem.text.ids import check_id


class ChatService(Room):
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
        """What happens: a recall, pieces of text, tool calls and results, then `done` or `error`.

        The user's message is stored before the model is asked, the reply when it has come; a
        reply that breaks off is stored as far as it came. Facts are drawn from both afterwards.
        """
        check_message(message, self.memory.settings.max_content_bytes)
        if message_id is not None:
            check_id(message_id, "message_id")
        speaker = self.speaker()
        known = self.memory.for_user(user_id, agent_id=agent_id, sensitive=sensitive)
        memory = known.for_user(user_id, agent_id=agent_id or "default", sensitive=sensitive)
        limit, language = memory.settings.chat_recall_limit, self.language(message)
        history = await history_of(memory, session_id)
        recalls = Recalls(known, session_id=session_id, limit=limit, shown=shown_ids(history))
        remembered = await recalls.forced(message)
        said = {"role": "user", "content": message}
        if message_id is not None:
            said["message_id"] = message_id
        added = await memory.add([said], session_id=session_id, wait=False)
        recalls.shown |= {*added.message_ids, *added.ignored}

        async def keep(text: str, partial: bool) -> str:
            reply = {"role": "assistant", "content": text}
            marked = {"partial": True} if partial else None
            kept = await memory.add([reply], session_id=session_id, metadata=marked, wait=False)
            return next(iter(kept.message_ids), "")  # a hook may keep it from being stored

        earlier = as_items(before(message_id, history).messages)
        happening = speak(
            speaker,
            system(instructions, limit, language, history.summaries),
            [*earlier, {"role": "user", "content": message}, *recalled(remembered)],
            [recalling(recalls, language)],
        )
        try:
            yield remembered
            async with aclosing(finish(happening, keep, speaker.counts)) as events:
                async for event in events:
                    yield event
        finally:
            self.remember()

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
        """The whole reply of a turn; a model that fails is Unavailable, the messages are kept."""
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
