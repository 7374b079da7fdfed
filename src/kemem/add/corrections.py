"""A message that corrects one value of the message before, read as that message put right.

"I live in Hamburg", "Sorry, I meant Homburg" -> "I live in Homburg"
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from kemem.add.rules import Extraction, Fact, Reading, read_by_rules
from kemem.records import Message
from kemem.text.lexicon import load

_SHAPES = ("WEEKDAY", "CLOCK", "DAY", "MONTH", "CODE", "AMOUNT")
_LONGEST = 80  # characters of a correction
_REACH = 3  # messages that one may go back, if it is said to be one and its value has a shape
_WORD = re.compile(r"[\w'-]+")
_ARTICLE = re.compile(r"\b(?:an?|the|my|our)\s+", re.IGNORECASE)
_BESIDE = {True: "{} (corrected to {})", False: "{}（更正为{}）"}  # of texts in ASCII, and others


@dataclass(frozen=True, slots=True)
class Correction:
    """What a message says once it is put right, and what it takes back."""

    text: str
    value: str  # the right one
    wrong: str  # the value that it replaces
    before: Message  # that had said it


@dataclass(frozen=True, slots=True)
class _Parsed:
    value: str
    wrong: str = ""  # if it is said
    explicit: bool = True  # it is said to be a correction, so that a mere name may be one


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return load(__package__, "corrections.rules").pattern(name)


def looks_like_correction(text: str) -> bool:
    """Whether a message may correct the one before.  "不对，是四点" -> True"""
    return _parsed(text) is not None or _taken_back(text) is not None


def _parsed(text: str) -> _Parsed | None:
    plain = _plain(text)
    for name in ("NOT_BUT_ZH", "EXPLICIT", "EXPLICIT_ZH", "NAMED", "IMPLICIT"):
        match = _pattern(name).fullmatch(plain)
        if match and (value := match["value"]):
            wrong = match.groupdict().get("wrong") or ""
            return _Parsed(value.strip(), wrong.strip(), name != "IMPLICIT")
    return None


def _plain(text: str) -> str:
    plain = text.strip().replace("’", "'")
    return plain if len(plain) <= _LONGEST else ""


def _taken_back(text: str) -> str | None:
    """What follows words that take something back.  "Actually it leaves at 9" -> it leaves at 9"""
    match = _pattern("TAKEN_BACK").fullmatch(_plain(text))
    return match["rest"] if match else None


def _readings(text: str, before: str) -> Iterator[_Parsed]:
    """The ways to take a message as a correction of a text, the surest first."""
    if parsed := _parsed(text):
        again = _pattern("SAID_AGAIN").fullmatch(parsed.value)
        if again is None:
            yield parsed
        elif again["same"] in before:  # "wrong, the wedding is on the 18th"; else it is a sentence
            yield replace(parsed, value=again["value"])
    if rest := _taken_back(text):  # it may say again what is right: "wait, gate B21"
        said = {it.lower() for it in _WORD.findall(before)}
        while (match := _pattern("FIRST_WORD").match(rest)) and (
            _pattern("POINTING").fullmatch(match[1].lower()) or match[1].lower() in said
        ):
            rest = rest[match.end() :]
        if rest:
            yield _Parsed(rest, explicit=False)
        for match in (it for name in _SHAPES for it in _pattern(name).finditer(rest)):
            around = (rest[: match.start()], rest[match.end() :])  # "啊不，七点开始"
            if all(it.strip(" 是在") in before for it in around):
                yield _Parsed(match.group(), explicit=False)


def corrected(text: str, before: Message, *, is_last: bool = True) -> Correction | None:
    """A message as a correction of one before; None where it is none, or unclear of what."""
    for parsed in _readings(text, before.content):
        value = parsed.value
        if not is_last and not (parsed.explicit and _shape(value)):
            continue
        said = parsed.wrong and parsed.wrong in before.content
        likes = [parsed.wrong] if said else _like(value, before, parsed.explicit)
        if not likes or value.casefold() in {it.casefold() for it in likes}:
            continue
        if len({*likes}) > 1:  # which of them it means is not certain
            beside = _BESIDE[before.content.isascii()]
            return Correction(beside.format(before.content, value), value, likes[-1], before)
        is_bare = _shape(value) == "AMOUNT" and value.isalpha()  # "seven" of "six years"
        wrong = likes[-1].split()[0] if is_bare else likes[-1]
        head, _, tail = before.content.rpartition(wrong)
        if _ARTICLE.match(value):  # "a Volvo" takes the place of "a Fiat", not of "Fiat"
            head = re.sub(rf"{_ARTICLE.pattern}$", "", head, flags=re.IGNORECASE)
        return Correction(f"{head}{value}{tail}", value, wrong, before)
    return None


def _shape(value: str) -> str | None:
    return next((name for name in _SHAPES if _pattern(name).fullmatch(value)), None)


def _like(value: str, before: Message, explicit: bool) -> list[str]:
    """The parts of a message that a value can take the place of: those of its shape."""
    if name := _shape(value):
        return [it.group() for it in _pattern(name).finditer(before.content)]
    if not explicit or _pattern("SENTENCE").search(value):
        return []
    capitals = _pattern("CAPITAL").finditer(before.content) if value[:1].isupper() else ()
    named = [it.group() for it in capitals]
    values = _values(read_by_rules([before]))
    alike = [it for it in values if bool(_pattern("HAN").search(it)) == (not value.isascii())]
    return (named or [it for it in alike if it in before.content])[-1:]


def _values(reading: Reading) -> list[str]:
    """The values that rules find in a message, in order."""
    sentences = (sentence for _, _, read in reading.messages for sentence in read)
    parts = (part for sentence in sentences for part in sentence.parts)
    return [value for part in parts for it in part.statements for value in it.values]


def put_right(
    messages: Sequence[Message], earlier: Iterable[Message]
) -> tuple[list[Message], dict[str, Correction]]:
    """Messages in which corrections are written out, and these by the ids of their messages.

    What corrects a sensitive message is sensitive too: it has the right value.
    """
    said: dict[object, list[Message]] = defaultdict(list)  # by each speaker, the last one first
    right, corrections = [], dict[str, Correction]()
    before = [*earlier]
    for at, message in enumerate((*before, *messages)):
        own = said[_speaker(message)]
        found = _first_corrected(message, own) if message.role == "user" else None
        own.insert(0, _written_out(message, found) if found else message)
        if at >= len(before):
            right.append(own[0])
            corrections |= {message.message_id: found} if found else {}
    return right, corrections


def _written_out(message: Message, found: Correction) -> Message:
    sensitive = message.sensitive or found.before.sensitive
    return replace(message, content=found.text, sensitive=sensitive)


def _first_corrected(message: Message, said: Sequence[Message]) -> Correction | None:
    """The correction that a message is of one of those before, the last one first."""
    tries = (corrected(message.content, it, is_last=not at) for at, it in enumerate(said[:_REACH]))
    return next(filter(None, tries), None)


def _speaker(message: Message) -> tuple[str, str]:
    return message.role, message.speaker


def with_corrections(
    extraction: Extraction, reading: Reading, corrections: Mapping[str, Correction]
) -> Extraction:
    """Facts that tell which message they correct, and of which value.

    What somebody takes the trouble to correct is worth keeping; so is what was wrong, as the past.
    """
    facts, known = [], {name for fact in extraction.facts for name in fact.sources}
    for fact in extraction.facts:
        found = next((corrections[it] for it in fact.sources if it in corrections), None)
        facts.append(_correcting(fact, found) if found else fact)
    for message, _, sentences in reading.messages:
        found = corrections.get(message.message_id)
        if found is None or message.message_id in known:
            continue
        notes = [part.note for it in sentences for part in it.parts if not part.silent]
        text = next((it for it in notes if found.value in it), "")
        if text:
            facts.append(_correcting(Fact(text, (message.message_id,)), found))
        was = text.replace(found.value, found.wrong)
        if text and was in found.before.content and found.before.message_id not in known:
            facts.insert(-1, Fact(was, (found.before.message_id,), since=found.before.ts))
    return replace(extraction, facts=tuple(facts))


def _correcting(fact: Fact, found: Correction) -> Fact:
    return replace(fact, corrects=(found.before.message_id, found.wrong))
