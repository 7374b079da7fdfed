"""What the forms have in common: calls as JSON, as Python or as keys and values between marks."""

import re
import string
from dataclasses import dataclass

from kemem.chat.leaks.calls import Block, LeakedCall
from kemem.chat.leaks.tape import SPACE, Marks, Steps, Tape
from kemem.chat.leaks.values import arguments_in, balanced, bare, json_calls, python_calls

HEAD_LENGTH = 250  # what tells a call from prose stands within so much
CLOSERS = Marks(
    *("</tool_call>", "</tool_calls>", "</function_call>", "</function_calls>", "</function>"),
    *("</invoke>", "</parameter>", "</arg_value>", "</calls>", "</tool_use>", "</tool>", "</DSML"),
    *("</minimax:tool_call>", "<|tool_call_end|>", "<|tool_calls_end|>"),
    *("<|tool_calls_section_end|>", "<|action_end|>", "<|call|>", "<|end|>", "<|return|>"),
    *("<|end_of_sentence|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_function_call>"),
    *("<|close|>call<|sep|>", "<|close|>tools<|sep|>", "<|close|>message<|sep|>"),
    "[/TOOL_CALLS]",
)
_NAME_STARTS = string.ascii_letters + "_"
_BETWEEN = re.compile(r"[\s;,]*+")
_ROUND = re.compile(r"\(")
_FENCE = re.compile(r"[\s`json]*+")  # ```json
_TICKS = re.compile(r"[\s`]*+")
_JSON_CALL = re.compile(
    r"[\[\s]*+\{\s*+[\"'“]?"
    r"(?:name|tool_name|tool|function|type|id|arguments|parameters|args|input)[\"'”]?\s*+[:：]"
)
_OBJECT = re.compile(r"\{\s*+(?:\}|[\"'“]|\w++\s*+:)")
_PYTHON_CALL = re.compile(r"[\[\s]*+(?:print\(\s*+)?[A-Za-z_][\w.]*+\(\s*+(?:\)|\w++\s*+=)")


@dataclass(frozen=True, slots=True)
class Pairs:
    """How keys and values stand in a form: opens KEY between VALUE closing."""

    opens: Marks
    between: Marks
    closing: str
    ends: Marks  # the closing mark, and what else shows that a value is over


def pairs_at(tape: Tape, at: int, how: Pairs) -> Steps[tuple[dict[str, str], int]]:
    """Keys and values as they are written, and where they end."""
    found: dict[str, str] = {}
    while True:
        here = yield from tape.run(SPACE, at)
        opened, key = yield from tape.mark(here, how.opens)
        if not opened:
            return found, tape.end if tape.cut(here, how.opens) else at
        key_end, known, start = yield from tape.until(how.between, key)
        end, mark, past = yield from tape.until(how.ends, start)
        text, closed = tape.text[start:end], mark == how.closing
        if known:
            found[tape.text[key:key_end].strip()] = text if closed else text.rstrip()
        at = past if closed or not mark else end


def json_at(tape: Tape, at: int, form: str) -> Steps[Block | None]:
    """Calls as JSON objects with their names, or as a list of them."""
    here = yield from _unfenced(tape, at)
    end, fenced = at, "`" in tape.text[at:here]
    calls: list[LeakedCall] = []
    while (yield from _looks(tape, here, "{[", _JSON_CALL)):
        text, end = yield from _brackets(tape, here)
        calls += json_calls(text)
        here = yield from tape.run(_BETWEEN, end)
    if end == at:
        return None
    return Block(form, (yield from tape.run(_TICKS, end)) if fenced else end, tuple(calls))


def arguments_at(tape: Tape, at: int, form: str, name: str) -> Steps[Block | None]:
    """The call of a tool whose arguments follow as a JSON object."""
    start = yield from _unfenced(tape, at)
    if not name or not (yield from _looks(tape, start, "{", _OBJECT)):
        return None
    text, end = yield from _brackets(tape, start)
    if "`" in tape.text[at:start]:
        end = yield from tape.run(_TICKS, end)
    arguments = arguments_in(text)
    return Block(form, end, () if arguments is None else (LeakedCall(bare(name), arguments),))


def python_at(tape: Tape, at: int, form: str, closers: Marks = CLOSERS) -> Steps[Block | None]:
    """Calls as Python writes them, maybe in a list."""
    start = yield from tape.run(SPACE, at)
    if not (yield from _looks(tape, start, _NAME_STARTS + "[", _PYTHON_CALL)):
        return None
    listed = tape.text[start] == "["
    opening = start if listed else (yield from tape.find(_ROUND, start))
    _, end = yield from _brackets(tape, opening, closers)
    return Block(form, end, python_calls(tape.text[start:end]))


def _unfenced(tape: Tape, at: int) -> Steps[int]:
    """Where something begins behind blanks, and maybe behind the opening of a code fence."""
    start = yield from tape.run(SPACE, at)
    fenced = (yield from tape.character(start)) == "`"
    return (yield from tape.run(_FENCE, start)) if fenced else start


def _looks(tape: Tape, at: int, first: str, pattern: re.Pattern[str]) -> Steps[bool]:
    """Whether the text goes on like this; other first characters need no waiting."""
    character = yield from tape.character(at)
    if not character or character not in first:
        return False
    end = yield from tape.room(at, HEAD_LENGTH)
    return bool(pattern.match(tape.text, at, end))


def _brackets(tape: Tape, at: int, closers: Marks = CLOSERS) -> Steps[tuple[str, int]]:
    """What stands in brackets; where they break off, up to the closing mark behind."""
    end, whole = yield from balanced(tape, at)
    if not whole:
        cut = end == tape.end  # a string that nothing ends has run over the closing mark
        stop, mark, _ = yield from tape.until(
            closers, at if cut else end, None if cut else HEAD_LENGTH
        )
        end = stop if mark else end
    return tape.text[at:end], end
