"""The query language: what a text asks for, and the laws of its operators."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kemem.errors import InvalidArgument
from kemem.text.query import (
    MAX_CHARACTERS,
    MAX_PHRASE,
    MAX_UNITS,
    AllOf,
    AnyOf,
    Mask,
    Node,
    Not,
    Phrase,
    Query,
    matches,
    parse,
)
from kemem.text.segment import search_text
from tests.cases import each


def shape(node: Node) -> str:
    """A tree as text: "|" any, "&" all, "!" not."""
    match node:
        case Phrase(tokens, prefix):
            return " ".join(tokens) + ("*" if prefix else "")
        case AllOf(()):
            return "anything"
        case AnyOf(()):
            return "nothing"
        case AnyOf(parts):
            return "[" + " | ".join(map(shape, parts)) + "]"
        case AllOf(parts):
            return "[" + " & ".join(map(shape, parts)) + "]"
        case Not(part):
            return "!" + shape(part)


def units(query: Query) -> list[str]:
    return [shape(unit) for unit in query.units]


@each(
    ("text", "tree"),
    [
        ("火锅 AND 清汤", "[火 锅 & 清 汤]"),
        ("hotpot AND broth", "[hotpot & broth]"),
        ("火锅 OR 清汤 OR 辣", "[火 锅 | 清 汤 | 辣]"),
        ("hotpot OR broth OR tea", "[hotpot | broth | tea]"),
        # Words side by side bind tighter than AND, AND tighter than OR.
        ("火锅 清汤 AND 辣", "[[火 锅 | 清 汤] & 辣]"),
        ("hotpot broth AND tea", "[[hotpot | broth] & tea]"),
        ("辣 AND 火锅 清汤", "[辣 & [火 锅 | 清 汤]]"),
        ("茶 OR 火锅 AND 辣", "[茶 | [火 锅 & 辣]]"),
        ("hotpot AND tea OR broth AND milk", "[[hotpot & tea] | [broth & milk]]"),
        ("茶 AND (火锅 OR 清汤)", "[茶 & [火 锅 | 清 汤]]"),
        ("茶 AND （火锅 OR 清汤）", "[茶 & [火 锅 | 清 汤]]"),
        ("tea AND (hotpot OR (broth AND milk))", "[tea & [hotpot | [broth & milk]]]"),
        ("(火锅 OR 茶) 辣 AND 汤", "[[[火 锅 | 茶] | 辣] & 汤]"),
        ("（火锅) AND (tea）", "[火 锅 & tea]"),
        # NOT
        ("NOT 辣", "!辣"),
        ("NOT tea", "!tea"),
        ("火锅 NOT 辣", "[火 锅 & !辣]"),
        ("hotpot AND NOT tea", "[hotpot & !tea]"),
        ("hotpot OR NOT tea", "[hotpot | !tea]"),
        ("NOT 火锅 辣", "![火 锅 | 辣]"),
        ("NOT tea NOT milk", "[!tea & !milk]"),
        ("NOT NOT 辣", "辣"),
        ("火锅 NOT NOT NOT 辣", "[火 锅 & !辣]"),
        ("NOT (hotpot OR tea)", "![hotpot | tea]"),
        ("NOT (NOT tea)", "!!tea"),
        # Phrases
        ('"不吃辣"', "不 吃 辣"),
        ('"spicy broth"', "spici broth"),
        ("“不吃辣” AND 火锅", "[不 吃 辣 & 火 锅]"),
        ("「清汤」 OR “spicy broth”", "[清 汤 | spici broth]"),
        ('"AND" OR "（"', "[and | nothing]"),
        # Without an operator, what stands beside a phrase is plain: any of its parts, ranked.
        ('火锅"清汤"', "[清 汤 | 火 | 火 锅 | 锅]"),
        ('the "clear soup" hotpot', "[clear soup | hotpot]"),
        ('"a “b” 「c」 (d) NOT e"', "a b c d not e"),
        ('"" AND 火锅', "[nothing & 火 锅]"),
        # Joined words are a phrase, as they are written.
        ("user@x.com AND 2026-01-26", "[user x com & 2026 01 26]"),
        ("用C++写 AND C#", "[用 c++ 写 & c#]"),
        ("ＨＯＴＰＯＴ AND １００％", "[hotpot & 100]"),
        # Prefixes; a CJK character cannot go on.
        ("interv*", "interv*"),
        ("火锅*", "火 锅"),
        ("x.com* AND 火*", "[x com* & 火]"),
        ("火锅hot*", "火 锅 hot*"),
        ("hot* NOT tea*", "[hot* & !tea*]"),
        ('"hot"*', "hot"),
        ("** OR tea", "[nothing | tea]"),
        ("the AND 的", "[the & 的]"),
    ],
)
def test_the_query_language_has_this_grammar(text: str, tree: str) -> None:
    """Operators are capitals, phrases stand in quotes of either language."""
    assert shape(parse(text).root) == tree


@each(
    ("text", "wanted"),
    [
        ("火锅", ["火", "火 锅", "锅"]),
        ("hotpots", ["hotpot"]),
        ("火锅 清汤", ["火", "火 锅", "锅", "清", "清 汤", "汤"]),
        ("hotpot and broth", ["hotpot", "broth"]),
        ("火锅 or 辣 not 汤", ["火", "火 锅", "锅", "辣", "not", "汤"]),
        ("喝kopi咖啡", ["喝", "kopi", "咖", "咖 啡", "啡"]),
        ("user@x.com", ["user x com", "user", "x", "com"]),
        ("我不吃辣的", ["我 不", "不", "不 吃", "吃", "吃 辣", "辣", "辣 的"]),
        ("I do not eat the spicy one", ["not", "eat", "spici", "one"]),
        ("你是谁", ["你 是", "是 谁", "谁"]),
        ("的", ["的"]),
        ("what is it", ["what", "is", "it"]),
        ("火火火", ["火", "火 火"]),
        ("(火) tea:*", ["tea*", "火"]),
        ("tea (milk) - coffee!", ["tea", "milk", "coffe"]),
    ],
)
def test_plain_words_are_any_of_them(text: str, wanted: list[str]) -> None:
    """Also pairs of characters and joined words; without what says nothing about a topic."""
    query = parse(text)
    assert sorted(units(query)) == sorted(wanted)
    assert isinstance(query.root, AnyOf)


@each(
    ("text", "kept"),
    [
        ("John Doe", ["john", "doe"]),
        ("what does John do", ["john"]),
        ("What's wrong with John?", ["john", "wrong"]),
        ("John's van", ["john s", "john", "van"]),
        ("Ani and any of them", ["ani"]),
        ("why is he very willing", ["will"]),
        ("being and having been", ["be", "and", "have", "been"]),
        ("之王 的士", ["之 王", "王", "的 士", "士"]),
    ],
)
def test_only_the_words_themselves_are_dropped(text: str, kept: list[str]) -> None:
    """A name that happens to share the stem of "does" or "any" is asked for."""
    assert sorted(units(parse(text))) == sorted(kept)


@each(
    ("broken", "literal"),
    [
        ('"火锅 AND 清汤', "火锅 清汤"),
        ('"hotpot AND broth', "hotpot broth"),
        ('hotpot" AND broth', "hotpot broth"),
        ("“火锅 AND 清汤", "火锅 清汤"),
        ("火锅” OR 清汤", "火锅 清汤"),
        ("「hotpot AND broth", "hotpot broth"),
        ('“hotpot" AND broth', "hotpot broth"),
        ("火锅 AND (清汤", "火锅 清汤"),
        ("hotpot) AND broth", "hotpot broth"),
        ("（火锅 OR 清汤", "火锅 清汤"),
        ("hotpot AND () broth", "hotpot broth"),
        ("火锅 AND", "火锅"),
        ("OR hotpot", "hotpot"),
        ("AND OR", "and or"),
        ("火锅 AND OR 清汤", "火锅 清汤"),
        ("hotpot AND AND broth", "hotpot broth"),
        ("火锅 NOT", "火锅 not"),
        ("NOT", "not"),
        ("NOT OR tea", "not tea"),
    ],
)
def test_what_does_not_parse_is_searched_literally(broken: str, literal: str) -> None:
    """Nobody is told about syntax when they only typed."""
    assert parse(broken) == parse(literal)


@each("text", ["", " ", "\n\t", "\u3000"])
def test_a_blank_query_matches_everything(text: str) -> None:
    assert parse(text) == Query(AllOf(()), ())


@each(
    "text", ["！？。", "?!", "* ** ***", "()", "（）", '"', '""', "“”", "\0", "👩", "\ud800", "_"]
)
def test_a_query_without_words_matches_nothing(text: str) -> None:
    """It asks for something that no text has."""
    query = parse(text)
    assert query.phrases == ()
    rows: Mask = np.ones(3, dtype=np.bool_)
    assert not query.evaluate(lambda phrase: rows, rows).any()


@each("word", ["火", "tea"])
@each("operator", ["", " AND 辣"])
def test_thousands_of_parentheses_are_just_text(word: str, operator: str) -> None:
    """The parser does not follow them down."""
    for text in (
        "(" * 4_990 + word + operator,
        "(" * 2_500 + word + ")" * 2_490 + operator,
        f"{'（' * 33}{word}{'）' * 33}{operator}",
    ):
        assert search_text(word) in units(parse(text))


@each("word", ["火", "tea"])
def test_parentheses_nest_to_a_depth_of_32(word: str) -> None:
    assert shape(parse(f"{'(' * 32}{word} OR x{')' * 32}").root) == f"[{word} | x]"


@each("filler", ["火", "a", " ", "(", "“", "「", '"', "NOT ", "a AND ", "e\u0301", "*"])
def test_a_query_has_at_most_10000_characters(filler: str) -> None:
    """The longest is answered, one more is refused with the number that would be right."""
    text = (filler * MAX_CHARACTERS)[:MAX_CHARACTERS]
    assert len(parse(text).units) <= MAX_UNITS
    with pytest.raises(InvalidArgument, match="at most 10000 characters, not 10001") as caught:
        parse(text + "x")
    assert caught.value.details == {"field": "query_text"}


@each("word", ["火{}", "tea{}"])
@each("operator", [" OR ", " AND ", " NOT "])
def test_a_query_names_at_most_256_terms(word: str, operator: str) -> None:
    """Each costs the store a lookup, also one that must not be there."""
    terms = [word.format(number) for number in range(257)]
    assert len(parse(operator.join(terms[:256])).phrases) == 256
    with pytest.raises(InvalidArgument, match="at most 256 terms, not 257"):
        parse(operator.join(terms))
    assert len(parse(operator.join(terms[:2] * 300)).phrases) == 2


@each("word", ["火{} ", "tea{} "])
def test_of_a_long_plain_text_the_first_256_terms_count(word: str) -> None:
    """A whole message may be the question."""
    query = parse("".join(word.format(number) for number in range(500)))
    assert len(query.units) == MAX_UNITS
    assert query.root == AnyOf(query.units)


@each("text", [None, 5, b"tea", ["火"]])
def test_a_query_is_a_text(text: Any) -> None:
    with pytest.raises(InvalidArgument, match="query_text must be a text"):
        parse(text)


@each("joint", ["", ".", "@"])
@each("length", [31, 32, 33, 48, 49, 200])
def test_a_long_phrase_becomes_windows_that_overlap(joint: str, length: int) -> None:
    """Together they cover it, each begins inside the one before, and none is too long."""
    words = [chr(0x4E00 + at) if not joint else f"w{at}x" for at in range(length)]
    root = parse(f'"{joint.join(words)}"').root
    windows = root.parts if isinstance(root, AllOf) else (root,)
    covered = 0
    for window in windows:
        assert isinstance(window, Phrase)
        start = words.index(window.tokens[0])
        assert list(window.tokens) == words[start : start + len(window.tokens)]
        assert start < max(covered, 1)
        assert len(window.tokens) == min(length, MAX_PHRASE)
        covered = start + len(window.tokens)
    assert covered == length


@each("length", [2, 32, 33, 80])
def test_a_prefix_goes_on_behind_a_phrase_of_any_length(length: int) -> None:
    """Only the very last word is unfinished."""
    words = [f"w{at}x" for at in range(length)]
    query = parse(".".join(words) + "*")
    assert [unit.prefix for unit in query.units] == [False] * (len(query.units) - 1) + [True]
    assert matches(".".join(words) + "yz", query).terms


@each(
    ("text", "wanted"),
    [
        ("火锅 NOT 辣", ["火 锅"]),
        ("hotpot NOT spicy", ["hotpot"]),
        ("NOT 辣", []),
        ("hotpot AND (tea OR NOT milk)", ["hotpot", "tea"]),
    ],
)
def test_what_must_be_absent_earns_no_score(text: str, wanted: list[str]) -> None:
    """It is looked up all the same."""
    query = parse(text)
    assert units(query) == wanted
    assert set(query.units) < set(query.phrases)


WORDS = ("火", "辣", "hot", "tea")
ROWS = 6
EVERYTHING: Mask = np.ones(ROWS, dtype=np.bool_)
WORLDS = st.fixed_dictionaries(
    {word: st.frozensets(st.integers(0, ROWS - 1)) for word in WORDS}
)  # which rows contain which word
World = Mapping[str, frozenset[int]]
TREES: st.SearchStrategy[Node] = st.recursive(
    st.sampled_from(WORDS).map(lambda word: Phrase((word,))) | st.just(AnyOf(())),
    lambda trees: (
        st.lists(trees, min_size=1, max_size=3).map(lambda parts: AnyOf(tuple(parts)))
        | st.lists(trees, min_size=1, max_size=3).map(lambda parts: AllOf(tuple(parts)))
        | trees.map(Not)
    ),
    max_leaves=8,
)


def rows(query: Query, world: World) -> set[int]:
    """What a query finds in a world."""

    def rows_with(phrase: Phrase) -> Mask:
        return np.isin(np.arange(ROWS), list(world[phrase.tokens[0]]))

    return set(np.flatnonzero(query.evaluate(rows_with, EVERYTHING)).tolist())


def naive(node: Node, world: World) -> set[int]:
    """What a tree means, in the words of set theory."""
    every = set(range(ROWS))
    match node:
        case Phrase(tokens):
            return set(world[tokens[0]])
        case Not(part):
            return every - naive(part, world)
        case AnyOf(parts):
            return set[int]().union(*(naive(part, world) for part in parts))
        case AllOf(parts):
            return every.intersection(*(naive(part, world) for part in parts))


def typed(node: Node) -> str:
    """A tree as a user would type it."""
    match node:
        case Phrase(tokens):
            return " ".join(tokens)
        case Not(part):
            return f"NOT ({typed(part)})"
        case AnyOf(parts) if parts:
            return "(" + " OR ".join(map(typed, parts)) + ")"
        case AllOf(parts):
            return "（" + " AND ".join(map(typed, parts)) + "）"
        case _:
            return '"！"'


@given(tree=TREES, world=WORLDS)
def test_a_tree_finds_what_set_theory_says(tree: Node, world: World) -> None:
    assert rows(Query(tree, ()), world) == naive(tree, world)


@given(tree=TREES, world=WORLDS)
def test_a_tree_typed_out_means_the_same(tree: Node, world: World) -> None:
    """So the grammar can say everything that a tree can."""
    assert rows(parse(typed(tree)), world) == naive(tree, world)


@given(one=TREES, other=TREES, world=WORLDS)
def test_de_morgan_holds(one: Node, other: Node, world: World) -> None:
    a, b = typed(one), typed(other)
    pairs = [
        (f"NOT ({a} OR {b})", f"NOT {a} AND NOT {b}"),
        (f"NOT ({a} AND {b})", f"NOT {a} OR NOT {b}"),
        (f"NOT NOT {a}", a),
        (f"{a} NOT {b}", f"{a} AND NOT {b}"),
    ]
    for left, right in pairs:
        assert rows(parse(left), world) == rows(parse(right), world)


FRAGMENTS = (
    *("火锅", "不吃辣", "的", "𠮷", "hot", "TEA", "C++", "user@x.com", "100%", "e\u0301", "ﬁ"),
    *(" ", "\u3000", "\n", "AND", "OR", "NOT", " AND ", " OR ", " NOT ", "and", "not", "*", "* "),
    *('"', "“", "”", "「", "」", "(", ")", "（", "）"),
    *(":", "^", "-", "'", "\\", "\0", "\ud800", "_", "👩"),
    *("NEAR(", "{a b}:", "x" * 70, "火" * 40, "a." * 40),
)
TEXTS = st.lists(st.sampled_from(FRAGMENTS), max_size=25).map("".join) | st.text(max_size=60)


@given(text=TEXTS.map(lambda text: text[:300]))
def test_no_text_breaks_the_parser(text: str) -> None:
    """A phrase has 1-32 search tokens, and what earns score is also looked up."""
    try:
        query = parse(text)
    except InvalidArgument:
        return
    for phrase in query.phrases:
        assert 1 <= len(phrase.tokens) <= MAX_PHRASE
        assert all(token and not set(token) & set(" \"'()*:^-\\\0") for token in phrase.tokens)
    assert set(query.units) <= set(query.phrases)
    assert len(query.phrases) == len(set(query.phrases)) <= MAX_UNITS
    nowhere = query.evaluate(lambda phrase: ~EVERYTHING, EVERYTHING)
    assert nowhere.shape == EVERYTHING.shape
