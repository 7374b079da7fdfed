"""Data files of words, patterns and rules: what is inserted, and what a malformed line reports."""

import re
from importlib.resources import files

import pytest

from kemem.facts.keywords import keywords
from kemem.facts.language import language
from kemem.text.lexicon import load, parse

GOOD = """# a comment
[words]
PETS = dog cat
  guinea_pig
[patterns]
animal = (?:[a-z]+[ ])?<PETS>
LONG = a
  |b
[rules]
identity - has_pet:animal
  has an? <animal>
  keeps
    (?: )<animal as pet>
"""


def test_lists_patterns_and_rules_are_read() -> None:
    lexicon = parse(GOOD, "x.rules")
    assert [*lexicon.tables["PETS"]] == ["dog", "cat", "guinea pig"]
    assert lexicon.pattern("LONG").pattern == "a|b"
    ((heading, patterns),) = lexicon.rules
    assert heading == (10, "identity - has_pet:animal")
    texts = ["has a big guinea pig", "keeps dog"]
    made = map(re.fullmatch, map(lexicon.expand, patterns), texts)
    assert [match and match.groupdict() for match in made] == [
        {"animal": "big guinea pig"},
        {"pet": "dog"},
    ]


def test_a_malformed_line_is_reported_with_its_place() -> None:
    broken = {
        "PETS = dog": r"x.rules:1: expected one of \[words\]",
        "[words]\n  dog": "x.rules:2: nothing above",
        "[words]\ndog": "x.rules:2: expected NAME = value",
        "[words]\nA = a\n[patterns]\nA = b": "x.rules:4: A is defined twice",
        "[patterns]\nA = <B>\nB = b": "x.rules:2: <B> is not defined above",
        "[patterns]\nA = a\n  (": "x.rules:2: 'a\\(': missing",
        "[rules]\n  a": "x.rules:2: nothing above",
        "[rules]\nidentity - -\n    a": "x.rules:3: nothing above",
    }
    for text, problem in broken.items():
        with pytest.raises(ValueError, match=problem):
            parse(text, "x.rules").pattern("A")


def test_every_pattern_of_the_data_files_compiles() -> None:
    """Also those that no test needs."""
    keywords("数据库")  # loads its file with what code inserts
    for lexicon in [language("zh").patterns, language("en").patterns]:
        for name in lexicon.lines.keys() - lexicon.tables.keys():
            lexicon.pattern(name)
    sentences = load("kemem.facts", "sentences.rules")
    assert all(sentences.pattern(name) for name in sentences.lines)


def test_data_files_say_how_they_are_written() -> None:
    for package in ("kemem.facts", "kemem.text"):
        for file in files(package).iterdir():
            if file.name.endswith((".rules", ".tsv")):
                assert file.read_text("utf-8").startswith("# "), file.name
