"""Learn the weights of `kemem.search.judge`, and say how well they hold for strangers.

python -m bench.train_judge [--truth FILE] [--retrieval FILE] [--save]
python -m bench.train_judge --talks FILE [--retrieval FILE] [--save]    # for large memories

Lives are stored through the public API, their questions are searched for, and what the judge sees
of each candidate is recorded. Every group of authors is judged by weights that were learned from
the others: that figure comes first, and after it that of lives which never teach. --truth adds a
file in the format of the truth set as one more group. --retrieval names sets of conversations in
the format of `bench.retrieval`, which teach nothing: the judge must not lose in large memories what
the signals before it found. --save writes the weights that were learned from all groups.

--talks learns the weights for large memories instead, with the judgement as it is: from lives that
are hidden among many messages, and from conversations in the format of `bench.retrieval` that
`python -m bench.talks` makes of public data. Each set is judged by what the others taught.
"""

import argparse
import asyncio
import gzip
import json
import math
import random
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.lives import STRANGERS, Asked, Life, in_haystack, read_lives, read_truth
from bench.merged import MERGED, merged
from bench.retrievers import RETRIEVERS
from kemem import AsyncMemory
from kemem.records import Message, Vector
from kemem.records.times import to_micros
from kemem.search import features, judge, recipe
from kemem.search.order import order_features
from kemem.settings import Settings
from kemem.text.reading import Question

WEIGHTS = Path(judge.__file__).with_name("judge.json")
RIDGE = 20.0
STEPS = 25
RANK, EPOCHS, RATE, DECAY = 32, 2, 2e-3, 1e-3  # of a projection, and how it is learned
SEEDS = 4  # projections that are learned, of which the mean is taken
SHARPNESS, BY_PERSON, ASKING = 7.0, 3.5, -2.5  # what speaks beside it while it is learned
ANSWERED = 0.5  # of the questions that people ask have an answer
FEWER = 0.45  # what a question counts that is put to a part of the candidates
OTHER_SPEAKER = -2.0  # not learned: nobody in the lives has a name
TOO_LATE = -3.0  # nor this, for few ask what was before something
QUESTION = -2.0  # at most: who asked something has not told it, however much alike it is
UNTAUGHT = {"earlier_shared_past", "earlier_alike_past"}  # of chance: few ask about the past
CAUTIOUS = "hi"  # authors from whom only the chance is learned
PER_SET, PER_USER = 100, 25  # questions of a set
HIDDEN, SESSIONS = 100, 60  # lives that are hidden, and sessions that each is hidden among
TOGETHER = 400  # lives that are told with others
PER_TALK, PER_TALKER = 150, 12  # questions of a set of talks that teaches, and of one user
# Of a large memory: how far weights keep to the ranking before and the judgement, and how much
# more a question of a small set counts.
KEEPING, RARE = 3000.0, 0.5
BEFORE = ("score", "odds", "rank", "standing", "judgement")
# How much more a question counts there that really has no answer, and one whose answer was taken.
UNANSWERED, TAKEN = 2.0, 0.2
_HIDDEN = " (hidden)"
# What must speak for an answer, and what against it.
FOR = """
score score_z rank odds coverage coverage_z reply_coverage context_coverage similarity similarity_z
reply_similarity reply_similarity_z similarity_before same_people same_people_near
same_people_similarity named named_near self said_in_time tells_of_time in_time in_time_similarity
person_in_time person person_similarity person_coverage replies_similarity replies_coverage able
person_able able_who able_where able_when able_how_much able_what_name first_person ended_past
gap relevance irrelevant fit fit_z reply_fit reply_fit_z person_fit
"""
AGAINST = """
asks requests asks_similarity asks_coverage other_people people_not_asked not_named out_of_time
away ended
"""
SIGNS = dict.fromkeys(FOR.split(), 1) | dict.fromkeys(AGAINST.split(), -1)
Column = NDArray[np.float64]
Weights = dict[str, float]
_Group = tuple[Column, Column, Column, Column]  # see `_vectors`


