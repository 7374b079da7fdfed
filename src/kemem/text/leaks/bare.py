"""Calls without markup of their own: JSON alone, in a fence, in doubled braces, between <tools>.

Ordinary answers hold JSON as well. What tells a call is the name of a tool that is on offer, and
that the object holds nothing but a call. Results of tools that a model makes up are read here too.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product

from kemem.text.leaks import forms, parsing
from kemem.text.leaks.parsing import SPACE, Block, Buffer, LeakedCall, Steps

_NAMING = ("name", "tool_name", "tool", "function")  # keys whose value is the name of a tool
_QUOTES = (('"', '"'), ("'", "'"), ("“", "”"), ("", ""))
_FENCES = ("```", "```json", "```python", "```tool_call", "```tool_calls")
_OTHERS = (  # beginnings of calls whose name comes later
    *('"arguments":{', '"parameters":{', '"args":{', '"input":{', '"id":"call'),
    *('"calls":[', '"calls":{', '"tool_calls":[', '"tool_call":{', '"function_call":{'),
)
_NESTED = ('"function":{"name":', '"type":"function","name":', '"type":"function","function":{')
_FENCE_START = re.compile(r"(?:```[a-z_]*+)?+\s*+")
_TICKS = re.compile("`*+")
_NEXT = re.compile(r"[\s;,]*+")
_DATA = re.compile(r"[\[\s]*+\{\s*+(?:\}|[\"'“])|\[\s*+\]")


_ReadJson = Callable[[Buffer, str, int], Steps[Block | None]]


def _read(buffer: Buffer, form: str, at: int) -> Steps[Block | None]:
    """Calls as JSON, one after another; None where they are cut before they can be read."""
    calls, end, is_complete = list[LeakedCall](), at, True
    here = at
    while is_complete and (yield from buffer.char_at(here)) in ("{", "["):
        stop, is_complete = yield from parsing.balanced(buffer, here)
        text = buffer.text[here:stop]
        found = parsing.parse_bare_calls(text)
        if not found:
            if not calls:
                return Block(form, stop, (), certain=False) if is_complete else None
            break
        calls, end = [*calls, *found], stop
        here = yield from buffer.skip(_NEXT, end)
    return Block(form, end, tuple(calls), certain=False) if calls else None


def _read_memories(buffer: Buffer, form: str, at: int) -> Steps[Block | None]:
    """What a recall returned, which a model repeats as it is."""
    end, is_complete = yield from parsing.balanced(buffer, at)
    if is_complete:
        return Block(form, end, ()) if parsing.are_memories(buffer.text[at:end]) else None
    is_cut = end == buffer.end or buffer.text[end] in "\"“'"  # in a string
    is_known = all(f'"{key}"' in buffer.text[at:] for key in parsing.MEMORY_KEYS)
    return Block(form, buffer.end, ()) if is_cut and is_known else None


def _alone(
    buffer: Buffer, form: str, start: int, at: int, read: _ReadJson = _read
) -> Steps[Block | None]:
    """JSON where it stands, or in a fence that holds nothing else."""
    opened = yield from buffer.skip(SPACE, start)
    is_fenced = buffer.text[opened] == "`"
    here = (yield from buffer.skip(_FENCE_START, opened)) if is_fenced else opened
    block = yield from read(buffer, form, here)
    if not block or not is_fenced:
        return block
    here = yield from buffer.skip(SPACE, block.end)
    if (yield from buffer.char_at(here)) not in ("`", ""):
        return None
    return replace(block, end=(yield from buffer.skip(_TICKS, here)))


def _between_tags(buffer: Buffer, form: str, start: int, at: int) -> Steps[Block | None]:
    return (yield from _read(buffer, form, (yield from buffer.skip(SPACE, at))))


def _template(buffer: Buffer, form: str, start: int, at: int) -> Steps[Block | None]:
    """{{name(key="value")}}"""
    name, past = yield from forms.read_name(buffer, at)
    if not name or (yield from buffer.char_at(past)) != "(":
        return None
    block = yield from forms.read_python(buffer, form, at)
    if not block or (not block.calls and block.end == buffer.end):
        return None
    here = yield from buffer.skip(SPACE, block.end)
    stop = yield from buffer.wait_for(here, 2)
    closed = buffer.text[here:stop] in ("}}", "}"[: buffer.end - here])
    return replace(block, end=stop if closed else block.end, certain=False)


def _result(buffer: Buffer, form: str, start: int, at: int) -> Steps[Block | None]:
    """The result of a call, which only a tool can give; its closing tag is skipped elsewhere."""
    here, end = (yield from buffer.skip(SPACE, at)), at
    while (yield from forms.looks_like(buffer, here, "{[", _DATA)):
        _, end = yield from forms.read_brackets(buffer, here)
        here = yield from buffer.skip(_NEXT, end)
    return Block(form, end, ()) if end > at else None


def _openers(heads: Iterator[str]) -> Iterator[str]:
    """Each beginning of an object alone, in a list, with doubled braces, and all that in a fence"""
    for head, brace in product([*heads], ("{", "[{", "{{")):
        yield from (fence + brace + head for fence in ("", *_FENCES))


_NAMED = (f"{left}{key}{right}:" for key, (left, right) in product(_NAMING, _QUOTES))
NAMING = frozenset(parsing.normalize(it) for it in _openers(_NAMED))
"""Openers behind which the name of a tool stands."""

_memories = partial(_alone, read=_read_memories)
_ALONE = (*NAMING, *_openers(iter((*_OTHERS, *_NESTED))))
FORMS: dict[str, tuple[str, forms.Reader]] = {
    **{parsing.normalize(it): ("json", _alone) for it in _ALONE},
    **{parsing.normalize(it): ("result", _memories) for it in _openers(iter(('"events":[',)))},
    "{{": ("template", _template),
    "<tools>": ("tools", _between_tags),
    "<toolresponse>": ("result", _result),
    "<toolresult>": ("result", _result),
}
FENCED = frozenset(it for it in FORMS if it.startswith("`"))
