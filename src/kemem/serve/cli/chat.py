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
from typer import Option

from kemem.chat import ChatService, events
from kemem.chat.base import NO_MODEL
from kemem.errors import Conflict, KeMemError
from kemem.memory import AsyncMemory
from kemem.serve.cli.console import errors, output, plain
from kemem.serve.cli.language import t
from kemem.serve.cli.terminal import Common
from kemem.serve.http.process import configure_logs
from kemem.settings import Settings
from kemem.sync import Portal

with suppress(ImportError):  # some Pythons are built without it
    import readline  # noqa: F401  # input() edits lines with it, wide characters too

HELP = "Say something; an empty line says nothing. /quit or Ctrl-D ends the chat."
_FEW = 3  # memories to show of one recall


def chat(
    common: Common,
    user: Annotated[str, Option(metavar="ID", help="Who talks.")],
    session: Annotated[
        str | None,
        Option(metavar="ID", help="The conversation to go on with, if not a new one."),
    ] = None,
    agent: Annotated[str | None, Option(metavar="ID", help="Who is talked to.")] = None,
    sensitive: Annotated[
        bool, Option("--sensitive", help="Recall what is sensitive, too.")
    ] = False,
) -> None:
    """Talk with a model that remembers.

    It needs a model: KEMEM_LLM_BASE_URL, or OPENAI_API_KEY.

    $ kemem chat --user mia
    """
    settings = common.settings
    if not settings.has_llm:
        raise Conflict(NO_MODEL)
    # The screen belongs to the chat, which shows what goes wrong itself.
    configure_logs("debug" if settings.log_level == "debug" else "critical")
    session = session or f"cli-{datetime.now():%Y%m%d-%H%M%S}"
    going_on = t("session {id} (go on later with --session)", id=plain(session))
    errors.print(Text(going_on, style="dim"))
    ids = {"user_id": user, "session_id": session, "agent_id": agent}
    conversation = Conversation(settings, **ids, sensitive=sensitive)
    try:
        for message in _messages():
            conversation.send(message)
    finally:
        if output.is_terminal:
            output.print()  # Ctrl-C and Ctrl-D leave the line open
        with errors.status(t("Remembering")):
            conversation.close()
    if conversation.failed:
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
                errors.print(Text(t(HELP), style="dim"))
            case _:
                yield line


class Conversation:
    """One conversation: replies on standard output, what happens around them beside it."""

    def __init__(self, settings: Settings, **ids: Any) -> None:
        self.failed = False
        self._memory = AsyncMemory(settings=settings)
        self._chat = ChatService(self._memory)
        self._ids = ids
        self._portal = Portal()  # what was said is remembered while somebody types
        self._turn = asyncio.Lock()
        self._in_line = False  # a line of the reply has begun and not ended
        self._calls: dict[str, str] = {}  # the arguments of tool calls by their ids

    def send(self, message: str) -> None:
        """Show the reply to a message, or why there is none."""
        try:
            self._portal.call(self._reply(message))
        except KeMemError as error:
            self._fail(error.message)

    def close(self) -> None:
        """Wait until everything is stored and remembered."""
        self._portal.close(self._close)

    async def _reply(self, message: str) -> None:
        async with self._turn, aclosing(self._chat.turn(message, **self._ids)) as turn:
            async for event in turn:
                self._show(event)

    async def _close(self) -> None:
        async with self._turn:  # the part of a reply that was interrupted is still being stored
            await self._chat.close()
        await self._memory.close()

    def _show(self, event: events.Event) -> None:
        match event:
            case events.RecallEvent(events=memories, problem=problem):
                few = [f"{it['time'][:10]} {it['content']}" for it in memories[:_FEW]]
                more = ["…"] if len(memories) > _FEW else []
                if memories:
                    shown = " · ".join([*few, *more])
                    self._aside(t("recalled {count}: {texts}", count=len(memories), texts=shown))
                elif problem:
                    self._aside(t("recalled nothing: {problem}", problem=problem))
            case events.TextEvent(delta=text):
                safe = "\n".join(map(plain, text.split("\n")))
                output.out(safe, end="", highlight=False)
                self._in_line = not safe.endswith("\n")
            case events.ToolCallEvent(call_id=call_id, arguments=arguments):
                self._calls[call_id] = arguments
            case events.ToolResultEvent(name=name, call_id=call_id, result=result):
                arguments = self._calls.pop(call_id, "")
                hits = _object(result).get("events")
                count = t("{count} found", count=len(hits)) if isinstance(hits, list) else result
                self._aside(f"{name} {_object(arguments).get('query', arguments)}: {count}")
            case events.ErrorEvent():
                self._fail(event.message)
            case events.DoneEvent(leaks=leaks):
                self._end_line()
                if leaks:
                    self._aside(t("tool calls in the text, caught: {count}", count=leaks))

    def _fail(self, reason: str) -> None:
        self.failed = True
        self._end_line()
        errors.print(Text(t("error: {reason}", reason=plain(reason)), style="red"))

    def _aside(self, line: str) -> None:
        """Something beside the reply: dim, and never longer than a line."""
        self._end_line()
        shown = Text(f"  {plain(line)}", style="dim")
        errors.print(shown, overflow="ellipsis", no_wrap=True, soft_wrap=False)

    def _end_line(self) -> None:
        if self._in_line:
            output.out()
            self._in_line = False


def _object(text: str) -> dict[str, Any]:
    """The JSON object in a text; an empty one where there is none."""
    with suppress(ValueError, RecursionError):
        value = json.loads(text)
        return value if isinstance(value, dict) else {}
    return {}
