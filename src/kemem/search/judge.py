"""Fourth stage of search: which of the candidates answers the question, and is true now?

Two linear models over plain features. The first tells whether a row is about what is asked for; the
second orders rows that are, by time, change and what the question asks for: its answer is seldom
the row with most of its words. A third tells from the best rows how likely there is an answer at
all. `kemem.search.attention` has a say in both. What people tell an assistant in short messages
taught them; the larger a memory is, and the longer its texts are, the more the rows are judged as
other talk taught. `python -m bench.train_judge` learns the weights.
"""

import json
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from kemem.records import Note, Vector
from kemem.search.attention import attend
from kemem.search.features import (
    JUDGED,
    Candidate,
    Column,
    Features,
    Projection,
    features,
    fits,
    flags,
    mirrored,
    with_sources,
    worth,
)
from kemem.search.order import order_features
from kemem.search.understand import VAGUE
from kemem.text.advice import ADVISING
from kemem.text.query import Mask
from kemem.text.reading import Question, content, people_of, read, tells_what_was

JUDGED_MODEL = "kemem-multilingual-1"  # the embedder whose similarities the weights are made for
SHARE = 0.25  # of the judgement where there are no vectors
BESIDE = 0.3  # the network's say in the order; more takes any later fact for an update
LARGE = 80  # rows; of twice as many, the judgement counts a quarter,
LEAST_SHARE = 0.05  # and of far more not at all
BRIEF, LONG = 4.0, 5.0  # logarithms of the lengths at which it counts fully, and not at all
LEAST = -12.0  # of a judgement: rows that are out of the question are all alike
K = 5  # of reciprocal rank
STEEPNESS = 3  # how fast scores fall there
ASKED = 2.0  # how much likelier a note is the answer whose topic is what the question asks for
TELLS = 1.5  # the same of what is told by the one whose words are asked for
TOLD = 0.5  # the share of a question's words that the assistant must have said to be asked for it
BEHIND = 0.1  # how much less than a later row that may have changed it
ADVISES, NEAR = 12.0, 0.3  # how sure it is that a note matters to advice, and which may or not;
LIMIT = 0.1  # how much nearer a limit of health is,
ANYTHING = 0.2  # and how much farther a note that may tell anything
PLAIN = 0.7  # how much more a message may be worth than its note, which is clearer
_LITTLE = 1e-6  # scores nearer to 0 or 1 are as good as these
_OF_WORK = frozenset(content("job work living profession occupation career 工作 职业 从事 做 干"))
_ABOUT = {"gap", "relevance", "irrelevant"}  # what is asked; the others of the order are of time


class Meant(NamedTuple):
    """What a question means, by vectors of JUDGED_MODEL; none where they are unknown."""

    topic: Vector | None = None
    advice: Vector | None = None  # of what to know, where it asks for advice


@dataclass(frozen=True, slots=True)
class Judgement:
    """How likely there is an answer, and the share of it that each candidate has, 0-1."""

    chance: float
    scores: Column  # of the candidates, in their order; the best one's is the chance