@dataclass(slots=True)
class Sample:
    """A question and its candidates, as the judge sees them."""

    life: Life
    asked: Asked
    question: Question
    vector: Vector | None
    candidates: Sequence[features.Candidate]
    about: features.Features
    places: list[frozenset[int]]  # messages of the life that each candidate is or cites
    among: int  # rows that meaning has ranked

    @property
    def gold(self) -> Column:
        return np.array([bool(it & self.asked.gold) for it in self.places], np.float64)

    @property
    def stale(self) -> Column:
        return np.array([bool(it & self.asked.stale) for it in self.places]) * (1 - self.gold)


Seen = list[tuple[Question, Vector | None, Sequence[features.Candidate], int]]


@contextmanager
def recorded() -> Iterator[Seen]:
    """What the judge sees, while the signals before it decide."""
    seen: Seen = []

    def record(
        question: Question, meant: judge.Meant, candidates: Sequence[features.Candidate], among: int
    ) -> judge.Judgement:
        seen.append((question, meant.topic, candidates, among))
        return judge.Judgement(0.5, np.array([it.score for it in candidates]))

    original, recipe.judge = recipe.judge, record  # type: ignore[attr-defined]
    try:
        yield seen
    finally:
        recipe.judge = original  # type: ignore[attr-defined]


def sample_of(seen: Seen, life: Life, asked: Asked, ids: Mapping[str, int]) -> list[Sample]:
    """The question, if the judge saw one, before its hops; `ids` are places of messages."""
    if not seen:  # no question in its eyes
        return []
    question, vector, candidates, among = seen[0]
    sources = [(it.row.id,) if isinstance(it.row, Message) else it.row.sources for it in candidates]
    own = [frozenset(ids[name] for name in names if name in ids) for names in sources]
    candidates = features.with_sources(candidates)
    about = features.features(question, vector, candidates)
    return [Sample(life, asked, question, vector, candidates, about, own, among)]


def hidden(lives: Sequence[Life]) -> list[Life]:
    """Some of the lives among many more messages."""
    chance = random.Random(11)
    lives = [life for life in lives if life.category != "plain"]
    some = chance.sample(lives, HIDDEN)
    return [
        replace(in_haystack(life, lives, SESSIONS, chance), name=life.name + _HIDDEN)
        for life in some
    ]


async def collect(lives: Sequence[Life], embedder: str) -> list[Sample]:
    """Search for all questions, and record the candidates."""
    samples: list[Sample] = []
    with recorded() as seen:
        for life in lives:
            samples += await _ask(life, embedder, seen)
    return samples


async def _ask(life: Life, embedder: str, seen: Seen) -> list[Sample]:
    now, samples = [0], list[Sample]()
    with tempfile.TemporaryDirectory() as home:
        settings = Settings(data_dir=Path(home), llm="none", embedder=embedder)
        async with AsyncMemory(settings=settings, clock=lambda: now[0]) as memory:
            ids, sessions = dict[str, int](), defaultdict[str, list[dict[str, str]]](list)
            for at, it in sorted(enumerate(life.messages), key=lambda pair: pair[1].at):
                message = {"role": it.role, "content": it.content, "ts": it.at.isoformat()}
                sessions[it.session].append(message | {"message_id": f"m{at}"})
                ids[f"m{at}"] = at
            for session, messages in sessions.items():
                now[0] = to_micros(messages[-1]["ts"]) + 1_000_000
                await memory.add(messages, user_id="u", session_id=session)
            for asked in life.questions:
                now[0] = to_micros(asked.now.isoformat())
                seen.clear()
                await memory.search(asked.text, user_id="u", limit=10)
                samples += sample_of(seen, life, asked, ids)
    return samples


