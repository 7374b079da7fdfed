"""What a model is asked when it extracts facts, and how its answer is read."""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import islice
from typing import Any

from kemem.add.merge import Claim
from kemem.errors import Unavailable
from kemem.ports import Prompt
from kemem.records import Message, Note
from kemem.records.ontology import NO_TYPES, NOTE_TYPES, Ontology, OwnType
from kemem.text.ids import without_bidi
from kemem.text.language import is_chinese

MAX_FACTS = 50
MAX_FACT_CHARACTERS = 1_000
MAX_LABEL_CHARACTERS = 64  # of a type or a speaker
MAX_DATE_CHARACTERS = 100
MAX_NAME_CHARACTERS = 100  # of an entity

# What the model is shown.
MAX_SHOWN_CHARACTERS = 24_000
MAX_SHOWN_OF_MESSAGE = 4_000
MAX_SHOWN_EARLIER = 4  # messages before those that are extracted from
MAX_SHOWN_OF_EARLIER = 500
MAX_SHOWN_NOTES = 10
MAX_SHOWN_OF_NOTE = 300
MAX_SHOWN_OF_PROMPT = 4_000
MAX_SHOWN_OF_TYPE = 800
MAX_SHOWN_OF_TYPES = 6_000  # all of them together
_EXAMPLES = 3  # of a type

# Names in the examples of the prompts, which nobody has: who repeats them has copied an example.
_INVENTED = ("quindel", "zorvex", "blenta", "ilvy", "昆德琴", "泽沃克斯", "布兰塔", "伊尔薇")
_BLOCK = re.compile(
    r"<(?=\s*/?\s*(?:earlier|conversation|memories|instructions|types))", re.IGNORECASE
)
_LABEL = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NUMBER = re.compile(r"[\[(]?M?(\d{1,6})[\])]?", re.ASCII)  # "2", "[2]", "M2", "(M2)"

log = logging.getLogger("kemem")


def object_schema(**fields: Any) -> dict[str, Any]:
    """An object that has all of these fields and no other, as strict schemas demand."""
    properties = {"properties": fields, "required": list(fields)}
    return {"type": "object", **properties, "additionalProperties": False}


def list_schema(item: Mapping[str, Any]) -> dict[str, Any]:
    """A list of such items."""
    return {"type": "array", "items": item}


_TEXT = {"type": "string"}
_FACT = object_schema(text=_TEXT, type=_TEXT, date=_TEXT, replaces=list_schema({"type": "integer"}))
SCHEMA = object_schema(facts=list_schema(_FACT))
_GRAPH = {
    "entities": list_schema(object_schema(name=_TEXT, type=_TEXT)),
    "relations": list_schema(object_schema(source=_TEXT, type=_TEXT, target=_TEXT)),
}
_GRAPH_SCHEMA = object_schema(facts=list_schema(object_schema(**_FACT["properties"], **_GRAPH)))


def schema_of(ontology: Ontology) -> dict[str, Any]:
    """What an answer must look like; own types of entities and relations are asked for, too."""
    return _GRAPH_SCHEMA if ontology.entities or ontology.relations else SCHEMA


@cache
def instructions(language: str, stage: str = "extract") -> str:
    """What the model is told to do, in the language of the conversation: zh or en."""
    return (files(__package__) / f"{stage}_{language}.md").read_text("utf-8")


@cache
def examples(language: str) -> Prompt:
    """The instructions and two turns that show what is wanted: one with facts, one without."""
    system, *turns = (it.strip() for it in instructions(language).split("\n---\n"))
    roles = ("user", "assistant") * len(turns)
    shown = [{"role": role, "content": it} for role, it in zip(roles, turns, strict=False)]
    return ({"role": "system", "content": system}, *shown)


def question(
    messages: Sequence[Message],
    notes: Sequence[Note],
    prompt: str | None,
    earlier: Sequence[Message] = (),
    ontology: Ontology = NO_TYPES,
) -> Prompt:
    """What the model is asked: what is known first, what was said last."""
    chinese = is_chinese("\n".join(message.content for message in messages))
    blocks = {
        "types": _type_lines(ontology, "zh" if chinese else "en") if ontology else [],
        "instructions": [_indented(prompt, MAX_SHOWN_OF_PROMPT)] if prompt else [],
        "memories": [
            f"[{number}] {_indented(note.content, MAX_SHOWN_OF_NOTE)}"
            for number, note in enumerate(notes, start=1)
        ],
        "earlier": [_message_line(it, MAX_SHOWN_OF_EARLIER) for it in earlier],
        "conversation": list(_within_limit(messages)),
    }
    texts = ["\n".join([f"<{it}>", *own, f"</{it}>"]) for it, own in blocks.items() if own]
    shown = examples("zh" if chinese else "en")
    return (*shown, {"role": "user", "content": "\n\n".join(texts)})


