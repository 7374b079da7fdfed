"""Snippets: extracts of the text as it was written, with what the query asked for marked."""

import re

from hypothesis import given
from hypothesis import strategies as st

from kemem.text.query import CLOSE, OPEN, matches, parse
from kemem.text.segment import tokens
from tests.cases import each

MARKED = re.compile(f"{OPEN}(.*?){CLOSE}", re.DOTALL)
PIECES = (
    *("火锅", "不吃辣", "火", "我们去吃", "ｶﾞ", "か\u3099", "𠮷", "한", "\u1112\u1161\u11ab"),
    *("hotpot", "Hotpots ", "HOT", " tea ", "ＴＥＡ", "C++", "user@x.com", "cafe\u0301", "ﬁ", "ß"),
    *(" ", "\n", "，", "…", "👩", "\0", "\u0301", "x" * 45, "好" * 45),
)
CONTENTS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)
WORDS = ("火锅", "辣", '"吃火锅"', "hotpots", "tea", "hot*", "café", "c++", "x.com*", "ガ", "ss")
QUERIES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)


def bare(snippet: str) -> str:
    return snippet.replace(OPEN, "").replace(CLOSE, "")


def asked_for(query_text: str, token: str) -> bool:
    return any(
        token == wanted or (unit.prefix and wanted == unit.tokens[-1] and token.startswith(wanted))
        for unit in parse(query_text).units
        for wanted in unit.tokens
    )


@given(content=CONTENTS, asked=QUERIES)
def test_a_snippet_without_its_marks_stands_in_the_text(content: str, asked: str) -> None:
    """Three dots show where the text goes on; there are at most three snippets."""
    found = matches(content, parse(asked))
    assert len(found.snippets) <= 3
    for snippet in found.snippets:
        whole = bare(snippet)
        begun, ended = whole.removeprefix("…"), whole.removesuffix("…")
        assert any(text in content for text in (whole, begun, ended, begun.removesuffix("…")))


@given(content=CONTENTS, asked=QUERIES)
def test_only_what_was_asked_for_is_marked(content: str, asked: str) -> None:
    """And what is marked is named in the terms."""
    found = matches(content, parse(asked))
    for snippet in found.snippets:
        marked = MARKED.findall(snippet)
        assert marked
        assert set(marked) <= set(found.terms)
    for term in found.terms:
        assert term in content
        assert all(asked_for(asked, token.text) for token in tokens(term))
    assert bool(found.snippets) == bool(found.terms)


@each(
    ("content", "asked", "snippet"),
    [
        ("我不吃辣", '"不吃辣"', "我<mark>不吃辣</mark>"),
        ("I can't eat spicy food", '"spicy food"', "I can't eat <mark>spicy food</mark>"),
        ("我不吃辣，火锅要清汤", "吃辣的火锅", "我不<mark>吃辣</mark>，<mark>火锅</mark>要清汤"),
        ("Hotpots, no HOTPOT", "hotpot", "<mark>Hotpots</mark>, no <mark>HOTPOT</mark>"),
        ("去吃ＨＯＴＰＯＴ吧", "hotpot", "去吃<mark>ＨＯＴＰＯＴ</mark>吧"),
        ("打８折，１００％", "100 8", "打<mark>８</mark>折，<mark>１００</mark>％"),
        ("cafe\u0301 咖啡", "café", "<mark>cafe\u0301</mark> 咖啡"),
        ("等等……ｶﾞと火锅", "火锅", "等等……ｶﾞと<mark>火锅</mark>"),
        ("Straße… ﬁne", "fine", "Straße… <mark>ﬁne</mark>"),
        ("\u1112\u1161\u11ab 한 火", "한", "<mark>\u1112\u1161\u11ab</mark> <mark>한</mark> 火"),
        ("用C++写，不用C", "C++", "用<mark>C++</mark>写，不用C"),
        ("mail user@x.com", "user@x.com", "mail <mark>user@x.com</mark>"),
        ("interviews 面试", "interv*", "<mark>interviews</mark> 面试"),
        ("mail me@x.community", "x.com*", "mail me@<mark>x.community</mark>"),
        ("火锅和茶", "火锅 NOT 辣", "<mark>火锅</mark>和茶"),
        ("火火火", "火", "<mark>火火火</mark>"),
        ("<b>火锅</b>", "火锅", "<b><mark>火锅</mark></b>"),
    ],
)
def test_matches_are_marked_as_they_are_written(content: str, asked: str, snippet: str) -> None:
    """Whatever the width, case, ending or composition."""
    assert matches(content, parse(asked)).snippets == (snippet,)


@each(
    ("content", "asked", "terms"),
    [
        ("火锅，ＨＯＴ，火锅", "火锅 hot", ("火锅", "ＨＯＴ")),
        ("Teas and tea and TEA, tea", "tea", ("Teas", "tea", "TEA")),
    ],
)
def test_terms_are_named_once_and_in_their_spelling(
    content: str, asked: str, terms: tuple[str, ...]
) -> None:
    assert matches(content, parse(asked)).terms == terms


@each("asked", ["", "NOT 辣", "NOT spicy", "清汤", "broth", "！"])
@each("content", ["我不吃火锅", "no hotpot for me", ""])
def test_where_nothing_is_wanted_or_found_nothing_is_marked(content: str, asked: str) -> None:
    found = matches(content, parse(asked))
    assert (found.snippets, found.terms) == ((), ())


@each(("filler", "word"), [("好", "火锅"), (" so ", "hotpot")])
def test_matches_far_apart_give_snippets_of_their_own(filler: str, word: str) -> None:
    """The first three; context on both sides, dots where something was left out."""
    gap = filler * 100
    found = matches(gap + gap.join([word] * 5) + gap, parse(word))
    assert len(found.snippets) == 3
    for snippet in found.snippets:
        assert snippet.startswith("…")
        assert snippet.endswith("…")
        assert MARKED.findall(snippet) == [word]
        assert len(bare(snippet)) == 40 + len(word) + 40 + 2
    assert found.terms == (word,)


@each(("filler", "word"), [("好", "火锅"), (" so ", "hotpot")])
def test_matches_close_together_share_a_snippet(filler: str, word: str) -> None:
    (snippet,) = matches(f"{word} {filler * 8} {word}", parse(word)).snippets
    assert MARKED.findall(snippet) == [word, word]


@each(
    ("content", "asked"),
    [
        ("火锅" * 17_000, "火锅"),
        ("hotpot " * 14_000, "hotpot"),
        ("火" * 34_000, "火锅"),
        ("火锅好吃，" * 6_800, '"火锅好吃"'),
        ("a." * 51_200, '"a a a"'),
        ("x" * 102_400, "x*"),
    ],
)
def test_a_snippet_stays_short_however_much_matches(content: str, asked: str) -> None:
    """A text of 100 KB that is nothing but matches gives an extract like any other."""
    found = matches(content, parse(asked))
    assert 1 <= len(found.snippets) <= 3
    assert all(len(bare(snippet)) <= 300 for snippet in found.snippets)
    assert all(len(term) <= 200 for term in found.terms)
