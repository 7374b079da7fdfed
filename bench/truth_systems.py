"""The systems of `bench.truth`: each stores a life, then is asked about it at a given time."""

import json
import re
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from math import log
from pathlib import Path
from subprocess import CalledProcessError

from bench.environment import WorkerFailed
from bench.retrievers import Ask as Search
from bench.retrievers import peer_process
from kemem import AsyncMemory
from kemem.records.times import to_micros
from kemem.settings import load
from kemem.testing import FakeClock

LIMIT = 10  # hits
EVIDENCE = 5  # hits that stand for a recall where a system has none
USER = "user"
SECOND = 1_000_000
HALF_LIFE = timedelta(days=60)
_WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?")
_HAN = re.compile(r"[\u3400-\u9fff]+")


@dataclass(frozen=True, slots=True)
class Message:
    """What somebody said, and when."""

    role: str
    content: str
    at: datetime
    session: str


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked; a text of each hop is needed, and without any hop nothing answers it."""

    text: str
    now: datetime
    hop_texts: tuple[tuple[str, ...], ...]
    stale_texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Life:
    """One person's messages, and the questions about them."""

    name: str
    language: str
    category: str
    messages: tuple[Message, ...]
    questions: tuple[Question, ...]


def read_truth(path: Path) -> list[Life]:
    """The lives of a file, one a line as JSON."""
    lives = []
    for line in path.read_text("utf-8").splitlines():
        item = json.loads(line)
        messages = tuple(
            Message(it["role"], it["content"], datetime.fromisoformat(it["ts"]), it["session_id"])
            for it in item["messages"]
        )
        questions = []
        for it in item["questions"]:
            hops = it.get("gold_all") or filter(None, [it["gold"]])
            now = datetime.fromisoformat(it["now"])
            texts = tuple(tuple(hop) for hop in hops)
            questions.append(Question(it["question"], now, texts, tuple(it["stale"])))
        lives.append(Life(item["id"], item["lang"], item["category"], messages, (*questions,)))
    return lives


def in_frames(lives: Sequence[Life], path: Path) -> list[Life]:
    """Each life with its questions bare, and in a turn of each kind; the kind is its category."""
    frames: dict[tuple[str, str], list[str]] = {(it, "bare"): ["{q}"] for it in ("en", "zh")}
    for line in path.read_text("utf-8").splitlines():
        frame = json.loads(line)
        frames.setdefault((frame["lang"], frame["kind"]), []).append(frame["frame"])
    framed, at = list[Life](), 0
    for life in lives:
        for (language, kind), some in frames.items():
            if language != life.language:
                continue
            questions = []
            for question in life.questions:
                at += 1
                text = some[at % len(some)].replace("{q}", question.text)
                questions.append(replace(question, text=text))
            name = f"{life.name} {kind}"
            framed.append(replace(life, name=name, category=kind, questions=tuple(questions)))
    return framed


@dataclass(frozen=True, slots=True)
class Reply:
    """What a system answers: texts, best first."""

    hits: Sequence[str]
    evidence: Sequence[str]  # of a recall
    confidence: float


Ask = Callable[[str, datetime], Awaitable[Reply]]
System = Callable[
    [Sequence[Life]], AsyncGenerator[tuple[Life, Ask], None]
]  # one life after the other


async def kemem(embedder: str, lives: Sequence[Life]) -> AsyncGenerator[tuple[Life, Ask], None]:
    """KeMem as a new user gets it; each session is added at the time of its last message."""
    for life in lives:
        clock = FakeClock(0)
        with tempfile.TemporaryDirectory() as directory:
            settings = load(data_dir=directory, llm="none", embedder=embedder)
            async with AsyncMemory(settings=settings, clock=clock) as memory:
                for session, some in groupby(life.messages, lambda it: it.session):
                    messages = [
                        {"role": it.role, "content": it.content, "ts": it.at.isoformat()}
                        for it in some
                    ]
                    clock.now = to_micros(messages[-1]["ts"]) + SECOND
                    await memory.add(messages, user_id=USER, session_id=session)
                yield life, partial(_recall, memory, clock)


