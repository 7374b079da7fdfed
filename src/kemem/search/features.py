"""What speaks for and against a candidate by itself: the features that the judge weighs."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kemem.ports.request import Context
from kemem.records import Matrix, Message, Micros, Note, Row, Vector
from kemem.records.times import to_datetime
from kemem.text.reading import ANSWERS, Question, Reading, named_people, read
from kemem.text.when import as_of, times_told

Column = NDArray[np.float64]
Features = dict[str, Column]  # by name; one that is not there is 0 for all candidates

DAY = 86_400_000_000
SITTING = DAY // 2  # after which a session is taken up again
LONG = 40 * DAY  # a time that says too little about when something happens
JUDGED = 40  # candidates at most
_SHORT = 6  # words of an answer that needs its question
_OTHER: Mapping[str, str] = {"user": "assistant", "assistant": "user"}
_CHARACTER = 0.35  # what a Chinese character tells of a topic beside a pair of them


@dataclass(frozen=True, slots=True)
class Candidate:
    """A row that may answer, and what it is judged by."""

    row: Row
    score: float  # of the signals before
    context: Context = field(default_factory=Context)
    said: Micros = 0  # when it was said, which is not always when what it tells of happens
    is_mirrored: bool = False  # user and assistant have changed places

    @property
    def by_person(self) -> bool:
        """Whether the one says it who is asked about: a person, or the assistant if mirrored."""
        if self.is_mirrored:
            return isinstance(self.row, Message) and self.row.role == "user"
        return by_person(self.row)


class Projection(NamedTuple):
    """What a question becomes before it is compared: q + answers · (questionsᵀ · q)."""

    questions: Column  # dimensions × rank
    answers: Column  # the same


def with_sources(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Candidates with the times at which they were said.

    A note was said with the message that it is drawn from, after what was said before that one.
    """
    messages = {it.row.id: it for it in candidates if isinstance(it.row, Message)}
    return [_with_source(it, messages) for it in candidates]


def _with_source(candidate: Candidate, messages: Mapping[str, Candidate]) -> Candidate:
    row = candidate.row
    if not isinstance(row, Note):
        return Candidate(row, candidate.score, candidate.context, row.ts, candidate.is_mirrored)
    source = next((messages[name] for name in row.sources if name in messages), None)
    if source is None:
        return replace(candidate, said=min(row.ts, row.created))
    around = source.context
    context = replace(candidate.context, before=around.before, previous=around.previous)
    return replace(candidate, context=context, said=source.row.ts)


def sittings(candidates: Sequence[Candidate]) -> NDArray[np.intp]:
    """The sitting that each row was said in, as a number: its session, until nothing came for long.

    Who names no session tells everything in one, over months.
    """
    order = sorted(range(len(candidates)), key=lambda at: candidates[at].said)
    last: dict[str, tuple[Micros, int]] = {}
    numbers = np.zeros(len(candidates), np.intp)
    for count, at in enumerate(order):
        row, said = candidates[at].row, candidates[at].said
        before, number = last.get(row.session_id or row.id, (said, count))
        numbers[at] = number if said - before < SITTING else count
        last[row.session_id or row.id] = (said, int(numbers[at]))
    return numbers


def mirrored(candidate: Candidate) -> Candidate:
    """A candidate as if the assistant were the user, where it is asked what the assistant said."""
    row, context = candidate.row, candidate.context
    before = tuple(replace(it, role=_OTHER.get(it.role, it.role)) for it in context.before)
    if isinstance(row, Message):
        row = replace(row, role=_OTHER.get(row.role, row.role))
    return replace(candidate, row=row, context=replace(context, before=before), is_mirrored=True)


def _z(values: Column, usual: float) -> Column:
    """Values by how far they stand out; `usual` keeps small differences among few rows small."""
    away = values - values.mean()
    return np.asarray(away / (math.sqrt(np.vecdot(away, away) / len(away)) + usual))


def flags(values: Sequence[object]) -> Column:
    return np.fromiter(map(bool, values), np.float64, len(values))