async def collect_retrieval(
    path: Path, per_set: int = PER_SET, per_user: int = PER_USER
) -> dict[str, list[Sample]]:
    """The same for sets of conversations."""
    samples: dict[str, list[Sample]] = defaultdict(list)
    with recorded() as seen, gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            user = json.loads(line)
            name = user["dataset"]
            asked = [it for it in user["queries"] if it["answerable"] and it["evidence_groups"]]
            asked = asked[: min(per_user, per_set - len(samples[name]))]
            messages = [it for it in user["messages"] if it["content"].strip()]
            if not asked:
                continue
            ids = {it["message_id"]: at for at, it in enumerate(messages)}
            life = Life(name, user["lang"], name)
            async with RETRIEVERS["kemem"](messages) as ask:
                for it in asked:
                    seen.clear()
                    await ask(it, 20)
                    groups = (
                        frozenset(ids[m] for m in g if m in ids) for g in it["evidence_groups"]
                    )
                    question = Asked(it["query"], datetime.now(UTC), tuple(groups), frozenset())
                    samples[name] += sample_of(seen, life, question, ids)
    return dict(samples)


# Learning


def fewer(sample: Sample, places: Sequence[int], answered: bool) -> Sample:
    """The same question put to a part of the candidates, which may hold no answer."""
    candidates = [sample.candidates[at] for at in places]
    asked = sample.asked if answered else replace(sample.asked, hops=(), stale=frozenset())
    about = features.features(sample.question, sample.vector, candidates)
    own = [sample.places[at] for at in places]
    return replace(sample, asked=asked, candidates=candidates, about=about, places=own)


def variants(samples: Sequence[Sample]) -> list[Sample]:
    """Questions put to memories that hold little: with the answer, and without it."""
    chance, more = random.Random(7), list[Sample]()
    for sample in samples:
        related = sample.gold + sample.stale
        others = [at for at in range(len(related)) if not related[at]]
        if not sample.asked.hops or not sample.gold.any() or len(others) < 5:
            continue
        chance.shuffle(others)
        gold = np.flatnonzero(sample.gold).tolist()
        more.append(fewer(sample, gold + others[: chance.randrange(5)], True))
        more.append(fewer(sample, others[: chance.randrange(1, 5)], False))
    return more


def author(sample: Sample) -> str:
    """Who wrote a life: what was learned from the others is tried on it."""
    return sample.life.name.split(":")[0][-1] if ":" in sample.life.name else "truth"


def fit_projection(samples: Sequence[Sample]) -> features.Projection | None:
    """A projection by which answers come near their questions: the mean of several.

    Two that were learned from the same samples are as different as alike.
    """
    groups = [_vectors(it) for it in samples if it.vector is not None and it.asked.hops]
    groups = [it for it in groups if it[3].any() and not it[3].all()]
    if not groups:
        return None
    several = np.concatenate([_fit_projection(groups, seed) for seed in range(SEEDS)], axis=2)
    questions, answers = several
    halves = (it.astype(np.float16).astype(np.float64) for it in (questions, answers / SEEDS))
    return features.Projection(*halves)


def _fit_projection(groups: Sequence[_Group], seed: int) -> NDArray[np.float64]:
    """One projection of questions and one of answers, by stochastic descent (Adam)."""
    chance, size = np.random.default_rng(seed), len(groups[0][0])
    both = chance.normal(0, 0.05, (2, size, RANK))
    first, second = np.zeros_like(both), np.zeros_like(both)
    order = np.concatenate([chance.permutation(len(groups)) for _ in range(EPOCHS)])
    for step, at in enumerate(order.tolist(), 1):
        question, rows, beside, right = groups[at]
        asked, answers = question @ both[0], rows @ both[1]
        values = SHARPNESS * (rows @ question + answers @ asked) + beside
        odds = np.exp(values - values.max())
        error = SHARPNESS * (odds / odds.sum() - right / right.sum())
        slope = np.stack([np.outer(question, error @ answers), np.outer(rows.T @ error, asked)])
        slope += DECAY * both
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
        rate = RATE * (1 - step / (len(order) + 1))
        both -= rate * first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    return both


