"""How much shorter a prompt gets by the State of a session, and what of it survives: no model.

First a session of 300 messages that were made up from templates, then 20 that were written.

python -m bench.state
"""

import asyncio
import random
import sys
from dataclasses import dataclass

from bench.corpus import SEED, Words
from bench.phrases import CHINESE, ENGLISH
from bench.sessions import BUDGETS, MINUTE, SCOPE, START, figures, in_a_row, sessions
from kemem.add.summarize import STATE_TOKENS, summarize_session
from kemem.ports import Deps
from kemem.records import Message
from kemem.records.batch import Batch
from kemem.session import context
from kemem.testing import FakeClock
from kemem_conformance.ram import RamStore

MESSAGES = 300
EARLY = 120  # the facts are told within the first so many messages
SMALL_STATE = 400  # tokens, by which even short sessions get summaries of summaries

# What is told, and the words by which it is recognised.
CHINESE_FACTS = """
我叫周文博，今年三十四岁。|周文博
我对花生和芒果过敏，千万别推荐。|花生
我住在杭州滨江区江南大道。|滨江
我在宁德时代做电池工程师。|宁德时代
我女儿叫周小满，上小学二年级。|周小满
我们家养了一只布偶猫，叫团子。|团子
我的航班是 MU5137，早上七点二十起飞。|MU5137
预算最多一万二，不能再多了。|一万二
我太太林岚不喝咖啡，只喝龙井。|龙井
我们决定把发布日期改到六月十八号。|六月十八
服务器的内网地址是 10.24.8.31。|10.24.8.31
数据库用的是 PostgreSQL 16，不要用 MySQL。|PostgreSQL 16
会议室订的是三楼的听涛阁。|听涛阁
合同编号是 HT-20931。|HT-20931
我每周二和周四晚上去游泳。|游泳
我爸下个月要做白内障手术。|白内障
我的驾照去年十一月过期了。|驾照
代码规范：缩进必须用四个空格。|四个空格
我正在读《百年孤独》，读到第九章。|百年孤独
我们最后选了东芝的那台冰箱。|东芝
我高中在绍兴一中读的书。|绍兴一中
项目代号叫“北斗星”，负责人是赵敏。|北斗星
我不吃香菜，也不吃内脏。|香菜
我的英语考了雅思七分。|雅思
我打算国庆去敦煌看莫高窟。|莫高窟
车牌号是浙A7K932。|7K932
我的体检结果是血压偏高，148/95。|148/95
我们公司的代理端口是 7890。|7890
我最喜欢的乐队是万能青年旅店。|万能青年旅店
我弟弟在蒙特利尔读博士。|蒙特利尔
"""
ENGLISH_FACTS = """
My name is Marcus Feldman and I'm 41 years old.|Feldman
I'm allergic to shellfish and penicillin.|penicillin
I live in Tacoma, right by Wright Park.|Tacoma
I work as a hydrologist for the county.|hydrologist
My daughter Odette just started third grade.|Odette
We have a greyhound called Biscuit.|Biscuit
My flight is UA2174 and it leaves at 6:40.|UA2174
The budget is capped at 8,500 dollars.|8,500
My wife Priya only drinks oolong.|oolong
We decided to move the launch to September 14.|September 14
The staging box is at 172.16.9.40.|172.16.9.40
Use PostgreSQL 16 for this, never MongoDB.|MongoDB
The offsite is booked at Cedarbrook Lodge.|Cedarbrook
The contract number is QF-88213.|QF-88213
I swim on Tuesday and Thursday evenings.|swim
My father is having cataract surgery next month.|cataract
My passport expires in February.|passport
Code style: always indent with four spaces.|four spaces
I'm halfway through Middlemarch.|Middlemarch
In the end we chose the Bosch dishwasher.|Bosch
I went to Garfield High School.|Garfield
The project is codenamed Kestrel and Hannah owns it.|Kestrel
I can't stand cilantro.|cilantro
I scored 112 on the TOEFL.|TOEFL
I'm planning to see Petra in October.|Petra
My license plate is BKX4471.|BKX4471
My blood pressure was 148 over 95 at the checkup.|148 over 95
Our proxy listens on port 7890.|7890
My favourite band is Yo La Tengo.|Yo La Tengo
My brother is doing a PhD in Montreal.|Montreal
"""
CHINESE_REPLIES = (
    "好的，我记下了。还有什么需要我帮忙的吗？",
    "明白了！{事情}的时候注意休息，{心情}是很正常的。",
    "听起来不错。一般来说，去{地点}之前可以先看看天气，再决定带什么东西，这样会从容一些。",
    "关于{食物}，通常建议选{口味}的做法，对身体负担比较小。如果你愿意，我可以列几个选择。",
    "没问题。如果你需要，我可以随时提醒你。",
    "可以的，{东西}这类东西最好放在固定的地方，这样就不容易找不到了。",
)
CHINESE_TALK = (
    "哈哈，今天又是忙碌的一天，感觉{心情}。",
    "你觉得{地点}的{食物}怎么样？",
    "嗯嗯，好的，谢谢你！",
    "最近{事情}的人好像挺多的，你怎么看？",
    "那{东西}一般要怎么挑呢？",
)
ENGLISH_REPLIES = (
    "Got it, I'll keep that in mind. Is there anything else I can help with?",
    "That sounds great! {hobby} is a good way to unwind, and feeling {mood} is perfectly normal.",
    "In general it is worth checking the weather before you go anywhere, and packing light.",
    "When it comes to {food}, many prefer the simple version. Let me know if you want ideas.",
    "Sure, no problem. Feel free to ask me at any time.",
    "A {thing} is best kept in one fixed place, so that you don't have to look for it.",
)
ENGLISH_TALK = (
    "Haha, another busy day, I feel a bit {mood}.",
    "What do you think about {food} in general?",
    "Ok thanks, that helps a lot!",
    "It seems like everybody is into {hobby} these days, why is that?",
    "How do people usually pick a {thing}?",
)