def features(
    question: Question, vector: Vector | None, candidates: Sequence[Candidate]
) -> Features:
    """What speaks for and against each candidate by itself."""
    readings = [read(it.row.content) for it in candidates]
    contexts = [[read(message.content) for message in it.context.before] for it in candidates]
    speakers = [speaker_of(it.row) for it in candidates]
    person = flags([it.by_person for it in candidates])
    asked = flags([_answers_question(it) for it in candidates])
    columns = _by_signals(np.array([it.score for it in candidates]))
    columns |= _by_words(question, speakers, readings, contexts) | _by_vectors(vector, candidates)
    columns |= _by_people(question, candidates, speakers, readings, contexts)
    columns |= _by_time(question, candidates) | _by_form(question, readings)
    coverage, context = columns["coverage"], columns["context_coverage"]
    similar, before = columns["similarity_z"], columns["similarity_before"]
    asks, words = columns["asks"], columns["length"]
    columns |= {
        "person": person,
        "person_similarity": person * similar,
        "assistant_similarity": (1 - person) * similar,
        "person_coverage": person * columns["coverage_z"],
        "person_novelty": person * columns["novelty"],
        "person_able": person * columns["able"],
        "asks_similarity": asks * person * similar,
        "asks_coverage": asks * person * coverage,
        "replies": asked * person,
        "replies_similarity": asked * person * before,
        "replies_coverage": asked * person * (context - coverage),
        "replies_short": asked * person * (words < _SHORT / 10),
        "opens": flags([not it.context.before for it in candidates]),
    }
    if "same_people" in columns:
        columns["same_people_similarity"] = columns["same_people"] * similar
    if "in_time" in columns:
        columns["in_time_similarity"] = columns["in_time"] * similar
        columns["person_in_time"] = columns["in_time"] * person
    for name in ("asks", "requests", "first_person", "changes", "ends", "capital", "place"):
        columns[name] = columns[name] * person
    return columns


def _by_signals(scores: Column) -> Features:
    """How the signals before rank the rows; of a large memory they have chosen among many."""
    rank = 1 / (1 + np.argsort(np.argsort(-scores, kind="stable"), kind="stable"))
    odds = np.log((scores + 1e-4) / (1 - scores + 1e-4))
    own = {"score": scores, "score_z": _z(scores, 0.1), "rank": rank, "odds": odds}
    large = float(len(scores) >= JUDGED)
    return own | {f"large_{name}": large * column for name, column in own.items()}


def _answers_question(candidate: Candidate) -> bool:
    """Whether a row was said right after a question of the other side."""
    before = candidate.context.before[:1]
    return bool(before) and before[0].role == "assistant" and _asks(before[0].content)


def _asks(text: str) -> bool:
    return "?" in text or "？" in text


def _by_words(
    question: Question,
    speakers: Sequence[str],
    readings: Sequence[Reading],
    contexts: Sequence[Sequence[Reading]],
) -> Features:
    """Which share of the question's words a row has; a word that many rows have tells less."""
    names = {name: read(name).words for name in {*speakers}}
    size, asked = len(readings), frozenset(question.words)
    own = [(it.words, names[name]) for it, name in zip(readings, speakers, strict=True)]
    has = [(asked & words).union(asked & name) if name else asked & words for words, name in own]
    lengths = [len(words) + len(name - words) if name else len(words) for words, name in own]
    around = [[asked & it.words for it in some] for some in contexts]
    counts, weights = Counter(chain.from_iterable(has)), dict[str, float]()
    for word in question.words:
        rarity = math.log(1 + (size - counts[word] + 0.5) / (counts[word] + 0.5))
        weights[word] = worth(word) * rarity
    total = math.fsum(weights.values()) or 1.0

    def share(words: Iterable[str]) -> float:
        return math.fsum([weights[word] for word in words]) / total  # in whatever order

    coverage = np.array([*map(share, has)])
    reply = [share(it.union(*some[:1])) for it, some in zip(has, around, strict=True)]
    context = [share(it.union(*some)) for it, some in zip(has, around, strict=True)]
    novelty = [length - len(it) for length, it in zip(lengths, has, strict=True)]
    return {
        "coverage": coverage,
        "coverage_z": _z(coverage, 0.1),
        "reply_coverage": np.array(reply),
        "context_coverage": np.array(context),
        "unknown": np.full(size, 1 - share(counts)),
        "novelty": np.minimum(novelty, 8) / 8,
        "length": np.minimum(lengths, 20) / 10,
    }


