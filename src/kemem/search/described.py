"""Whom a question describes, by what rows tell of somebody: "the friend who moved to Oslo"."""

from collections.abc import Sequence
from dataclasses import dataclass

from kemem.ports.request import Key, key_of
from kemem.records import Row
from kemem.search.features import by_person, worth
from kemem.text.described import Description, Subject, subject_of
from kemem.text.naming import is_named
from kemem.text.reading import content, read
from kemem.text.segment import is_cjk, stem, tokens

_COVERED = 0.5  # which share of a description a row has at least,
_CHARACTERS = 0.7  # what that of its characters is worth beside that of pairs,
_LONG = 200  # and how many characters the row has at most


@dataclass(frozen=True, slots=True)
class Described:
    """Whom a question describes: Kaya for "the friend who moved to Oslo"."""

    subject: Subject
    words: frozenset[str]
    said: str  # what tells so,
    given_by: Key  # and in which row

    @property
    def name(self) -> str:
        """What is asked about in the place of the description."""
        return self.subject.text

    @property
    def terms(self) -> tuple[str, ...]:
        """What a row has that the hop may lead to."""
        return self.subject.names

    def leads_to(self, row: Row) -> bool:
        """Whether a row uses one of the names."""
        return any(is_named(it, row.content) for it in self.terms)

    def speaks_of(self, text: str) -> bool:
        """Whether a text tells what describes it."""
        own = read(text).words
        chars = {word for word in self.words if worth(word) < 1}
        return tells(self.words & own) or (bool(chars) and chars <= own)


def described(it: Description, rows: Sequence[Row]) -> tuple[Described, int] | None:
    """Whom rows tell of what a question describes, and where that ends; None if it may be two."""
    best, most, subjects = None, 0.0, set[str]()
    for row in filter(by_person, rows):
        subject = subject_of(row.content) if len(row.content) <= _LONG else None
        if subject is None or it.is_person not in (None, subject.is_person):
            continue
        own = read(row.content).words
        said, end = it.said, it.end
        if it.open:  # as far as the row says so
            shared = [run for run in runs_of(said, own) if run[1] - run[0] > 1]
            said = said[: shared[-1][1]] if shared else ""
            end = it.said_at + len(said)
        words = frozenset(content(said))
        if it.is_together and not subject.is_together:
            continue
        all_words = sum(map(worth, words))
        known = _coverage(words, own) * all_words
        needed = _COVERED / (1 + it.is_together) * all_words
        is_named_there = any(is_named(name, it.said) for name in subject.names)
        if is_named_there or known < most or known < needed or not known:
            continue
        if known > most:
            subjects.clear()
            best, most = (Described(subject, words, row.content, key_of(row)), end), known
        subjects.add(subject.text)
    return best if len(subjects) == 1 else None


def _coverage(words: frozenset[str], own: frozenset[str]) -> float:
    """The share of words that a row has; of Chinese that of their characters, if it is more.

    膝盖受伤 is told by 把膝盖伤了, which has one of its pairs and three of its characters.
    """
    shared, chars = words & own, {word for word in words if worth(word) < 1}
    share = sum(map(worth, shared)) / (sum(map(worth, words)) or 1.0)
    if chars and any(worth(word) == 1 for word in shared) and not any(it.isascii() for it in words):
        share = max(share, len(chars & own) / len(chars) * _CHARACTERS)
    return share


def tells(words: frozenset[str]) -> bool:
    """Whether words tell of a topic: one of them is more than a character."""
    return any(worth(word) == 1 for word in words)


def runs_of(text: str, words: frozenset[str]) -> list[tuple[int, int]]:
    """Where words stand in a text, those side by side as one."""
    runs: list[tuple[int, int]] = []
    pieces = {it for word in words if is_cjk(word[0]) for it in word}
    pieces |= {stem(it) for word in words if "-" in word for it in word.split("-")}
    for token in tokens(text):
        if token.text not in words | pieces:
            continue
        last = runs[-1][1] if runs else 0
        pair, between = text[last - 1 : token.end], text[last : token.start]
        if runs and (pair in words if is_cjk(token.text) else not between.strip(" -")):
            runs[-1] = (runs[-1][0], token.end)
        else:
            runs.append((token.start, token.end))
    return runs