def _vectors(sample: Sample) -> _Group:
    """A question, its candidates, what speaks for them otherwise, and which are about it."""
    assert sample.vector is not None
    question = np.asarray(sample.vector, np.float64) / np.linalg.norm(sample.vector)
    vectors = [it.context.vector for it in sample.candidates]
    rows = np.array([np.zeros(len(question)) if it is None else it for it in vectors], np.float64)
    beside = BY_PERSON * sample.about["person"] + ASKING * sample.about["asks"]
    return question, rows, beside, np.minimum(sample.gold + sample.stale, 1)


def projected(samples: Sequence[Sample], projection: features.Projection | None) -> list[Sample]:
    """Samples with the features that the projection gives."""
    return [
        it
        if projection is None or it.vector is None
        else replace(it, about=it.about | features.fits(it.vector, it.candidates, projection))
        for it in samples
    ]


def matrix(columns: Mapping[str, Column], names: Sequence[str]) -> Column:
    """Features as columns, those that are 0 for all candidates among them."""
    nothing = np.zeros(len(next(iter(columns.values()))))
    return np.stack([columns.get(name, nothing) for name in names], axis=1)


def names_of(samples: Iterable[Mapping[str, Column]]) -> list[str]:
    """The names of all features."""
    return [*dict.fromkeys(chain.from_iterable(samples))]


def fit_logistic(
    rows: Column, labels: Column, names: Sequence[str], counts: Column | None = None
) -> Weights:
    """Logistic regression by Newton's method; `counts` say how much each row counts."""
    counts = np.ones(len(rows)) if counts is None else counts
    mean, scale = rows.mean(0), rows.std(0) + 1e-6
    units = np.c_[(rows - mean) / scale, np.ones(len(rows))]
    penalty = np.r_[np.full(len(names), RIDGE), 1e-6]
    weights = np.zeros(units.shape[1])
    for _ in range(STEPS):
        chance = 1 / (1 + np.exp(-np.clip(units @ weights, -30, 30)))
        slope = units.T @ (counts * (chance - labels)) + penalty * weights
        spread = counts * chance * (1 - chance)
        curve = (units * spread[:, None]).T @ units + np.diag(penalty)
        step = np.linalg.solve(curve, slope)
        weights -= step
        if np.abs(step).max() < 1e-6:
            break
    own = weights[:-1] / scale
    return dict(zip(names, own.tolist(), strict=True)) | {"bias": float(weights[-1] - mean @ own)}


def fit_choice(
    groups: Sequence[tuple[Column, Column]],
    names: Sequence[str],
    counts: Column | None = None,
    near: Mapping[str, float] | None = None,
    ridge: float = RIDGE,
) -> Weights:
    """A conditional logit: the answer among the candidates of each question.

    `counts` say how much each question counts, and weights keep `near` some that are given.
    """
    units = np.concatenate([rows for rows, _ in groups])
    scale = units.std(0) + 1e-6
    units = units / scale
    starts = np.cumsum([0, *(len(gold) for _, gold in groups[:-1])])
    group = np.repeat(np.arange(len(groups)), [len(gold) for _, gold in groups])
    counts = np.ones(len(groups)) if counts is None else counts / counts.mean()
    each = counts[group]
    shares = each * np.concatenate([gold / gold.sum() for _, gold in groups])
    start = np.array([(near or {}).get(name, 0.0) for name in names]) * scale

    def look(weights: Column) -> tuple[float, Column, Column]:
        values, away = units @ weights, weights - start
        values -= np.maximum.reduceat(values, starts)[group]
        chance = np.exp(values)
        sums = np.add.reduceat(chance, starts)
        loss = ridge / 2 * float(away @ away) + float(counts @ np.log(sums) - shares @ values)
        chance /= sums[group]
        means = np.add.reduceat(units * chance[:, None], starts)
        slope = ridge * away + units.T @ (each * chance - shares)
        curve = ridge * np.eye(len(names)) + (units * (each * chance)[:, None]).T @ units
        return loss, slope, curve - (means * counts[:, None]).T @ means

    weights = start
    loss, slope, curve = look(weights)
    for _ in range(STEPS):
        step = np.linalg.solve(curve, slope)
        while (ahead := look(weights - step))[0] > loss:  # too far
            step = step / 2
            if np.abs(step).max() < 1e-9:
                return dict(zip(names, (weights / scale).tolist(), strict=True))
        gained, weights = loss - ahead[0], weights - step
        loss, slope, curve = ahead
        if gained < 1e-3:
            break
    return dict(zip(names, (weights / scale).tolist(), strict=True))


