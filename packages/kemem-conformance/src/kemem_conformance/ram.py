"""The reference store: dicts in memory, written to be obviously right rather than fast."""

import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from kemem.errors import InvalidArgument
from kemem.ports import ReadOptions
from kemem.ports.entries import refusal
from kemem.ports.request import (
    Candidates,
    Neighborhood,
    Ranking,
    SearchRequest,
    SearchResponse,
    StoreInfo,
    key_of,
)
from kemem.records import (
    MESSAGES,
    NOTES,
    Census,
    Change,
    Checkpoint,
    Entry,
    Health,
    Holding,
    Level,
    Line,
    Match,
    Message,
    Micros,
    Model,
    Note,
    Position,
    Rank,
    Relation,
    Row,
    Scope,
    Vector,
    Where,
)
from kemem.records.batch import Job, JobKind
from kemem.text.query import Query
from kemem.text.rank import context_scope
from kemem_conformance.ram_ranking import (
    Direction,
    Stored,
    beyond,
    directions,
    matches,
    place,
    similarity,
)
from kemem_conformance.ram_tables import Key, covers, key, newest_first, pair
from kemem_conformance.ram_writing import RamWriter

R = TypeVar("R", Message, Note)
Q = TypeVar("Q", Message, Note, Row)


class RamStore(RamWriter):
    """A complete store in memory, gone with the process: for tests, and as the model of others."""

    def __init__(self) -> None:
        super().__init__()
        self._secret = secrets.token_bytes(32)

    async def read(
        self,
        where: Where,
        *,
        after: Position | None = None,
        limit: int = 100,
        newest_first: bool = True,
    ) -> list[Row]:
        """Visible messages and notes in time order, then by arrival, strictly beyond `after`."""
        options = ReadOptions(after=after, limit=limit, newest_first=newest_first)
        rows: list[Row] = [*self._messages(where, **options), *self._notes(where, **options)]
        return _in_order(rows, newest_first)[:limit]

    def _messages(
        self,
        where: Where,
        *,
        after: Position | None = None,
        limit: int = 100,
        newest_first: bool = True,
    ) -> list[Message]:
        messages = [row for row in self._visible(where) if isinstance(row, Message)]
        return _page(messages, after, newest_first)[:limit]

    def _notes(
        self,
        where: Where,
        *,
        after: Position | None = None,
        limit: int = 100,
        newest_first: bool = True,
    ) -> list[Note]:
        return _page(self._visible_notes(where), after, newest_first)[:limit]

    async def history(
        self,
        scope: Scope,
        *,
        note_id: str | None = None,
        event: str | None = None,
        reason: str | None = None,
        limit: int = 100,
    ) -> list[Change]:
        """What became of a scope's notes, or of one, newest first; `event` picks one sort."""
        if scope.session_id is not None:
            raise InvalidArgument(f"history has no sessions, not {scope!r}", field="session_id")
        lines = [
            line
            for line in reversed(self._open().history)
            if covers(scope, *pair(line), None)
            and note_id in (None, line.note_id)
            and event in (None, line.event)
            and reason in (None, line.reason)
        ]
        return sorted(lines, key=lambda line: -line.at)[:limit]

    async def checkpoints(self, scope: Scope, *, limit: int = 1) -> list[Checkpoint]:
        """The saved states of a scope's sessions, newest first."""
        saved = [
            one
            for one in reversed(self._open().checkpoints)
            if covers(scope, *pair(one), one.session_id)
        ]
        return sorted(saved, key=lambda one: -one.created)[:limit]

    async def directory(
        self,
        level: Level,
        scope: Scope | None = None,
        *,
        note_id: str | None = None,
        after: tuple[str, str, str] | None = None,
        limit: int = 100,
    ) -> list[Entry]:
        """Agents, users, sessions or owners in the order of their places, beyond `after`."""
        if level == "owner":
            entries = self._owners(scope, note_id)
        else:
            entries = self._open().directory.listed(level, scope)
        return [entry for entry in entries if after is None or entry.place > after][:limit]

    async def generation(self, where: Where) -> str:
        """How much has changed in each pair that the scope reaches."""
        scope, seen = where.scope, self._open().changes
        return str(
            [
                (owner, seen[owner])
                for owner in sorted(seen)
                if covers(scope, *owner, scope.session_id) or owner == (where.shared, "")
            ]
        )

    def _owners(self, scope: Scope | None, note_id: str | None) -> list[Entry]:
        rows = [stored.row for stored in self._open().rows.values()]
        pairs = {
            pair(row)
            for row in rows
            if (scope is None or covers(scope, *pair(row), row.session_id))
            and (note_id is None or (isinstance(row, Note) and row.id == note_id))
        }
        entries = [
            Entry("owner", user_id, agent_id, user_id or None, None, True, 0, 0)
            for agent_id, user_id in pairs
        ]
        return sorted(entries, key=lambda entry: entry.place)

    async def search(self, request: SearchRequest) -> SearchResponse:
        """Candidates by words, vectors and graph, and the selected rows."""
        asks = bool(request.queries or request.vectors is not None or request.times)
        known = self._open().directory
        if asks and (who := known.disabled(request.where.scope)):
            raise refusal(who.level, who.id)
        where, admitted = self._searched(request.where), None
        if request.keywords is not None:
            found = self._ranking(where, request.keywords, limit=10**9)
            admitted = {key_of(match) for match in found.matches}
            where = replace(where, ids=frozenset(at[-1] for at in admitted))

        def among(matches: Iterable[Match], limit: int) -> tuple[Match, ...]:
            return tuple(it for it in matches if admitted is None or key_of(it) in admitted)[:limit]

        words = []
        for query in request.queries:
            ranking = self._ranking(where, query, limit=10**9, after=request.after)
            words.append(replace(ranking, matches=among(ranking.matches, request.limit)))
        vectors = [
            among(self._nearest(where, vector, request.model, 10**9), request.limit)
            for vector in (() if request.vectors is None else request.vectors)
            if request.model is not None
        ]
        near = request.around
        relations = self._near(near) if near else []
        notes = None if admitted is None else frozenset(admitted)
        unembedded = bool(vectors) and self._has_unembedded(where, request.model)
        rankings = (tuple(words), tuple(vectors), tuple(relations), notes)
        count = len([*self._visible(where)])
        candidates = Candidates(*rankings, unembedded=unembedded, rows=count)
        selected = request.select(candidates) if request.select else ()
        keys = {key_of(match) for match in selected}
        visible = self._visible(self._searched(request.where))
        rows = {
            key_of(row): row
            for row in visible
            if key_of(row) in keys and (not asks or known.is_served(pair(row)))
        }
        lines: list[Line] = []
        if request.lines and request.where.scope.user_id:
            kind, most = request.lines
            user_id = request.where.scope.user_id
            lines = await self.journal(kind, user_id=user_id, limit=most)
        return SearchResponse(candidates, rows, lines=tuple(lines))

    def _searched(self, where: Where) -> Where:
        """What a search may find: no withdrawn messages, whatever else is asked for."""
        return replace(where, withdrawn=False)

    def _near(self, near: Neighborhood) -> list[Relation]:
        options = {"hops": near.hops, "limit": near.limit}
        return self._around(near.where, near.names, types=near.relationships, **options)

    def _ranking(
        self, where: Where, query: Query, *, limit: int, after: Rank | None = None
    ) -> Ranking:
        """The best matches beyond `after`, ranked by the statistics of the scope's spaces."""
        mark = after.mark if after else str(self._open().arrivals)
        ranked = self._ranked(where, int(mark))
        lent = [self._lends(where, stored.row) for stored in ranked]
        ranking = [
            Match.of(row, score)
            for row, score in matches(query, ranked, lent)
            if self._sees(where, row)
        ]
        ranking.sort(key=place)
        return Ranking(tuple(beyond(ranking, after)[:limit]), len(ranking), mark)

    def _nearest(self, where: Where, vector: Vector, model: Model, limit: int) -> list[Match]:
        """The most similar rows among those embedded by `model`."""
        (asked,) = directions(vector.reshape(1, -1), model)
        embedded = self._embedded(model)
        hits = [
            Match.of(row, similarity(asked, embedded[key(row)]))
            for row in self._visible(where)
            if key(row) in embedded and self._open().directory.is_served(pair(row))
        ]
        return sorted(hits, key=place)[:limit]

    def _has_unembedded(self, where: Where, model: Model | None) -> bool:
        """Whether rows that a search may find have no vector of a model."""
        embedded = self._embedded(model) if model else {}
        served = self._open().directory.is_served
        return any(key(it) not in embedded and served(pair(it)) for it in self._visible(where))

    def _around(
        self,
        where: Where,
        names: Sequence[str],
        *,
        hops: int = 1,
        limit: int = 100,
        types: Sequence[str] = (),
    ) -> list[Relation]:
        """Relations within `hops` of the entities named; without names, the newest ones."""
        if where.filters is not None:
            raise InvalidArgument("the graph knows no filters", field="filters")
        if not 1 <= hops <= 5:
            raise InvalidArgument(f"hops must be 1-5, not {hops!r}", field="hops")
        if not 1 <= limit <= 1_000:
            raise InvalidArgument(f"limit must be 1-1000, not {limit!r}", field="limit")
        visible = {key(note): note for note in self._visible_notes(where)}
        return self._open().graph.around(visible, names, types, hops)[:limit]

    async def claim(self, now: Micros, lease: Micros) -> Job | None:
        """The pending job that is due longest; its next due time is the end of the lease."""
        jobs = self._open().jobs
        due = [job for job in await self.jobs(len(jobs)) if job.state == "pending"]
        if not due or due[0].due > now:
            return None
        claimed = replace(due[0], attempts=due[0].attempts + 1, due=now + lease)
        jobs[claimed.job_id] = claimed
        return claimed

    async def jobs(
        self,
        limit: int | None = 100,
        *,
        ids: Sequence[str] | None = None,
        kinds: Sequence[JobKind] | None = None,
    ) -> list[Job]:
        """Jobs that wait or have failed, oldest first."""
        wanted = [
            job
            for job in self._open().jobs.values()
            if (ids is None or job.job_id in ids) and (kinds is None or job.kind in kinds)
        ]
        return sorted(wanted, key=lambda job: (job.due, job.job_id))[:limit]

    async def journal(
        self,
        kind: str,
        *,
        since: Micros | None = None,
        until: Micros | None = None,
        user_id: str | None = None,
        limit: int = 1000,
    ) -> list[Line]:
        """Lines of a kind, newest first, equal times by id."""
        return newest_first(
            line
            for line in self._open().journal.values()
            if line.kind == kind
            and (since is None or line.ts >= since)
            and (until is None or line.ts < until)
            and user_id in (None, line.user_id)
        )[:limit]

    async def info(self, *, health: bool = False) -> StoreInfo:
        """The secret is the same for the life of the store."""
        model = self._open().model
        return StoreInfo(
            "ram", 1, self._secret, "current", model, self._health() if health else None
        )

    def _health(self) -> Health:
        tables = self._open()
        jobs = sorted(tables.jobs.values(), key=lambda job: (job.due, job.job_id))
        failed = [job for job in jobs if job.state == "failed"]
        messages = [one for one in tables.rows.values() if isinstance(one.row, Message)]
        return Health(
            backend="ram",
            schema_version=1,
            messages=len(messages),
            notes=len(tables.rows) - len(messages),
            vectors=len(tables.vectors),
            pending_jobs=len(jobs) - len(failed),
            failed_jobs=len(failed),
            oldest_error=next((job.error for job in jobs if job.error), None),
        )

    async def census(self, largest: int) -> Census:
        """How much of each there is, and which users have the most."""
        tables = self._open()
        rows = [stored.row for stored in tables.rows.values()]
        said = Counter(row.user_id for row in rows if isinstance(row, Message))
        noted = Counter(row.user_id for row in rows if isinstance(row, Note))
        total = said + noted
        users = sorted(filter(None, total), key=lambda user: (-total[user], user))
        listed = tables.directory.listed
        return Census(
            agents=len(listed("agent", None)),
            users=len(listed("user", None)),
            sessions=len(listed("session", None)),
            notes=Counter(row.kind for row in rows if isinstance(row, Note)),
            entities=len(tables.graph.entities),
            relations=len(tables.graph.edges),
            largest=tuple(Holding(it, said[it], noted[it]) for it in users[:largest]),
        )

    async def count_types(
        self, notes: Sequence[str], entities: Sequence[str], relations: Sequence[str]
    ) -> Mapping[str, Mapping[str, int]]:
        """How many there are of each own type."""
        tables = self._open()
        rows = [stored.row for stored in tables.rows.values()]
        named: dict[str, list[object]] = {
            "notes": [it.metadata.get("memory_type") for it in rows if isinstance(it, Note)],
            "entities": [it.type for it in tables.graph.entities.values()],
            "relations": [it[2] for it in tables.graph.edges],
        }
        wanted = {"notes": notes, "entities": entities, "relations": relations}
        return {
            group: {name: named[group].count(name) for name in names}
            for group, names in wanted.items()
        }

    async def holdings(self, owners: Sequence[Scope]) -> list[Holding]:
        """How much each owner holds."""
        tables, holdings = self._open(), []
        for owner in owners:
            user_id = owner.user_id or ""

            def is_own(row: Row | Entry, user_id: str = user_id, owner: Scope = owner) -> bool:
                of_agent = owner.agent_id in (None, row.agent_id)
                return (row.user_id or "") == user_id and of_agent

            rows = [it.row for it in tables.rows.values() if is_own(it.row)]
            said = sum(isinstance(row, Message) for row in rows)
            sessions = sum(map(is_own, tables.directory.listed("session", None)))
            holdings.append(Holding(user_id, said, len(rows) - said, sessions))
        return holdings

    async def close(self) -> None:
        """Forget everything."""
        self._tables = None

    def _visible(self, where: Where) -> list[Row]:
        rows = [stored.row for stored in self._open().rows.values()]
        return [row for row in rows if self._sees(where, row)]

    def _visible_notes(self, where: Where) -> list[Note]:
        return [row for row in self._visible(where) if isinstance(row, Note)]

    def _lends(self, where: Where, row: Row) -> bool:
        return self._sees(context_scope(where), row)

    def _ranked(self, where: Where, mark: int) -> list[Stored]:
        """The rows, as of a mark, of the kinds asked for in each pair that the scope reaches."""
        rows = [stored for stored in self._open().rows.values() if stored.arrival <= mark]
        whole = Where(where.scope, kinds=MESSAGES | NOTES, withdrawn=True)
        pairs = {pair(stored.row) for stored in rows if self._sees(whole, stored.row)}
        if where.shared is not None:
            pairs.add((where.shared, ""))
        pairs = {owner for owner in pairs if self._open().directory.is_served(owner)}
        return [
            one
            for one in rows
            if pair(one.row) in pairs
            and one.row.kind in where.kinds
            and (where.withdrawn or not _is_withdrawn(one.row))
        ]

    def _embedded(self, model: Model) -> dict[Key, Direction]:
        vectors = self._open().vectors
        return {at: direction for at, (by, direction) in vectors.items() if by == model}


def _is_withdrawn(row: Row) -> bool:
    return isinstance(row, Message) and row.withdrawn


def _in_order(rows: list[Q], newest_first: bool) -> list[Q]:
    return sorted(rows, key=lambda row: row.position, reverse=newest_first)


def _page(rows: list[R], after: Position | None, newest_first: bool) -> list[R]:
    """Rows in time order, strictly beyond a place."""
    beyond = [row for row in rows if row.position.is_beyond(after, newest_first)]
    return _in_order(beyond, newest_first)
