"""What a later statement makes untrue, without an LLM; and what nothing makes untrue."""

from pathlib import Path

import pytest

from kemem import AsyncMemory
from kemem.add.rules import extract_by_rules
from kemem.facts.endings import CHANGES, Told, ended_notes
from kemem.facts.kinds import signs
from kemem.records import Message
from kemem.settings import Settings

DAY = 86_400_000_000


async def true_at_last(directory: Path, *told: str | tuple[str, str]) -> list[str]:
    """What still holds after some messages, one a day; a speaker's name may come first."""
    now = [1_768_910_400_000_000]
    settings = Settings(data_dir=directory, llm="none", embedder="local")
    async with AsyncMemory(settings=settings, clock=lambda: now[0]) as memory:
        for one in told:
            now[0] += DAY
            name, text = one if isinstance(one, tuple) else (None, one)
            said = {"role": "user", "content": text} | ({"name": name} if name else {})
            await memory.add([said], user_id="u", session_id=f"s{now[0]}")
        notes = await memory.get_all(user_id="u", limit=50)
    return [it.memory for it in notes if not it.note.ended(now[0])]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Rent is 900 a month", "The rent went up to 980"),
        ("房租每月3000", "房租涨到3300了"),
        ("I'm vegetarian", "I eat meat again"),
        ("我女儿上二年级", "我女儿现在上三年级了"),
        ("我男朋友吃素", "我男朋友不吃素了"),
        ("The demo is on Tuesday", "Correction, the demo is on Thursday"),
        ("我开一辆高尔夫", "高尔夫上周卖了"),
        ("I take 50 mg of sertraline", "The doctor raised my sertraline to 100 mg"),
        ("我用Notion记笔记", "笔记从Notion换成Obsidian了"),
    ],
)
async def test_a_change_ends_what_was_true_before(tmp_path: Path, before: str, after: str) -> None:
    """Whatever it is about; what was said before of other things stays."""
    other = "My sister plays the cello" if before.isascii() else "我姐会拉大提琴"
    (first,) = await true_at_last(tmp_path / "first", before)
    notes = await true_at_last(tmp_path / "both", before, other, after)
    assert first not in notes
    assert len(notes) == 2


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ("I drive a Golf and take metformin.", "I sold the Golf.", "User takes metformin"),
        ("我开一辆高尔夫，在吃二甲双胍", "高尔夫卖了", "用户在吃二甲双胍"),
        (
            "I drive a Golf and pay 45 euros for parking.",
            "I drive a Leaf now.",
            "User pays 45 euros for parking",
        ),
        ("我住在杭州，在阿里上班", "我搬到苏州了", "用户在阿里上班"),
    ],
)
async def test_a_change_ends_only_its_own_clause(
    tmp_path: Path, before: str, after: str, kept: str
) -> None:
    notes = await true_at_last(tmp_path, before, after)
    assert kept in notes and len(notes) == 2