def with_right_signs(
    fit: Callable[[list[str]], Weights], names: Sequence[str], signs: Mapping[str, int]
) -> Weights:
    """Weights that mean what their names say: features that would get a wrong sign are left out."""
    left = list(names)
    while True:
        weights = fit(left)
        wrong = {name for name in left if weights[name] * signs.get(name, 0) < 0}
        if not wrong:
            return weights
        left = [name for name in left if name not in wrong]


@dataclass(frozen=True, slots=True)
class Learned:
    """A projection, and the weights of all three models."""

    projection: features.Projection | None
    weights: dict[str, Weights]


def learn(samples: Sequence[Sample]) -> Learned:
    """Learn all; to rank, each author's lives are projected by what the others taught.

    How sure to be is learned with the projection that is used in the end, also from authors who
    taught nothing else, and from lives told together: of a stranger's questions the judge answers
    fewer than of those that it was made with, and most memories hold more than one life.
    """
    ranking = [it for it in samples if author(it) not in CAUTIOUS and not _is_merged(it)]
    projections = {
        name: fit_projection([it for it in ranking if author(it) != name])
        for name in sorted({author(it) for it in ranking})
    }

    def by_others(samples: Sequence[Sample]) -> list[Sample]:
        return [it for own in samples for it in projected([own], projections[author(own)])]

    weights = learn_ranking(by_others([*ranking, *variants(ranking)]))
    alone = [it for it in ranking if not it.life.name.endswith(_HIDDEN)]
    whole = fit_projection(ranking)
    more = projected(variants(alone), whole)
    weights["chance"] = learn_chance(projected(samples, whole), more, weights)
    return Learned(whole, weights)


def _is_merged(sample: Sample) -> bool:
    return sample.life.name.endswith(MERGED)


def learn_ranking(samples: Sequence[Sample]) -> dict[str, Weights]:
    """The weights that tell what a question is about, and which row answers it."""
    answerable = [it for it in samples if it.asked.hops and it.gold.any()]
    names = names_of(it.about for it in answerable)
    timed = ["out_of_time" in it.about and it.about["out_of_time"].any() for it in answerable]
    labels = [
        np.minimum(it.gold + (0 if of_time else it.stale), 1)
        for it, of_time in zip(answerable, timed, strict=True)
    ]

    def fit_relevance(names: list[str]) -> Weights:
        rows = np.concatenate([matrix(it.about, names) for it in answerable])
        return fit_logistic(rows, np.concatenate(labels), names)

    weights = {"relevance": with_right_signs(fit_relevance, names, SIGNS)}
    ordered = [it.about | _order(it, weights) for it in answerable]
    names = names_of(ordered)

    def fit_answer(names: list[str]) -> Weights:
        pairs = zip(answerable, ordered, strict=True)
        groups = [(matrix(own, names), it.gold) for it, own in pairs if not it.gold.all()]
        return fit_choice(groups, names)

    weights["answer"] = with_right_signs(fit_answer, names, SIGNS)
    weights["answer"] |= {"other_speaker": OTHER_SPEAKER, "too_late": TOO_LATE}
    weights["answer"]["asks"] = min(weights["answer"].get("asks", 0.0), QUESTION)
    return weights


