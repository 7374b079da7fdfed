"""In long texts the judge, which short ones taught, leaves the order to what other talk taught."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kemem import Memory
from kemem.ports.request import Context
from kemem.records import Message
from kemem.search.features import Candidate
from kemem.search.judge import LARGE, Meant, judge
from kemem.settings import Settings
from kemem.text.reading import read_question

START = datetime(2026, 3, 2, 9, tzinfo=UTC)
SAID = {
    "en": (
        (
            "How do I hide all these cables behind a television? I put up our new Loewe on "
            "Saturday, the 48-inch one, and behind it there is a jungle of wires.",
            "Congratulations on your new television! A tidy wall makes the whole room calmer, and "
            "the good news is that hiding the cables behind a television is easy:\n"
            "1. Sort the cables of the television first: power, network, the console.\n"
            "2. Bundle what runs in parallel with hook-and-loop straps, never with wire.\n"
            "3. Put a cable channel on the wall behind the television, and paint it over.\n"
            "4. Lay the power strip into a box with openings, so that the heat can leave it.\n"
            "5. Leave some slack, because a television with a swivel mount moves.\n"
            "6. Label both ends of each cable, so that you find the right one when it matters.\n"
            "Do you want to put the cables into the wall? For that, ask an electrician what size "
            "of conduit your new television needs, as power and data must be kept apart.",
        ),
        (
            "Which tools are good for planning the work of a small team? In my previous job as a "
            "surveyor I only ever used paper lists, and now there are nine of us.",
            "For a team of that size a simple tool is better than a mighty one. Whatever your "
            "previous occupation was, the work can be planned in a few ways:\n"
            "1. A board with columns shows what is open, what is begun and what is done.\n"
            "2. A shared calendar shows who is away, and when something has to be ready.\n"
            "3. A timeline helps where one job can only begin when another one is finished.\n"
            "4. A wiki keeps what was decided, so that no one has to look for it in messages.\n"
            "Begin with the board alone and use it for a month. Make one person responsible for "
            "each job, keep the number of jobs in work small, and look at the board together "
            "every Monday. Most teams give up a tool because it had to be filled in by hand.",
        ),
        (
            "Can you suggest some easy dishes for a dinner on Friday? There will be six of us, "
            "and my colleague Ruth, who now works at a dairy in Leeds, brings the cheese.",
            "A dinner for six people goes best with dishes that can be made the day before:\n"
            "1. A lentil stew with carrots, which tastes better when it was warmed up once.\n"
            "2. A tray of roasted vegetables with rosemary, which looks after itself in the oven.\n"
            "3. A quiche with leeks, which can be eaten warm or cold, whenever people come.\n"
            "4. A salad of beans, herbs and lemon, which gives something fresh to the rest.\n"
            "5. Baked apples with nuts, as they are ready whenever the plates are empty.\n"
            "If a colleague brings cheese, have bread, grapes and some chutney at hand, and take "
            "it out of the fridge an hour before. Ask who eats no meat and who drinks no wine; "
            "people who work late are glad about a dish that is kept warm for them.",
        ),
    ),
    "zh": (
        (
            "电视后面的线怎么藏起来比较好看？星期六我把新买的海信装上了，五十五寸的，后面乱成一团。",
            "恭喜你装上新电视！墙面整洁了，整个客厅都会清爽很多。电视后面的线其实很好藏，可以这样做：\n"
            "1. 先把电视的线分类：电源线、网线、游戏机的线，各归各的。\n"
            "2. 同方向的线用魔术贴扎带捆成一束，不要用铁丝，免得伤到外皮。\n"
            "3. 在电视后面的墙上贴一条线槽，再刷成和墙一样的颜色。\n"
            "4. 插线板放进带散热孔的收纳盒里，热量才散得出去。\n"
            "5. 线要留一点余量，新电视如果用旋转支架，转动的时候会拉扯。\n"
            "6. 每根线的两头都贴上标签，要拔的时候一眼就能找到。\n"
            "你想把线埋进墙里吗？那要先请电工看看新电视需要多大尺寸的线管，强电和弱电必须分开走，"
            "而且要留好检修口，以后换线才不用砸墙。",
        ),
        (
            "小团队安排工作用什么工具好？我以前当测绘员的时候全靠纸和笔，现在手底下有九个人了。",
            "这么大的团队，简单的工具比功能多的好用。不管以前是什么职业，安排工作无非是这几种办法：\n"
            "1. 看板：一列写还没做的工作，一列写正在做的，一列写做完的，一目了然。\n"
            "2. 共享日历：谁请假，什么时候要交东西，大家都看得见。\n"
            "3. 时间轴：一项工作要等另一项做完才能开始的时候，用它最清楚。\n"
            "4. 知识库：把定下来的事情写进去，以后不用翻聊天记录。\n"
            "建议先只用看板，坚持一个月。每项工作只指定一个负责人，同时进行的工作不要太多，每周一大家"
            "一起过一遍。很多团队最后放弃工具，都是因为每样东西都要手工填写，时间一长就没人愿意填了。",
        ),
        (
            "星期五晚上请客，有什么简单的菜推荐吗？一共六个人，我同事阿蓉现在在乳品厂上班，她会带奶酪来。",
            "六个人的晚饭，最好选可以提前一天准备的菜，当天就不会手忙脚乱：\n"
            "1. 胡萝卜炖小扁豆，回锅热一次反而更香，一大锅端上桌就行。\n"
            "2. 迷迭香烤蔬菜，放进烤箱就不用管，可以腾出手做别的。\n"
            "3. 韭葱蛋派，冷吃热吃都可以，客人什么时候到都不要紧。\n"
            "4. 柠檬香草拌豆子，清爽解腻，和别的菜搭着吃正好。\n"
            "5. 坚果烤苹果，等大家把盘子吃空了，端上来刚刚好。\n"
            "同事要带奶酪的话，家里备一点面包、葡萄和酸甜酱，提前一个小时从冰箱里拿出来回温。记得先问"
            "清楚谁不吃肉、谁不喝酒；现在上班的人下班都晚，最好有一道菜能一直温着等他们。",
        ),
    ),
}
# What is asked, and which turn answers it.
ASKED = {
    "en": (
        ("What size is my new television?", (0, 0)),
        ("Which brand is our new television?", (0, 0)),
        ("Where does my colleague Ruth work now?", (2, 0)),
        ("Who brings the cheese?", (2, 0)),
        ("What did you say about labels on cables?", (0, 1)),
    ),
    "zh": (
        ("我的新电视是多大尺寸的？", (0, 0)),
        ("我的电视是什么牌子的？", (0, 0)),
        ("我同事阿蓉现在在哪儿上班？", (2, 0)),
        ("谁带奶酪来？", (2, 0)),
        ("你说贴标签是为了什么？", (0, 1)),
    ),
}


@pytest.mark.parametrize("language", SAID)
def test_who_tells_at_length_is_not_above_who_told_it(language: str, tmp_path: Path) -> None:
    """The first days of a chat in which the assistant explains things that the user speaks of."""
    with Memory(settings=Settings(data_dir=tmp_path, llm="none")) as memory:
        for day, turns in enumerate(SAID[language]):
            messages = [
                {
                    "role": role,
                    "content": text,
                    "ts": (START + timedelta(days=day, minutes=at)).isoformat(),
                }
                for at, (role, text) in enumerate(zip(("user", "assistant"), turns, strict=True))
            ]
            memory.add(messages, user_id="u", session_id=f"day {day}", infer=False)
        for question, (day, turn) in ASKED[language]:
            first = memory.search(question, user_id="u")[0]
            assert first.memory == SAID[language][day][turn], question


@given(
    st.sampled_from(sorted(SAID)),
    st.sampled_from((20, 80, 320)),
    st.integers(1, 500),
    st.integers(0, 2**32),
)
def test_one_more_row_changes_little(language: str, length: int, rows: int, seed: int) -> None:
    """No memory is suddenly a large one, in which everything is judged otherwise."""
    said = [
        Message(
            f"{day} {at}", "a", "u", f"{day}", ("user", "assistant")[at], text[:length], day, day
        )
        for day, turns in enumerate(SAID[language])
        for at, text in enumerate(turns)
    ]
    random = np.random.default_rng(seed)
    units = [it / np.linalg.norm(it) for it in random.normal(size=(len(said) + 1, 512))]
    vectors = np.array(units, np.float32)
    candidates = [Candidate(it, 0.5, Context(vectors[at])) for at, it in enumerate(said)]
    asked = read_question(ASKED[language][seed % 5][0], START)
    for count in (rows, LARGE - 1):
        now, then = (
            judge(asked, Meant(vectors[-1]), candidates, among).scores
            for among in (count, count + 1)
        )
        assert now == pytest.approx(then, abs=0.1)