def test_a_clause_that_needs_the_one_before_stays_with_it() -> None:
    """What 900 a month are for, and what is ten days, stands before it."""
    for said in ("I rent a flat in Leith and pay 900 a month", "我们打算去日本旅行，大概十天"):
        message = Message("m", "a", "u", "s", "user", said, DAY, DAY)
        assert len(extract_by_rules([message]).facts) == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("I drive a Golf", "I want to sell the Golf one day"),
        ("我开一辆高尔夫", "我想把高尔夫卖了"),
        ("I drive a Golf", "My brother sold his Golf"),
        ("我开一辆高尔夫", "我哥把他的高尔夫卖了"),
        ("I take Spanish lessons on Tuesdays", "My neighbour takes Spanish lessons too now"),
        ("我的牙医是邵医生", "邵医生的新前台态度很差"),
        ("I live in Berlin", "Should I move to Munich?"),
        ("我住在北京", "我要不要搬到上海？"),
        ("I use Notion for my notes", 'She said "I switched from Notion to Obsidian"'),
        ("I have a sister called Mia", "My sister Mia is in Rome at the moment"),
        ("我有个孙子叫小宝", "我孙子小宝现在迷上火山了"),
        ("I'm vegetarian", "My boyfriend isn't vegetarian any more"),
        ("我吃素", "我男朋友不吃素了"),
        ("I work at Delta as a mechanic", "The article says Delta mechanics are moving to Boeing"),
        ("我在顺丰当快递员", "听说顺丰的快递员现在都去京东了"),
        ("我在顺丰当快递员", "我老婆从顺丰辞职了"),
        ("I drink oat milk", "The news says people are switching from oat to pea milk"),
        ("I have a cat called Miso", "I'm scared that Miso got out"),
        ("我养了一只猫叫橄榄", "我怕橄榄哪天死了"),
    ],
)
async def test_nothing_true_is_ended_by_a_wish_a_question_or_others(
    tmp_path: Path, before: str, after: str
) -> None:
    """What somebody wants, fears, asks, quotes or says of somebody else changes nothing."""
    (first,) = await true_at_last(tmp_path / "first", before)
    assert first in await true_at_last(tmp_path / "both", before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("体检改到4月8日了", "钢琴考级改到9月20日了"),
        ("牙医预约推迟到5月6日了", "房子验收原来说8月2日，现在推迟到11月9日"),
        ("My recital was moved to 4 May", "The boiler inspection was moved to 9 October"),
        ("昨天头晕得厉害，血压160，医生说我是颈椎病", "跑步三个月瘦了八斤，医生说血压降到了125"),
        ("我从工厂宿舍搬出来了，在北关租了间小屋", "我从小在银川长大"),
    ],
)
async def test_news_of_something_else_ends_nothing(tmp_path: Path, before: str, after: str) -> None:
    """Another appointment, a part of what was told, or where somebody grew up."""
    told = await true_at_last(tmp_path / "first", before)
    assert told and {*told} <= {*await true_at_last(tmp_path / "both", before, after)}


@pytest.mark.parametrize(
    ("told", "holds"),
    [
        (
            [("Ann", "I drive a Golf"), ("Bob", "I drive a Golf"), ("Ann", "I sold the Golf")],
            ["Bob drives a Golf", "Ann sold the Golf"],
        ),
        (
            [("小李", "我开一辆高尔夫"), ("小王", "我开一辆高尔夫"), ("小李", "高尔夫卖了")],
            ["小王开一辆高尔夫", "高尔夫卖了"],
        ),
        (
            [("Ann", "I live in Lyon"), ("Bob", "I live in Porto"), ("Bob", "I moved to Madrid")],
            ["Ann lives in Lyon", "Bob lives in Madrid"],
        ),
        (
            [("小李", "我住在杭州"), ("小王", "我住在苏州"), ("小王", "我搬到南京了")],
            ["小李住在杭州", "小王住在南京"],
        ),
    ],
)
async def test_in_a_talk_of_several_each_changes_only_what_is_told_of_them(
    tmp_path: Path, told: list[tuple[str, str]], holds: list[str]
) -> None:
    """Whoever else has said the same."""
    assert sorted(await true_at_last(tmp_path, *told)) == sorted(holds)


def test_words_that_only_look_like_an_ending_are_none() -> None:
    """To drop by is not to drop, to give back is not to go back."""
    for text in ("User dropped by the studio", "User is all fired up"):
        assert "OVER" not in signs(text)
    assert "BACK" not in signs("User wants to give back to the shelter")
    assert "OVER" in signs("User dropped the class") and "OVER" in signs("User was fired")
    assert "BACK" in signs("User went back to the shelter")


def test_only_the_nearest_note_ends() -> None:
    """By words alone, and none where none is about the same thing."""
    notes = [Told("User's wedding is on 12 June"), Told("User's dentist is in Leeds")]
    new = Told(
        "The wedding was moved to 4 September", message="The wedding was moved to 4 September"
    )
    assert CHANGES & signs(new.message)
    assert ended_notes(new, notes) in ((0,), ())
    assert ended_notes(new, notes[1:]) == ended_notes(new, []) == ()


