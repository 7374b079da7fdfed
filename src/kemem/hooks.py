"""Functions of the user's own before and after storing; none of them can harm what is stored."""

import asyncio
import copy
import inspect
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from reprlib import repr as shown
from typing import Any, Literal, TypeVar, get_args

from kemem.errors import InvalidArgument, NotFound
from kemem.results import Added
from kemem.text.attachments import Attachment, one_line
from kemem.threads import Outcome, start

F = TypeVar("F", bound=Callable[..., Any])
Stage = Literal["before", "after", "describe"]
MessageDicts = list[dict[str, Any]]

log = logging.getLogger("kemem")


class Failed(Exception):
    """A hook did not do its work; says why without any text of the messages."""


@dataclass(frozen=True, slots=True)
class Hook:
    """A named function and the time that it may take."""

    name: str
    function: Callable[..., Any]
    stage: Stage
    timeout: float
    stuck: list[threading.Thread] = field(default_factory=list)  # given up, still running


class Hooks:
    """Named functions that see messages before they are stored, and what became of them after.

    Those of the stage "describe" get an attachment of a message and return a text for it, or None.

        hooks.add(lambda sent: [m for m in sent if "password" not in m["content"]], name="secrets")

    A plain function runs in a thread of its own, an `async` one in the event loop, which it must
    not block. One that raises, takes too long or returns rubbish is reported and without effect.
    """

    def __init__(self) -> None:
        self._hooks: dict[str, Hook] = {}

    def add(
        self, function: F, *, name: str | None = None, stage: Stage = "before", timeout: float = 5.0
    ) -> F:
        """Register a function; one of the same name is replaced."""
        chosen: Any = getattr(function, "__name__", None) if name is None else name
        is_name = isinstance(chosen, str) and chosen.strip() and len(chosen) <= 64
        is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
        _check(callable(function), "function", "a hook must be a function", function)
        is_stage = stage in get_args(Stage)
        _check(is_stage, "stage", f"stage must be one of {', '.join(get_args(Stage))}", stage)
        is_allowed = is_number and 0 < timeout <= 600
        _check(is_allowed, "timeout", "timeout must be seconds, at most 600", timeout)
        is_named = name is not None or chosen != "<lambda>"
        _check(is_named, "name", "a lambda needs name=, a text of 1-64 characters", name)
        _check(is_name, "name", "name must be a text of 1-64 characters", chosen)
        self._hooks[chosen] = Hook(chosen, function, stage, float(timeout))
        return function

    def remove(self, name: str) -> None:
        """Take a function out again."""
        if name not in self._hooks:
            raise NotFound(f"there is no hook {shown(name)}")
        del self._hooks[name]

    async def before(self, messages: MessageDicts) -> tuple[MessageDicts, list[str]]:
        """The messages as the hooks want them stored ([]: not at all), and what went wrong."""
        problems: list[str] = []
        for hook in self._of("before"):
            try:
                returned = await _call(hook, copy.deepcopy(messages))
                if returned is None:
                    continue
                if not isinstance(returned, list) or not all(
                    isinstance(it, dict) for it in returned
                ):
                    raise Failed("it did not return a list of messages")
                messages = copy.deepcopy(returned)  # whatever the hook still does with its own
            except Exception as error:  # the user's code, which may raise anything
                problems.append(_problem(hook, error))
        return messages, problems

    async def describe(
        self, attachments: Iterable[Attachment]
    ) -> tuple[dict[Attachment, str], list[str]]:
        """Texts for attachments, each from the first hook that has one, and what went wrong."""
        described: dict[Attachment, str] = {}
        problems: list[str] = []
        hooks = self._of("describe")
        for attachment in dict.fromkeys(attachments) if hooks else ():
            for hook in hooks:
                try:
                    text = await _call(hook, attachment)
                    if text is not None and not isinstance(text, str):
                        raise Failed("it did not return a text")
                    if text and text.strip():
                        described[attachment] = one_line(text)
                        break
                except Exception as error:  # the user's code, which may raise anything
                    problems.append(_problem(hook, error))
        return described, list(dict.fromkeys(problems))

    async def after(self, added: Added) -> list[str]:
        """Tell the hooks what became of the messages; what went wrong."""
        problems: list[str] = []
        for hook in self._of("after"):
            try:
                await _call(hook, added)
            except Exception as error:  # the user's code, which may raise anything
                problems.append(_problem(hook, error))
        return problems

    def _of(self, stage: Stage) -> list[Hook]:
        return [hook for hook in self._hooks.values() if hook.stage == stage]


def _check(is_valid: object, argument: str, rule: str, value: object) -> None:
    if not is_valid:
        raise InvalidArgument(f"{rule}, not {shown(value)}", field=argument)


def _problem(hook: Hook, error: Exception) -> str:
    why = str(error) if isinstance(error, Failed) else type(error).__name__
    log.warning("hook %r failed: %s", hook.name, why)
    return f"hook {hook.name!r} failed: {why}"


async def _call(hook: Hook, argument: object) -> Any:
    """What a hook returns, within its time."""
    task = asyncio.ensure_future(_outcome(hook, argument))
    try:
        done, _ = await asyncio.wait({task}, timeout=hook.timeout)
    finally:
        task.cancel()  # not awaited: a hook may swallow it
    if not done:
        raise Failed(f"it took longer than {hook.timeout:g} s")
    value, error = task.result()
    if error is not None:
        raise error if isinstance(error, Exception) else Failed(type(error).__name__)
    return value


async def _outcome(hook: Hook, argument: object) -> Outcome:
    """What a hook returned or raised; even its SystemExit ends nothing but the hook."""
    try:
        if inspect.iscoroutinefunction(hook.function):
            return await hook.function(argument), None
        hook.stuck[:] = [thread for thread in hook.stuck if thread.is_alive()]
        if hook.stuck:
            raise Failed("it still runs from an earlier call")
        thread, outcome = start(hook.function, argument, name=f"kemem hook {hook.name}")
        try:
            value, error = await asyncio.wrap_future(outcome)
        except asyncio.CancelledError:
            hook.stuck.append(thread)
            raise
        return (await value if inspect.isawaitable(value) else value), error
    except BaseException as error:
        return None, error
