"""A message that corrects one value of the message before, read as that message put right.

"I live in Hamburg", "Sorry, I meant Homburg" -> "I live in Homburg"
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kemem.add.rules import Extraction, Reading, read_by_rules
from kemem.records import Message
from kemem.text.lexicon import load

_SHAPES = ("WEEKDAY", "CLOCK", "DAY", "MONTH", "AMOUNT")
_LONGEST = 80  # characters of a correction


@dataclass(frozen=True, slots=True)
class Correction:
    """What a message says once it is put right, and what it takes back."""

    text: str
    wrong: str  # the value that it replaces
    message_id: str  # of the message that had said it


def _pattern(name: str) -> re.Pattern[str]:
    return load(__package__, "corrections.rules").pattern(name)


def looks_like_correction(text: str) -> bool:
    """Whether a message may correct the one before.  "不对，是四点" -> True"""
    return _parsed(text) is not None


def _parsed(text: str) -> tuple[str, str, bool] | None:
    """The right value, the wrong one if it is said, and whether it is said to be a correction."""
    plain = text.strip().replace("’", "'")
    if len(plain) > _LONGEST:
        return None
    for name in ("NOT_BUT_ZH", "EXPLICIT", "EXPLICIT_ZH", "IMPLICIT"):
        match = _pattern(name).fullmatch(plain)
        if match and (value := match["value"]):
            wrong = match.groupdict().get("wrong") or ""
            return value.strip(), wrong.strip(), name != "IMPLICIT"
    return None


def corrected(text: str, before: Message) -> Correction | None:
    """A message as a correction of the one before; None where it is none, or unclear of what."""
    parsed = _parsed(text)
    if parsed is None:
        return None
    value, said, explicit = parsed
    wrong = said if said and said in before.content else _like(value, before, explicit)
    if not wrong or wrong.casefold() == value.casefold():
        return None
    head, _, tail = before.content.rpartition(wrong)
    return Correction(f"{head}{value}{tail}", wrong, before.message_id)


def _like(value: str, before: Message, explicit: bool) -> str:
    """The part of a message that a value can take the place of: the last of its shape."""
    for name in _SHAPES:
        if _pattern(name).fullmatch(value):
            return next((it.group() for it in [*_pattern(name).finditer(before.content)][::-1]), "")
    if not explicit:
        return ""
    capitals = _pattern("CAPITAL").finditer(before.content) if value[:1].isupper() else ()
    named = [it.group() for it in capitals]
    values = _values(read_by_rules([before]))
    alike = [it for it in values if bool(_pattern("HAN").search(it)) == (not value.isascii())]
    return (named or [it for it in alike if it in before.content] or [""])[-1]


def _values(reading: Reading) -> list[str]:
    """The values that rules find in a message, in order."""
    sentences = (sentence for _, _, read in reading.messages for sentence in read)
    parts = (part for sentence in sentences for part in sentence.parts)
    return [value for part in parts for it in part.statements for value in it.values]


def put_right(
    messages: Sequence[Message], earlier: Iterable[Message]
) -> tuple[list[Message], dict[str, Correction]]:
    """Messages in which corrections are written out, and these by the ids of their messages."""
    last: dict[object, Message] = {}  # what each speaker said last
    for message in earlier:
        last[_speaker(message)] = message
    right, corrections = [], dict[str, Correction]()
    for message in messages:
        before = last.get(_speaker(message))
        found = corrected(message.content, before) if before else None
        if found and message.role == "user":
            corrections[message.message_id] = found
            message = replace(message, content=found.text)
        right.append(message)
        last[_speaker(message)] = message
    return right, corrections


def _speaker(message: Message) -> tuple[str, object]:
    return message.role, message.metadata.get("speaker")


def with_corrections(extraction: Extraction, corrections: Mapping[str, Correction]) -> Extraction:
    """Facts that tell which message they correct, and of which value."""
    facts = []
    for fact in extraction.facts:
        found = next((corrections[it] for it in fact.sources if it in corrections), None)
        facts.append(replace(fact, corrects=(found.message_id, found.wrong)) if found else fact)
    return replace(extraction, facts=tuple(facts))