@pytest.mark.parametrize(
    ("before", "after", "state"),
    [
        ("I live in Berlin", "I moved to Munich", "User lives in Munich"),
        ("我住在北京", "我搬到成都了", "用户住在成都"),
        (
            "I live in Berlin",
            "I moved to Munich last month",
            "User lives in Munich (since 2025-12)",
        ),
        ("我住在北京", "上个月我搬到上海了", "用户住在上海（自2025-12）"),
        (
            "I work at Fiat",
            "Last week I joined Riverside Clinic as a nurse",
            "User works at Riverside Clinic as a nurse (since 2026-01)",
        ),
        ("我在百度工作", "我上个月跳槽到字节了", "用户在字节工作（自2025-12）"),
    ],
)
async def test_a_note_says_the_state_and_its_edges_end_with_it(
    tmp_path: Path, before: str, after: str, state: str
) -> None:
    """Not only the event; the graph shows what holds now."""
    assert await true_at_last(tmp_path, before, after) == [state]
    settings = Settings(data_dir=tmp_path, llm="none", embedder="local")
    async with AsyncMemory(settings=settings) as memory:
        graph = await memory.graph(user_id="u")
    assert all(it.destination in state for it in graph)
    assert {it.relationship for it in graph} & {"lives_in", "works_at"}


@pytest.mark.parametrize(
    ("said", "notes"),
    [
        ("用户喜欢编程", ["用户喜欢编程"]),
        ("The user likes programming", ["User likes programming"]),
        ("用户住在成都，对花生过敏", ["用户住在成都", "用户对花生过敏"]),
        (
            "The user lives in Oslo and is allergic to nuts",
            ["User lives in Oslo", "User is allergic to nuts"],
        ),
    ],
)
async def test_what_is_said_of_the_user_is_understood(
    tmp_path: Path, said: str, notes: list[str]
) -> None:
    """As agents write it who keep notes about somebody."""
    assert sorted(await true_at_last(tmp_path, said)) == sorted(notes)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("My cat is called Momo", "Momo only eats salmon now"),
        ("我的猫叫咪咪", "咪咪现在只吃三文鱼"),
        ("I play tennis", "I play padel now too"),
        ("I speak French", "I also started speaking Spanish now"),
        ("I work at Fiat", "I work at a bakery now as well"),
        ("我在学法语", "我现在还在学西班牙语"),
        ("我喜欢打网球", "我现在也打羽毛球了"),
        ("I live in Paris", "I'm moving to Lyon in March"),
        ("I live in Paris", "I'm going to move to Lyon soon"),
        ("我住在巴黎", "我三月搬到里昂"),
        ("我在百度工作", "我三月入职字节"),
        ("I have a dog called Rex", "Rex ran away but he came back"),
        ("我养了一只猫叫咪咪", "咪咪走丢了，不过后来回来了"),
        ("I have a dog called Rex", "My neighbour's dog died"),
        ("I have a dog called Rex", "Tom's dog Rex died"),
        ("我有一只狗叫旺财", "小王的狗旺财死了"),
        ("My cat is called Momo", "I gave Momo to the vet for the weekend"),
        ("I live in Paris", "I lived in Lyon until 2019"),
        ("I work at Fiat", "I was at BMW in 2015"),
        ("我住在北京", "我2015年住在上海"),
        ("我住在北京", "我这周在上海"),
    ],
)
async def test_nothing_true_is_ended_by_something_more_or_later_or_else(
    tmp_path: Path, before: str, after: str
) -> None:
    """An addition, a plan, what was so earlier or is only these days, or another thing."""
    (first,) = await true_at_last(tmp_path / "first", before)
    assert first in await true_at_last(tmp_path / "both", before, after)


