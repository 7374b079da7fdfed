"""Whom a clause without a subject means: whoever the clause before is about, known or not."""

from kemem.add.rules import Fact, extract_by_rules
from tests.cases import each
from tests.test_rules import facts, message, texts

STATES = ("/lives_in", "/works_at", "/habit/跑步")


def own(found: tuple[Fact, ...], topic: str = "user") -> list[str]:
    """What is told of the speaker's home, work and habits."""
    return [it.text for it in found if it.topic and it.topic in [f"{topic}{end}" for end in STATES]]


@each(
    "said",
    [
        "司徒公把房子卖了，搬到三亚养老去了",
        "前房东卖了房子，搬到珠海了",
        "楼上那家终于走了，搬到郊区去了",
        "听说陈老师不干了，搬到大理去了",
        "我前女友结婚了，住在苏州",
        "周杰伦又开演唱会了，在厦门住了一个月",
        "健身房的前台换工作了，入职腾讯了",
        "司徒公太累了，搬到三亚了",
        "北京大爷卖了房，搬到三亚了",
        "住对面的小伙子失恋了，搬到天津了",
        "不少老外走了，搬到曼谷了",
        "大胡子戒酒了，每天早上跑步",
        "楼上那家终于走了。搬到郊区去了。",
        "My old landlord sold the house and moved to Hawaii",
        "The couple upstairs finally left, moved to Leeds",
        "The couple upstairs finally left. Moved to Leeds.",
        "Heard that Mr Chen quit, moved to Dali",
        "I heard that Mr Chen quit, joined Tesco",
        "Apparently the vicar resigned, moved to Malta",
        "My brother got divorced, living in Leeds now",
        "Nobody from my year stayed, moved to London",
    ],
)
def test_what_somebody_else_does_is_not_told_of_the_speaker(said: str) -> None:
    """Also of people whom no rule knows: a missed home is better than a wrong one."""
    assert own(facts(said)) == []
    named = extract_by_rules([message(said, speaker="林澈")])
    assert own((*named.facts, *named.changes), "林澈") == []


@each(
    ("said", "told"),
    [
        ("房子卖了，搬到苏州了", "用户住在苏州"),
        ("辞职了，搬到大理去了", "用户住在大理"),
        ("下个月结婚，住在城东", "用户住在城东"),
        ("合同到期，搬回父母家了", "用户住在父母家"),
        ("我升职了，压力很大，搬到了深圳", "用户住在深圳"),
        ("程序员，住在苏州", "用户住在苏州"),
        ("杭州待了三年，搬到苏州了", "用户住在苏州"),
        ("北京太贵了，搬到天津了", "用户住在天津"),
        ("研究生毕业，住在武汉", "用户住在武汉"),
        ("今天天气真好。搬到苏州了", "用户住在苏州"),
        ("Sold the flat, moved to Leeds", "User lives in Leeds"),
        ("Quit my job, moved to Lisbon", "User lives in Lisbon"),
        ("Finally graduated, moved to Madrid", "User lives in Madrid"),
        ("The house is sold, moved to Brighton", "User lives in Brighton"),
        ("Broke up with Tom, living in Leeds now", "User is living in Leeds now"),
        ("The rent went up. Moved to Leeds.", "User lives in Leeds"),
        ("Split up with Sam, moved to Dundee", "User lives in Dundee"),
        ("Chose the sea, moved to Hove", "User lives in Hove"),
        ("Left Google, joined Stripe", "User works at Stripe"),
    ],
)
def test_the_speaker_acts_where_their_things_or_nobody_is_named(said: str, told: str) -> None:
    assert told in texts(said)


@each(
    ("said", "told"),
    [
        ("My sister Anna quit, moved to Rome", "User's sister Anna lives in Rome"),
        ("My old landlord sold up and moved to Hawaii", "User's old landlord lives in Hawaii"),
        ("Taylor Swift bought a mansion, moved to London", "Taylor Swift lives in London"),
        ("我哥哥结婚了，住在苏州", "用户的哥哥住在苏州"),
    ],
)
def test_it_is_told_of_who_was_named(said: str, told: str) -> None:
    """By the whole name: nobody is called "User's old", "Sold" or "Heard"."""
    assert told in texts(said)
    assert own(facts(said)) == []


@each("name", ["姜阿妈", "李阿妈", "王干妈", "陈姨妈", "张妈妈", "李叔叔"])
def test_a_surname_with_a_word_for_kin_is_one_name(name: str) -> None:
    """Nobody's mother: 姜阿妈, not 姜阿的妈."""
    assert texts(f"{name}住在杭州") == [f"{name}住在杭州"]
    assert texts("小林妈妈在银行工作") == ["小林的妈妈在银行工作"]


@each("said", ["正常，习惯就好", "习惯就好", "每天跑步就行了"])
def test_advice_is_about_nobody(said: str) -> None:
    assert texts(said) == []
    assert "用户每天跑步就行" in texts("我每天跑步就行")


@each(
    ("said", "told"),
    [
        (
            "My niece Bex (short for Rebecca, my half-sister), full of plans as usual",
            "User's niece Bex (short for Rebecca, user's half-sister), full of plans as usual",
        ),
        ("I moved to York (my wife, who is a nurse, loves it)", "User lives in York"),
        ("我搬到苏州了（老婆在那边工作，孩子也在），挺好", "用户住在苏州"),
        ("我养了一只猫（叫年糕，今年3岁），很乖", "用户养了一只猫（叫年糕，今年3岁），很乖"),
        ("I live in Leeds (finally", "User lives in Leeds finally"),
    ],
)
def test_no_note_is_cut_within_brackets(said: str, told: str) -> None:
    assert any(it.startswith(told) for it in texts(said)), texts(said)
    for text in texts(said):
        assert text.count("(") + text.count("（") == text.count(")") + text.count("）")


def test_initials_keep_their_dots() -> None:
    assert "User's wife is from the U.K." in texts("I work at Fiat, and my wife is from the U.K.")