def judge(
    question: Question, meant: Meant, candidates: Sequence[Candidate], among: int
) -> Judgement:
    """Judge candidates, which are the first of so many rows that have a meaning."""
    if question.perhaps and _is_told(question, candidates):
        question = replace(question, of_assistant=True, advice=None)
    vector = meant.topic
    weights = load_weights("hybrid" if vector is not None else "words")
    candidates = with_sources(candidates)
    about, order = plain = _features(question, vector, candidates, weights["relevance"])
    if question.of_assistant:
        candidates = [mirrored(it) for it in candidates]
        about, order = _features(question, vector, candidates, weights["relevance"])

    def odds_of(values: Column) -> tuple[float, Features]:
        figures = answer_features(about | order, _with_topics(question, candidates, about, values))
        return float(weigh(figures, weights["chance"])[0]), figures

    told = values = rate(about, order, weights["answer"])
    odds, _ = odds_of(told)
    share = _share(about, among, vector)
    taught = question.advice is None and not question.before  # of which few lives ask
    if vector is not None and share > 0 and taught:
        attended = attend(question, candidates, about)
        values = (1 - BESIDE) * values + BESIDE * attended.values
        odds = (odds + attended.chance) / 2
    if share < 1:  # its weights come from talks in which both sides tell, so it knows no roles
        large = weigh(large_features(*plain, told), load_weights("large")["answer"])
        if question.of_assistant or question.of_self:
            large += TELLS * flags([it.by_person for it in candidates])
        holds = _trust(about) / 2
        own, figures = odds_of(large)
        odds *= share
        odds += (1 - share) * (holds * own + (1 - holds) * large_odds(about, figures))
        values = share * np.maximum(values, LEAST)
        values += (1 - share) * np.maximum(large - large.max(), LEAST)
    values = _with_notes(candidates, _with_topics(question, candidates, about, values))
    chance = 1 / (1 + math.exp(-odds))
    if not (question.words or question.times or question.answers or question.people):
        chance = min(chance, VAGUE)
    scores = np.maximum(chance * np.exp(values), _advising(question, meant, candidates))
    return Judgement(float(scores.max()), scores)


def _is_told(question: Question, candidates: Sequence[Candidate]) -> bool:
    """Whether the assistant has said something about what a question may ask it, or advice for."""
    words = frozenset(question.words)
    total = sum(map(worth, words))
    for it in candidates:
        shared = words & read(it.row.content).words if not it.by_person else set()
        if any(worth(word) == 1 for word in shared) and sum(map(worth, shared)) > TOLD * total:
            return True
    return False


def _features(
    question: Question,
    vector: Vector | None,
    candidates: Sequence[Candidate],
    weights: Mapping[str, float],
) -> tuple[Features, Features]:
    """What tells whether candidates are about what is asked, and what orders those that are."""
    about = features(question, vector, candidates)
    if vector is not None:
        about |= fits(vector, candidates, load_projection())
    return about, order_features(question, candidates, about, weigh(about, weights))


def _advising(question: Question, meant: Meant, candidates: Sequence[Candidate]) -> Column:
    """How far each candidate tells what advice has to take account of: tastes and limits.

    They share no word with the request, and answer nothing; so they are told by what they mean.
    """
    scores = np.zeros(len(candidates))
    if meant.topic is None or meant.advice is None or question.advice is None:
        return scores
    asked, wanted = (it / (np.linalg.norm(it) + 1e-9) for it in (meant.topic, meant.advice))
    for at, it in enumerate(candidates):
        note, vector = it.row, it.context.vector
        if not isinstance(note, Note) or note.memory_type not in ADVISING or vector is None:
            continue
        people = people_of(note.content)
        if it.context.ended or not (people & question.people or _of_nobody_else(people, question)):
            continue
        near = max(float(asked @ vector), 0.0) + float(wanted @ vector)
        near += LIMIT * (question.advice.limits and note.memory_type == "health")
        near -= ANYTHING * (note.memory_type == "general")
        scores[at] = 1 / (1 + math.exp(-ADVISES * (near - NEAR)))
    return scores


def _of_nobody_else(people: Set[str], question: Question) -> bool:
    """Whether neither a note nor the question speaks of somebody who is something to the user."""
    return not question.people and all(it[0] == "@" for it in people)


