"""The network that reads question and text together: what it sees, and what it may change."""

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kemem import Memory
from kemem.ports.request import Context
from kemem.records import Message
from kemem.search import reader
from kemem.search.features import Candidate
from kemem.settings import load
from kemem.text.passage import last_question, passage
from kemem.text.reading import content
from tests.cases import each

START = datetime(2026, 3, 1, tzinfo=UTC)


def said(text: str, *, speaker: str = "", before: str = "", score: float = 0.5) -> Candidate:
    """A message as a candidate."""

    def message(content: str, **more: str) -> Message:
        return Message("m", "a", "u", "s", "user", content, 0, 0, metadata=more)

    context = Context(before=(message(before),)) if before else Context()
    return Candidate(message(text, **({"speaker": speaker} if speaker else {})), score, context)


def order(question: str, candidates: list[Candidate]) -> list[str]:
    """The texts of candidates that are as good as each other before they are read."""
    scores = reader.read_together(question, candidates, np.full(len(candidates), 0.5))
    return [candidates[at].row.content for at in np.argsort(-scores, kind="stable")]


def test_who_reads_both_sees_which_text_answers() -> None:
    """None of them shares more words with the question than the others."""
    talk = [
        "I had pasta again, it was fine.",
        "The bus was late and it rained all the way home.",
        "My brother is a nurse at the children's hospital.",
        "We watched a film about penguins.",
    ]
    best = order("What does your sibling do for a living?", [said(it) for it in talk])[0]
    assert best == talk[2]
    talk = ["昨天下雨，我没带伞。", "我妹妹在银行当柜员。", "晚上吃了一碗面。", "那部电影太长了。"]
    assert order("妹妹做什么工作？", [said(it) for it in talk])[0] == talk[1]


def test_the_speaker_and_the_question_before_are_read_too() -> None:
    question = "What is Mia's favourite season?"
    by = [said("I like autumn most.", speaker=name) for name in ("Tom", "Mia", "Ben")]
    scores = reader.read_together(question, by, np.full(3, 0.5))
    assert scores.argmax() == 1
    answers = [
        said("Sure, in May.", before="Are you in? The office closes early today."),
        said("Sure, in May.", before="Nice! Are you going to visit Rome this year?"),
    ]
    scores = reader.read_together("When is the visit to Rome?", answers, np.full(2, 0.5))
    assert scores.argmax() == 1


@each("written, folded", [("Hello", "hello"), ("Café", "cafe"), ("Ｗｉｄｅ", "wide")])
def test_words_are_folded(written: str, folded: str) -> None:
    tokens = reader._reader(False).tokens
    assert tokens(written) == tokens(folded) != []


def test_a_word_that_is_not_known_is_read_by_its_pieces() -> None:
    english, chinese = reader._reader(False), reader._reader(True)
    assert len(english.tokens("kemem")) > 1 and reader.UNKNOWN not in english.tokens("kemem")
    assert len(chinese.tokens("我住杭州7年")) == len("我住杭州7年")
    assert english.tokens("x" * 500) == [reader.UNKNOWN]


def test_of_a_long_text_the_part_is_read_that_the_question_is_about() -> None:
    filler = "It was a quiet week and nothing much happened at all. " * 12
    words = frozenset(content("Which city did Nora move to?"))
    assert "Nora moved to the city of Bern" in passage(
        f"{filler}Nora moved to the city of Bern. {filler}", words
    )
    filler = "这一周很平静，什么事也没有发生。" * 12
    words = frozenset(content("小诺搬到哪个城市了？"))
    assert "小诺搬到了杭州这座城市" in passage(f"{filler}小诺搬到了杭州这座城市。{filler}", words)
    assert len(passage("word " * 4_000, words)) <= 200
    assert last_question("Hi! How are you? Fine.") == "How are you?"
    assert last_question("你好。你住哪？好的。") == "你住哪？"
    assert last_question("Nothing.") == ""


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.integers(0, 3))
def test_the_best_score_stays_and_what_is_not_read_rises_above_nothing(
    scores: list[float], seed: int
) -> None:
    chance = np.random.default_rng(seed)
    words = ["tea", "bike", "rain", "Bern", "nurse", "train", "film", "我住杭州", "喝茶"]
    texts = [" ".join(chance.choice(words, 4)) for _ in scores]
    before = np.array(scores)
    after = reader.read_together("Where is the nurse?", [said(it) for it in texts], before)
    assert after.max() == pytest.approx(before.max()) and (after >= 0).all()
    assert len(after) == len(before)
    read = np.argsort(-before, kind="stable")[: reader.READ]
    rest = np.setdiff1d(np.arange(len(before)), read)
    for at in rest:  # each keeps its place among those that score less
        below = rest[before[rest] <= before[at]]
        assert (after[below] <= after[at] + 1e-12).all()
        assert after[at] <= after[read].max() + 1e-12


