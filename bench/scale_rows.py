"""What the stores of `bench.scale` are filled with, and how answers are measured."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from bench.corpus import SEED, Words
from bench.measure import Timing, percentile
from bench.phrases import CHINESE, ENGLISH, MIXED
from kemem.records import Matrix, Message, Model, Vector
from kemem.search.judge import JUDGED_MODEL

WIDTH = 512  # of the default embedder
BATCH = 1_000
SESSION = 50
CLUSTERS = 4_096
SPREAD = 0.9  # length of what sets a vector apart from its cluster's centre, which has length 1
BEGINNING = 1_700_000_000_000_000
LIMIT = 10
QUESTIONS = 40
MODEL = Model(JUDGED_MODEL, WIDTH)  # the whole recipe runs, as with the default embedder


def centres() -> Matrix:
    chance = np.random.default_rng(SEED)
    return np.asarray(chance.standard_normal((CLUSTERS, WIDTH)) / WIDTH**0.5, np.float32)


class ClusteredEmbedder:
    """A vector near some centre for any text, the same in every process."""

    name, width, in_process = MODEL.name, MODEL.width, True

    def __init__(self) -> None:
        self._centres = centres()

    async def embed(self, texts: Sequence[str], *, purpose: Literal["query", "passage"]) -> Matrix:
        return np.stack([self.vector(text) for text in texts])

    def vector(self, text: str) -> Vector:
        chance = np.random.default_rng([*text.encode()])
        return np.asarray(clustered(self._centres, chance, 1)[0])


def clustered(middles: Matrix, chance: np.random.Generator, count: int) -> Matrix:
    noise = chance.standard_normal((count, WIDTH), np.float32) * (SPREAD / WIDTH**0.5)
    return np.asarray(middles[chance.integers(CLUSTERS, size=count)] + noise, np.float32)


def vectors(count: int, seed: int = SEED) -> Iterator[Matrix]:
    """The vectors of the first rows, batch by batch."""
    middles, chance = centres(), np.random.default_rng(seed + 1)
    for start in range(0, count, BATCH):
        yield clustered(middles, chance, min(BATCH, count - start))


def texts() -> Iterator[str]:
    """Messages without end: 40 % Chinese, 40 % English, 20 % both in one sentence."""
    chance = random.Random(SEED)
    words = Words(chance)
    while True:
        (kind,) = chance.choices((CHINESE, ENGLISH, MIXED), weights=(2, 2, 1))
        yield chance.choice(kind).format_map(words)


def messages(user_id: str, count: int, said: Iterator[str]) -> Iterator[Message]:
    for number in range(count):
        yield Message(
            message_id=f"m{number:07d}",
            agent_id="default",
            user_id=user_id,
            session_id=f"s{number // SESSION:05d}",
            role="assistant" if number % 2 else "user",
            content=next(said),
            ts=BEGINNING + number * 60_000_000,
            ingest_time=BEGINNING + number * 60_000_000,
        )


def resident_mb() -> float:
    """Memory of this process that no file backs."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (anonymous,) = (line for line in lines if line.startswith("RssAnon"))
    return int(anonymous.split()[1]) / 1024


def cpu(kind: str, timing: Timing) -> dict[str, float]:
    return {
        f"{kind}_p50": percentile(timing.cpu_ms, 50),
        f"{kind}_p95": percentile(timing.cpu_ms, 95),
    }


def recall(rows: int, wanted: Matrix, answers: Sequence[Sequence[str]]) -> float:
    """The part of the exact nearest ten that was found; messages added later take no part."""
    units = wanted / np.linalg.norm(wanted, axis=1, keepdims=True)
    best: Matrix = np.zeros((len(wanted), 0), np.float32)
    near_rows = np.zeros((len(wanted), 0), np.int64)
    for number, matrix in enumerate(vectors(rows)):
        near = units @ (matrix / np.linalg.norm(matrix, axis=1, keepdims=True)).T
        own = np.tile(number * BATCH + np.arange(len(matrix)), (len(wanted), 1))
        best, near_rows = np.hstack([best, near]), np.hstack([near_rows, own])
        order = np.argsort(-best, axis=1)[:, :LIMIT]
        best = np.take_along_axis(best, order, 1)
        near_rows = np.take_along_axis(near_rows, order, 1)
    parts = []
    for exact, answer in zip(near_rows.tolist(), answers, strict=True):
        size = LIMIT - sum(not is_own(name) for name in answer)
        parts.append(len({f"m{row:07d}" for row in exact[:size]} & {*answer}) / size)
    return float(np.mean(parts))


def is_own(name: str) -> bool:
    """Whether a message is one of those that a store was built of."""
    return len(name) == 8 and name[0] == "m" and name[1:].isdigit()
