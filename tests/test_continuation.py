"""A turn that goes on with a conversation asks for no fact: it finds sessions, and what is new."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kemem import AsyncMemory
from kemem.records.times import to_rfc3339
from kemem.search.understand import understand
from kemem.testing import FakeClock
from kemem.text.asked import goes_on, only_goes_on, without_going_on
from kemem.text.continuation import (
    FADES,
    FRESH,
    OWN,
    PAUSE,
    RUNNING,
    SITTING,
    USUAL,
    Continuation,
)
from kemem.text.conversation import Conversation
from tests.cases import each

NOW = 1_769_424_420_000_000
DAY = 86_400_000_000
MINUTE = 60_000_000


@each(
    "text",
    [
        "I'm back. What's next?",
        "Where were we with the attic?",
        "Let's continue with the bathroom.",
        "Okay, that drawing is exactly what I wanted. No changes from me.",
        "My supervisor hated the second chapter and I want to throw it in the canal.",
        "The plumber cancelled on us again. Can you move things around?",
        "The plumber is ill again, can you move the tiling?",
        "ok, and next?",
        "Back to the hives. What do I have to do now?",
        "今天回到露台，该做什么了？",
        "Back to the radio play",
        "我回来了，接下来干嘛？",
        "下一步做什么",
        "我们上次说到哪儿了？",
        "还差什么没做",
        "瓷砖到了，颜色发错了，怎么办",
        "昨天又没练琴，手指头都僵了。怎么办？",
        "导师看完第二章，说整个结构都要推倒重来，我现在脑子一片空白。",
    ],
)
def test_a_turn_goes_on_with_a_conversation(text: str) -> None:
    """It tells something, or asks for what comes next, for help, or for a change."""
    assert goes_on(text)
    assert understand(text, NOW).continues


@each(
    "text",
    [
        # A fact is asked for, even behind small talk.
        "Where do I live?",
        "The lift broke again and I climbed nine floors. Sorry, where does my brother work?",
        "The shop wrote to me again. How much is the rent of the cello?",
        "Would Ana move back to Lisbon soon?",
        "今天电梯又坏了，我爬了九楼。我哥哥在哪上班？",
        "医生要打电话来。早上那个数要多少以内？",
        # Somebody wants to be reminded, or to look something up.
        "I was thinking of our trip. What had we said about the tickets?",
        "Tell me what I said about my trip to Rome.",
        "I forgot how much the tiler wants.",
        "It rained. I wonder when the tiles come.",
        "What is the next episode?",
        "next thing: on which day does the tiler have time?",
        "明天要交表了。你记得我们定的题目吗？",
        "瓷砖接下来几号送？",
        "按照我之前的数据库配置来",
        "帮我查一下我上次说的那家餐厅",
        # Advice has a way of its own.
        "I've been stuck with my paintings. Any tips for new ideas?",
        "最近老是睡不好。有什么建议吗？",
        # Words to look for, a statement of a few words, a greeting.
        "hotpot broth taste",
        "火锅 口味",
        "I live in Berlin.",
        "我住柏林。",
        "Hi!",
        "",
    ],
)
def test_what_looks_for_something_does_not_go_on(text: str) -> None:
    assert not goes_on(text)


@each(
    ("text", "about"),
    [
        ("I'm back at the attic. What's next?", "the attic"),
        ("Let's go on with the attic.", "the attic"),
        ("What's the next step for the attic?", "for the attic"),
        ("Back to the attic, what should I do now?", "the attic,"),
        ("阁楼接下来做什么？", "阁楼"),
        ("回到阁楼，该做什么了？", "回到阁楼，"),
        ("继续上次的阁楼", "阁楼"),
        # Nothing else is said, or it is a word like another.
        ("I'm back. What's next?", "I'm back. What's next"),
        ("下一步做什么", "下一步做什么"),
        ("The house next door is for sale.", "The house next door is for sale"),
    ],
)
def test_what_only_goes_on_is_not_looked_for(text: str, about: str) -> None:
    assert without_going_on(text).strip(" .?？") == about


@each(
    "text",
    [
        "What's next?",
        "Hi, I'm back. Where were we?",
        "OK, go on.",
        "Please continue",
        "Let's pick up where we left off",
        "Good morning! Ready to continue?",
        "and then?",
        "What were we talking about last time?",
        "继续吧",
        "好，下一步呢？",
        "我回来了，说到哪儿了？",
        "接着上次的来",
        "早上好，我们继续",
        "然后呢",
        "刚才聊什么来着？",
    ],
)
def test_a_turn_may_only_go_on(text: str) -> None:
    """Then its words are not looked for, not even those that nothing else is left of."""
    query = understand(text, NOW)
    assert only_goes_on(text) and query.is_bare and query.continues
    assert not query.query.units and query.question is None


@each(
    "text",
    [
        "Where were we with the attic?",
        "Continue the story",
        "go on, tell me about Mia",
        "What's next for the tiles?",
        "Where did I move to?",
        "Do I have work now?",
        "Are you back?",
        "The back then was sore, what next?",
        "now",
        "继续写小说",
        "阁楼的事接着弄",
        "我到哪儿了",
        "上次去哪了",
        "我们做什么",
        "我现在在哪里？",
        "",
    ],
)
def test_what_names_something_does_not_only_go_on(text: str) -> None:
    assert not only_goes_on(text)


@each(
    "text",
    [
        "Ann: I'm back. What's next?\nBob: Nothing, we are done here, I think.",
        "小安：我回来了，接下来干嘛？\n小波：都弄完了，没什么要做的了。",
    ],
)
def test_a_transcript_is_no_turn(text: str) -> None:
    assert not understand(text, NOW).continues


def test_only_hybrid_search_without_keywords_goes_on() -> None:
    """What has to be in a hit is looked up."""
    assert not understand("I'm back. What's next?", NOW, "lexical").continues
    assert not understand("我回来了，接下来干嘛？", NOW, "semantic").continues
    assert not understand("I'm back. What's next?", NOW, keywords=["attic"]).continues


@given(st.text(max_size=60))
def test_any_text_is_told_apart(text: str) -> None:
    assert {goes_on(text), only_goes_on(text)} <= {True, False}


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a scope: its session, who speaks, how long ago, and what it scores alone."""

    session: int
    voice: int  # 0 user, 1 assistant, 2 somebody else
    age: int
    score: float