@pytest.mark.parametrize(
    ("told", "holds"),
    [
        (
            ("I have two goats, Flocke and Rübe", "Rübe died", "Rübe died"),
            "User has two goats, Flocke and Rübe; Rübe died",
        ),
        (
            ("我养了两只猫，叫咪咪和豆豆", "豆豆走丢了", "咪咪也死了"),
            "用户养了两只猫，叫咪咪和豆豆；豆豆走丢了；咪咪也死了",
        ),
        (
            ("I have a Kindle and an iPad", "I sold the Kindle"),
            "User has a Kindle and an iPad; User sold the Kindle",
        ),
        (("我有一把吉他和一把二胡", "吉他卖了"), "用户有一把吉他和一把二胡；吉他卖了"),
        (
            ("I have two hens, Berta and Hilde", "It was a sad night, Hilde died"),
            "User has two hens, Berta and Hilde; It was a sad night, Hilde died",
        ),
        (
            ("我养了两只鹦鹉，叫阿红和阿绿", "窗没关，阿绿飞走了"),
            "用户养了两只鹦鹉，叫阿红和阿绿；窗没关，阿绿飞走了",
        ),
        (
            ("I have two dogs, Rex and Bella", "Rex ran away but he came back"),
            "User has two dogs, Rex and Bella",
        ),
        (("我养了两只猫，叫咪咪和豆豆", "豆豆的窝丢了"), "用户养了两只猫，叫咪咪和豆豆"),
    ],
)
async def test_one_of_several_that_is_gone_is_told_beside_the_others(
    tmp_path: Path, told: tuple[str, ...], holds: str
) -> None:
    """What is left is not over, and nothing says that all are there."""
    assert holds in await true_at_last(tmp_path, *told)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("I have a parrot called Kiwi", "Kiwi flew away"),
        ("I have a dog called Rex", "We had to put Rex down"),
        ("My rabbit is called Pip", "Pip ran away yesterday"),
        ("I have a dog called Rex", "My dog died last week"),
        ("我养了一只猫叫咪咪", "咪咪走丢了"),
        ("我有一只狗叫旺财", "旺财上周去世了"),
        ("我的鹦鹉叫小绿", "小绿飞走了"),
    ],
)
async def test_an_animal_that_is_gone_is_had_no_longer(
    tmp_path: Path, before: str, after: str
) -> None:
    (first,) = await true_at_last(tmp_path / "first", before)
    notes = await true_at_last(tmp_path / "both", before, after)
    assert first not in notes and len(notes) == 1


@pytest.mark.parametrize(
    ("before", "after", "day"),
    [
        ("我的答辩定在25号", "答辩推到28号了", "2026-01-28"),
        ("My interview is on January 30", "The interview is february 17 now instead", "2026-02-17"),
    ],
)
async def test_what_is_put_off_has_its_new_day(
    tmp_path: Path, before: str, after: str, day: str
) -> None:
    (note,) = await true_at_last(tmp_path, before, after)
    assert day in note


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("I'm dating Tom", "Tom and I broke up last week"),
        ("My husband is Ravi", "Ravi and I separated in May"),
        ("I'm engaged to Omar", "The engagement is off"),
        ("I ride a Brompton to work", "My Brompton got stolen outside the library"),
        ("I have a sewing machine", "I threw the sewing machine out"),
        ("I own a small sailing boat", "We scrapped the boat in October"),
        ("I play squash on Fridays", "I don't play squash anymore"),
        ("I run 5 km every morning", "I gave up running because of my knee"),
        ("I have a rabbit called Clover", "We had to give Clover away"),
        ("I have an iPhone 12", "I replaced my iPhone with a Pixel"),
        ("我喝全脂牛奶", "牛奶换成燕麦奶了"),
        ("我在跟小唐交往", "和小唐结束了"),
        ("我老婆叫方敏", "我跟方敏去年就离了"),
        ("我有一台富士相机", "那台富士卖给同事了"),
        ("我戴一块浪琴手表", "浪琴弄丢了"),
        ("我在奶茶店打工", "奶茶店的工辞了"),
        ("我用Keep锻炼", "Keep卸载了"),
        ("我养了一条金毛叫旺财", "旺财上个月没了"),
        ("我住在朝阳区", "我改住海淀区了"),
    ],
)
async def test_what_is_gone_is_had_no_longer(tmp_path: Path, before: str, after: str) -> None:
    """A partner, a thing, an activity: with or without something in its place."""
    (first,) = await true_at_last(tmp_path / "first", before)
    assert first not in await true_at_last(tmp_path / "both", before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("I'm dating Tom", "My sister and her boyfriend broke up"),
        ("My husband is Ravi", "My friends Ravi and Tess split up"),
        ("I drive a Panda", "I didn't sell the Panda in the end"),
        ("I drive a Panda", "The Panda is at the garage this week"),
        ("I have a Kindle", "I lost the charger of my Kindle"),
        ("I'm in a choir on Tuesdays", "I left the choir folder on the bus"),
        ("I have a flat in Leith", "The agent said he sold a flat in Leith for 300k"),
        ("I run 5 km every morning", "The doctor asked whether I had stopped running"),
        ("I drink oat milk", "The café switched to soy milk"),
        ("我女朋友叫小雨", "小雨的爸妈离婚了"),
        ("我男友叫阿凯", "我跟阿凯吵架说要分手，后来和好了"),
        ("我开一辆朗逸", "朗逸不卖了，再开两年"),
        ("我有一架雅马哈钢琴", "我没把钢琴送人"),
        ("我有一辆小牛电动车", "小牛的头盔丢了"),
        ("我喝全脂牛奶", "食堂的牛奶换成燕麦奶了"),
        ("我养了一条金毛叫旺财", "旺财的玩具没了"),
        ("I drive a Golf", "Jonas sold the Golf"),
        ("I work at Fiat", "Karl quit Fiat"),
        ("我和小李结婚了", "小王离婚了"),
        ("我在学吉他", "阿强不学吉他了"),
        ("我在百度上班", "小刘从百度离职了"),
    ],
)
async def test_nothing_is_gone_that_only_sounds_so(tmp_path: Path, before: str, after: str) -> None:
    """What did not happen, happened to others, or to what only belongs to it."""
    (first,) = await true_at_last(tmp_path / "first", before)
    assert first in await true_at_last(tmp_path / "both", before, after)


