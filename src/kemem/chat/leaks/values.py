"""What a leaked call consists of: its record, its values and arguments as JSON or as Python."""

import ast
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from kemem.chat.leaks.buffer import SPACE, Steps, StreamBuffer
from kemem.text.loose_json import parse_json

_NAMES = ("name", "tool_name", "tool", "function")
_ARGUMENTS = ("arguments", "parameters", "args", "input")
_WRAPPERS = ("arguments", "input")
_NAMESPACE = re.compile(r"^(?:functions|default_api)\.|:\d+$")
_WORDS = {"true": True, "false": False, "null": None}
_PYTHON_ENDS = ("", ")", '")', "')", "]", ")]", '")]', "')]")  # of a call that was cut

_BRACKETS = {"{": 1, "[": 1, "(": 1, "}": -1, "]": -1, ")": -1}
_CLOSING = {'"': '"', "'": "'", "“": "”"}
_QUOTES = {end: re.compile(rf"[\\{end}]") for end in _CLOSING.values()}
_WORD = re.compile(r"[\w.+-]*+", re.ASCII)
_AFTER_LENGTH = 80
# A quote ends a string only where structure follows; any other was not escaped: "他说"好", 走了"
_AFTER = re.compile(
    r"\s*+(?:\Z|[}\]):：<`]|[\"“]\w{1,40}+[\"”]\s*+[:：]"
    r"|,\s*+(?:\Z|[\"'“{\[\d}\])-]|(?i:true|false|null|none)\b|\w{1,40}+\s*+[=:(.]))"
)


class UntypedText(str):
    """A value as text, whose type only the tool's schema can tell."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class LeakedCall:
    """A call as far as it could be parsed: `UntypedText` values where the form gives no types."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Opener:
    """The marker that begins calls of a form."""

    form: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Block:
    """Calls in a text, and where their markup ends."""

    form: str
    end: int
    calls: tuple[LeakedCall, ...]
    certain: bool = True  # False: prose may look alike, so the tool must be a known one


def balanced(buffer: StreamBuffer, at: int) -> Steps[tuple[int, bool]]:
    """Where the brackets that open here are closed; False: where they break off."""
    depth, end, word_may_follow = 0, at, True
    while True:
        at = yield from buffer.skip(SPACE, at)
        character = yield from buffer.char_at(at)
        if character in _CLOSING:
            at, word_may_follow = (yield from _string(buffer, at, _CLOSING[character])), False
        elif step := _BRACKETS.get(character, 0):
            at, depth, word_may_follow = at + 1, depth + step, step > 0
        elif character and character in ",:：=":
            at, word_may_follow = at + 1, True
        elif word_may_follow and (past := (yield from buffer.skip(_WORD, at))) > at:
            at, word_may_follow = past, False
        else:
            return end, False
        end = at
        if depth == 0:
            return end, True


def _string(buffer: StreamBuffer, at: int, quote: str) -> Steps[int]:
    at += 1
    while (at := (yield from buffer.find(_QUOTES[quote], at))) < buffer.end:
        if buffer.text[at] == "\\":
            at = yield from buffer.wait_for(at, 2)
            continue
        at += 1
        end = yield from buffer.wait_for(at, _AFTER_LENGTH)
        if _AFTER.match(buffer.text, at, end):
            break
    return at


def tool_name(name: str) -> str:
    """The name of a tool alone.  "functions.recall_memory:0" -> "recall_memory" """
    return _NAMESPACE.sub("", name.strip().strip("\"'“”"))


def parse_value(text: str) -> Any:
    """A value parsed as JSON, else as it is written.  "3" -> 3, "成都" -> UntypedText("成都")"""
    try:
        return _DECODER.decode(text.strip())
    except (ValueError, RecursionError):
        return UntypedText(text) if (broken := parse_object(text)) is None else broken


def parse_object(text: str) -> dict[str, Any] | None:
    """The arguments in a JSON object, which may be broken; None for anything else."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = parse_json(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def unwrap(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments that came as the value of a single parameter.  {"input": {"a": 1}} -> {"a": 1}"""
    if len(arguments) != 1 or not arguments.keys() <= {*_WRAPPERS}:
        return arguments
    (value,) = arguments.values()
    inner = parse_object(value) if isinstance(value, str) else value
    return inner if isinstance(inner, dict) else arguments


def parse_json_calls(text: str) -> tuple[LeakedCall, ...]:
    """The calls in a JSON object or list."""
    try:
        value = parse_json(text)
    except ValueError:
        return ()
    items = value if isinstance(value, list) else [value]
    return tuple(call for item in items if (call := _json_call(item)))


def _json_call(item: Any) -> LeakedCall | None:
    if isinstance(item, dict) and isinstance(item.get("function"), dict):
        item = item["function"]
    if not isinstance(item, dict):
        return None
    name = next((item[key] for key in _NAMES if isinstance(item.get(key), str)), "")
    arguments: Any = next((item[key] for key in _ARGUMENTS if item.get(key) is not None), {})
    if isinstance(arguments, str):  # encoded twice
        arguments = parse_object(arguments)
    return LeakedCall(tool_name(name), arguments) if name and isinstance(arguments, dict) else None


def parse_python_calls(text: str) -> tuple[LeakedCall, ...]:
    """The calls in Python code that holds nothing else; arguments must be named literals."""
    for end in _PYTHON_ENDS:
        try:
            with warnings.catch_warnings(action="ignore"):
                statements = ast.parse(text.strip() + end).body
            return tuple(_python_call(it) for line in statements for it in _expressions(line))
        except SyntaxError:
            continue
        except (ValueError, TypeError, RecursionError, MemoryError):
            break
    return ()


def _expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    if not isinstance(statement, ast.Expr | ast.Assign):
        raise ValueError("not a call")
    value = statement.value
    yield from value.elts if isinstance(value, ast.List | ast.Tuple) else [value]


def _python_call(node: ast.expr) -> LeakedCall:
    if not isinstance(node, ast.Call):
        raise ValueError("not a call")
    name = ast.unparse(node.func)
    if name == "print" and len(node.args) == 1:
        return _python_call(node.args[0])
    if node.args:
        raise ValueError("an argument has no name")
    arguments = {it.arg: ast.literal_eval(_Words().visit(it.value)) for it in node.keywords}
    return LeakedCall(tool_name(name), json.loads(json.dumps(arguments)))  # a tuple is a list


class _Words(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_WORDS[node.id]) if node.id in _WORDS else node


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(strict=False, parse_constant=_refuse)