def _with_topics(
    question: Question, candidates: Sequence[Candidate], about: Features, values: Column
) -> Column:
    """Values, with more for what states what the question asks for: notes of its topic, work.

    A later row that answers better and tells of a change stays above: it may have ended the note,
    and nobody noticed. One that speaks of somebody else, whom nobody asked about, goes below.
    """
    if not (question.topics or "job" in question.details):  # then no row can state it
        return np.asarray(values - values.max())
    lifted, others = values.copy(), about.get("people_not_asked", np.zeros(len(values))) > 0
    stating: Mask = flags([_states(question, it) for it in candidates]) > 0
    # Of somebody's work only what tells of work may have changed; of a topic, whatever is near it.
    changes: Mask = (np.maximum(about["changes"], about["ends"]) > 0) & (
        stating | bool(question.topics)
    )
    for at, it in enumerate(candidates):
        if stating[at] and (question.past or not it.context.ended):
            later = [other.said > it.said for other in candidates]
            above = values[changes & later & ~others & (values > values[at])]
            lifted[at] = min(values[at] + ASKED, (above.max() if above.size else np.inf) - BEHIND)
            lifted[others] = np.minimum(lifted[others], lifted[at] - BEHIND)
    if "job" in question.details:
        lifted = _by_change(question, candidates, lifted, stating, changes)
    return np.asarray(lifted - lifted.max())


def _by_change(
    question: Question, candidates: Sequence[Candidate], values: Column, stating: Mask, change: Mask
) -> Column:
    """Values in which a change of work is above what it changed; below, if that is asked for."""
    values, said = values.copy(), np.array([it.said for it in candidates])
    for at in np.flatnonzero(stating & change):
        if (before := values[stating & (said < said[at])]).size and question.of_one_tense:
            above, below = max(values[at], before.max() + BEHIND), before.max() - BEHIND
            values[at] = min(values[at], below) if question.past else above
    was = stating & (flags([tells_what_was(it.row.content) for it in candidates]) > 0)
    if not question.past and (held := values[stating & ~was]).size:
        values[was] = np.minimum(values[was], held.min() - BEHIND)
    return values


def _states(question: Question, candidate: Candidate) -> bool:
    """Whether a row states what a question asks for: a note of its topic, or somebody's work."""
    row = candidate.row
    if isinstance(row, Note) and row.topic in question.topics:
        return True
    if "job" not in question.details or not candidate.by_person:
        return False
    reading = read(row.content)
    words = {*question.words} - _OF_WORK
    longest = max(map(len, words), default=0)
    named = {it for it in words if len(it) == longest}
    meant = question.people & reading.people or named & reading.words
    return bool(meant) and reading.tells("job")


def _with_notes(candidates: Sequence[Candidate], values: Column) -> Column:
    """Values, with those of messages also for notes that say in plain words what holds since."""
    values, places = values.copy(), {it.row.id: at for at, it in enumerate(candidates)}
    for at, it in enumerate(candidates):
        if isinstance(it.row, Note) and "/" in (it.row.topic or "") and not it.context.ended:
            said = [values[places[name]] for name in it.row.sources if name in places]
            if said and 0 < max(said) - values[at] < PLAIN:
                values[at] = max(said)
    return values


def rate(about: Features, order: Features, weights: Mapping[str, float]) -> Column:
    """How much less likely each candidate is the answer than the best one, as a logarithm.

    Where no vectors tell what is meant, the ranking of the signals before counts as well.
    """
    values = weigh(about | order, weights)
    if not about["similarity"].any():
        trust = _trust(about) if len(values) >= JUDGED else 1.0
        ranks = np.argsort(np.argsort(-values, kind="stable"), kind="stable")
        before = about["rank"] / (1 + (K - 1) * about["rank"])
        values = STEEPNESS * np.log(trust * SHARE / (K + ranks) + (1 - trust * SHARE) * before)
    return np.asarray(values - values.max())


def beside_signals(scores: Column, candidates: Sequence[Candidate]) -> Column:
    """Scores of which the signals before make up half: for what asks, but not for a fact."""
    before = np.array([it.score for it in candidates]).clip(_LITTLE, 1 - _LITTLE)
    scores = scores.clip(_LITTLE, 1)
    values = (np.log(scores) + np.log(before / (1 - before))) / 2
    best = math.sqrt(scores.max() * before.max())
    return np.asarray(best * np.exp(values - values.max()))


def is_large(among: int) -> bool:
    """Whether so many rows that have a meaning are a large memory."""
    return among >= LARGE


