"""The part of a long text that a question is about: a model that reads both has little room."""

from collections.abc import Set
from functools import lru_cache

from kemem.text.language import is_chinese
from kemem.text.reading import content
from kemem.text.summary import sentences

_MOST = {True: 64, False: 200}  # characters, of a Chinese text and of another
_LOOKED_AT = 8_000  # characters of a text; who writes more has pasted something


@lru_cache(maxsize=8192)
def content_words(text: str) -> frozenset[str]:
    """What a sentence is about; the same ones are read again and again."""
    return frozenset(content(text))


def passage(text: str, words: Set[str]) -> str:
    """The sentences of a text, as many as fit, that share most words with a question.

    "Hi! … We moved to Bern in May." asked where somebody lives -> We moved to Bern in May.
    """
    most = _MOST[is_chinese(text)]
    if len(text) <= most:
        return text
    some = [*sentences(text[:_LOOKED_AT])]
    shared = [words & content_words(it) for it in some]
    best, most_shared = text[:most], -1
    for start in range(len(some)):
        end, size, seen = start, 0, frozenset[str]()
        while end < len(some) and (end == start or size + len(some[end]) <= most):
            seen |= shared[end]
            size += len(some[end]) + 1
            end += 1
        if len(seen) > most_shared:
            best, most_shared = " ".join(some[start:end]), len(seen)
    return best[:most]


def last_question(text: str) -> str:
    """The last sentence of a text that ends as a question.  "Hi! How are you? Fine." -> How are…"""
    asked = [it for it in sentences(text[-_LOOKED_AT:]) if it.endswith(("?", "？"))]
    return asked[-1] if asked else ""
