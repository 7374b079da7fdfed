"""What a short message answers: said alone, "Biscuit." tells nothing."""

from collections.abc import Sequence
from itertools import islice

from kemem.records import Message, Row
from kemem.text.query import asks
from kemem.text.segment import tokens
from kemem.text.summary import sentences

_SHORT = 30  # tokens of a reply; a longer one says itself what it is about
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
    if sum(1 for _ in islice(tokens(row.content), _SHORT + 1)) > _SHORT:
        return ""
    questions = [each for each in sentences(last.content) if asks(each)]
    return questions[-1][:_LONGEST] if questions else ""