ROWS = st.builds(
    Row,
    st.integers(0, 3),
    st.sampled_from((0, 1, 0, 1, 2)),
    st.sampled_from((0, MINUTE, PAUSE, PAUSE + 1, SITTING + 1, DAY, 40 * DAY)),
    st.sampled_from((0.0, 0.2, 0.5, 0.9)),
)
SCOPES = st.lists(ROWS, max_size=10)


def going_on_with(rows: list[Row]) -> Continuation:
    times = np.array([NOW - it.age for it in rows], np.int64)
    voices = np.array([it.voice for it in rows], np.int8)
    sessions = np.array([it.session for it in rows], np.int64)
    none, lengths = np.zeros(len(rows), np.bool_), np.full(len(rows), 3, np.int64)
    talk = Conversation.of(sessions, times, voices, none, lengths, ~none)
    return Continuation(talk, times, voices == 0, NOW)


def together(rows: list[Row], row: Row) -> list[Row]:
    """The messages of a row's session, if both sides speak there."""
    of_session = [it for it in rows if it.session == row.session and it.voice < 2]
    talks = row.voice < 2 and {it.voice for it in of_session} == {0, 1}
    return of_session if talks else []


def worth(rows: list[Row], row: Row, lent: float, share: float) -> float:
    """What a row is worth with what its session lends, by the definition."""
    session = together(rows, row)
    value = (1 - share) * row.score + share * lent if session else row.score
    runs = any(it.age <= PAUSE for it in session) and row.age <= SITTING
    timed = FRESH * math.exp(-row.age / FADES) + OWN * (row.voice == 0)
    kept = (1 - FRESH - OWN) * value * (RUNNING if runs else 1.0)
    return kept + timed * (value > 0)


@given(rows=SCOPES)
def test_a_session_tells_more_than_a_message(rows: list[Row]) -> None:
    """By meaning, not by words; what is new or the user's counts a little more."""
    going_on = going_on_with(rows)
    places, scores = np.arange(len(rows)), np.array([it.score for it in rows])
    by_words = going_on.by_words(places, scores)
    by_meaning = going_on.by_meaning(places, scores, all_rows=True)
    for row, words, meaning in zip(rows, by_words, by_meaning, strict=True):
        session = [it.score for it in together(rows, row)] or [row.score]
        mean = sum(session) / len(session)
        assert words == pytest.approx(worth(rows, row, row.score, 0.0))
        assert meaning == pytest.approx(worth(rows, row, mean, USUAL))


