"""What the word index knows of a row beside its words: who speaks, and whether it asks.

Marks are tokens that begin with a character for private use, which no text is cut into: nobody can
type one, in a message or in a query.
"""

import re

from kemem.records import Message, Row
from kemem.text.query import Phrase
from kemem.text.segment import search_text

_BY = "\ue000"
_ASKING = "\ue001"
# A question, whatever closes or is appended to it in brackets: "(Really?) [photo: a cat]", "是吗…"
_ASKS = re.compile(r"""[?？][\s"'”’」』)）]*(?:\[[^\]]*\]\s*)?$|[吗呢][\s。…~～]*$""")
ASKING = Phrase((_ASKING,))  # what questions are found by
_TAIL = 300  # characters in which a text shows that it asks


def index_text(row: Row) -> str:
    """The search text of a row, then its marks."""
    return " ".join(filter(None, (search_text(row.words), *_marks(row))))


def length(text: str) -> int:
    """How many words an indexed text holds."""
    return sum(not _is_mark(token) for token in text.split())


def spoken_by(token: str) -> str:
    """The mark of a message whose speaker's name holds a token."""
    return _BY + token


def asks(text: str) -> bool:
    """Whether a text ends as a question.  "去吗？" -> True"""
    return _ASKS.search(text[-_TAIL:].rstrip()) is not None


def _is_mark(token: str) -> bool:
    return token[0] in (_BY, _ASKING)


def _marks(row: Row) -> list[str]:
    if not isinstance(row, Message):
        return []
    speaker = row.metadata.get("speaker")
    names = search_text(speaker).split() if isinstance(speaker, str) else []
    return [*map(spoken_by, names), *([_ASKING] if asks(row.content) else [])]
