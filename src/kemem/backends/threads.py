"""Code of others that may block, kept away from the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from inspect import isawaitable
from threading import Thread
from typing import Any


async def call(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """What a function returns, be it sync or async; a sync one runs in a thread of its own.

    The thread is a daemon and shared with nobody: a call that never returns holds up no other
    call, and not the end of the program.
    """
    context = copy_context()
    outcome: Future[tuple[Any, BaseException | None]] = Future()
    outcome.set_running_or_notify_cancel()  # whoever waits may give up; the thread goes on

    def run() -> None:
        try:
            outcome.set_result((context.run(function, *arguments, **named), None))
        except BaseException as error:  # not set_exception: a future cannot hold StopIteration
            outcome.set_result((None, error))

    Thread(target=run, daemon=True, name="kemem-call").start()
    result, error = await asyncio.wrap_future(outcome)
    if error is not None:
        raise error
    return await result if isawaitable(result) else result
