"""Functions of the user's own: they may change what is stored, and can harm nothing."""

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from kemem.errors import InvalidArgument, NotFound
from kemem.hooks import Hooks
from kemem.results import Added
from tests.cases import each

Told = list[dict[str, Any]]
SAID: Told = [
    {"role": "user", "content": "我的密码是 1234", "metadata": {"tags": ["a"]}},
    {"role": "user", "content": "I love hotpot"},
]


@pytest.fixture
def hooks() -> Hooks:
    return Hooks()


async def shouted(messages: Told) -> Told:
    await asyncio.sleep(0)
    return [{**one, "content": one["content"].upper()} for one in messages]


def without_passwords(messages: Told) -> Told:
    return [one for one in messages if "密码" not in one["content"]]


async def test_hooks_change_what_is_stored_one_after_the_other(hooks: Hooks) -> None:
    """Plain and async ones, in the order in which they were added."""
    hooks.add(without_passwords)
    hooks.add(shouted)
    assert await hooks.before(SAID) == ([{"role": "user", "content": "I LOVE HOTPOT"}], [])


async def test_a_hook_works_on_a_copy(hooks: Hooks) -> None:
    """What it changes in place and does not return is as it was, to the bottom."""

    def spoil(messages: Told) -> None:
        messages[0]["metadata"]["tags"].append("spoilt")
        messages.clear()

    hooks.add(spoil)
    assert await hooks.before(SAID) == (SAID, [])
    assert SAID[0]["metadata"] == {"tags": ["a"]}


async def test_what_a_hook_returned_is_no_longer_its_own(hooks: Hooks) -> None:
    """It may keep the list and change it later."""
    kept: list[Told] = []

    def keeping(messages: Told) -> Told:
        kept.append(messages)
        return messages

    hooks.add(keeping)
    messages, _ = await hooks.before(SAID)
    kept[0].clear()
    assert messages == SAID


def raising(error: BaseException) -> Callable[[Any], Any]:
    def function(_: Any) -> Any:
        raise error

    return function


def raising_async(error: BaseException) -> Callable[[Any], Any]:
    async def function(_: Any) -> Any:
        raise error

    return function


ERRORS = [ValueError("SECRET"), SystemExit("SECRET"), KeyboardInterrupt(), StopIteration("SECRET")]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("make", [raising, raising_async])
async def test_a_hook_that_raises_is_named_and_ignored(
    hooks: Hooks, make: Callable[[BaseException], Callable[[Any], Any]], error: BaseException
) -> None:
    """Without its text, which may quote a message; the other hooks go on."""
    hooks.add(make(error), name="x")
    hooks.add(without_passwords)
    messages, (problem,) = await hooks.before(SAID)
    assert messages == SAID[1:]
    assert problem.startswith("hook 'x' failed: ") and "SECRET" not in problem


@each("rubbish", ["text", 3, {"role": "user"}, [1], [{"a": 1}, None], (SAID,)])
async def test_rubbish_is_refused(hooks: Hooks, rubbish: Any) -> None:
    """A hook returns a list of messages, or None for no change."""
    hooks.add(lambda _: rubbish, name="x")
    problem = "hook 'x' failed: it did not return a list of messages"
    assert await hooks.before(SAID) == (SAID, [problem])


async def test_a_hook_that_hangs_is_given_up_and_not_started_again(hooks: Hooks) -> None:
    """Its thread cannot delay the end of the process; once it is free, it is called again."""
    free = threading.Event()
    hooks.add(lambda _: free.wait(20) and None, name="plain", timeout=0.05)
    began = time.monotonic()
    assert await hooks.before(SAID) == (SAID, ["hook 'plain' failed: it took longer than 0.05 s"])
    problem = "hook 'plain' failed: it still runs from an earlier call"
    assert await hooks.before(SAID) == (SAID, [problem])
    assert time.monotonic() - began < 5
    (stuck,) = (one for one in threading.enumerate() if one.name == "kemem hook plain")
    assert stuck.daemon
    free.set()
    stuck.join(5)
    assert await hooks.before(SAID) == (SAID, [])