async def _recall(memory: AsyncMemory, clock: FakeClock, question: str, now: datetime) -> Reply:
    clock.now = to_micros(now)
    hits = await memory.search(question, USER, limit=LIMIT)
    recalled = await memory.recall(question, USER)
    evidence = [it.content for it in recalled.evidence]
    return Reply([it.memory for it in hits], evidence, recalled.confidence)


async def bm25(
    half_life: timedelta | None, lives: Sequence[Life]
) -> AsyncGenerator[tuple[Life, Ask], None]:
    """BM25 over messages; with a half-life, newer messages count more."""
    for life in lives:
        yield life, Bm25(life, half_life).ask


class Bm25:
    """The messages of one life, ranked by the words of a question.

    Equal scores go to the newer message, so that nothing is gained by the order of a file. The
    confidence is the best score as a share of the greatest possible one.
    """

    def __init__(self, life: Life, half_life: timedelta | None) -> None:
        self._messages, self._half_life = life.messages, half_life
        self._rows = [Counter(words(it.content)) for it in life.messages]
        self._usual = sum(row.total() for row in self._rows) / max(len(self._rows), 1) or 1.0
        self._frequency = Counter(word for row in self._rows for word in row)

    async def ask(self, question: str, now: datetime) -> Reply:
        """The best messages."""
        rarity = {}
        for word in dict.fromkeys(words(question)):
            frequency = self._frequency[word]
            rarity[word] = log(1 + (len(self._rows) - frequency + 0.5) / (frequency + 0.5))
        scores = []
        for message, row in zip(self._messages, self._rows, strict=True):
            norm = 1.5 * (0.25 + 0.75 * row.total() / self._usual)
            score = sum(rarity[it] * row[it] * 2.5 / (row[it] + norm) for it in rarity if row[it])
            age = (now - message.at) / self._half_life if self._half_life else 0.0
            scores.append(score * 2**-age)
        best = sorted(range(len(scores)), key=lambda at: (-scores[at], -at))[:LIMIT]
        hits = [self._messages[at].content for at in best if scores[at] > 0]
        greatest = 2.5 * sum(rarity.values()) or 1.0
        return Reply(hits, hits[:EVIDENCE], max(scores, default=0.0) / greatest)


def words(text: str) -> list[str]:
    """English words, and pairs of Chinese characters.  "喝kopi咖啡馆" -> kopi, 喝, 咖啡, 啡馆"""
    pairs = []
    for run in _HAN.findall(text):
        pairs += [run[at : at + 2] for at in range(len(run) - 1)] or [run]
    return [*_WORD.findall(text.casefold()), *pairs]


async def peer(name: str, lives: Sequence[Life]) -> AsyncGenerator[tuple[Life, Ask], None]:
    """A system that other people make; its confidence is the score of its best hit."""
    try:
        async with peer_process(name) as load:
            for life in lives:
                messages = [
                    {
                        "message_id": f"m{at}",
                        "ts": it.at.isoformat(),
                        "role": it.role,
                        "content": it.content,
                    }
                    for at, it in enumerate(life.messages)
                ]
                yield life, partial(_search, await load(messages), life)
    except (CalledProcessError, RuntimeError) as error:  # it cannot be installed, or has ended
        raise WorkerFailed(str(error)) from error


async def _search(search: Search, life: Life, question: str, now: datetime) -> Reply:
    hits = await search({"query": question, "until": None}, LIMIT)
    texts = [life.messages[int(message_id[1:])].content for message_id, _ in hits]
    return Reply(texts, texts[:EVIDENCE], hits[0][1] if hits else 0.0)


SYSTEMS: dict[str, System] = {
    "kemem": partial(kemem, "local"),
    "words": partial(kemem, "none"),
    "bm25": partial(bm25, None),
    "newest": partial(bm25, HALF_LIFE),
    "chroma": partial(peer, "chroma"),
    "mem0": partial(peer, "mem0"),
}
CALIBRATED = frozenset({"kemem", "words"})  # a confidence of 0.5 means something
