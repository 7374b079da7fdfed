"""Made-up chat messages, and what a model would note of each: the same on every machine."""

import random
from dataclasses import dataclass

from bench.corpus import SEED, Words

Triple = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Told:
    """A message and the answer of a model that read it: one or two facts, and who is in them."""

    message: str
    facts: tuple[str, ...]
    entities: tuple[tuple[str, str], ...]  # name, type
    relation: Triple  # of the first fact


SAYINGS = (
    Told(
        "昨天和{人}在{地点}吃了{食物}，一共{价钱}块。我还是喜欢{口味}的。",
        ("用户和{人}在{地点}吃过{食物}，花了{价钱}块", "用户吃{食物}喜欢{口味}"),
        (("用户", "person"), ("{人}", "person"), ("{地点}", "place")),
        ("用户", "ate_with", "{人}"),
    ),
    Told(
        "{人}把{东西}寄到{地点}了，单号是{号码}。",
        ("{人}寄给用户一件{东西}，单号{号码}，送到{地点}",),
        (("{人}", "person"), ("{地点}", "place")),
        ("{人}", "sent_to", "{地点}"),
    ),
    Told(
        "我{时候}要去{地点}{事情}，订单号{号码}，别忘了提醒我。",
        ("用户{时候}去{地点}{事情}", "用户去{地点}的订单号是{号码}"),
        (("用户", "person"), ("{地点}", "place")),
        ("用户", "travels_to", "{地点}"),
    ),
    Told(
        "I went {hobby} with {person} in {place}. The new {thing} was {price} dollars.",
        (
            "User went {hobby} with {person} in {place}",
            "User bought a {thing} for {price} dollars",
        ),
        (("User", "person"), ("{person}", "person"), ("{place}", "place")),
        ("User", "went_with", "{person}"),
    ),
    Told(
        "{person} says the {problem} of {project} is fixed, see ticket {code}.",
        ("{person} fixed the {problem} of {project}, ticket {code}",),
        (("{person}", "person"), ("{project}", "project")),
        ("{person}", "works_on", "{project}"),
    ),
    Told(
        "We run {project} on {tool} now, the change is {code}, and I feel {mood}.",
        ("User's team runs {project} on {tool} since change {code}", "User feels {mood} about it"),
        (("{project}", "project"), ("{tool}", "tool")),
        ("{project}", "runs_on", "{tool}"),
    ),
)


class Choice(dict[str, str]):
    """Words for the gaps of one saying: a gap that comes again gets the same word."""

    def __init__(self, words: Words) -> None:
        super().__init__()
        self._words = words

    def __missing__(self, gap: str) -> str:
        return self.setdefault(gap, self._words[gap])


def conversation(count: int) -> list[Told]:
    """`count` messages of a user, half of them Chinese."""
    chance = random.Random(SEED + 3)
    words = Words(chance)
    return [told(chance.choice(SAYINGS), Choice(words)) for _ in range(count)]


def told(saying: Told, words: Choice) -> Told:
    source, relationship, destination = (part.format_map(words) for part in saying.relation)
    return Told(
        saying.message.format_map(words),
        tuple(fact.format_map(words) for fact in saying.facts),
        tuple((name.format_map(words), kind) for name, kind in saying.entities),
        (source, relationship, destination),
    )