async def test_an_async_hook_that_hangs_is_cancelled(hooks: Hooks) -> None:
    """Even if it does not want to be."""
    woken = asyncio.Event()

    async def stubborn(_: Told) -> None:
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            woken.set()

    hooks.add(stubborn, timeout=0.05)
    _, (problem,) = await hooks.before(SAID)
    assert problem == "hook 'stubborn' failed: it took longer than 0.05 s"
    await asyncio.wait_for(woken.wait(), 5)


async def test_who_gives_up_waiting_is_not_held_by_a_hook(hooks: Hooks) -> None:
    """Cancelling the caller is not taken for a fault of the hook."""
    hooks.add(lambda _: time.sleep(0.3), name="slow")
    waiting = asyncio.ensure_future(hooks.before(SAID))
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_what_cannot_be_copied_is_a_problem_of_the_hook(hooks: Hooks) -> None:
    """The messages go on as they came."""
    messages: Told = [{"content": threading.Lock()}]
    hooks.add(without_passwords)
    assert await hooks.before(messages) == (
        messages,
        ["hook 'without_passwords' failed: TypeError"],
    )


async def test_hooks_after_storing_are_told_what_became_of_it(hooks: Hooks) -> None:
    """What they return counts for nothing, what they raise is reported."""
    told: list[Added] = []
    added = Added(message_ids=("m1",))
    hooks.add(told.append, name="tell", stage="after")
    hooks.add(raising(OSError("SECRET")), name="x", stage="after")
    hooks.add(raising(OSError()), name="not asked", stage="before")
    assert await hooks.after(added) == ["hook 'x' failed: OSError"]
    assert told == [added]


async def test_a_callable_object_with_an_async_call_is_awaited(hooks: Hooks) -> None:
    """Whatever its form, an async function is one."""

    class Shouting:
        async def __call__(self, messages: Told) -> Told:
            return await shouted(messages)

    hooks.add(Shouting(), name="x")
    (_, message), problems = await hooks.before(SAID)
    assert (message["content"], problems) == ("I LOVE HOTPOT", [])


async def test_a_name_is_given_once(hooks: Hooks) -> None:
    """The same name replaces, and can be removed; another one is not there."""
    hooks.add(raising(ValueError()), name="x")
    hooks.add(without_passwords, name="x")
    assert await hooks.before(SAID) == (SAID[1:], [])
    hooks.remove("x")
    assert await hooks.before(SAID) == (SAID, [])
    with pytest.raises(NotFound, match="'x'"):
        hooks.remove("x")


@each(
    ("field", "wrong"),
    [
        *(("function", "no function"), ("name", ""), ("name", "x" * 65), ("name", 3)),
        *(("stage", "during"), ("timeout", 0), ("timeout", -1), ("timeout", True)),
        *(("timeout", "5"), ("timeout", float("nan")), ("timeout", float("inf"))),
    ],
)
def test_wrong_values_are_refused(hooks: Hooks, field: str, wrong: Any) -> None:
    """By name, when the hook is added, not when it is first called."""
    given = {"function": without_passwords, field: wrong}
    with pytest.raises(InvalidArgument) as caught:
        hooks.add(given.pop("function"), **given)
    assert caught.value.details["field"] == field


def test_a_lambda_needs_a_name(hooks: Hooks) -> None:
    """Two of them would replace each other unseen."""
    with pytest.raises(InvalidArgument, match="lambda"):
        hooks.add(lambda messages: messages)


HANGING = """
import asyncio, time
from kemem.hooks import Hooks
hooks = Hooks()
hooks.add(lambda _: time.sleep(60), name="x", timeout=0.05)
print(asyncio.run(hooks.before([]))[1])
"""


async def test_a_hanging_hook_does_not_keep_a_process_alive() -> None:
    """The process ends long before the hook would."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", HANGING), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0 and b"took longer" in output