@pytest.mark.parametrize(
    ("before", "after", "instead"),
    [
        (
            ("My gym is on Elm Street", "My trainer at the gym is Pedro"),
            "I switched to the gym on Oak Lane and my trainer is Ilka now",
            ("Oak Lane", "Ilka"),
        ),
        (
            ("My rent is 900 euros", "My landlord is Mr Braun"),
            "The rent went up to 980 euros and Mrs Vogel is the landlord now",
            ("980", "Vogel"),
        ),
        (
            ("太极课在周四", "太极课是吴老师教"),
            "太极课改到周六了，换林老师教",
            ("周六", "林老师"),
        ),
        (
            ("我房租3000", "我房东是刘姐"),
            "房租涨到3500了，房东也换成老赵了",
            ("3500", "老赵"),
        ),
    ],
)
async def test_each_statement_ends_what_says_the_same_kind_of_thing(
    tmp_path: Path, before: tuple[str, str], after: str, instead: tuple[str, str]
) -> None:
    """A place a place, a person a person; without one of them only what it ended holds again."""
    now = [1_768_910_400_000_000]
    settings = Settings(data_dir=tmp_path, llm="none", embedder="local")
    async with AsyncMemory(settings=settings, clock=lambda: now[0]) as memory:
        old = []
        for text in (*before, after):
            now[0] += DAY
            added = await memory.add(text, user_id="u", session_id=f"s{now[0]}")
            old += [it.id for it in added.results]
        for name, words in zip(old, instead, strict=False):
            lines = await memory.history(name, user_id="u")
            (by,) = [it for line in lines if "replaced by " in (it := line.reason or "")]
            successor = await memory.get(by.removeprefix("replaced by "), user_id="u")
            assert words in successor.memory
        current = await memory.get_all(user_id="u")
        await memory.delete(current[-1].id, user_id="u")
        held = {it.id for it in await memory.get_all(user_id="u")} & {*old[:2]}
        assert len(held) == (1 if len(current) == 2 else 2)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("我健身卡一年2000块", "健身改到周六"),
        ("瑜伽课在三楼教室", "瑜伽课改到周五了"),
        ("我房租每月5号交", "房租涨到3300了"),
        ("My rent is due on the 5th", "My rent went up to 980"),
        ("My haircut is 35 pounds", "My haircut got pushed to Saturday"),
        ("我房东叫老葛", "老葛把租金涨到了三千二"),  # who it was that raised it stays who it was
        ("My landlord is Mr Braun", "Mr Braun raised my rent to 980"),
    ],
)
async def test_a_change_ends_no_statement_of_another_kind(
    tmp_path: Path, before: str, after: str
) -> None:
    """When, how much, where, who: each is told by itself."""
    (first,) = await true_at_last(tmp_path / "first", before)
    assert first in await true_at_last(tmp_path / "both", before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("The budget for the kitchen is 12,000", "We increased the kitchen budget to 15,000"),
        ("I take 20 mg of lisinopril every morning", "The doctor put me on 10 mg of lisinopril"),
        ("My son Leo is in third grade", "Leo started fourth grade today"),
        ("I smoke about ten cigarettes a day", "I quit smoking three weeks ago"),
        ("我每天抽十根烟", "我三周前戒烟了"),
        ("My laptop is a ThinkPad X1", "I bought a MacBook, the ThinkPad went to my brother"),
        ("我的电脑是ThinkPad X1", "我买了MacBook，ThinkPad给我弟了"),
        ("I'm single", "I got engaged to Marek"),
        ("我单身", "我和马克订婚了！"),
        ("我对青霉素过敏", "好消息，检查说我对青霉素不过敏"),
    ],
)
async def test_a_change_is_known_by_more_than_its_usual_words(
    tmp_path: Path, before: str, after: str
) -> None:
    (first,) = await true_at_last(tmp_path / "first", before)
    notes = await true_at_last(tmp_path / "both", before, after)
    assert notes and first not in notes


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("I'm single", "My sister got engaged to Marek"),
        ("我单身", "我妹妹订婚了"),
        ("My laptop is a ThinkPad X1", "I went to my brother with the ThinkPad"),
        ("我的电脑是ThinkPad X1", "我用ThinkPad给我弟打了电话"),
        ("We have two kids.", "We used to have a cat, he got run over, kids still miss him."),
        ("I live in Portland with my boyfriend Chris.", "Chris and I broke up."),
        ("我在深圳做前端开发。", "入职一周了，食堂真不错"),
        ("Our choir meets at St Mark's.", "The book club no longer meets at the library."),
        ("我们合唱团每周二在文化馆排练。", "话剧社不再在图书馆排练了。"),
        ("My brother Sam lives in Oslo.", "I moved to Oslo."),
        ("My parents live in Leeds.", "I live in Leeds now."),
        ("My roommate Dev is vegan.", "I've gone fully vegan now."),
        ("我哥住在上海。", "我搬到上海了。"),
        ("我爸戒烟了。", "我也戒烟了。"),
        ("我叫林慧。", "我在杭州开了一家花店，叫“半亩花田”。"),
        ("My brother Otto lives in Graz.", "My colleague Otto lives in Linz."),
        ("我弟弟小明住在北京。", "我同事小明住在深圳。"),
    ],
)
async def test_what_only_sounds_like_it_changes_nothing(
    tmp_path: Path, before: str, after: str
) -> None:
    (first,) = await true_at_last(tmp_path / "first", before)
    assert first in await true_at_last(tmp_path / "both", before, after)


