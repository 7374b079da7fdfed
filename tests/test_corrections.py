"""Corrections: "no, I meant …" right after something was said replaces it."""

from pathlib import Path

import pytest

from kemem import AsyncMemory
from kemem.settings import Settings

CASES = [
    ("I live in Hamburg", "Sorry, I meant Homburg.", "User lives in Homburg"),
    ("I was born in Leeds", "No, I meant Leicester", "User was born in Leicester"),
    ("I drive a Fiat", "Sorry, I meant a Volvo", "User drives a Volvo"),
    ("My sister's name is Anna", "no, I meant Emma, not Anna", "User's sister's name is Emma"),
    ("I take 50 mg of sertraline", "oops, make that 75 mg", "User takes 75 mg of sertraline"),
    ("My bike lock opens with 8821", "hang on, 8812", "User's bike lock opens with 8812"),
    ("The recital is at 6 pm", "Ah sorry, it's at 7 pm", "The recital is at 7 pm"),
    ("My flatmate is called Jonas", "whoops, that's Tobias", "User's flatmate is called Tobias"),
    ("We meet in room C204", "er, room C240", "User and others meet in room C240"),
    ("The pool closes at 21:00", "Actually it closes at 22:00", "The pool closes at 22:00"),
    (
        "My shift is 3 pm to 9 pm",
        "oops, 10 pm",
        "User's shift is 3 pm to 9 pm (corrected to 10 pm)",
    ),
    ("I have rowed for three years", "Actually, sorry, four", "User has rowed for four years"),
    ("我住在杭州", "不对，是湖州", "用户住在湖州"),
    ("我的相机花了五千二", "更正一下，相机是四千八", "用户的相机花了四千八"),
    ("比赛六月八号开始", "不对，看错了，是六月十八号", "比赛六月十八号开始"),
    ("我储物柜密码是4471", "应该是4417", "用户储物柜密码是4417"),
    ("演出晚上六点开始", "啊不，七点开始", "演出七点开始"),
    ("我们在C204开会", "不对不对，C240", "用户等人在C240开会"),
    ("游泳馆21:00关门", "记错了，22:00关门", "游泳馆22:00关门"),
    ("我妹妹叫小雨", "说错了，是小雪", "用户的妹妹叫小雪"),
    ("我住在杭州", "不是杭州，是湖州", "用户住在湖州"),
]


async def notes_after(directory: Path, *told: str, sessions: tuple[str, ...] = ()) -> list[str]:
    """What holds after some messages, each added by itself with the assistant's answer."""
    settings = Settings(data_dir=directory, llm="none", embedder="none")
    async with AsyncMemory(settings=settings) as memory:
        for at, text in enumerate(told):
            turn = [{"role": "user", "content": text}, {"role": "assistant", "content": "OK."}]
            await memory.add(turn, user_id="u", session_id=sessions[at] if sessions else "s")
        return [it.memory for it in await memory.get_all(user_id="u")]


@pytest.mark.parametrize(("first", "then", "right"), CASES)
async def test_a_correction_replaces_what_was_said(
    tmp_path: Path, first: str, then: str, right: str
) -> None:
    assert await notes_after(tmp_path, first, then) == [right]


@pytest.mark.parametrize(("first", "then", "right"), CASES[::4])
async def test_a_job_reads_what_was_said_before_too(
    tmp_path: Path, first: str, then: str, right: str
) -> None:
    settings = Settings(data_dir=tmp_path, llm="none", embedder="none")
    async with AsyncMemory(settings=settings) as memory:
        for text in (first, then):
            await memory.add(text, user_id="u", session_id="s", wait=False)
        await memory.run_jobs()
        assert [it.memory for it in await memory.get_all(user_id="u")] == [right]


@pytest.mark.parametrize(("first", "then", "right"), CASES[::4])
async def test_both_may_come_at_once(tmp_path: Path, first: str, then: str, right: str) -> None:
    settings = Settings(data_dir=tmp_path, llm="none", embedder="none")
    async with AsyncMemory(settings=settings) as memory:
        await memory.add([{"role": "user", "content": it} for it in (first, then)], user_id="u")
        assert [it.memory for it in await memory.get_all(user_id="u")] == [right]
        (message,) = [it for it in (await memory.messages("u")).items if it.content == then]
        assert not message.withdrawn


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("I live in Hamburg", "No, thanks"),
        ("I live in Hamburg", "Wait, what?"),
        ("I live in Hamburg", "I meant that as a joke"),
        ("The pool closes at 9", "Actually, the museum opens at 10"),
        ("My boss is called Karin", "Oh no, it's raining"),
        ("My team has 12 people", "Wait, is it 14 in Leo's team?"),
        ("我住在杭州", "不对吗？"),
        ("我们组有12个人", "不好意思，我先走了"),
        ("我储物柜密码是4471", "应该是要下雨了"),
        ("我住在杭州", "不是吧"),
    ],
)
async def test_what_names_no_other_value_corrects_nothing(
    tmp_path: Path, first: str, then: str
) -> None:
    assert await notes_after(tmp_path / "one", first) == (
        await notes_after(tmp_path / "both", first, then)
    )


@pytest.mark.parametrize(("first", "then", "right"), CASES[:1] + CASES[4:5])
async def test_another_session_is_not_corrected(
    tmp_path: Path, first: str, then: str, right: str
) -> None:
    notes = await notes_after(tmp_path, first, then, sessions=("one", "two"))
    assert right not in notes and await notes_after(tmp_path / "one", first) == notes


