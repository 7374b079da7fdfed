"""Questions about long conversations, with the strings that mark a right answer."""

import json
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.scoring import users
from kemem.text.language import is_chinese

ACCEPTED = Path(__file__).parents[1] / "data" / "answers" / "truth.txt"
CONVERSATIONS = ("locomo", "longmemeval")
TRUTH = "truth"
SETS = (*CONVERSATIONS, TRUTH)
RUBRICS = "single-session-preference"  # a category whose gold describes answers, and is none
_ALSO = re.compile(r"(.+?)[.,;]? *(?:or)? ([^.]+?)(?: \([^)]*\))? is also acceptable\.?")
_ASIDE = re.compile(r"(.+?) \((?:(or) )?([^)]+)\)\.?")
_DECIDED = re.compile(r"(yes|no)[;,.] .+", re.IGNORECASE)
_SENTENCES = re.compile(r"(.+?\w{2}\.) [A-Z].+")


@dataclass(frozen=True, slots=True)
class Message:
    """What somebody said, and when (RFC 3339)."""

    message_id: str
    ts: str
    role: str
    speaker: str
    session: str
    content: str

    @property
    def name(self) -> str:
        """The speaker's name, or the role of one who has none."""
        return self.speaker or self.role


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and any of several right answers; without any, nothing answers it."""

    dataset: str
    key: str
    text: str
    now: str
    category: str
    gold: tuple[str, ...]
    stale: tuple[str, ...] = ()  # an answer that has one of these is wrong

    @property
    def language(self) -> str:
        return "zh" if is_chinese(self.text) else "en"


@dataclass(frozen=True, slots=True)
class History:
    """The messages of one person, in the order of time, and questions about them."""

    dataset: str
    name: str
    messages: tuple[Message, ...]
    questions: tuple[Question, ...]


def read_conversations(path: Path, datasets: Sequence[str]) -> list[History]:
    """Histories of a file as `bench.retrieval` reads it."""
    return [_conversation(user) for user in users(path, datasets)] if datasets else []


def _conversation(user: dict[str, Any]) -> History:
    fields = ("message_id", "ts", "role", "speaker", "session", "content")
    messages = [Message(*(str(it[name] or "") for name in fields)) for it in user["messages"]]
    messages = sorted((it for it in messages if it.content.strip()), key=lambda it: it.ts)
    questions = [
        Question(
            user["dataset"],
            it["qid"],
            it["query"],
            it["ts"] or messages[-1].ts,
            it["category"],
            alternatives(str(it["answer"])) if it["answerable"] else (),
        )
        for it in user["queries"]
        if it["category"] != RUBRICS
    ]
    return History(user["dataset"], user["user"], tuple(messages), tuple(questions))


def alternatives(answer: str) -> tuple[str, ...]:
    """The right answers that a text names, of which a long one says more than was asked.

    "2 days. 3 days is also acceptable." -> "2 days", "3 days"
    "Los Angeles (LA)" -> "Los Angeles", "LA"
    """
    if match := _ALSO.fullmatch(answer):
        return match[1], match[2]
    if match := _ASIDE.fullmatch(answer):
        is_other = match[2] or " " not in match[3]
        return (match[1], match[3]) if is_other else (match[1],)
    if match := _DECIDED.fullmatch(answer) or _SENTENCES.fullmatch(answer):
        return answer, match[1]
    return (answer,)


def read_lives(path: Path, accepted: Path = ACCEPTED) -> list[History]:
    """Histories of a file as `bench.truth` reads it.

    Its gold marks messages, so that some of it is no answer: `accepted` has answers instead.
    """
    answers = dict(
        line.split(" ", 1) for line in accepted.read_text("utf-8").splitlines() if line[:1] != "#"
    )
    histories = []
    for item in map(json.loads, path.read_text("utf-8").splitlines()):
        messages = tuple(
            Message(f"m{at}", it["ts"], it["role"], "", it["session_id"], it["content"])
            for at, it in enumerate(item["messages"])
        )
        questions = []
        for number, it in enumerate(item["questions"]):
            key = f"{item['id']}#{number}"
            gold: Iterable[str] = it["gold"] if "gold" in it else it["gold_all"][-1]
            gold = answers[key].split("|") if key in answers else gold
            about = (it["question"], it["now"], item["category"])
            questions.append(Question(TRUTH, key, *about, tuple(gold), tuple(it["stale"])))
        histories.append(History(TRUTH, item["id"], messages, tuple(questions)))
    return histories


def sample(histories: Sequence[History], count: int, seed: int) -> list[History]:
    """So many questions of each set, of all languages and categories as often as the set has them.

    A smaller sample is part of every larger one, and no set changes the sample of another.
    """
    strata: dict[tuple[str, str, str, bool], list[Question]] = {}
    for question in (it for history in histories for it in history.questions):
        stratum = question.dataset, question.language, question.category, bool(question.gold)
        strata.setdefault(stratum, []).append(question)
    places: dict[str, list[tuple[float, str]]] = {}
    chances: dict[str, random.Random] = {}  # of each set, whichever others there are
    for stratum, questions in strata.items():
        chance = chances.setdefault(stratum[0], random.Random(seed))
        start = chance.random()
        for at, question in enumerate(chance.sample(questions, len(questions))):
            place = (at + start) / len(questions)
            places.setdefault(stratum[0], []).append((place, question.key))
    chosen = {(dataset, key) for dataset, some in places.items() for _, key in sorted(some)[:count]}
    kept = [
        replace(it, questions=tuple(q for q in it.questions if (q.dataset, q.key) in chosen))
        for it in histories
    ]
    return [it for it in kept if it.questions]
