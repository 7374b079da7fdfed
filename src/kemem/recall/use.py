"""The use of a tool: arguments are checked, failures become advice, every use becomes a step."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from kemem.errors import InvalidArgument, NotFound, PermissionDenied, Unauthenticated
from kemem.ports import ToolCall
from kemem.recall.desk import COUNTED, TOOL_SECONDS, Desk, Language
from kemem.recall.models import (
    ExpandContextWindowOutput,
    ExtractKeywordsOutput,
    GetMemoryDetailOutput,
    HandoffOutput,
    Model,
    SearchMemoriesOutput,
)
from kemem.recall.registry import MEMRECALL_TOOLS, ToolEntry
from kemem.recall.result import Step
from kemem.text.loose_json import parse_json

_SHOWN = 300  # characters of an argument in a trace
_LISTED = 20  # values of one that is a list

log = logging.getLogger("kemem")


class Refusal(Model):
    """The answer to a call of a tool that does not exist."""

    success: bool = False
    message: str


@dataclass(frozen=True, slots=True)
class Used:
    """A call, and what the tool answered."""

    call: ToolCall
    output: Model


async def use(call: ToolCall, desk: Desk) -> Used:
    """Do what a call asks for. Whatever is wrong with it is an answer, never an exception."""
    started, begun = desk.deps.clock(), time.monotonic()
    desk.calls += 1
    desk.cached = False
    entry = MEMRECALL_TOOLS.get(call.name)
    arguments: dict[str, Any] = {}
    if entry is None:
        output: Model = Refusal(message=_unknown(call.name, desk))
    else:
        try:
            given, arguments = _arguments(call.arguments, entry, desk)
        except InvalidArgument as error:
            output = _failed(entry, desk, error.message)
        else:
            output = await _attempt(entry, given, desk)
            if entry["name"] == "search_memories":
                desk.in_a_row += 1
            elif succeeded(output):
                desk.in_a_row = 0
    step = Step(
        number=len(desk.trace) + 1,
        iteration=desk.iteration,
        tool=call.name[:64],
        arguments={name: _short(value) for name, value in arguments.items()},
        success=succeeded(output),
        outcome=_outcome(output, desk),
        keys=_keys(output, desk),
        started=started,
        seconds=round(time.monotonic() - begun, 6),
        cached=desk.cached,
    )
    desk.note(step)
    return Used(call, output)


def succeeded(output: Model) -> bool:
    """Whether a tool did what it was asked for."""
    return bool(getattr(output, "success", getattr(output, "approved", False)))


def _arguments(written: str, entry: ToolEntry, desk: Desk) -> tuple[Model, dict[str, Any]]:
    """The input of a tool, from what a model wrote."""
    try:
        found = parse_json(written) if written.strip() else {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InvalidArgument(
            desk.say(
                f"{entry['name']} 的参数必须是 JSON 对象，而不是 {written!r:.80}",
                f"the arguments of {entry['name']} must be a JSON object, not {written!r:.80}",
            )
        )
    return check_arguments(found, entry, desk.language)


def check_arguments(
    found: Mapping[str, Any], entry: ToolEntry, language: Language
) -> tuple[Model, dict[str, Any]]:
    """The input of a tool; arguments that it does not have, such as a user, are ignored."""
    model = entry["input_model"]
    known = {name: value for name, value in found.items() if name in model.model_fields}
    # Half characters are neither stored nor sent anywhere.
    known = json.loads(json.dumps(known, ensure_ascii=False).encode(errors="replace"))
    try:
        return model.model_validate(known), known
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        given = "" if first["type"] == "missing" else f" ({first['input']!r:.80})"
        raise InvalidArgument(
            f"{entry['name']} 的参数 {field} 不对: {first['msg']}{given}"
            if language == "zh"
            else f"{field} of {entry['name']} is not right: {first['msg']}{given}",
            field=field,
        ) from None


async def _attempt(entry: ToolEntry, given: Model, desk: Desk) -> Model:
    """The answer of a tool; a failure of the store is tried once more."""
    work: Callable[..., Awaitable[Model]] = entry["func"]
    for last in (False, True):
        try:
            async with asyncio.timeout(_patience(entry, desk)):
                return await work(desk, given)
        except TimeoutError:
            return _reported(entry, desk, _too_slow(desk))
        except NotFound:
            return _failed(entry, desk, _missing(given, desk))
        except (PermissionDenied, Unauthenticated):
            return _reported(entry, desk, _forbidden(desk))
        except InvalidArgument as error:
            return _failed(entry, desk, error.message)
        except Exception as error:  # the store's code or network, which may raise anything
            log.warning("recall: %s failed: %s", entry["name"], type(error).__name__)
            if last:
                return _reported(entry, desk, _broken(desk))
    raise AssertionError("the last attempt returns")


def _patience(entry: ToolEntry, desk: Desk) -> float:
    """Seconds for a tool; one may ask a model, and the last one must come to an end."""
    if entry.get("is_handoff"):
        return TOOL_SECONDS
    slow = entry["name"] == "extract_search_keywords"
    return desk.seconds_left if slow else min(TOOL_SECONDS, desk.seconds_left)


def _reported(entry: ToolEntry, desk: Desk, message: str) -> Model:
    """A failure that other arguments would not mend: whoever asked for the recall is told too."""
    if message not in desk.problems:
        desk.problems.append(message)
    return _failed(entry, desk, message)


def _failed(entry: ToolEntry, desk: Desk, message: str) -> Model:
    """An output that says what went wrong, in the shape of the tool."""
    return entry["output_model"].model_validate(
        {
            "success": False,
            "total_found": 0,
            "approved": False,
            "new_size": desk.window,
            "iteration": desk.iteration,
            "max_iterations": desk.budget.max_iterations,
            "task_completed": False,
            "message": message,
        }
    )


def _unknown(name: str, desk: Desk) -> str:
    tools = ", ".join(MEMRECALL_TOOLS)
    return desk.say(
        f"没有工具 {name!r:.80}，只有 {tools}", f"no tool {name!r:.80}; there are {tools}"
    )


def _too_slow(desk: Desk) -> str:
    return desk.say(
        "搜索超时。请缩小搜索范围，使用更精确的关键词",
        "the search took too long. Narrow it down, use more precise keywords",
    )


def _missing(given: Model, desk: Desk) -> str:
    key = f"{getattr(given, 'memory_key', '')!r:.80}"
    return desk.say(
        f"未找到记忆: {key}。可以尝试模糊搜索，或询问用户更多信息",
        f"no memory {key}. Try a broader search, or ask the user for more",
    )


def _forbidden(desk: Desk) -> str:
    return desk.say(
        "无权限访问。请报告给上级 Agent，可能需要重新认证",
        "access is denied. Report this to the calling agent: it may have to authenticate again",
    )


def _broken(desk: Desk) -> str:
    return desk.say(
        "数据库错误，重试一次后仍然失败。请结束任务并报告，稍后再试",
        "the store failed, also when tried again. Finish and report it; it may work later",
    )


def _short(value: Any) -> Any:
    if isinstance(value, list):
        return [_short(each) for each in value[:_LISTED]]
    return f"{value[:_SHOWN]}…" if isinstance(value, str) and len(value) > _SHOWN else value


def _outcome(output: Model, desk: Desk) -> str:
    match output:
        case SearchMemoriesOutput(success=True, total_found=total, results=results):
            known = f"{total}" if desk.counts or total < COUNTED else f"{total}+"
            return desk.say(
                f"找到 {known} 个，返回 {len(results)} 个", f"{known} found, {len(results)} shown"
            )
        case GetMemoryDetailOutput(success=True, content=str(content)):
            return desk.say(f"{len(content)} 个字符", f"{len(content)} characters")
        case ExtractKeywordsOutput(success=True, keywords=found):
            return ", ".join(each.keyword for each in found)
        case HandoffOutput(success=True):
            return desk.say("完成", "done")
        case ExpandContextWindowOutput(message=message):
            return message
    return str(getattr(output, "message", ""))


def _keys(output: Model, desk: Desk) -> tuple[str, ...]:
    match output:
        case SearchMemoriesOutput(results=results):
            return tuple(each.memory_key for each in results)
        case GetMemoryDetailOutput(memory_key=str(key)):
            return (key,)
        case HandoffOutput(success=True):
            return tuple(each.memory_key for each in desk.evidence)
    return ()