@pytest.mark.parametrize(
    ("told", "asked", "wrong"),
    [
        (("The ferry leaves at 8", "Actually it leaves at 9", "no, at 10"), "ferry", ("8", "9")),
        (("船八点开", "说错了，是9点", "不对，10点"), "船几点开？", ("八点", "是9点")),
    ],
)
async def test_what_was_wrong_is_the_past(
    tmp_path: Path, told: tuple[str, ...], asked: str, wrong: tuple[str, ...]
) -> None:
    """Even if it was not worth a note; a correction may be corrected, too."""
    settings = Settings(data_dir=tmp_path, llm="none", embedder="none")
    async with AsyncMemory(settings=settings) as memory:
        for text in told:
            await memory.add(text, user_id="u", session_id="s")
        (note,) = await memory.get_all(user_id="u")
        assert "10" in note.memory
        hits = await memory.search(asked, user_id="u", kinds=["message"])
        ended = [hit.ended for hit in hits if any(it in hit.memory for it in wrong)]
    assert ended and None not in ended


@pytest.mark.parametrize(
    ("told", "right"),
    [
        (("My dog is called Max", "Correction: my dog is called Moritz"), "Moritz"),
        (("我的狗叫旺财", "说错了，我的狗叫来福"), "来福"),
        (("I have a cat called Luna", "I was wrong, my cat's name is Lina"), "Lina"),
        (("我有一只猫叫露娜", "纠正一下，我的猫叫丽娜"), "丽娜"),
        (("I'm allergic to peanuts", "It's walnuts I'm allergic to, not peanuts"), "walnuts"),
        (("我对花生过敏", "不对，我是对核桃过敏"), "核桃"),
        (("My locker is number 114", "Oops, my locker is number 141"), "141"),
        (("我高中班主任姓赵", "我高中班主任其实姓邵"), "邵"),
    ],
)
async def test_a_whole_sentence_corrects_what_was_said_in_another_session(
    tmp_path: Path, told: tuple[str, str], right: str
) -> None:
    """Of the same subject; that it is a correction is not kept."""
    (note,) = await notes_after(tmp_path, *told, sessions=("one", "two"))
    assert right in note


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("My boss is Karin", "Sorry, my boss is away today"),
        ("我老板是王总", "不好意思，我老板是真的烦"),
        ("My dog is called Max", "Correction: is my dog called Moritz?"),
        ("我的狗叫旺财", "说错了，我的狗要是叫来福就好了"),
        ("My dog is called Max", "Correction: Tom's dog is called Moritz"),
        ("我的狗叫旺财", "说错了，小王的狗叫来福"),
        ("I like tea", "Actually I like coffee"),
        ("我喜欢喝茶", "其实我也喜欢喝咖啡"),
    ],
)
async def test_a_correction_of_something_else_ends_nothing(
    tmp_path: Path, first: str, then: str
) -> None:
    (held,) = await notes_after(tmp_path / "one", first)
    assert held in await notes_after(tmp_path / "both", first, then, sessions=("one", "two"))


@pytest.mark.parametrize(
    ("told", "right"),
    [
        (("The wifi code is tulip42", "It rains again", "Actually I meant tulip43"), "tulip43"),
        (("我家wifi密码是lily88", "今天好热", "不对，应该是lily98"), "lily98"),
    ],
)
async def test_a_correction_reaches_back_over_other_talk(
    tmp_path: Path, told: tuple[str, ...], right: str
) -> None:
    assert [right in it for it in await notes_after(tmp_path, *told)] == [True]


SECRETS = [
    ("My locker PIN is 4471", "It rains again", "sorry, I meant 4417", "4417"),
    ("我储物柜密码是4471", "今天好热", "不对，应该是4417", "4417"),
]


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize(("first", "between", "then", "right"), SECRETS)
async def test_what_corrects_a_secret_is_secret(
    tmp_path: Path, first: str, between: str, then: str, right: str, at_once: bool
) -> None:
    told = [{"role": "user", "content": text} for text in (first, between, then)]
    settings = Settings(data_dir=tmp_path, llm="none", embedder="none")
    async with AsyncMemory(settings=settings) as memory:
        for turns in [told] if at_once else [[it] for it in told]:
            await memory.add(turns, user_id="u", session_id="s")
        handle = memory.for_user("u")
        assert not [it.memory for it in await handle.get_all() if right in it.memory]
        kept = [it.memory for it in await memory.get_all(user_id="u")]
        assert [text for text in kept if right in text] and not any("4471" in it for it in kept)
        assert [it.content for it in (await handle.messages()).items] == [between]


@pytest.mark.parametrize(("first", "between", "then", "right"), SECRETS)
async def test_what_corrects_a_secret_is_secret_without_notes_too(
    tmp_path: Path, first: str, between: str, then: str, right: str
) -> None:
    settings = Settings(data_dir=tmp_path, llm="none", embedder="none")
    async with AsyncMemory(settings=settings) as memory:
        for text in (first, between, then):
            await memory.ingest(text, user_id="u", session_id="s")
        assert [it.content for it in (await memory.for_user("u").messages()).items] == [between]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("My cloud password is Moss41x", "Sorry, I meant 99993333"),
        ("我的网盘密码是 xue2025", "不对，应该是 99993333。"),
    ],
)
async def test_what_may_correct_a_secret_is_secret(tmp_path: Path, first: str, then: str) -> None:
    """Where it has another shape, so that nothing is put right."""
    settings = Settings(data_dir=tmp_path, llm="none", embedder="none")
    async with AsyncMemory(settings=settings) as memory:
        for text in (first, then, first[:3]):
            turn = [{"role": "user", "content": text}, {"role": "assistant", "content": "OK."}]
            await memory.add(turn, user_id="u", session_id="s")
        shown = (await memory.for_user("u").messages()).items
        assert {it.content for it in shown} == {"OK.", first[:3]}