def test_of_some_rows_a_session_has_no_mean() -> None:
    """In a very large memory only the nearest rows are compared."""
    rows = [Row(0, 0, DAY, 0.9), Row(0, 1, DAY - MINUTE, 0.1)]
    going_on = going_on_with(rows)
    (alone,) = going_on.by_meaning(np.array([1]), np.array([0.1]), all_rows=False)
    assert alone == pytest.approx(worth([rows[1]], rows[1], 0.1, USUAL))


@given(rows=SCOPES)
def test_by_time_the_newest_session_comes_first(rows: list[Row]) -> None:
    """What belongs to no session comes behind one of the same age, what is running behind all."""
    going_on = going_on_with(rows)
    scores = going_on.by_time(np.arange(len(rows))).tolist()

    def place(row: Row) -> tuple[bool, float]:
        session = together(rows, row)
        runs = any(it.age <= PAUSE for it in session) and row.age <= SITTING
        newest = min((it.age for it in session), default=row.age)
        return not runs, (1.0 if session else 0.5) / (1 + newest / FADES)

    by_place = sorted(zip(map(place, rows), scores, strict=True))
    assert [score for _, score in by_place] == sorted(scores)
    assert all(0 < score <= 1 for score in scores)


HISTORIES = {
    "en": (
        (
            "The attic gets a skylight on the north side, 78 by 118.",
            "Noted, north side it is.",
            "The roofer wants 4,100 for the skylight, dormer excluded.",
            "Then the dormer waits.",
        ),
        ("My cello teacher gave me the Bach minuet.", "Lovely. Slow practice first."),
        ("Bow hold is still stiff in the minuet.", "Try the pencil exercise."),
        ("Any idea why my router blinks red?", "Restart it and check the cable."),
        ("Morning, an hour before the kids wake up.", "Enough to get the attic going."),
        "I'm back at the attic. What's next?",
        "Did I mention the roofer wants 4,100?",
        "ok, what's next?",
    ),
    "zh": (
        (
            "阁楼北面开一个天窗，78乘118的。",
            "好，北面天窗记下了。",
            "装天窗的师傅报价四千一，不包老虎窗。",
            "那老虎窗先放着。",
        ),
        ("大提琴老师给我布置了巴赫的小步舞曲。", "不错，先慢练。"),
        ("小步舞曲运弓的手还是很僵。", "试试握铅笔的练习。"),
        ("路由器一直闪红灯咋回事？", "重启一下，看看网线。"),
        ("早，孩子还没醒，有一个小时。", "够把阁楼的事推一推了。"),
        "阁楼的事我回来接着弄，下一步做什么？",
        "装天窗的师傅报价多少？",
        "好，接着来吧",
    ),
}


@pytest.mark.parametrize("language", HISTORIES)
async def test_who_goes_on_is_reminded_of_the_sessions_before(
    language: str, tmp_path: Path
) -> None:
    """The messages of the work come first, those of the session that is running after them."""
    async with AsyncMemory(data_dir=str(tmp_path), clock=FakeClock(NOW)) as memory:
        await _goes_on(memory, *HISTORIES[language])


async def _goes_on(memory: AsyncMemory, *said: Any) -> None:
    *sessions, turn, question, bare = said
    for at, texts in enumerate(sessions):
        is_running = at == len(sessions) - 1
        since = NOW - 2 * MINUTE if is_running else NOW - (9 - at) * DAY
        for n, (role, text) in enumerate(zip(("user", "assistant") * 2, texts, strict=False)):
            ts = to_rfc3339(since + n * MINUTE)
            message = {"role": role, "content": text, "ts": ts, "message_id": f"{at}-{n}"}
            await memory.ingest([message], "ann", session_id=f"s{at}")
    hits = await memory.search(turn, "ann", limit=20, explain=True)
    ids = [hit.id for hit in hits]
    assert ids[0] == "0-0" and ids.index("0-2") < ids.index("4-1")
    assert all("continues" in hit.why for hit in hits)
    best, *_ = await memory.search(question, "ann", explain=True)
    assert best.id == "0-2" and "continues" not in best.why
    hits = await memory.search(bare, "ann", limit=20, explain=True)
    assert [hit.id for hit in hits[:3]] == ["3-1", "3-0", "2-1"]
    assert {hit.id for hit in hits[-2:]} == {"4-0", "4-1"}
    assert all(hit.score <= 0.5 and hit.why == ("continues",) for hit in hits)
    assert [it.id for it in await memory.search(bare, "ann", limit=1, rerank=False)] == ["3-1"]
