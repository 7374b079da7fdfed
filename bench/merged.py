"""Memories of middle size: a life told together with others, as if one person had lived them all.

A life has some fifteen messages, one that is hidden among others some hundreds, and most of these
tell nothing. Here each message tells something, and a question has no answer because nobody ever
spoke of it: so are the first weeks of a real user.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np

from bench.lives import Asked, Life
from kemem.backends.local import LocalEmbedder
from kemem.records import Matrix

MERGED = " (merged)"
SIZES = (20, 30, 45, 60, 80)  # messages at least
FOREIGN = 2  # questions of other lives, which nothing answers
ALIKE = 0.55  # two questions may ask for the same
LEAST = 6  # messages of a life to which others are added


def merged(
    lives: Sequence[Life], count: int, seed: int, sizes: Sequence[int] = SIZES
) -> list[Life]:
    """So many of the lives, each told together with others, and asked two questions of others.

    No question of one life is like one of another that is told with it, or asked of it.
    """
    chance, questions = random.Random(seed), asyncio.run(_questions(lives))
    asking = [it for it in lives if it.questions]
    some = [it for it in asking if len(it.messages) >= LEAST]
    picked = chance.sample(some, min(count, len(some)))
    return [_merge(it, asking, questions, chance.choice(sizes), chance) for it in picked]


async def _questions(lives: Sequence[Life]) -> dict[str, Matrix]:
    """The vectors of the questions of each life, by its name."""
    texts = [asked.text for life in lives for asked in life.questions]
    vectors = await LocalEmbedder().embed(texts, purpose="query")
    borders = np.cumsum([len(life.questions) for life in lives])
    return {it.name: own for it, own in zip(lives, np.split(vectors, borders[:-1]), strict=True)}


def _merge(
    life: Life,
    lives: Sequence[Life],
    questions: dict[str, Matrix],
    size: int,
    chance: random.Random,
) -> Life:
    told, asked, known = [*life.messages], [*life.questions], questions[life.name]
    first, last = (pick(it.at for it in told) for pick in (min, max))
    others = [it for it in lives if it.language == life.language and it.name != life.name]
    foreign: list[str] = []
    for other in chance.sample(others, len(others)):
        own = questions[other.name]
        if len(foreign) == FOREIGN or (known @ own.T).max() > ALIKE:
            continue
        if len(told) < size:
            until = first + (last - first) * chance.random()
            later = timedelta(days=(until - max(it.at for it in other.messages)).days)
            told += [
                replace(it, at=it.at + later, session=f"{other.name} {it.session}")
                for it in other.messages
            ]
            known = np.concatenate([known, own])
        else:
            foreign.append(chance.choice(other.questions).text)
    now = max([it.now for it in asked] + [it.at for it in told])
    asked += [Asked(text, now, (), frozenset()) for text in foreign]
    return replace(life, name=life.name + MERGED, messages=told, questions=asked, endings=[])
