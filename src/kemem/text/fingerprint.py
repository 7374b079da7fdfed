"""What makes two texts the same statement: words, values and signs; not punctuation or fillers."""

import re
from collections.abc import Iterator
from hashlib import blake2b

from kemem.text.segment import normalise

_BULLET = re.compile(r"^\s*(?:[-*•·]|\d{1,3}[.)])\s+")
_PRINTED_DATE = re.compile(r"[(（](\d{4}-\d{2}-\d{2})[)）]$")
# Marks that only separate words; inside values they do not: 3.5, .5, 8:30, 1,000.
_MARKS = re.compile(r"(?<![0-9])[.,:](?![0-9])|(?<=[0-9])[.,:](?![0-9])|[;!?\"“”、。…()\[\]{}]+")
# What may come and go without changing what is said.
_FILLERS = re.compile(r"\b(?:the|really|very|also|quite|just)\b|\btoo(?=\s*$)")
_CHINESE_FILLERS = re.compile(
    r"(?:很|非常|特别|十分|真的)(?=喜欢|爱|讨厌|想)|也(?=不|没|很|喜欢|爱|讨厌|想|是|在|有|会|要)"
    r"|(?<![了呢啊吧呀嘛])[了呢啊吧呀嘛]++(?=\s*$)"
)


def fingerprint(text: str) -> str:
    """Equal for texts that make the same statement.  "很喜欢猫。" ~ "喜欢猫"

    A number, a sign, a date, a negation, any word more or less makes another one: a new statement
    is never taken for a stored one.
    """
    bare = _MARKS.sub(" ", normalise(text).replace("’", "'"))
    words = _CHINESE_FILLERS.sub("", _FILLERS.sub(" ", bare))
    statement = " ".join(words.split()) or text
    return blake2b(statement.encode(errors="replace"), digest_size=16).hexdigest()


def dated(text: str, day: str | None) -> str:
    """The fingerprint of what happens on a day: the same plan on another day is another one."""
    return fingerprint(text if day is None or day in text else f"{text} {day}")


def as_printed(line: str) -> Iterator[str]:
    """Fingerprints that a line may have as a memory, which is printed with a bullet and a date."""
    bare = _BULLET.sub("", line)
    yield fingerprint(bare)
    if match := _PRINTED_DATE.search(bare.rstrip()[-12:]):
        text = bare.rstrip()[:-12].rstrip()
        yield fingerprint(text)
        yield dated(text, match[1])