def worth(word: str) -> float:
    """What a word tells of a topic: a Chinese character less than a pair of them."""
    return _CHARACTER if len(word) == 1 and not word.isascii() else 1.0


def _by_vectors(vector: Vector | None, candidates: Sequence[Candidate]) -> Features:
    """How near rows are in meaning, by themselves and with what was said right before."""
    similar = reply = before = np.zeros(len(candidates))
    if vector is not None:
        unit = vector / (np.linalg.norm(vector) + 1e-9)
        own = _matrix([it.context.vector for it in candidates], len(unit))
        previous = _matrix(
            [None if it.context.vector is None else it.context.previous for it in candidates],
            len(unit),
        )
        both = own + previous
        similar, before = np.vecdot(own, unit), np.vecdot(previous, unit)
        together = np.vecdot(both, unit) / (np.sqrt(np.vecdot(both, both)) + 1e-9)
        reply = np.where([_is_reply(it) for it in candidates], together, similar)
    return {
        "similarity": similar,
        "similarity_z": _z(similar, 0.03),
        "reply_similarity": reply,
        "reply_similarity_z": _z(reply, 0.03),
        "similarity_before": before,
    }


def _is_reply(candidate: Candidate) -> bool:
    """Whether a row was said right after a message of the other side that has a vector."""
    context = candidate.context
    return context.previous is not None and context.before[0].role == "assistant"


def _matrix(vectors: Sequence[Vector | None], width: int) -> Matrix:
    """Vectors as rows, with zeros for those that are missing; there is one at least."""
    empty = np.zeros(width, np.float32)
    rows = [empty if it is None else it for it in vectors]
    return np.concatenate(rows, dtype=np.float32).reshape(-1, width)  # np.array() takes far longer


def fits(vector: Vector, candidates: Sequence[Candidate], projection: Projection) -> Features:
    """How near rows are to an answer: a question and its answer seldom mean the same.

    The projection was learned from questions and their answers. "Where do I live?" is near
    "I live in Berlin" and as near "we moved to Munich".
    """
    unit = np.asarray(vector / (np.linalg.norm(vector) + 1e-9), np.float64)
    rows = _matrix([it.context.vector for it in candidates], len(unit)).astype(np.float64)
    replies = [it.context.previous if _is_reply(it) else None for it in candidates]
    both = rows + _matrix(replies, len(unit))
    both /= np.sqrt(np.vecdot(both, both))[:, np.newaxis] + 1e-9
    question = unit + np.vecdot(projection.answers, np.vecdot(projection.questions.T, unit))
    # Not "@": see `kemem.store.search`.
    fit, reply = np.vecdot(rows, question), np.vecdot(both, question)
    columns = {"fit": fit, "fit_z": _z(fit, 0.05)}
    columns |= {"reply_fit": reply, "reply_fit_z": _z(reply, 0.05)}
    return columns | {"person_fit": flags([it.by_person for it in candidates]) * columns["fit_z"]}


def by_person(row: Row) -> bool:
    """Whether a person says it, and no assistant."""
    return not isinstance(row, Message) or row.role == "user" or bool(speaker_of(row))


def speaker_of(row: Row) -> str:
    """The name of who says a message, where it is known."""
    return row.speaker.lower() if isinstance(row, Message) else ""