def learn_chance(
    samples: Sequence[Sample], more: Sequence[Sample], weights: Mapping[str, Weights]
) -> Weights:
    """The weights that tell whether there is an answer; `more` are variants of the questions."""
    counts = np.r_[np.ones(len(samples)), np.full(len(more), FEWER)]
    samples = [*samples, *more]
    best = [_answer_features(it, weights) for it in samples]
    names = [name for name in names_of(best) if name not in UNTAUGHT]
    right = np.array([float(bool(it.asked.hops)) for it in samples])
    share = float(counts @ right / counts.sum())
    counts = counts * np.where(right > 0, ANSWERED / share, (1 - ANSWERED) / (1 - share))
    rows = np.concatenate([matrix(it, names) for it in best])
    return fit_logistic(rows, right, names, counts)


def _order(sample: Sample, weights: Mapping[str, Weights]) -> features.Features:
    relevance = judge.weigh(sample.about, weights["relevance"])
    return order_features(sample.question, sample.candidates, sample.about, relevance)


def _answer_features(sample: Sample, weights: Mapping[str, Weights]) -> features.Features:
    order = _order(sample, weights)
    values = judge.rate(sample.about, order, weights["answer"])
    return judge.answer_features(sample.about | order, values)


# Learning for large memories


@dataclass(frozen=True, slots=True)
class Large:
    """A question put to a large memory: what tells the answer, and which rows are the answer."""

    set: str
    told: features.Features  # what tells the answer
    gold: Column
    groups: Sequence[Column]  # of rows of which one is needed, where several are
    is_taken: bool = False  # the answer, from among the candidates


def large(sample: Sample, name: str) -> Large:
    """A sample as the judge sees it in a large memory."""
    weights = judge.load_weights("hybrid")
    (sample,) = projected([sample], judge.load_projection())
    order = _order(sample, dict(weights))
    values = judge.rate(sample.about, order, weights["answer"])
    told = judge.large_features(sample.about, order, values)
    groups = [np.array([bool(it & hop) for it in sample.places]) for hop in sample.asked.hops]
    return Large(name, told, sample.gold, groups)


def learn_large(samples: Sequence[Large]) -> dict[str, Weights]:
    """Which row answers; the weights keep near to the ranking before and the judgement."""
    sizes = Counter(it.set for it in samples)
    counts = np.array([sizes[it.set] ** -RARE for it in samples])
    names = [name for name in names_of(it.told for it in samples) if name[:6] != "large_"]

    def fit(names: Sequence[str], near: Weights, ridge: float) -> Weights:
        groups = [(matrix(it.told, names), it.gold) for it in samples]
        return fit_choice(groups, names, counts, near, ridge)

    return {"answer": fit(names, fit(BEFORE, {}, 1.0), KEEPING)}


def learn_large_chance(samples: Sequence[Large], answer: Weights) -> Weights:
    """How likely the best row answers; answers are known by their weights."""
    sizes = Counter(it.set for it in samples)
    seen, right, counts = [], [], []
    for it in samples:
        values = judge.weigh(it.told, answer)
        figures = judge.answer_features(it.told, values - values.max())
        seen.append(judge.standing_out(it.told, figures))
        right.append(it.gold[np.argmax(values)])
        kind = TAKEN if it.is_taken else 1.0 if it.groups else UNANSWERED
        counts.append(kind * sizes[it.set] ** -RARE)
    names = names_of(seen)
    rows = np.concatenate([matrix(it, names) for it in seen])
    return fit_logistic(rows, np.array(right), names, np.array(counts) / np.mean(counts))


def taken(sample: Sample) -> Sample | None:
    """The same question, where nothing that has to do with it is left."""
    others = np.flatnonzero(sample.gold + sample.stale == 0).tolist()
    return fewer(sample, others, False) if len(others) > 1 and sample.asked.hops else None


