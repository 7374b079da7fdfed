"""The stage that finds facts: one question to the model, or rules where there is no model."""

import asyncio
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import Any

from kemem.add.facts import Extraction, Fact, Triple
from kemem.add.rules import extract_by_rules
from kemem.errors import InvalidArgument, Unavailable
from kemem.ports import Deps, Prompt
from kemem.records import Message, Micros, Note
from kemem.records.times import to_micros, to_rfc3339
from kemem.text.language import is_chinese
from kemem.text.segment import normalise

MAX_FACTS = 50
MAX_FACT_CHARACTERS = 1_000
MAX_KEYWORDS = 10
MAX_KEYWORD_CHARACTERS = 64
MAX_ENTITIES = 100
MAX_RELATIONS = 20  # of one fact
MAX_NAME_CHARACTERS = 200
MAX_LABEL_CHARACTERS = 64  # of a type or a relationship

USER_NAMES = ("user/name", "user/nickname")  # topics of the notes that tell it

# What the model is shown.
MAX_SHOWN_CHARACTERS = 24_000
MAX_SHOWN_OF_MESSAGE = 4_000
MAX_SHOWN_OF_EARLIER = 500
MAX_SHOWN_NOTES = 10
MAX_SHOWN_OF_NOTE = 300
MAX_SHOWN_OF_PROMPT = 4_000

_BLOCK = re.compile(r"<(?=\s*/?\s*(?:earlier|conversation|memories|instructions))", re.IGNORECASE)
_LABEL = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NUMBER = re.compile(r"[\[(]?M?(\d{1,6})[\])]?", re.ASCII)  # "2", "[2]", "M2", "(M2)"

log = logging.getLogger("kemem")