def _by_people(
    question: Question,
    candidates: Sequence[Candidate],
    speakers: Sequence[str],
    readings: Sequence[Reading],
    contexts: Sequence[Sequence[Reading]],
) -> Features:
    """Whether a row speaks of those whom the question is about, by whatever name."""
    names: dict[str, str] = {}
    for it, speaker in zip(candidates, speakers, strict=True):
        if speaker:
            names[speaker] = f"@{speaker}"
        for text in (it.row.content, *(message.content for message in it.context.before)):
            if introduced := named_people(text):
                names |= introduced
    marks = {name: (one, f"@{name}") for name, one in names.items()}

    def everyone(people: frozenset[str], text: str) -> frozenset[str]:
        folded = text.lower() if marks else ""
        own = [mark for name, mark in marks.items() if name in folded]
        return people.union(*own) if own else people

    asked = everyone(question.people, question.topic)
    rows, around = list[frozenset[str]](), list[frozenset[str]]()
    for it, speaker, reading, context in zip(candidates, speakers, readings, contexts, strict=True):
        people = everyone(reading.people, f"{speaker} {it.row.content}")
        of_another = not people and reading.has_pronoun  # "she" is who was spoken of
        if asked or of_another:
            texts = zip(context, it.context.before, strict=True)
            before = [everyone(of_text.people, message.content) for of_text, message in texts]
            if of_another:
                people = next((some for some in before if some), people)
            around.append(people.union(*before))
        rows.append(people)
    if not asked:
        own = ["first_person" in r and not p for r, p in zip(readings, rows, strict=True)]
        relatives = [{it for it in people if it[0] != "@"} for people in rows]
        return {"people_not_asked": flags(relatives), "self": flags(own)}
    asked_names = {name for name in asked if name[0] == "@"}
    heard = {name for name in speakers if name and f"@{name}" in asked}
    near = flags([asked_names & people for people in around])
    named = flags([asked_names & people for people in rows])
    return {
        "same_people": flags([asked & people for people in rows]),
        "other_speaker": flags([heard and name not in heard for name in speakers]),
        "same_people_near": flags([asked & people for people in around]),
        "other_people": flags([people and not asked & people for people in rows]),
        "named": named,
        "named_near": near * (1 - named),
        "not_named": float(bool(asked_names)) * (1 - near),
    }


def _by_time(question: Question, candidates: Sequence[Candidate]) -> Features:
    """Whether a row is of a time that the question names: the one it tells of, else its own."""
    newest = max(it.said for it in candidates)
    # Where all rows are older, a date without a year is meant as of then.
    meant = [as_of(it, to_datetime(newest)) if newest < it.since else it for it in question.times]
    ranges = [(it.since, it.until) for it in meant if it.until - it.since <= LONG]
    if not ranges:
        return {}
    size = len(candidates)
    said, told, tells, away = (np.zeros(size) for _ in range(4))
    for at, it in enumerate(candidates):
        ts, phrases = it.said, times_told(it.row.content, to_datetime(it.said))
        own = [(p.since, p.until) for p in phrases if p.until - p.since <= LONG]
        said[at] = any(since <= ts < until for since, until in ranges)
        told[at] = bool(own)
        shares = [
            (min(until, last) - max(since, first)) / (last - first)
            for since, until in ranges
            for first, last in own
        ]
        tells[at] = max(0.0, *shares) if shares else 0.0
        gaps = [
            max(0, max(since, first) - min(until, last))
            for since, until in ranges
            for first, last in own or [(ts, ts + 1)]
        ]
        away[at] = min(min(gaps) / DAY, 60) / 60
    in_time = np.maximum(said * (1 - told), tells)
    ahead = float(any(since > newest for since, _ in ranges))
    return {
        "ahead": np.full(size, ahead),
        "out_of_time_ahead": ahead * (in_time == 0),
        "said_in_time": said * (1 - told),
        "said_in_time_of_another": said * told,
        "tells_of_time": tells,
        "in_time": in_time,
        "out_of_time": 1.0 * (in_time == 0),
        "away": away,
    }


def _by_form(question: Question, readings: Sequence[Reading]) -> Features:
    """What a row shows by its form, and whether it could be an answer of the kind that is asked."""
    columns: Features = {"asks": np.array([it.asks for it in readings])}
    signs = [it.signs for it in readings]
    for sign in (
        "requests",
        "first_person",
        "changes",
        "ends",
        "number",
        "time",
        "capital",
        "place",
        "quote",
    ):
        columns[sign] = flags([sign in it for it in signs])
    columns["log_length"] = np.array([math.log(1 + it.length) for it in readings])
    # What nobody asks for, no text is searched for.
    wanted = question.answers & {*ANSWERS}
    columns["able"] = np.zeros(len(readings))
    if wanted:
        columns["able"] = flags([wanted & it.answers for it in readings]) - 0.5
    for kind in wanted:
        columns[f"able_{kind}"] = flags([kind in it.answers for it in readings])
    for kind in question.details:
        columns[f"able_{kind}"] = flags([it.tells(kind) for it in readings])
    return columns | {f"wants_{it}": np.ones(len(readings)) for it in wanted | question.details}