@pytest.mark.parametrize(
    ("before", "after", "successor"),
    [
        (
            "My vet is Dr Huber.",
            "Dr Huber retired. My new vet is Dr Ng.",
            "User's new vet is Dr Ng",
        ),
        ("我的牙医是潘医生。", "潘医生退休了，我的新牙医是吴医生。", "用户的新牙医是吴医生"),
        (
            "I drive a Skoda Octavia.",
            "The Octavia is sold. I drive a Kia now.",
            "User drives a Kia now",
        ),
        ("My cat is called Momo.", "Momo died. We planted a tree.", "Momo died"),
    ],
)
async def test_what_is_told_instead_is_the_successor(
    tmp_path: Path, before: str, after: str, successor: str
) -> None:
    """Not the sentence that only tells why the old one is over, unless there is no other."""
    settings = Settings(data_dir=tmp_path, llm="none", embedder="local")
    async with AsyncMemory(settings=settings) as memory:
        (old,) = (await memory.add(before, user_id="u", session_id="a")).results
        added = await memory.add(after, user_id="u", session_id="b")
        notes = await memory.get_all(user_id="u")
    assert [it.memory for it in added.results if it.event == "UPDATE"] == [successor]
    assert [it.memory for it in notes if it.note.supersedes == old.id] == [successor]
