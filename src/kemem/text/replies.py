"""What a short message answers: said alone, "Biscuit." tells nothing."""

import re
from collections.abc import Sequence

from kemem.records import Message, Row
from kemem.text.query import asks
from kemem.text.reading import content, read
from kemem.text.segment import count_tokens
from kemem.text.summary import sentences

_SHORT = 30  # tokens of a reply; a longer one says itself what it is about
_FRAGMENT = 8  # tokens of one that says nothing by itself
# Another topic; an answer, whatever it is about.
_ASIDE = re.compile(
    r"(?i)\W*(?:(?:oh,? )?by the way|btw|anyways?|unrelated|also,)\b|\W*(?:对了|话说|顺便|另外)"
)
_ANSWERS = re.compile(
    r"(?i)\W*(?:yes|yeah|yep|yup|no|nope|nah|sure|not really|both|neither)\b|\W*[是对有没不嗯好]"
)
_LONGEST = 200  # characters of a question


def question_before(row: Row, before: Sequence[Message]) -> str:
    """The assistant's question that a row answers; `before` are messages, the nearest first.

    "Lovely! What is your dog called?", "Biscuit." -> What is your dog called?
    """
    if not isinstance(row, Message) or row.role != "user" or not before:
        return ""
    last = before[0]
    if last.role != "assistant" or asks(row.content):
        return ""
    questions = [each for each in sentences(last.content) if asks(each)]
    if not questions or _ASIDE.match(row.content):
        return ""
    length = count_tokens(row.content, _SHORT + 1)
    if length > _SHORT:
        return ""
    question = questions[-1][:_LONGEST]
    return question if length <= _FRAGMENT or _fits(row.content, question) else ""


def _fits(reply: str, question: str) -> bool:
    """Whether a reply that is a sentence of its own may answer a question: it takes up a word."""
    if _ANSWERS.match(reply):
        return True
    shared = read(reply).words.intersection(content(question))
    return len(shared) > 1 or any(len(word) > 1 for word in shared)
