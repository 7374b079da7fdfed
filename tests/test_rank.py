"""Ranking by words: what a score may and may not depend on."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kemem.text.conversation import Scores
from kemem.text.query import Mask, Phrase, Query, parse
from kemem.text.rank import word_scores
from kemem.text.segment import search_text
from tests.cases import each

WORDS = (Phrase(("火",)), Phrase(("锅",)), Phrase(("hot",)), Phrase(("tea",)))
QUERY = Query(WORDS[0], WORDS)


@dataclass(frozen=True, slots=True)
class World:
    """Some rows: which words each holds and how long it is."""

    rows_with: dict[Phrase, Mask]
    lengths: NDArray[np.int64]

    def scores(self) -> Scores:
        return word_scores(QUERY, self.rows_with, self.lengths)

    def held(self, row: int) -> set[Phrase]:
        return {phrase for phrase, mask in self.rows_with.items() if mask[row]}


def worlds(min_size: int = 0) -> st.SearchStrategy[World]:
    rows = st.tuples(st.integers(0, 6), *(st.booleans() for _ in WORDS))

    def build(drawn: list[tuple[int, ...]]) -> World:
        table = np.array(drawn, dtype=np.int64).reshape(len(drawn), 1 + len(WORDS))
        masks = {phrase: table[:, 1 + at] == 1 for at, phrase in enumerate(WORDS)}
        return World(masks, table[:, 0] ** 3)

    return st.lists(rows, min_size=min_size, max_size=8).map(build)


def scored(asked: str, texts: list[str]) -> list[float]:
    """Scores of plain texts that hold whole words only."""
    query = parse(asked)
    indexed = [f" {search_text(text)} " for text in texts]
    rows_with = {
        phrase: np.array([f" {' '.join(phrase.tokens)} " in text for text in indexed], np.bool_)
        for phrase in query.phrases
    }
    lengths = np.array([len(text.split()) for text in indexed], np.int64)
    return [float(score) for score in word_scores(query, rows_with, lengths)]


@settings(deadline=None)
@given(world=worlds())
def test_a_score_lies_between_0_and_1(world: World) -> None:
    """It is 0 exactly where nothing of the query is held."""
    scores = world.scores()
    assert scores.shape == world.lengths.shape
    assert np.isfinite(scores).all()
    assert ((scores >= 0) & (scores < 1)).all()
    for row, score in enumerate(scores):
        assert (score > 0) == bool(world.held(row))


@settings(deadline=None)
@given(world=worlds(min_size=2))
def test_holding_more_in_no_more_words_never_scores_less(world: World) -> None:
    scores = world.scores()
    for one in range(len(scores)):
        for other in range(len(scores)):
            more = world.held(one) >= world.held(other)
            if more and world.lengths[one] <= world.lengths[other]:
                assert scores[one] >= scores[other]


@settings(deadline=None)
@given(world=worlds(min_size=2))
def test_a_rarer_word_weighs_at_least_as_much(world: World) -> None:
    """Of two rows of one length that hold one word each."""
    scores = world.scores()
    single = [row for row in range(len(scores)) if len(world.held(row)) == 1]
    for one in single:
        for other in single:
            rarity = [world.rows_with[word].sum() for at in (one, other) for word in world.held(at)]
            if world.lengths[one] == world.lengths[other] and rarity[0] <= rarity[1]:
                assert scores[one] >= scores[other]


@settings(deadline=None)
@given(world=worlds(), data=st.data())
def test_the_order_of_rows_and_the_words_of_others_do_not_matter(
    world: World, data: st.DataObject
) -> None:
    """A score comes from the rows that are given, exactly, and from the query's own words."""
    order = np.array(data.draw(st.permutations(range(len(world.lengths)))), dtype=np.intp)
    masks = {phrase: mask[order] for phrase, mask in reversed(world.rows_with.items())}
    masks[Phrase(("别",))] = np.ones(len(order), dtype=np.bool_)
    shuffled = World(masks, world.lengths[order])
    assert np.array_equal(shuffled.scores(), world.scores()[order])


@each(
    ("asked", "texts"),
    [
        ("火锅 清汤", ["火锅要清汤", "火锅要麻酱", "今天天气好"]),
        ("hotpot broth", ["hotpot with broth", "hotpot with sauce", "what a fine day"]),
    ],
)
def test_more_of_the_query_scores_more(asked: str, texts: list[str]) -> None:
    best, middle, none = scored(asked, texts)
    assert best > middle > none == 0


@each(
    ("asked", "texts"),
    [
        ("火 辣", ["火呢", "辣呢", "火吧", "火啊"]),
        ("hot spicy", ["so hot", "so spicy", "too hot", "very hot"]),
    ],
)
def test_a_rare_word_scores_more(asked: str, texts: list[str]) -> None:
    common, rare, *_ = scored(asked, texts)
    assert rare > common


@each(
    ("asked", "texts"),
    [
        ("火锅", ["火锅好", "火锅好，我们明天晚上再去那里", "无关"]),
        ("hotpot", ["good hotpot", "good hotpot so let us go there again tomorrow", "unrelated"]),
    ],
)
def test_a_shorter_text_with_the_same_matches_scores_more(asked: str, texts: list[str]) -> None:
    short, long, _ = scored(asked, texts)
    assert short > long > 0


@each(
    ("asked", "texts"),
    [("火锅", ["火锅好", "清汤好"]), ("hotpot tea", ["hotpot and tea", "nothing at all"])],
)
def test_a_text_of_usual_length_with_the_whole_query_scores_about_0_8(
    asked: str, texts: list[str]
) -> None:
    assert scored(asked, texts)[0] == pytest.approx(0.8, abs=0.01)


@each(
    ("asked", "texts"),
    [("火锅", ["火锅火锅火锅", "火锅真的好吃"]), ("tea", ["tea tea tea", "tea for two"])],
)
def test_saying_a_word_again_adds_nothing(asked: str, texts: list[str]) -> None:
    again, once = scored(asked, texts)
    assert again == once > 0


@each("asked", ["", "火锅 AND 茶", "NOT hotpot", "tea"])
def test_an_empty_scope_has_no_scores(asked: str) -> None:
    assert scored(asked, []) == []


@each("asked", ["", "NOT 火锅", "NOT tea", "！"])
def test_a_query_that_wants_no_word_scores_nothing(asked: str) -> None:
    """Everything it matches is on a level."""
    assert scored(asked, ["火锅", "tea", ""]) == [0, 0, 0]