def report_large(name: str, samples: Sequence[Large], weights: Mapping[str, Weights]) -> None:
    """One line: the share of the evidence among ten, and of first hits that are, before and now."""
    found = []
    for it in samples:
        before = np.argsort(-it.told["score"], kind="stable")
        now = np.argsort(-judge.weigh(it.told, weights["answer"]), kind="stable")
        found.append(
            [*(_ten(it, one) for one in (before, now)), it.gold[before[0]], it.gold[now[0]]]
        )
    ten, ten_now, first, first_now = (100 * np.mean(found, 0)).tolist()
    line = f"ten {ten:.1f} -> {ten_now:.1f}, first {first:.1f} -> {first_now:.1f}"
    print(f"{name:32} {len(samples):4} {line}", flush=True)


def _is_taught(sample: Large) -> bool:
    """Whether a question tells what an answer is."""
    return bool(sample.gold.any() and not sample.gold.all())


def _ten(sample: Large, order: Column) -> float:
    """The share of what is needed that is among the first ten."""
    return float(np.mean([group[order[:10].astype(int)].any() for group in sample.groups]))


def main_large(talks: Path, retrieval: Path | None, save_it: bool) -> None:
    """Learn for large memories, report, save."""
    lives = asyncio.run(collect(hidden(read_lives()), "local"))
    sets = {f"lives {it.language}": list[Sample]() for it in read_lives()}
    for it in lives:
        sets[f"lives {it.life.language}"].append(it)
    sets |= asyncio.run(collect_retrieval(talks, PER_TALK, PER_TALKER))
    sets = {name: [it for it in some if judge.is_large(it.among)] for name, some in sets.items()}
    asked = [large(it, name) for name, some in sets.items() for it in some]
    asked += [
        replace(large(less, name), is_taken=True)
        for name, some in sets.items()
        for it in some
        if (less := taken(it))
    ]
    own = {name: [it for it in asked if it.set == name and _is_taught(it)] for name in sets}
    own = {name: some for name, some in own.items() if some}
    for name, some in own.items():
        family = name.split("-")[0].split()[0]
        others = [it for other in own for it in own[other] if not other.startswith(family)]
        report_large(f"{name}, learned elsewhere", some, learn_large(others))
    weights = learn_large([it for some in own.values() for it in some])
    weights["chance"] = learn_large_chance(asked, weights["answer"])
    held = {"strangers": asyncio.run(collect(read_lives(STRANGERS), "local"))}
    if retrieval:
        held |= asyncio.run(collect_retrieval(retrieval, PER_TALK))
    for name, samples in held.items():
        for language in ("en", "zh"):
            some = [it for it in samples if judge.is_large(it.among)]
            put = [large(it, name) for it in some if it.life.language == language]
            if some := [it for it in put if _is_taught(it)]:
                report_large(f"{name} {language}, learned elsewhere", some, weights)
    if save_it:
        save(Learned(None, weights), "large")


# Judging


def figures(samples: Sequence[Sample], learned: Learned) -> dict[str, float]:
    """First hit right, evidence among ten, both before judgement, within three, and so on."""
    first, found, three, current = [], [], [], []
    before: list[tuple[float, float]] = []
    chances: dict[bool, list[float]] = {True: [], False: []}
    weights = learned.weights
    for it in projected(samples, learned.projection):
        more = _order(it, weights)
        values = judge.rate(it.about, more, weights["answer"])
        order = np.argsort(-values, kind="stable").tolist()
        best = judge.answer_features(it.about | more, values)
        chance = judge.weigh(best, weights["chance"])
        chances[bool(it.asked.hops)].append(1 / (1 + math.exp(-float(chance[0]))))
        if not it.asked.hops:
            continue
        ranked = [it.places[at] for at in order]
        first.append(bool(ranked[0] & it.asked.gold))
        found.append(_found(ranked, it.asked))
        before.append((float(bool(it.places[0] & it.asked.gold)), _found(it.places, it.asked)))
        three.append(all(any(places & hop for places in ranked[:3]) for hop in it.asked.hops))
        if it.asked.stale:
            at = [max(_rank(ranked, hop) for hop in it.asked.hops), _rank(ranked, it.asked.stale)]
            current.append(at[0] < at[1])
    pairs = [(p > n) + 0.5 * (p == n) for p in chances[True] for n in chances[False]]
    return {
        "questions": len(samples),
        "first": float(np.mean(first)),
        "found": float(np.mean(found)),
        **dict(zip(("first_before", "found_before"), np.mean(before, 0).tolist(), strict=True)),
        "three": float(np.mean(three)),
        **({"current": float(np.mean(current))} if current else {}),
        **({"auc": float(np.mean(pairs))} if pairs else {}),
        "sure": float(np.mean([it >= 0.5 for it in chances[True]])),
        **({"unsure": float(np.mean([it < 0.5 for it in chances[False]]))} if pairs else {}),
    }