def _share(about: Features, among: int, vector: Vector | None) -> float:
    """How much the judgement counts beside that of a large memory, 0-1."""
    trust = 1.0 if vector is None else _trust(about)  # without vectors, `rate` sees to it
    share = trust * min(LARGE / max(among, 1), 1.0) ** 2
    return share if share >= LEAST_SHARE else 0.0


def large_features(about: Features, order: Features, values: Column) -> Features:
    """What tells the answer in a large memory, beside the `values` of the judgement.

    Only the rows are judged there that the signals before have ranked first, and of many rows some
    always look like an answer. The judgement was learned from what people tell an assistant, in
    short messages; other kinds of talk taught how far it holds. The longer the texts are, the less.
    """
    trust = _trust(about)
    by_time = {name: trust * order[name] for name in order.keys() - _ABOUT}
    judgement = trust * np.maximum(values, LEAST)
    standing = -np.log1p(1 / about["rank"])  # among the signals before
    return about | order | by_time | {"judgement": judgement, "standing": standing}


def large_odds(about: Features, figures: Features) -> float:
    """Logarithm of the odds that the best row of a large memory answers, as other talk taught.

    Of many rows one always has most of what an answer has; so how far it stands out is what counts.
    """
    seen = standing_out(about, figures)
    return float(weigh(seen, load_weights("large")["chance"])[0])


def standing_out(about: Features, figures: Features) -> Features:
    """How far the best row stands out, and how far the judgement holds for such texts."""
    trust = np.array([_trust(about)])
    return {"share": figures["share"], "margin": figures["margin"], "trust": trust}


def _trust(about: Features) -> float:
    """How far the judgement holds for texts of this length, 0-1."""
    return min(max((LONG - float(about["log_length"].mean())) / (LONG - BRIEF), 0.0), 1.0)


def weigh(columns: Mapping[str, Column], weights: Mapping[str, float]) -> Column:
    """The weighted sum of columns; features without a weight do not count."""
    names = [name for name in weights if name in columns]
    parts = np.concatenate([columns[name] for name in names]).reshape(len(names), -1)
    parts *= np.array([weights[name] for name in names])[:, np.newaxis]
    return np.asarray(parts.sum(axis=0) + weights.get("bias", 0.0))


@cache
def load_weights(name: str) -> Mapping[str, Mapping[str, float]]:
    """The weights where vectors are known, where there are words only, or for a large memory."""
    text = (files(__package__) / "judge.json").read_text("utf-8")
    weights: Mapping[str, Mapping[str, float]] = json.loads(text)[name]
    return weights


@cache
def load_projection() -> Projection:
    """The projection of JUDGED_MODEL's vectors."""
    with (files(__package__) / "judge.npz").open("rb") as file, np.load(file) as arrays:
        return Projection(*(arrays[name].astype(np.float64) for name in Projection._fields))


def answer_features(columns: Features, values: Column) -> Features:
    """What the best rows tell about whether the question is answered at all."""
    order = np.argsort(-values, kind="stable")
    best, other = order[0], order[min(1, len(order) - 1)]
    shares = np.exp(values) / np.exp(values).sum()
    top = {name: column[best : best + 1] for name, column in columns.items()}
    figures = {
        "share": float(shares[best]),
        "margin": float(values[best] - values[other]),
        "most_relevance": float(columns["relevance"].max()),
        "most_similarity": float(columns["similarity"].max()),
        "most_coverage": float(columns["coverage"].max()),
        "most_context_coverage": float(columns["context_coverage"].max()),
        "most_score": float(columns["score"].max()),
        "most_fit": float(columns["fit"].max()) if "fit" in columns else 0.0,
    }
    few = 1 / len(values)  # among few rows chance brings none near to the question
    figures["few"] = few
    for name in ("coverage", "similarity", "fit"):
        figures[f"few_{name}"] = few * float(columns[name][best]) if name in columns else 0.0
    return {name: np.array([value]) for name, value in figures.items()} | top
