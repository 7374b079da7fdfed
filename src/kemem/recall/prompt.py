"""What a model that leads a recall is shown, and how it names what it was shown.

Memories that are known before its first call have numbers, which take fewer tokens than keys.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kemem.ports import ToolCall
from kemem.recall.results import Evidence, indented
from kemem.recall.schemas import Model, SearchMemoriesOutput
from kemem.recall.state import MAX_RESULTS, RecallState
from kemem.results import Item
from kemem.text.fence import fenced
from kemem.text.loose_json import parse_json

_MAX_SHOWN = {"short": 300, "full": 2_000}  # characters of one message of the window
_MAX_QUESTION = 2_000
_PREVIEW = 200  # of a memory that is known before
_QUOTATION = 8  # characters by which a memory is told from others
_NUMBER = re.compile(r"\s*[\[(#]?(\d{1,3})[\])]?\s*", re.ASCII)  # "2", "[2]", "#2"
# What a search tells twice, or tells nobody who has the texts before them.
_SPARE: Mapping[str, Any] = {
    "search_query_expanded": True,
    "results": {"__all__": {"summary", "keywords"}},
}


def known_memories(state: RecallState) -> dict[str, str]:
    """A line for each memory that rules or earlier rounds have found, by its key, best first."""
    by_rules = state.by_rules.evidence if state.by_rules else ()
    lines = {it.memory_key: f"{it.dates} {_spoken(it)[:_PREVIEW]}" for it in by_rules}
    for key, hit in state.hits.items():
        lines.setdefault(key, hit.memory[:_PREVIEW])
    return dict([*lines.items()][:MAX_RESULTS])


def _spoken(evidence: Evidence) -> str:
    """A text with its speaker; an answer after a question names both of them already."""
    has_speaker = evidence.said_by and not evidence.in_reply_to
    return f"{evidence.said_by}: {evidence.text}" if has_speaker else evidence.text


def task(state: RecallState, window: Sequence[Item], known: Mapping[str, str]) -> str:
    """The conversation, what is known before and the question, all of it data; then what to do
    first, since small models follow what they read last.
    """
    most = _MAX_SHOWN[state.tool_texts]
    messages = (f"{it.message.role}: {indented(it.memory[:most])}" for it in window)
    listed = (f"[{number}] {indented(line)}" for number, line in enumerate(known.values(), 1))
    sections = {
        "conversation": "\n".join(messages),
        "found_before": "\n".join(listed),
        "question": state.question[:_MAX_QUESTION],
    }
    parts = [fenced(name, text) for name, text in sections.items() if text]
    return "\n\n".join([*parts, state.text("choose_known")] if known else parts)


def tool_data(output: Model, state: RecallState) -> str:
    """The output of a tool; in short, without what a model can do without."""
    spare = isinstance(output, SearchMemoriesOutput) and state.tool_texts == "short"
    exclude = _SPARE if spare else None
    return fenced("tool_data", output.model_dump_json(exclude=exclude, exclude_none=True))


def with_keys(call: ToolCall, known: Mapping[str, str]) -> ToolCall:
    """A call with keys where the model wrote the numbers of memories that it was shown, or quoted
    them.
    """
    try:
        arguments = parse_json(call.arguments)
    except ValueError:
        return call
    if not isinstance(arguments, dict):
        return call
    resolved = dict(arguments)
    if "memory_key" in resolved:
        resolved["memory_key"] = _key(resolved["memory_key"], known)
    if isinstance(named := resolved.get("relevant_memory_keys"), list):
        resolved["relevant_memory_keys"] = [_key(it, known) for it in named]
    if resolved == arguments:
        return call
    return replace(call, arguments=json.dumps(resolved, ensure_ascii=False))


def _key(name: Any, known: Mapping[str, str]) -> Any:
    if isinstance(name, bool) or not isinstance(name, str | int):
        return name
    text, keys = str(name).strip(), [*known]
    if match := _NUMBER.fullmatch(text):
        number = int(match[1])
        return keys[number - 1] if 1 <= number <= len(keys) else text
    quoted = [key for key, line in known.items() if len(text) >= _QUOTATION and text in line]
    return quoted[0] if quoted else str(name)
