"""The reference store: dicts in memory, written to be obviously right rather than fast."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

from kemem.errors import Conflict, InvalidArgument, Unavailable
from kemem.text.query import Phrase, Query
from kemem.text.rank import word_scores
from kemem.text.segment import search_text
from kemem.types import (
    Applied,
    Batch,
    Embedded,
    Found,
    Health,
    Job,
    Match,
    Matrix,
    Message,
    Micros,
    Model,
    Position,
    Rank,
    Scope,
    Vector,
    Where,
)

Key = tuple[str, str]  # user and message: an id is unique within a user
Direction = NDArray[np.float64]  # a vector of length 1


@dataclass(frozen=True, slots=True)
class Row:
    """A stored message, its search text and its place in the order of arrival."""

    message: Message
    words: str
    arrival: int


@dataclass(slots=True)
class Tables:
    """Everything a store holds."""

    rows: dict[Key, Row] = field(default_factory=dict)
    vectors: dict[Key, tuple[Model, Direction]] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    arrivals: int = 0
    model: Model | None = None

    def copy(self) -> "Tables":
        """The same tables, to be changed without changing these."""
        rows, vectors, jobs = dict(self.rows), dict(self.vectors), dict(self.jobs)
        return replace(self, rows=rows, vectors=vectors, jobs=jobs)


class RamStore:
    """A complete store in memory, gone with the process: for tests, and as the model of others."""

    def __init__(self) -> None:
        self._tables: Tables | None = Tables()
        self._secret = secrets.token_bytes(32)

    async def apply(self, batch: Batch) -> Applied:
        """Write a batch wholly or not at all."""
        draft = self._draft()
        dropped = sum(self._drop(draft, where) for where in batch.drop)
        inserted, ignored = self._put(draft, batch.put)
        for embedded in batch.vectors:
            self._embed(draft, embedded)
        draft.jobs.update({job.job_id: job for job in batch.jobs})
        for job_id in batch.done:
            draft.jobs.pop(job_id, None)
        self._tables = draft
        return Applied(inserted, ignored, dropped)

    async def scan(
        self,
        where: Where,
        *,
        after: Position | None = None,
        limit: int = 100,
        newest_first: bool = True,
    ) -> list[Message]:
        """Visible messages in time order, strictly beyond `after`; equal times go by id."""
        direction = -1 if newest_first else 1
        visible = [row.message for row in self._visible(where)]
        visible.sort(key=lambda message: (direction * message.ts, *_names(message)))
        if after is not None:
            border = (direction * after.ts, after.message_id)
            visible = [one for one in visible if (direction * one.ts, one.message_id) > border]
        return visible[:limit]

    async def scopes(self) -> list[Scope]:
        """Every (agent, user) pair that has messages."""
        messages = [row.message for row in self._open().rows.values()]
        pairs = {(message.agent_id, message.user_id) for message in messages}
        return [Scope(agent_id, user_id) for agent_id, user_id in sorted(pairs)]

    async def search(
        self, where: Where, query: Query, *, limit: int, after: Rank | None = None
    ) -> Found:
        """The best matches beyond `after`, ranked by the statistics of the scope's spaces."""
        mark = after.mark if after else str(self._open().arrivals)
        ranked = self._ranked(where.scope, int(mark))
        ranking = [
            Match.of(message, score)
            for message, score in matches(query, ranked)
            if self._sees(where, message)
        ]
        ranking.sort(key=_place)
        return Found(tuple(_beyond(ranking, after)[:limit]), len(ranking), mark)

    async def nearest(self, where: Where, vector: Vector, model: Model, limit: int) -> list[Match]:
        """The most similar messages among those embedded by `model`."""
        (asked,) = directions(vector.reshape(1, -1), model)
        embedded = self._embedded(model)
        hits = [
            Match.of(row.message, similarity(asked, embedded[_key(row.message)]))
            for row in self._visible(where)
            if _key(row.message) in embedded
        ]
        return sorted(hits, key=_place)[:limit]

    async def claim(self, now: Micros, lease: Micros) -> Job | None:
        """The pending job that is due longest; its next due time is the end of the lease."""
        jobs = self._open().jobs
        due = [job for job in await self.jobs(len(jobs)) if job.state == "pending"]
        if not due or due[0].due > now:
            return None
        claimed = replace(due[0], attempts=due[0].attempts + 1, due=now + lease)
        jobs[claimed.job_id] = claimed
        return claimed

    async def jobs(self, limit: int = 100) -> list[Job]:
        """Jobs that wait or have failed, oldest first."""
        return sorted(self._open().jobs.values(), key=lambda job: (job.due, job.job_id))[:limit]

    async def secret(self) -> bytes:
        """A random key, the same for the life of the store."""
        self._open()
        return self._secret

    async def embedded_by(self, model: Model) -> Model | None:
        """Record the model in use; return the one recorded before."""
        tables = self._open()
        before, tables.model = tables.model, model
        return before

    async def rebuild_words(self) -> None:
        """Derive the search texts again from the messages."""
        for key, row in self._open().rows.items():
            self._open().rows[key] = replace(row, words=search_text(row.message.words))

    async def health(self) -> Health:
        """Counts and versions."""
        tables = self._open()
        jobs = await self.jobs(len(tables.jobs))
        failed = [job for job in jobs if job.state == "failed"]
        return Health(
            backend="ram",
            schema_version=1,
            messages=len(tables.rows),
            vectors=len(tables.vectors),
            pending_jobs=len(jobs) - len(failed),
            failed_jobs=len(failed),
            oldest_error=next((job.error for job in jobs if job.error), None),
        )

    async def close(self) -> None:
        """Forget everything."""
        self._tables = None

    def _open(self) -> Tables:
        if self._tables is None:
            raise Unavailable("the store is closed")
        return self._tables

    def _draft(self) -> Tables:
        return self._open().copy()

    def _sees(self, where: Where, message: Message) -> bool:
        return where.matches(message)

    def _visible(self, where: Where) -> list[Row]:
        return [row for row in self._open().rows.values() if self._sees(where, row.message)]

    def _ranked(self, scope: Scope, mark: int) -> list[Row]:
        """All rows, as of a mark, of each (agent, user) pair in which the scope sees any."""
        rows = [row for row in self._open().rows.values() if row.arrival <= mark]
        seen = [row.message for row in rows if self._sees(Where(scope), row.message)]
        pairs = {(message.agent_id, message.user_id) for message in seen}
        return [row for row in rows if (row.message.agent_id, row.message.user_id) in pairs]

    def _embedded(self, model: Model) -> dict[Key, Direction]:
        vectors = self._open().vectors
        return {key: direction for key, (by, direction) in vectors.items() if by == model}

    def _drop(self, draft: Tables, where: Where) -> int:
        gone = [key for key, row in draft.rows.items() if self._sees(where, row.message)]
        for key in gone:
            del draft.rows[key]
            draft.vectors.pop(key, None)
        return len(gone)

    def _put(
        self, draft: Tables, messages: Sequence[Message]
    ) -> tuple[tuple[Message, ...], tuple[str, ...]]:
        """What was inserted, and the ids of what was known already."""
        inserted, ignored, differing = [], [], []
        for message in messages:
            known = draft.rows.get(_key(message))
            if known is None:
                inserted.append(self._insert(draft, message))
            elif self._same(known.message, message):
                ignored.append(message.message_id)
            else:
                differing.append(message.message_id)
        if differing:
            ids = tuple(dict.fromkeys(differing))
            raise Conflict(f"messages {ids!r} exist with other content", message_ids=ids)
        return tuple(inserted), tuple(dict.fromkeys(ignored))

    def _same(self, known: Message, told: Message) -> bool:
        """Whether a message is a retry; its clock may read differently."""
        retry = replace(told, ts=known.ts, ingest_time=known.ingest_time)
        return replace(retry, sequence_no=known.sequence_no) == known

    def _insert(self, draft: Tables, message: Message) -> Message:
        others = [row.message for row in draft.rows.values() if _together(row.message, message)]
        taken = {other.ts for other in others}
        stored = replace(
            message,
            ts=next(ts for ts in count(message.ts) if ts not in taken),
            sequence_no=max((other.sequence_no for other in others), default=0) + 1,
        )
        draft.arrivals += 1
        draft.rows[_key(stored)] = Row(stored, search_text(stored.words), draft.arrivals)
        return stored

    def _embed(self, draft: Tables, embedded: Embedded) -> None:
        rows = directions(embedded.matrix, embedded.model)
        if len(rows) != len(embedded.message_ids):
            raise InvalidArgument(f"{len(rows)} vectors for {len(embedded.message_ids)} messages")
        for message_id, direction in zip(embedded.message_ids, rows, strict=True):
            where = Where(embedded.scope, ids=frozenset({message_id}))
            for key, row in draft.rows.items():
                if self._sees(where, row.message):
                    draft.vectors[key] = (embedded.model, direction)


