"""A turn of a chat may hold a question among small talk: that is what is looked for."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kemem import AsyncMemory
from kemem.text.asked import asked_in

BEFORE = {
    "en": (
        "The lift broke again and I climbed nine floors with the shopping. {}",
        "honestly that match? worst referee ever. also my tea is cold now. {}",
        "Sorry, I'm waffling. What I meant to type: {}",
        "quick one before the bus comes, {}",
        "{} Thanks, I'm off to bed, the alarm goes at five.",
        "Would you do me a favour? {} My hands are full of dough.",
        "you busy? I'm at the counter. {}",
    ),
    "zh": (
        "今天电梯又坏了，我拎着菜爬了九楼，腿都软了。{}",
        "昨晚的比赛看了吗？裁判真是瞎吹，气得我没睡好。{}",
        "唉说了半天废话，其实我想问的是：{}",
        "不好意思打扰一下，{}",
        "{}谢谢啦，我先去睡了，明天五点就得起。",
        "在吗？{}我手上都是面粉，打字慢。",
        "亲，忙不忙？我在排队。{}",
    ),
}
QUESTIONS = {
    "en": ("Where does my brother work?", "How much is my rent now?"),
    "zh": ("我哥哥在哪上班？", "我现在房租多少钱？"),
}


@pytest.mark.parametrize("language", BEFORE)
def test_small_talk_around_a_question_is_left_out(language: str) -> None:
    for frame in BEFORE[language]:
        for question in QUESTIONS[language]:
            assert asked_in(frame.format(question)) == question, frame


@pytest.mark.parametrize(
    ("turn", "question"),
    [
        # What is announced is asked, whatever the small talk before it wants.
        (
            "I can't decide what to wear tonight. Anyway, what I wanted to ask: "
            "where does my brother work?",
            "where does my brother work?",
        ),
        (
            "明天要不要试试新开的咖啡馆呢？停一下，我真正想问的是，我哥哥在哪上班？",
            "我哥哥在哪上班？",
        ),
        # A quotation of several sentences is part of the question.
        (
            'Ugh, Monday again. Who told me "Measure twice. Cut once." at the workshop?',
            'Who told me "Measure twice. Cut once." at the workshop?',
        ),
        (
            "又是周一。跟我说“量两次。切一次。”的师傅叫什么？",
            "跟我说“量两次。切一次。”的师傅叫什么？",
        ),
    ],
)
def test_a_question_is_taken_out_as_a_whole(turn: str, question: str) -> None:
    assert asked_in(turn) == question


@pytest.mark.parametrize(
    "turn",
    [
        # The question cannot be understood alone.
        "I bought a bike from Ana last week. What colour is it?",
        "我上周从小安那里买了辆车。它是什么颜色的？",
        # Who wants help tells what with.
        "I have a dinner on Friday and I hate them. How do I leave early?",
        "The text for my mother is ready. What should I do next?",
        "周五有个饭局，我不想喝酒。我应该怎么办？",
        "I'm going camping in the rain. What should I pack?",
        # It goes on with an earlier talk.
        "Back to our previous chat about music theory. Which website was good for my ears?",
        "我们上次聊到云南的行程。我第三天住哪里？",
        # Two questions in one sentence; and one that does not say what it is about.
        "whose ladder do I have, and how much is my rent now?",
        "车险快到期了。我买的哪家的？",
        # Nothing but questions: all of them are asked.
        "Where does Tom live? What is my sister's job?",
        "张伟住哪里？我姐姐做什么工作？",
        # A time or a case that the question depends on.
        "Before I moved to Oslo, where did I work?",
        "搬到杭州之前，我住在哪里？",
        "我去云台山的时候遇到了什么麻烦，谁帮助了我？",
        # A quotation has ends of sentences in it.
        "那个内容是“读书，写作。”的活动，时间是什么？",
        "Remind me about the deploy key",
        "",
    ],
)
def test_what_a_question_needs_is_kept(turn: str) -> None:
    assert asked_in(turn) == turn


def test_who_greets_with_a_question_asks_later_without_a_mark() -> None:
    assert asked_in("亲，忙不忙？店铺租金一个月多少钱") == "店铺租金一个月多少钱"
    assert asked_in("师傅忙着呢？我闺女下学期去哪个学校") == "我闺女下学期去哪个学校"
    assert asked_in("you busy? whats my rent") == "whats my rent"
    assert (
        asked_in("Everything good? how much do I pay for the flat")
        == "how much do I pay for the flat"
    )


def test_two_questions_among_small_talk_are_both_asked() -> None:
    turn = "What a day. Where did I park? And which floor was my dentist on? Cheers!"
    assert asked_in(turn) == "Where did I park? which floor was my dentist on?"
    turn = "累死了。我的车停在哪？另外，我的牙医在几楼？谢谢！"
    assert asked_in(turn) == "我的车停在哪？ 另外，我的牙医在几楼？"


@given(st.text(max_size=200) | st.text(alphabet="我你哪？?，。:：！ wherIismy.,", max_size=200))
def test_any_text_is_read(text: str) -> None:
    asked = asked_in(text)
    assert asked == text or {*"".join(asked.split())} <= {*"".join(text.split()), "…"}


@pytest.mark.parametrize("language", BEFORE)
async def test_search_and_recall_answer_what_is_asked(language: str, tmp_path: Path) -> None:
    """The small talk speaks of what other messages are about."""
    said = {
        "en": (
            "My brother works at the harbour office",
            "I watched the match with Pete, the referee was awful",
            "I shared my tea with the cat",
            "The lift in our house was repaired, so I carried the shopping up",
        ),
        "zh": (
            "我哥哥在海关上班",
            "我跟小皮一起看了比赛，裁判太差了",
            "我把菜都拎上楼了，电梯坏了",
            "我昨晚没睡好，腿也软",
        ),
    }[language]
    async with AsyncMemory(data_dir=tmp_path) as memory:
        for text in said:
            await memory.add(text, user_id="ann")
        for frame in BEFORE[language]:
            turn = frame.format(QUESTIONS[language][0])
            hits = await memory.search(turn, user_id="ann")
            bare = await memory.search(QUESTIONS[language][0], user_id="ann")
            assert said[0][-4:] in hits[0].memory, frame
            assert [it.id for it in hits] == [it.id for it in bare], frame
            recalled = await memory.recall(turn, user_id="ann")
            assert said[0][-4:] in recalled.evidence[0].content, frame