def _type_lines(ontology: Ontology, language: str) -> list[str]:
    """Own types as a model reads them, each with some examples, as far as there is room."""
    titles = [it.strip() for it in instructions(language, "types").split("\n---\n")]
    groups = (ontology.notes, ontology.entities, ontology.relations)
    room = min(MAX_SHOWN_OF_TYPE, MAX_SHOWN_OF_TYPES // sum(map(len, groups)))
    lines = list[str]()
    for title, types in zip(titles, groups, strict=True):
        lines += [title] if types else []
        for name, own in types.items():
            shown = "".join(f' "{text}"' for text in own.examples[:_EXAMPLES])
            lines.append(f"- {name}: {_indented(own.description + shown, room)}")
    return lines


def _within_limit(messages: Sequence[Message]) -> Iterator[str]:
    """As many of the messages as may be shown."""
    left = MAX_SHOWN_CHARACTERS
    for number, message in enumerate(messages):
        if left <= 0:
            log.warning("%d messages were too long to extract from", len(messages) - number)
            return
        line = _message_line(message, min(left, MAX_SHOWN_OF_MESSAGE))
        left -= len(line)
        yield line


def _message_line(message: Message, most: int) -> str:
    """A message as a model reads it:  "user 李明: 我不吃辣" """
    speaker = _clean(message.speaker)[:MAX_LABEL_CHARACTERS]
    who = _BLOCK.sub("< ", f"{message.role} {speaker}".strip())
    return f"{who}: {_indented(message.content, most)}"


def _indented(text: str, most: int) -> str:
    """A text that can open no line and no block of its own: data cannot pose as anything else."""
    shown = text if len(text) <= most else text[:most] + "…"
    return "\n    ".join(_BLOCK.sub("< ", shown).splitlines())


def read_claims(
    answer: object, asked: Prompt, notes: int, ontology: Ontology = NO_TYPES
) -> list[Claim]:
    """Reads an answer, of which nothing is trusted: what is wrong is left out, item by item."""
    fields = answer if isinstance(answer, Mapping) else {"facts": answer}
    items = fields.get("facts")
    if not isinstance(items, list):
        raise Unavailable("the model answered without a list of facts")
    objects = (item for item in items if isinstance(item, Mapping))
    read = (_claim(item, notes, ontology) for item in objects)
    claims = list(islice((claim for claim in read if claim.text or claim.replaces), MAX_FACTS))
    if items and not claims:
        raise Unavailable(f"the model answered {len(items)} facts, none of them readable")
    said = asked[-1]["content"].casefold()
    return [it for it in claims if not _is_copied(it.text, said)]


def _is_copied(text: str, said: str) -> bool:
    return any(it in text.casefold() and it not in said for it in _INVENTED)


def _claim(item: Mapping[str, Any], notes: int, ontology: Ontology) -> Claim:
    numbers = _numbers(item.get("replaces"))
    invented = [number for number in numbers if not 1 <= number <= notes]
    if invented:
        log.warning("the model replaces memories that it was not shown: %s", invented[:10])
    label = _label(item.get("type"), "general")
    own = label if label in ontology.notes else ""
    is_known = label in NOTE_TYPES or not ontology.notes  # else it was made up
    return Claim(
        _clean(item.get("text"))[:MAX_FACT_CHARACTERS],
        label if is_known and not own else "general",
        _clean(item.get("date"))[:MAX_DATE_CHARACTERS],
        tuple(number - 1 for number in numbers if number not in invented),
        own,
        tuple(_fields(item.get("entities"), ("name", "type"), ontology.entities)),
        tuple(_fields(item.get("relations"), ("source", "type", "target"), ontology.relations)),
    )


def _fields(
    value: object, names: Sequence[str], types: Mapping[str, OwnType]
) -> Iterator[tuple[str, ...]]:
    """The texts of objects in a list, of those that are complete and have a known type."""
    for item in islice(value, MAX_FACTS) if isinstance(value, list) else ():
        if not isinstance(item, Mapping):
            continue
        texts = {it: _clean(item.get(it))[:MAX_NAME_CHARACTERS] for it in names}
        texts["type"] = _label(texts["type"], "")
        if all(texts.values()) and texts["type"] in types:
            yield tuple(texts.values())


def _clean(value: object) -> str:
    """A text that every store can keep, on one line; empty where there is no text."""
    if not isinstance(value, str):
        return ""
    text = value[: 4 * MAX_FACT_CHARACTERS].encode("utf-8", "ignore").decode()
    return " ".join(without_bidi(text.replace("\0", " ")).split())


def _label(value: object, otherwise: str) -> str:
    """A label for programs.  "User Preference" -> "user_preference" """
    spaced = _CAMEL.sub("_", _clean(value)[:MAX_LABEL_CHARACTERS])
    label = re.sub(r"\W+", "_", spaced.casefold()).strip("_")
    return label if _LABEL.fullmatch(label) else otherwise


def _numbers(value: object) -> list[int]:
    """The numbers in what should be a list of numbers, each once.  [1, "M2", None] -> [1, 2]"""
    numbers: dict[int, None] = {}
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, int) and not isinstance(each, bool):
            numbers[each] = None
        elif isinstance(each, str) and (match := _NUMBER.fullmatch(each)):
            numbers[int(match[1])] = None
    return list(numbers)