def test_texts_in_another_language_are_not_read() -> None:
    mixed = [said("My sister is a nurse."), said("我妹妹是护士。"), said("It rained.")]
    scores = reader.read_together("What does my sister do?", mixed, np.full(3, 0.5))
    assert scores[0] == 0.5 > scores[1] > scores[2]
    foreign = [said("我妹妹是护士。"), said("昨天下雨了。"), said("It rained.")]
    assert (reader.read_together("What does she do?", foreign, np.full(3, 0.5)) == 0.5).all()


def test_the_documentation_names_the_weights_that_are_shipped() -> None:
    card = (Path(__file__).parents[1] / "docs/models.md").read_text("utf-8")
    for name in ("reader_en.npz", "reader_zh.npz"):
        weights = Path(reader.__file__).with_name(name).read_bytes()
        assert f"`{sha256(weights).hexdigest()[:16]}` … (`{name}`)" in card
        assert len(weights) < 30_000_000


@pytest.mark.parametrize("language", ["en", "zh"])
def test_search_reads_unless_it_is_not_wanted(tmp_path: Path, language: str) -> None:
    """In a memory of many messages; the setting and the argument switch it off alike."""
    talk = {
        "en": ("Today I had {} for lunch at work.", "What did I have for lunch when it rained?"),
        "zh": ("今天中午在公司吃了第{}种面。", "下雨那天中午我吃了什么？"),
    }
    line, question = talk[language]
    messages = [
        {"role": "user", "content": line.format(at), "ts": START + timedelta(hours=at)}
        for at in range(120)
    ]

    with Memory(data_dir=tmp_path) as memory:
        memory.ingest(messages, "u")

    def search(reranker: str, rerank: bool = True) -> list[tuple[str, float]]:
        with Memory(settings=load(data_dir=tmp_path, reranker=reranker)) as memory:
            return [
                (it.id, it.score) for it in memory.search(question, "u", limit=20, rerank=rerank)
            ]

    read, without = search("local"), search("none")
    assert read != without and search("local", rerank=False) == without
    assert read[0][1] == pytest.approx(without[0][1])


@each(
    "line, told, question, answer",
    [
        (
            "Today I had {} for lunch at work.",
            ("Mr Okonkwo is my tax adviser.", "Okonkwo's office has moved to Kantstrasse 88."),
            "Where is my tax adviser's office?",
            "Kantstrasse",
        ),
        (
            "今天中午在公司吃了第{}种面。",
            ("我表妹叫若溪。", "若溪在植物园当讲解员。"),
            "我表妹在哪里工作？",
            "植物园",
        ),
    ],
)
def test_what_a_second_hop_led_to_stays_first(
    tmp_path: Path, line: str, told: tuple[str, str], question: str, answer: str
) -> None:
    lines = [line.format(at) for at in range(120)]
    lines[30:30], lines[90:90] = told[:1], told[1:]
    with Memory(data_dir=tmp_path) as memory:
        memory.ingest(
            [
                {"role": "user", "content": it, "ts": START + timedelta(hours=at)}
                for at, it in enumerate(lines)
            ],
            "u",
        )
        best = memory.search(question, "u", limit=3, explain=True)
    assert answer in best[0].memory
    assert any(it.startswith("hop") for it in best[0].why)
