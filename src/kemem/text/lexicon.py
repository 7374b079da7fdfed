"""Word lists, patterns and rules as data files, which can be edited without knowing Python.

A line that opens with "#" is a comment; an indented line goes on with the one above. Sections:

    [words]                         lists; "_" is a blank inside a word, a word may be a pattern
    PETS = dog cat guinea_pig
    [tables]                        words and what they mean; "|" stands between words of a meaning
    SIZES = big|large:3 very_small:0
    [patterns]                      regular expressions; <PETS> inserts a list or another pattern
    animal = (?:[a-z]+ )?<PETS>
    [rules]                         what patterns mean, and below the patterns, indented by two
    identity - has_pet:animal
      has an? <animal>

What is inserted must be defined above. A name in capitals inserts a pattern, one in small letters
a slot, which is a named group: <animal>, or under another name <animal as pet>. A table inserts its
words.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import NamedTuple, NoReturn

_SECTIONS = ("[words]", "[tables]", "[patterns]", "[rules]")
_ENTRY = re.compile(r"(\w+) = ?(.*)")
_REFERENCE = re.compile(r"(?<!\?P)<(\w+)(?: as (\w+))?>")


class Line(NamedTuple):
    """A text and the number of the line where it begins."""

    number: int
    text: str


class Rule(NamedTuple):
    """What some patterns mean, and the patterns."""

    heading: Line
    patterns: list[Line]


@dataclass(frozen=True, slots=True)
class Lexicon:
    """A data file; its patterns are compiled when they are first used."""

    file: str
    extra: dict[str, str] = field(default_factory=dict)  # patterns that code adds
    lists: dict[str, Line] = field(default_factory=dict)
    tables: dict[str, Line] = field(default_factory=dict)
    entries: dict[str, Line] = field(default_factory=dict)
    rules: list[Rule] = field(default_factory=list)
    _sets: dict[str, frozenset[str]] = field(default_factory=dict)
    _pairs: dict[str, dict[str, str]] = field(default_factory=dict)
    _compiled: dict[str, re.Pattern[str]] = field(default_factory=dict)

    def words(self, name: str) -> frozenset[str]:
        """The words of a list."""
        if name not in self._sets:
            words = self.lists[name].text.split()
            self._sets[name] = frozenset(word.replace("_", " ") for word in words)
        return self._sets[name]

    def table(self, name: str) -> Mapping[str, str]:
        """What each word of a table means."""
        if name not in self._pairs:
            rows = [row.replace("_", " ").rpartition(":") for row in self.tables[name].text.split()]
            pairs = {word: means for words, _, means in rows for word in words.split("|")}
            self._pairs[name] = pairs
        return self._pairs[name]

    def text(self, name: str) -> str:
        """A pattern by its name, as text."""
        return self.expand(self.entries[name])

    def pattern(self, name: str) -> re.Pattern[str]:
        """A pattern by its name, compiled once."""
        if name not in self._compiled:
            line = self.entries[name]
            self._compiled[name] = self.compile(line, self.expand(line))
        return self._compiled[name]

    def compile(self, line: Line, text: str, flags: int = 0) -> re.Pattern[str]:
        """The pattern that a line makes."""
        try:
            return re.compile(text, flags)
        except re.error as error:
            self.refuse(line, f"{line.text!r}: {error}")

    def expand(self, line: Line) -> str:
        """The pattern of a line with everything inserted that it names."""

        def write(match: re.Match[str]) -> str:
            name, slot = match[1], match[2] or match[1]
            inner = self.extra.get(name) or self._inserted(name, line)
            return f"(?P<{slot}>{inner})" if name.islower() else f"(?:{inner})"

        return _REFERENCE.sub(write, line.text)

    def _inserted(self, name: str, user: Line) -> str:
        line = self.lists.get(name) or self.tables.get(name) or self.entries.get(name)
        if line is None or line.number >= user.number:
            self.refuse(user, f"<{name}> is not defined above")
        if name in self.tables:
            return "|".join(self.table(name))
        if name in self.lists:
            return "|".join(line.text.split()).replace("_", " ")
        return self.expand(line)

    def refuse(self, line: Line, problem: str) -> NoReturn:
        """Report a line that cannot be used, with its place."""
        raise ValueError(f"{self.file}:{line.number}: {problem}")


@cache
def load(package: str, file: str, **extra: str) -> Lexicon:
    """A data file of a package; ValueError with file and line where it is malformed.

    `extra` are patterns that the file may insert beside its own.
    """
    return parse((files(package) / file).read_text("utf-8"), file, **extra)


def parse(text: str, file: str, **extra: str) -> Lexicon:
    """A lexicon from the text of a file."""
    lexicon, section = Lexicon(file, extra), ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = Line(number, raw.strip())
        if not line.text or raw.startswith("#"):
            continue
        if raw.rstrip() in _SECTIONS:
            section = line.text
        elif section == "[rules]":
            _add_rule(lexicon, line, len(raw) - len(raw.lstrip(" ")))
        elif section:
            _add_entry(lexicon, line, section, raw.startswith(" "))
        else:
            lexicon.refuse(line, f"expected one of {', '.join(_SECTIONS)}, not {line.text!r:.60}")
    return lexicon


def _add_rule(lexicon: Lexicon, line: Line, indent: int) -> None:
    patterns = lexicon.rules[-1].patterns if lexicon.rules else None
    if indent == 0:
        lexicon.rules.append(Rule(line, []))
    elif patterns is None or (indent >= 4 and not patterns):
        lexicon.refuse(line, f"nothing above to go on with: {line.text!r:.60}")
    elif indent < 4:
        patterns.append(line)
    else:
        patterns[-1] = Line(patterns[-1].number, patterns[-1].text + line.text)


def _add_entry(lexicon: Lexicon, line: Line, section: str, goes_on: bool) -> None:
    places = {"[words]": lexicon.lists, "[tables]": lexicon.tables, "[patterns]": lexicon.entries}
    entries, joint = places[section], "" if section == "[patterns]" else " "
    if goes_on:
        if not entries:
            lexicon.refuse(line, f"nothing above to go on with: {line.text!r:.60}")
        name, (number, text) = entries.popitem()
        entries[name] = Line(number, text + joint + line.text)
        return
    match = _ENTRY.fullmatch(line.text)
    if match is None:
        lexicon.refuse(line, f"expected NAME = value, not {line.text!r:.60}")
    if any(match[1] in each for each in places.values()):
        lexicon.refuse(line, f"{match[1]} is defined twice")
    entries[match[1]] = Line(line.number, match[2])