@dataclass(frozen=True, slots=True)
class Language:
    name: str
    facts: str
    talk: tuple[str, ...]
    replies: tuple[str, ...]

    def planted(self) -> list[tuple[str, str]]:
        pairs = (line.split("|") for line in self.facts.strip().splitlines())
        return [(text, mark) for text, mark in pairs]


LANGUAGES = (
    Language("zh", CHINESE_FACTS, (*CHINESE_TALK * 2, *CHINESE), CHINESE_REPLIES),
    Language("en", ENGLISH_FACTS, (*ENGLISH_TALK * 2, *ENGLISH), ENGLISH_REPLIES),
)


def conversation(language: Language) -> list[Message]:
    """User and assistant in turn; the facts are strewn over the user's early messages."""
    chance = random.Random(SEED)
    words = Words(chance)
    facts = [text for text, _ in language.planted()]
    places = dict(zip(sorted(chance.sample(range(0, EARLY, 2), len(facts))), facts, strict=True))
    told = []
    for at in range(MESSAGES):
        text = chance.choice(language.replies if at % 2 else language.talk).format_map(words)
        if at in places:
            both = [places[at], text]
            chance.shuffle(both)
            text = ("" if language.name == "zh" else " ").join(both)
        role = "assistant" if at % 2 else "user"
        ts = START + at * MINUTE
        told.append(Message(f"m{at:04}", "agent", "user", "session", role, text, ts, ts))
    return told


async def measure(language: Language) -> list[str]:
    """One line of figures for each size of prompt."""
    clock = FakeClock(START)
    deps = Deps(RamStore(), None, clock)
    told = conversation(language)
    for at in range(0, MESSAGES, 10):
        await deps.store.apply(Batch(put=tuple(told[at : at + 10])))
        clock.now = told[at].ts
        await summarize_session(SCOPE, deps)
    lines = []
    for max_tokens in (1000, 2000):
        seen = await context(SCOPE, max_tokens, deps)
        marks = [mark for _, mark in language.planted()]
        kept = [mark for mark in marks if mark in seen.text]
        saving = 1 - seen.tokens / seen.full_tokens
        lines.append(
            f"{language.name}  {max_tokens:>10}  {seen.full_tokens:>11}  {seen.tokens:>14}"
            f"  {saving:>6.1%}  {len(kept):>2} of {len(marks)}"
        )
    return lines


async def main() -> None:
    print("    max_tokens  full tokens  context tokens  saving  early facts kept")
    for language in LANGUAGES:
        print("\n".join(await measure(language)))
    print("\nFacts of 20 sessions that survive in so many tokens, sessions with their newest topic")
    print(f"{'':32}" + "".join(f"{budget:>8}" for budget in BUDGETS) + "  newest topic")
    written = sessions()
    for held_out, name in ((True, "held out"), (False, "seen")):
        for language in LANGUAGES:
            half = [it for it in written if it.is_of(language.name) and it.held_out == held_out]
            for tokens in (STATE_TOKENS, SMALL_STATE):
                label = f"{language.name}  {name}, State of {tokens}"
                print(f"{label:32}{await figures(half, tokens)}")
            print(f"{language.name}  {name}, one after the other: {await in_a_row(half)}")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