def _record(**fields: Any) -> dict[str, Any]:
    """An object that has all of these fields and no other, as strict schemas demand."""
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def _list(item: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


_TEXT, _INTEGER = {"type": "string"}, {"type": "integer"}
SCHEMA = _record(
    facts=_list(
        _record(
            text=_TEXT,
            type=_TEXT,
            keywords=_list(_TEXT),
            importance={"type": "number"},
            date={"type": ["string", "null"]},
            sources=_list(_INTEGER),
            replaces=_list(_INTEGER),
            relations=_list(_record(source=_TEXT, relationship=_TEXT, destination=_TEXT)),
        )
    ),
    entities=_list(_record(name=_TEXT, type=_TEXT)),
)


async def extract(
    messages: Sequence[Message],
    known: Sequence[Note],
    prompt: str | None,
    deps: Deps,
    earlier: Sequence[Message] = (),
) -> Extraction:
    """The facts of some messages; Unavailable where the model gives no usable answer.

    `known` are notes that the model may declare untrue, and that tell rules the user's name;
    `prompt` is advice of the caller's; `earlier` messages tell a model what "yes, that" means.
    """
    if deps.llm is None:
        names = {it.topic: it.keywords[0] for it in reversed(known) if it.keywords}
        name = next(filter(None, map(names.get, USER_NAMES)), None)
        # Not on the event loop: a long message takes a second.
        return await asyncio.to_thread(extract_by_rules, messages, name)
    shown = known[:MAX_SHOWN_NOTES]
    answer = await deps.ask(_question(messages, earlier, shown, prompt), SCHEMA)
    return _Reader(messages, shown, _entities(answer)).read(answer)


def _question(
    messages: Sequence[Message],
    earlier: Sequence[Message],
    known: Sequence[Note],
    prompt: str | None,
) -> Prompt:
    chinese = is_chinese("\n".join(message.content for message in messages))
    day = max((message.ts for message in messages), default=0)
    blocks = [f"Date of the conversation: {to_rfc3339(day)[:10]}"]
    if earlier:
        blocks.append(
            _block("earlier", (_message_line(it, MAX_SHOWN_OF_EARLIER) for it in earlier))
        )
    blocks.append(_block("conversation", _within_limit(messages)))
    if known:
        notes = (
            f"(M{number}) {_indented(note.content, MAX_SHOWN_OF_NOTE)}"
            for number, note in enumerate(known, start=1)
        )
        blocks.append(_block("memories", notes))
    if prompt:
        blocks.append(_block("instructions", [_indented(prompt, MAX_SHOWN_OF_PROMPT)]))
    return [
        {"role": "system", "content": instructions("zh" if chinese else "en")},
        {"role": "user", "content": "\n\n".join(blocks)},
    ]


@cache
def instructions(language: str) -> str:
    """What the model is told to do, in the language of the conversation: zh or en."""
    return (files(__package__) / f"extract_{language}.md").read_text("utf-8")


def _block(name: str, lines: Iterable[str]) -> str:
    return "\n".join([f"<{name}>", *lines, f"</{name}>"])


def _within_limit(messages: Sequence[Message]) -> Iterator[str]:
    """The messages by their numbers, as many as may be shown."""
    left = MAX_SHOWN_CHARACTERS
    for number, message in enumerate(messages, start=1):
        if left <= 0:
            log.warning("%d messages were too long to extract from", len(messages) - number + 1)
            return
        line = f"[{number}] {_message_line(message, min(left, MAX_SHOWN_OF_MESSAGE))}"
        left -= len(line)
        yield line


def _message_line(message: Message, most: int) -> str:
    """A message as a model reads it:  "2026-01-01 user 李明: 我不吃辣" """
    speaker = _clean(message.metadata.get("speaker"))[:MAX_LABEL_CHARACTERS]
    who = _BLOCK.sub("< ", f"{message.role} {speaker}".strip())
    return f"{to_rfc3339(message.ts)[:10]} {who}: {_indented(message.content, most)}"


def _indented(text: str, most: int) -> str:
    """A text that can open no line and no block of its own: data cannot pose as anything else."""
    shown = text if len(text) <= most else text[:most] + "…"
    return "\n    ".join(_BLOCK.sub("< ", shown).splitlines())


def _entities(answer: object) -> dict[str, str]:
    """The entities that an answer lists, with their types; also as a map of names to types."""
    listed = answer.get("entities") if isinstance(answer, Mapping) else None
    if isinstance(listed, Mapping):
        listed = [{"name": name, "type": kind} for name, kind in listed.items()]
    found: dict[str, str] = {}
    for item in _items(listed):
        name = _name(item.get("name"))
        if name and len(found) < MAX_ENTITIES:
            found.setdefault(name, _label(item.get("type"), "thing"))
    return found


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads an answer, of which nothing is trusted: what is wrong is left out, item by item."""

    messages: Sequence[Message]
    known: Sequence[Note]
    entities: Mapping[str, str]

    def read(self, answer: object) -> Extraction:
        items = answer.get("facts") if isinstance(answer, Mapping) else answer
        if not isinstance(items, list):
            raise Unavailable("the model answered without a list of facts")
        read = (self._fact(item) for item in _items(items))
        facts = tuple(islice((fact for fact in read if fact is not None), MAX_FACTS))
        if items and not facts:
            raise Unavailable(f"the model answered {len(items)} facts, none of them readable")
        return Extraction(facts, self.entities)

    def _fact(self, item: Mapping[str, Any]) -> Fact | None:
        text = _clean(item.get("text"))[:MAX_FACT_CHARACTERS]
        replaces = self._replaces(item.get("replaces"))
        if not text and not replaces:
            return None
        return Fact(
            text=text,
            sources=self._sources(item.get("sources")),
            memory_type=_label(item.get("type"), "general"),
            keywords=_keywords(item.get("keywords")),
            importance=_importance(item.get("importance")),
            when=_when(item.get("date")),
            replaces=replaces,
            relations=self._relations(item.get("relations")),
        )

    def _sources(self, value: object) -> tuple[str, ...]:
        ids = [message.message_id for message in self.messages]
        named = [ids[number - 1] for number in _numbers(value) if 1 <= number <= len(ids)]
        users = [message.message_id for message in self.messages if message.role == "user"]
        return tuple(named or users or ids)

    def _replaces(self, value: object) -> tuple[str, ...]:
        numbers = _numbers(value)
        invented = [number for number in numbers if not 1 <= number <= len(self.known)]
        if invented:
            log.warning("the model replaces memories that it was not shown: %s", invented[:10])
        return tuple(self.known[it - 1].note_id for it in numbers if it not in invented)

    def _relations(self, value: object) -> tuple[Triple, ...]:
        """Relations between entities that are listed, by their listed names."""
        names = {normalise(name): name for name in self.entities}
        found: dict[Triple, None] = {}
        for item in _items(value):
            source = names.get(normalise(_name(item.get("source"))))
            destination = names.get(normalise(_name(item.get("destination"))))
            relationship = _snake(item.get("relationship"))
            if source and destination and relationship and len(found) < MAX_RELATIONS:
                found[Triple(source, relationship, destination)] = None
        return tuple(found)


def _items(value: object) -> Iterator[Mapping[str, Any]]:
    """The objects in what should be a list of objects."""
    listed = value if isinstance(value, list) else []
    return (item for item in listed if isinstance(item, Mapping))


def _clean(value: object) -> str:
    """A text that every store can keep, on one line; empty where there is no text."""
    if not isinstance(value, str):
        return ""
    kept = value[: 4 * MAX_FACT_CHARACTERS].encode("utf-8", "ignore").decode()
    return " ".join(kept.replace("\0", " ").split())


def _name(value: object) -> str:
    name = _clean(value)
    return name if len(name) <= MAX_NAME_CHARACTERS else ""


def _snake(value: object) -> str:
    """A label for programs.  "Studies at" -> "studies_at"; "导师" stays."""
    spaced = _CAMEL.sub("_", _clean(value)[:MAX_NAME_CHARACTERS])
    return re.sub(r"\W+", "_", spaced.casefold()).strip("_")[:MAX_LABEL_CHARACTERS]


def _label(value: object, otherwise: str) -> str:
    label = _snake(value)
    return label if _LABEL.fullmatch(label) else otherwise


def _keywords(value: object) -> tuple[str, ...]:
    words = [_clean(word) for word in value] if isinstance(value, list) else []
    kept = [word for word in words if 0 < len(word) <= MAX_KEYWORD_CHARACTERS]
    return tuple(dict.fromkeys(kept))[:MAX_KEYWORDS]


def _importance(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.5
    return float(min(max(value, 0), 1))


def _when(value: object) -> Micros | None:
    """A date or a time as the model wrote it; without a zone it is UTC."""
    if not isinstance(value, str):
        return None
    for written in (value, f"{value}Z", f"{value}T00:00:00Z"):
        try:
            return to_micros(written, "date")
        except InvalidArgument:
            continue
    return None


def _numbers(value: object) -> list[int]:
    """The numbers in what should be a list of numbers, each once.  [1, "M2", None] -> [1, 2]"""
    listed = value if isinstance(value, list) else [value]
    return list(dict.fromkeys(number for number in map(_number, listed) if number is not None))


def _number(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    return int(match[1]) if match else None