def _found(ranked: Sequence[frozenset[int]], asked: Asked) -> float:
    """The share of what is needed that is among the first ten."""
    return float(np.mean([any(it & hop for it in ranked[:10]) for hop in asked.hops]))


def _rank(ranked: Sequence[frozenset[int]], wanted: frozenset[int]) -> int:
    return next((at for at, places in enumerate(ranked) if places & wanted), 99)


def report(name: str, samples: Sequence[Sample], learned: Learned) -> None:
    """One line for each language."""
    for language in ("en", "zh"):
        own = [it for it in samples if it.life.language == language]
        if own:
            line = " ".join(f"{key} {value:.3g}" for key, value in figures(own, learned).items())
            print(f"{name:24} {language} {line}", flush=True)


def save(learned: Learned, name: str) -> None:
    """Write what was learned beside the judge."""
    data = json.loads(WEIGHTS.read_text("utf-8")) if WEIGHTS.exists() else {}
    data[name] = {
        model: {key: float(f"{value:.4g}") for key, value in weights.items()}
        for model, weights in learned.weights.items()
    }
    WEIGHTS.write_text(json.dumps(data, indent=1) + "\n", "utf-8")
    if learned.projection is not None:
        arrays = {key: it.astype(np.float16) for key, it in learned.projection._asdict().items()}
        np.savez_compressed(WEIGHTS.with_suffix(".npz"), **arrays)  # type: ignore[arg-type]


def main() -> None:
    """Learn, report, save."""
    parser = argparse.ArgumentParser(description="Learn the weights of the judge.")
    parser.add_argument("--truth", type=Path, help="a file in the format of the truth set")
    parser.add_argument("--retrieval", type=Path, help="sets of conversations, gzipped")
    parser.add_argument("--embedder", default="local", choices=["local", "none"])
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--talks", type=Path, help="conversations that teach, gzipped")
    chosen = parser.parse_args()
    if chosen.talks:
        main_large(chosen.talks, chosen.retrieval, chosen.save)
        return
    if chosen.retrieval and chosen.embedder == "none":
        parser.error("--retrieval needs the embedder")
    groups: dict[str, list[Life]] = defaultdict(list)
    for life in read_lives():
        groups[life.name.split(":")[0][-1]].append(life)  # by author: a, b, …
    groups["haystack"] = hidden(read_lives())
    groups["merged"] = merged(read_lives(), TOGETHER, seed=13)
    if chosen.truth:
        groups["truth"] = read_truth(chosen.truth)
    samples = {name: asyncio.run(collect(lives, chosen.embedder)) for name, lives in groups.items()}
    samples = {name: some for name, some in samples.items() if some}  # some lives ask nothing
    for name, own in samples.items():
        others = [it for other, some in samples.items() if other != name for it in some]
        report(f"{name}, learned elsewhere", own, learn(others))
    learned = learn([it for some in samples.values() for it in some])
    report("strangers", asyncio.run(collect(read_lives(STRANGERS), chosen.embedder)), learned)
    if chosen.retrieval:
        for name, own in asyncio.run(collect_retrieval(chosen.retrieval)).items():
            report(f"{name}, learned elsewhere", own, learned)
    for name, own in samples.items():
        report(f"{name}, learned from it", own, learned)
    if chosen.save:
        save(learned, "hybrid" if chosen.embedder == "local" else "words")


if __name__ == "__main__":
    main()
