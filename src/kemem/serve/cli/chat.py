"""The command that chats: a conversation on the terminal with a model that remembers."""

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import aclosing, suppress
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.text import Text

from kemem.chat import (
    ChatService,
    DoneEvent,
    ErrorEvent,
    Event,
    RecallEvent,
    TextEvent,
    ToolCallEvent,
    ToolResultEvent,
)
from kemem.chat.base import NO_MODEL
from kemem.errors import Conflict, KeMemError
from kemem.memory import AsyncMemory
from kemem.serve.cli.terminal import Common, errors, output, plain
from kemem.serve.http.process import configure_logs
from kemem.settings import Settings
from kemem.sync import Portal

with suppress(ImportError):  # some Pythons are built without it
    import readline  # noqa: F401  # input() edits lines with it, wide characters too

HELP = "Say something, and an empty line says nothing. /quit or Ctrl-D ends the chat."
_FEW = 3  # memories to show of one recall


def chat(
    common: Common,
    user: Annotated[str, typer.Option(help="Who talks.")],
    session: Annotated[
        str | None, typer.Option(help="The conversation to go on with; otherwise a new one.")
    ] = None,
    agent: Annotated[str | None, typer.Option(help="Who is talked to.")] = None,
    sensitive: Annotated[
        bool, typer.Option("--sensitive", help="Recall what is sensitive, too.")
    ] = False,
) -> None:
    """Talk with a model that remembers."""
    settings = common.settings
    if not settings.has_llm:
        raise Conflict(NO_MODEL)
    # The screen belongs to the chat, which shows what goes wrong itself.
    configure_logs("debug" if settings.log_level == "debug" else "critical")
    session = session or f"cli-{datetime.now():%Y%m%d-%H%M%S}"
    errors.print(Text(f"session {plain(session)} (go on later with --session)", style="dim"))
    ids = {"user_id": user, "session_id": session, "agent_id": agent}
    conversation = Conversation(settings, **ids, sensitive=sensitive)
    try:
        for message in _messages():
            conversation.send(message)
    finally:
        if output.is_terminal:
            output.print()  # Ctrl-C and Ctrl-D leave the line open
        with errors.status("Remembering"):
            conversation.close()
    if conversation.screen.failed:
        raise typer.Exit(1)


def _messages() -> Iterator[str]:
    """What the user types, line by line, until the end."""
    prompt = "you> " if sys.stdin.isatty() and output.is_terminal else ""
    while True:
        try:
            line = input(prompt)
        except EOFError:
            return
        match line.strip():
            case "":
                continue
            case "/quit":
                return
            case "/help":
                errors.print(Text(HELP, style="dim"))
            case _:
                yield line


class Conversation:
    """One conversation: what is said goes in line by line, what happens shows on the screen."""

    def __init__(self, settings: Settings, **ids: Any) -> None:
        self.screen = Screen()
        self._memory = AsyncMemory(settings=settings)
        self._chat = ChatService(self._memory)
        self._ids = ids
        self._portal = Portal()  # what was said is remembered while somebody types
        self._turn = asyncio.Lock()

    def send(self, message: str) -> None:
        """Show the reply to a message, or why there is none."""
        try:
            self._portal.call(self._reply(message))
        except KeMemError as error:
            self.screen.fail(error.message)

    def close(self) -> None:
        """Wait until everything is stored and remembered."""
        self._portal.close(self._close)

    async def _reply(self, message: str) -> None:
        async with self._turn, aclosing(self._chat.turn(message, **self._ids)) as events:
            async for event in events:
                self.screen.show(event)

    async def _close(self) -> None:
        async with self._turn:  # the part of a reply that was interrupted is still being stored
            await self._chat.close()
        await self._memory.close()


class Screen:
    """Turns as they are seen: replies on standard output, what happens around them beside it."""

    def __init__(self) -> None:
        self.failed = False
        self._in_line = False  # a line of the reply has begun and not ended
        self._calls: dict[str, ToolCallEvent] = {}

    def show(self, event: Event) -> None:
        """Show what happens, as it happens."""
        match event:
            case RecallEvent():
                self._aside(_recall_text(event))
            case TextEvent(delta=text):
                safe = "\n".join(map(plain, text.split("\n")))
                output.out(safe, end="", highlight=False)
                self._in_line = not safe.endswith("\n")
            case ToolCallEvent():
                self._calls[event.call_id] = event
            case ToolResultEvent():
                self._aside(_call_text(self._calls.pop(event.call_id, None), event))
            case ErrorEvent():
                self.fail(event.message)
            case DoneEvent():
                self._end_line()
                if event.leaks:
                    calls = "tool call" if event.leaks == 1 else "tool calls"
                    self._aside(f"{event.leaks} {calls} in the text: caught")

    def fail(self, reason: str) -> None:
        """Say what went wrong, in one line."""
        self.failed = True
        self._end_line()
        errors.print(Text(f"error: {plain(reason)}", style="red"))

    def _aside(self, line: str) -> None:
        """Something beside the reply: dim, and never longer than a line."""
        self._end_line()
        if line:
            shown = Text(f"  {plain(line)}", style="dim")
            errors.print(shown, overflow="ellipsis", no_wrap=True, soft_wrap=False)

    def _end_line(self) -> None:
        if self._in_line:
            output.out()
            self._in_line = False


def _recall_text(event: RecallEvent) -> str:
    """What was recalled: how much, and the first few."""
    if not event.events:
        return f"recalled nothing: {event.problem}" if event.problem else ""
    few = [f"{it['time'][:10]} {it['content']}" for it in event.events[:_FEW]]
    more = [] if len(event.events) <= _FEW else ["…"]
    return f"recalled {len(event.events)}: {' · '.join([*few, *more])}"


def _call_text(call: ToolCallEvent | None, event: ToolResultEvent) -> str:
    """A tool call: its name, its query and its outcome."""
    query = _object(call.arguments).get("query", call.arguments) if call else ""
    events = _object(event.result).get("events")
    outcome = f"{len(events)} found" if isinstance(events, list) else event.result
    return f"{event.name} {query}: {outcome}"


def _object(text: str) -> dict[str, Any]:
    """The JSON object in a text; an empty one where there is none."""
    with suppress(ValueError, RecursionError):
        value = json.loads(text)
        return value if isinstance(value, dict) else {}
    return {}
