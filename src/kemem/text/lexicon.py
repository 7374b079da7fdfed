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


@dataclass(frozen=True, slots=True)
class Lexicon:
    """A data file; its patterns are compiled when they are first used."""

    file: str
    extra: dict[str, str]  # patterns that code adds
    lines: dict[str, Line] = field(default_factory=dict)  # of lists, tables and patterns, by name
    tables: dict[str, dict[str, str]] = field(default_factory=dict)  # also lists: words mean ""
    rules: list[tuple[Line, list[Line]]] = field(default_factory=list)  # headings and patterns
    _compiled: dict[str, re.Pattern[str]] = field(default_factory=dict)

    def pattern(self, name: str) -> re.Pattern[str]:
        """A pattern by its name, compiled once."""
        if name not in self._compiled:
            line = self.lines[name]
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
            inner, above = self.extra.get(name), self.lines.get(name)
            if not inner:
                if above is None or above.number >= line.number:
                    self.refuse(line, f"<{name}> is not defined above")
                inner = "|".join(self.tables[name]) if name in self.tables else self.expand(above)
            return f"(?P<{slot}>{inner})" if name.islower() else f"(?:{inner})"

        return _REFERENCE.sub(write, line.text)

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
    lexicon, section, name = Lexicon(file, extra), "", ""
    for number, raw in enumerate(text.splitlines(), 1):
        line, indent = Line(number, raw.strip()), len(raw) - len(raw.lstrip(" "))
        if not line.text or raw.startswith("#"):
            continue
        if raw.rstrip() in _SECTIONS:
            section, name = line.text, ""
        elif section == "[rules]" and indent == 0:
            lexicon.rules.append((line, []))
        elif section == "[rules]":
            patterns = lexicon.rules[-1][1] if lexicon.rules else None
            if patterns is None or (indent >= 4 and not patterns):
                lexicon.refuse(line, f"nothing above to go on with: {line.text!r:.60}")
            begun = patterns.pop() if indent >= 4 else Line(number, "")
            patterns.append(Line(begun.number, begun.text + line.text))
        elif section:
            name = _add_entry(lexicon, line, section, name if indent else None)
        else:
            lexicon.refuse(line, f"expected one of {', '.join(_SECTIONS)}, not {line.text!r:.60}")
    return lexicon


def _add_entry(lexicon: Lexicon, line: Line, section: str, last: str | None) -> str:
    """Define a name, or go on with the last one; the name."""
    if last is None:
        match = _ENTRY.fullmatch(line.text)
        if match is None:
            lexicon.refuse(line, f"expected NAME = value, not {line.text!r:.60}")
        if match[1] in lexicon.lines:
            lexicon.refuse(line, f"{match[1]} is defined twice")
        last, text = match.groups()
        lexicon.lines[last] = Line(line.number, text)
    elif last:
        (number, begun), text = lexicon.lines[last], line.text
        joint = "" if section == "[patterns]" else " "
        lexicon.lines[last] = Line(number, begun + joint + text)
    else:
        lexicon.refuse(line, f"nothing above to go on with: {line.text!r:.60}")
    if section != "[patterns]":
        table = lexicon.tables.setdefault(last, {})
        for row in (it.replace("_", " ") for it in text.split()):
            words, _, meaning = row.rpartition(":") if section == "[tables]" else ("", "", "")
            table.update(dict.fromkeys(words.split("|"), meaning) if words else {row: ""})
    return last
