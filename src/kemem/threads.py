"""Code of others that may block, kept away from the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from inspect import isawaitable, iscoroutine
from threading import Thread
from typing import Any

Outcome = tuple[Any, BaseException | None]  # what was returned, or raised


def start(
    function: Callable[..., Any], *arguments: Any, name: str = "kemem-call", **options: Any
) -> tuple[Thread, Future[Outcome]]:
    """Run a function in a daemon thread of its own.

    A call that never returns holds up no other call, and not the end of the program.
    """
    context = copy_context()
    outcome: Future[Outcome] = Future()
    outcome.set_running_or_notify_cancel()  # whoever waits may give up; the thread goes on

    def run() -> None:
        try:
            outcome.set_result((context.run(function, *arguments, **options), None))
        except BaseException as error:  # not set_exception: a future cannot hold StopIteration
            outcome.set_result((None, error))

    thread = Thread(target=run, daemon=True, name=name)
    thread.start()
    return thread, outcome


async def call(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What a function returns, be it sync or async; a sync one runs in a thread of its own."""
    _, outcome = start(function, *arguments, **options)
    try:
        result, error = await asyncio.wrap_future(outcome)
    except asyncio.CancelledError:
        outcome.add_done_callback(_discard)
        raise
    if error is not None:
        raise error
    return await result if isawaitable(result) else result


def _discard(outcome: Future[Outcome]) -> None:
    """Close a coroutine that nobody will await, since its caller has been cancelled."""
    result, _ = outcome.result()
    if iscoroutine(result):
        result.close()