def contains(words: str, phrase: Phrase) -> bool:
    """Whether the phrase's tokens stand side by side in a search text, which has one blank between.

    "hotpot 火 锅", Phrase(("hot",), prefix=True) -> True
    """
    wanted = " " + " ".join(phrase.tokens) + ("" if phrase.prefix else " ")
    return wanted in f" {words} "


def matches(query: Query, rows: Sequence[Row]) -> list[tuple[Message, float]]:
    """The rows that match, scored by the statistics of all that are given."""
    if not rows:
        return []
    with_phrase = {
        phrase: np.array([contains(row.words, phrase) for row in rows]) for phrase in query.phrases
    }
    lengths = np.array([len(row.words.split()) for row in rows], dtype=np.int64)
    scores = word_scores(query, with_phrase, lengths)
    found = query.evaluate(with_phrase.__getitem__, np.ones(len(rows), dtype=np.bool_))
    return [
        (row.message, float(score))
        for row, score, hit in zip(rows, scores, found, strict=True)
        if hit
    ]


def directions(matrix: Matrix, model: Model) -> Direction:
    """The rows of a matrix brought to length 1; rows without a direction are refused."""
    if matrix.ndim != 2 or matrix.shape[1] != model.width:
        raise InvalidArgument(f"vectors must have {model.width} numbers, not {matrix.shape!r}")
    wide = matrix.astype(np.float64)
    if not np.isfinite(wide).all() or not wide.any(axis=1).all():
        raise InvalidArgument("vectors must be finite and not zero")
    lengths: Direction = np.linalg.norm(wide, axis=1, keepdims=True)
    return wide / lengths


def similarity(one: Direction, other: Direction) -> float:
    """The cosine, 0-1."""
    return round(float(np.clip(one @ other, 0, 1)), 6)


def _key(message: Message) -> Key:
    return (message.user_id, message.message_id)


def _names(message: Message | Match) -> tuple[str, str, str]:
    return (message.message_id, message.agent_id, message.user_id)


def _together(one: Message, other: Message) -> bool:
    return (one.agent_id, one.user_id, one.session_id) == (
        other.agent_id,
        other.user_id,
        other.session_id,
    )


def _place(match: Match) -> tuple[float, Micros, str, str, str]:
    return (-match.score, -match.ts, *_names(match))


def _beyond(ranking: list[Match], after: Rank | None) -> list[Match]:
    """What follows the row `after` names or, when that is gone, what follows its place."""
    if after is None:
        return ranking
    for index, hit in enumerate(ranking):
        if hit.message_id == after.message_id:
            return ranking[index + 1 :]
    border = (-after.score, -after.ts, after.message_id)
    return [hit for hit in ranking if _place(hit)[:3] > border]
