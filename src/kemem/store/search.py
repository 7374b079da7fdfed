"""One search: rankings by words and by vectors over cached columns, the graph, and the rows."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain, islice
from operator import eq
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from kemem.errors import InvalidArgument
from kemem.ports.request import (
    Candidates,
    Context,
    Key,
    Ranking,
    SearchRequest,
    SearchResponse,
    key_of,
)
from kemem.records import (
    NOTES,
    ROLES,
    Line,
    Match,
    Matrix,
    Message,
    Micros,
    Note,
    Rank,
    Row,
    Vector,
    Where,
)
from kemem.store import codes, hnsw, tables
from kemem.store.codes import nearest
from kemem.store.columns import SpaceSnapshot
from kemem.store.database import Database, Space, Values, in_list
from kemem.store.endings import Numbers, ask_citing, endings, instead
from kemem.store.graph import Around, ask_around
from kemem.store.history import ask_lines
from kemem.store.index import SpaceCache
from kemem.store.postings import rows_with
from kemem.store.read import Answer, ask_keyed, ask_named, keyed, matching_ids
from kemem.store.recent import ask_recent
from kemem.store.schema import message, note
from kemem.store.spaces import served, spaces_and_model, visible_spaces
from kemem.store.tables import TABLES, Stored, one_of
from kemem.store.vectors import check_vectors
from kemem.text.continuation import Continuation
from kemem.text.conversation import Conversation
from kemem.text.query import Mask, Query
from kemem.text.rank import Scored, context_scope, likely_rows, word_scores

_ROUNDING = 1e-6  # scores closer than this can be equal
_IN_TIME = 20  # messages of the times that are asked for
_LIKELY = 4096  # rows of a large space that are scored by words,
_NEAREST = 500  # and by vectors
_USER = ROLES.index("user")

Rows = NDArray[np.intp]  # places among the rows of all spaces

# Of a row: its place, those of the messages right before it, and the numbers of these.
_Placed = tuple[int, list[int], list[int]]


def search(
    connection: sa.Connection, database: Database, cache: SpaceCache, request: SearchRequest
) -> SearchResponse:
    """Answer a request from one state of the database."""
    where, near = request.where, request.around
    if request.vectors is not None:
        if request.model is None:
            raise InvalidArgument("vectors need the model that made them", field="model")
        check_vectors(request.vectors, len(request.vectors), request.model.width)
    spaces, model_no = spaces_and_model(connection, where.scope, request.model, shared=where.shared)
    if request.queries or request.vectors is not None or request.times:  # not the graph alone
        spaces = served(connection, spaces, where.scope)
    ranked = _Ranked(connection, cache, request, spaces, model_no)
    graph: Callable[[], Around] | None = None
    if near is not None:
        same = (near.where.scope, near.where.shared) == (where.scope, where.shared)
        reached = spaces if same else visible_spaces(connection, near.where)
        if not same or request.after or ranked.may_have_notes:  # which state relations
            graph = ask_around(connection, near, reached)
    lines: Callable[[], list[Line]] = list
    if request.lines and where.scope.user_id:
        kind, most = request.lines
        lines = ask_lines(connection, kind, None, None, where.scope.user_id, most)
    ranked.look_up(database)
    words, vectors = ranked.rankings()
    relations, note_rows = graph() if graph else ([], {})
    admitted = ranked.admitted_notes() if relations and request.keywords else None
    in_time = ranked.in_time(request.times) if request.times else ()
    unembedded = request.vectors is not None and ranked.has_unembedded
    candidates = Candidates(
        words, vectors, tuple(relations), admitted, in_time, unembedded, ranked.visible
    )
    if request.select is None:
        return SearchResponse(candidates, lines=tuple(lines()))
    selected = [key_of(match) for match in request.select(candidates)]
    numbers = {key: (Note, row) for key, row in note_rows.items()} | ranked.numbers
    placed = ranked.before(selected, request.before) if request.before else {}
    said_before = {number for *_, numbers in placed.values() for number in numbers}
    answers = _ask_rows(connection, spaces, selected, numbers, ranked.ask_messages, said_before)
    cited = ask_citing(connection, spaces, selected, numbers) if ranked.may_have_notes else ()
    stored = [it for answer in answers for it in answer()]
    rows = _admitted(where, selected, stored)
    contexts = ranked.contexts(placed, rows, stored)
    at = where.valid_at if where.known_by is None else where.known_by
    for key, ending in endings(connection, spaces, rows, cited, at).items():
        contexts[key] = replace(contexts.get(key, Context()), **ending)
    rows |= instead(connection, where, spaces, contexts, rows)
    return SearchResponse(candidates, rows, contexts, tuple(lines()))


def _ask_rows(
    connection: sa.Connection,
    spaces: Sequence[Space],
    keys: Sequence[Key],
    numbers: Numbers,
    ask_messages: Callable[[set[int]], Answer[Message]],
    said_before: set[int],
) -> list[Answer[Any]]:
    """The rows of some keys; those without a number, found elsewhere, by their names. With them
    the messages `said_before`, by their numbers.
    """
    own = {numbers[key] for key in keys if key in numbers}
    of_notes = sorted(number for kind, number in own if kind is Note)
    answers: list[Answer[Any]] = [
        ask_messages(said_before.union(number for kind, number in own if kind is Message)),
        ask_keyed(connection, tables.notes, of_notes),
    ]
    if names := {key[-1] for key in keys if key not in numbers}:
        # Notes last: where a message has the same id, the graph means them.
        answers += [ask_named(connection, table, spaces, names) for table in TABLES]
    return answers


def _admitted(where: Where, keys: Sequence[Key], stored: Sequence[Stored[Any]]) -> dict[Key, Row]:
    """The rows of some keys that a Where admits."""
    selected, rows = {*keys}, ((key_of(it.row), it.row) for it in stored)
    return {key: row for key, row in rows if key in selected and where.matches(row)}


class _Ranked:
    """The rankings of one request over the columns of its spaces."""

    def __init__(
        self,
        connection: sa.Connection,
        cache: SpaceCache,
        request: SearchRequest,
        spaces: Sequence[Space],
        model_no: int | None,
    ) -> None:
        self._connection = connection
        self._cache = cache
        self._model_no = model_no or 0
        self._request = request
        self._where = request.where
        self.numbers: dict[Key, tuple[type[Row], int]] = {}  # of ranked rows, with their types
        self._keys: dict[int, Key] = {}  # of ranked rows
        self._talk: Conversation | None = None
        self._continuation: Continuation | None = None
        self._near: Scored | None = None  # by the first vector
        queries = (*request.queries, *filter(None, [request.keywords]))
        self._embeds = request.vectors is not None and model_no is not None
        if not queries and request.vectors is None:
            spaces = ()
        # The state that is being ranked: how far each space reaches.
        mark = ",".join(f"{each.space_no}:{each.next_seq}" for each in spaces)
        self._mark = request.after.mark if request.after else mark
        model = None
        if self._embeds and model_no is not None and request.model is not None:
            model = (model_no, request.model.width)
        self._views = views = self._load_views(cache, spaces, model)
        self._starts = np.cumsum([0, *(len(view.ids) for view in views)])
        self._times = _join([view.times for view in views], np.int64)
        self._phrases = tuple(dict.fromkeys(it for query in queries for it in query.phrases))
        self._counted = _join([view.of_kinds(self._where.kinds) for view in views], np.bool_)
        self._marked = _ask_hidden_and_ended(connection, self._where, views)

    def look_up(self, database: Database) -> None:
        """Which rows have the phrases, and which are visible."""
        self._masks = rows_with(self._connection, database, self._views, self._phrases)
        if not self._counted.all():
            for mask in self._masks.values():
                mask &= self._counted
        self._visible = self._admissible()

    def rankings(self) -> tuple[tuple[Ranking, ...], tuple[tuple[Match, ...], ...]]:
        """The best rows by each query and by each vector."""
        request = self._request
        scored = [self._by_words(query) for query in request.queries]
        by_words = len(scored)
        if request.vectors is not None and self._embeds:
            scored += [self._by_vector(vector) for vector in request.vectors]
            self._near = next(iter(scored[by_words:]), None)
        afters: list[Rank | None] = [None] * len(scored)
        if request.after is not None:
            afters[0] = self._current(scored[0], request.after)
        heads = [self._head(it, after) for it, after in zip(scored, afters, strict=True)]
        self._load_keys([head.rows for head in heads])
        matches = [self._matches(head, after) for head, after in zip(heads, afters, strict=True)]
        words = tuple(
            Ranking(best, it.total, self._mark)
            for best, it in zip(matches[:by_words], scored, strict=False)
        )
        count = 0 if request.vectors is None else len(request.vectors)
        return words, tuple(matches[by_words:]) or ((),) * count

    @property
    def may_have_notes(self) -> bool:
        """Whether there are notes in the spaces; True where their columns are not read."""
        return not self._views or any((view.kinds >= len(ROLES)).any() for view in self._views)

    @property
    def visible(self) -> int:
        """How many rows are visible."""
        return int(np.count_nonzero(self._visible))

    @property
    def has_unembedded(self) -> bool:
        """Whether visible rows have no vector of the model."""
        if not self._embeds:
            return bool(self._visible.any())
        return bool((self._visible & ~_join([it.embedded for it in self._views], np.bool_)).any())

    def in_time(self, times: Iterable[tuple[Micros, Micros]]) -> tuple[Match, ...]:
        """Messages said in some ranges of time, those nearest to the first vector first."""
        kinds = _join([view.kinds for view in self._views], np.int8)
        mask = np.zeros(len(self._times), np.bool_)
        for since, until in times:
            mask |= (self._times >= since) & (self._times < until)
        mask &= self._visible & (kinds < len(ROLES))
        scores = np.zeros(len(mask))
        if self._near is not None:
            scores[self._near.rows] = self._near.scores
        rows = np.flatnonzero(mask)
        head = self._head(Scored(rows, scores[rows], len(rows)), None)
        self._load_keys([head.rows])
        return self._matches(head, None)[:_IN_TIME]

    def before(self, keys: Sequence[Key], count: int) -> dict[Key, _Placed]:
        """The places of the rows among some keys, and what was said before them."""
        selected = {*keys}
        places = {key: row for row, key in self._keys.items() if key in selected}
        said: list[list[int]] = [[] for _ in places]
        if self._talk is not None:
            said = self._talk.before(np.array([*places.values()], np.intp), count)
        ids = _join([view.ids for view in self._views], np.int64)
        numbers = iter(ids[[*chain.from_iterable(said)]].tolist())
        return {
            key: (places[key], some, [*islice(numbers, len(some))])
            for key, some in zip(places, said, strict=True)
        }

    def contexts(
        self, placed: Mapping[Key, _Placed], rows: Mapping[Key, Row], stored: Iterable[Stored[Any]]
    ) -> dict[Key, Context]:
        """The vectors of rows, and what was said before them, as far as it is stored."""
        messages = {it.id: it.row for it in stored if isinstance(it.row, Message)}
        nearest = (before[0] for _, before, _ in placed.values() if before)
        vectors = self._vectors({*nearest, *(row for row, *_ in placed.values())})
        contexts = {}
        for key in placed.keys() & rows.keys():
            row, before, numbers = placed[key]
            said = tuple(messages[it] for it in numbers if it in messages)
            previous = vectors.get(before[0]) if before else None
            contexts[key] = Context(vectors.get(row), said, previous)
        return contexts

    def ask_messages(self, keys: Iterable[int]) -> Answer[Message]:
        """Messages by their numbers; those read lately are not asked for."""
        recent = {it.space.space_no: it.recent for it in self._views}
        return ask_recent(self._connection, keys, recent, self._ended)

    def _vectors(self, rows: Iterable[int]) -> dict[int, Vector]:
        """The vectors of those rows that have one."""
        ordered, vectors = np.array(sorted(rows), np.intp), dict[int, Vector]()
        borders = np.searchsorted(ordered, self._starts)
        for at, view in enumerate(self._views if self._embeds else ()):
            own = ordered[borders[at] : borders[at + 1]]
            own = own[view.embedded[own - self._starts[at]]]
            vectors |= zip(own.tolist(), self._read(view, own - self._starts[at]), strict=True)
        return vectors

    def _read(self, view: SpaceSnapshot, places: Rows) -> Matrix:
        """The vectors of rows that have one: of large spaces the database has them."""
        if not view.planes or not len(places):
            return view.vectors[places]
        return self._cache.read_vectors(self._connection, self._model_no, view.ids[places])

    def admitted_notes(self) -> frozenset[Key]:
        """The notes that the keywords admit."""
        kinds = _join([view.kinds for view in self._views], np.int8)
        rows = np.flatnonzero(self._visible & (kinds >= len(ROLES)))
        self._load_keys([rows])
        return frozenset(map(self._keys.__getitem__, rows.tolist()))

    def _load_views(
        self, cache: SpaceCache, spaces: Sequence[Space], model: tuple[int, int] | None
    ) -> list[SpaceSnapshot]:
        """The columns without what came after the mark; spaces without any rows are left out."""
        pairs = (part.split(":") for part in filter(None, self._mark.split(",")))
        reach = {int(space_no): int(next_seq) for space_no, next_seq in pairs}
        session_id = self._where.scope.session_id
        views = []
        for space in spaces:
            view = cache.snapshot(self._connection, space, session_id=session_id, model=model)
            end = np.searchsorted(view.ids, space.first_id + reach.get(space.space_no, 0))
            if end:
                views.append(view.upto(int(end)))
        return views

    def _by_words(self, query: Query) -> Scored:
        lengths = _join([view.lengths for view in self._views], np.int64)
        talk = None
        if query.conversation:  # those that the Where lets a row borrow words from
            seen = np.split(self._seen(context_scope(self._where)), self._starts[1:-1])
            talks = [view.talk(own) for view, own in zip(self._views, seen, strict=False)]
            talk = self._talk = Conversation.join(talks, self._starts)
            if (sent := self._request.continued_at) is not None:
                own = _join([view.kinds for view in self._views], np.int8) == _USER
                self._continuation = Continuation(talk, self._times, own, sent)
        matched = query.evaluate(self._masks.__getitem__, self._counted)
        among = None
        # Later pages are of all rows, and so is what a query without words finds.
        if len(lengths) > codes.EXACT and query.units and self._request.after is None:
            most = max(_LIKELY, self._request.limit)
            among = likely_rows(query, self._masks, lengths, self._visible, most, talk)
        scores = word_scores(query, self._masks, lengths, self._counted, talk, among)
        if among is None:
            matched = (matched | (scores > 0) if talk else matched) & self._visible
            rows = np.flatnonzero(matched)
            scores, total = scores[rows], len(rows)
        else:
            total = int(np.count_nonzero(matched & self._visible))
            own = matched[among] | (scores > 0) if talk else matched[among]
            rows, scores = among[own], scores[own]
        if going_on := self._continuation:
            scores = going_on.by_words(rows, scores) if query.units else going_on.by_time(rows)
        return Scored(rows, scores, total)

    def _by_vector(self, vector: Vector) -> Scored:
        unit = np.asarray(vector / np.linalg.norm(vector), np.float32)
        limit, parts = self._request.limit, [(np.zeros(0, np.intp), np.zeros(0, np.float32))]
        for view, start in zip(self._views, self._starts, strict=False):
            seen = self._visible[start : start + len(view.ids)] & view.embedded
            if view.planes:
                places = self._nearest(view, unit, seen)
                cosines = np.vecdot(self._read(view, places), unit)
            else:
                # Not "@": its threads wait for each other in a busy loop, which costs ten times the
                # product itself on a machine that has other work.
                cosines, places = np.vecdot(view.vectors, unit), np.flatnonzero(seen)
                cosines = cosines if len(places) == len(cosines) else cosines[places]
            parts.append((places + start, cosines))
        rows, cosines = (np.concatenate(column) for column in zip(*parts, strict=True))
        if self._continuation:
            all_rows = not any(view.planes for view in self._views)
            cosines = np.maximum(cosines, 0.0)
            cosines = self._continuation.by_meaning(rows, cosines, all_rows=all_rows)
        if len(rows) > limit:  # only rows that can be among the first are rounded and ordered
            least = np.partition(cosines, len(rows) - limit)[len(rows) - limit] - _ROUNDING
            if least > 0:  # what is below 0 counts as 0: all tie
                rows, cosines = rows[cosines >= least], cosines[cosines >= least]
        scores = np.round(np.clip(cosines.astype(np.float64), 0, 1), 6)
        return Scored(rows, scores, len(rows))

    def _nearest(self, view: SpaceSnapshot, unit: Vector, seen: Mask) -> Rows:
        """Rows of a large space among which the nearest are: by an index, if there is one, and by
        signs those that came after it was built.
        """
        limit, size = self._request.limit, len(view.ids)
        most = max(_NEAREST, 4 * limit)
        found = None
        if 2 * np.count_nonzero(seen) >= size:  # of fewer an index would find too many others
            ask = (self._connection, view.space, self._model_no, unit, 2 * limit)
            found = hnsw.nearest(*ask)
        if found is not None:
            last, keys = found
            places = np.minimum(np.searchsorted(view.ids, keys), size - 1)
            places = places[(view.ids[places] == keys) & seen[places]]
            if len(places) >= limit:
                end = int(np.searchsorted(view.ids, last, "right"))
                later = max(4 * limit, most * (size - end) // size)
                planes = [plane[end:] for plane in view.planes]
                return np.append(places, nearest(planes, unit, seen[end:], later) + end)
        return nearest(view.planes, unit, seen, most)

    def _seen(self, where: Where) -> Mask:
        """Rows that a Where admits, whatever their contents."""
        mask = _join([view.visible(where) for view in self._views], np.bool_)
        mask[self._hidden] = False
        return mask

    def _admissible(self) -> Mask:
        """Rows that the Where and the keywords admit."""
        marked = [*self._marked]
        self._hidden = self._places([number for number, hides in marked if hides])
        self._ended = {number for number, hides in marked if not hides}
        mask = self._seen(self._where)
        where, keywords = self._where, self._request.keywords
        if where.ids is not None:
            mask &= self._among(self._named(where.ids))
        if keywords is not None:
            mask &= keywords.evaluate(self._masks.__getitem__, self._counted)
        unindexed = (where.filters, where.marks, where.sources, where.beyond)
        if all(condition is None for condition in unindexed):
            return mask
        matching, exact = matching_ids(self._connection, where, [it.space for it in self._views])
        mask &= self._among(matching)
        if exact:
            return mask
        numbers = _join([view.ids for view in self._views], np.int64)[mask].tolist()
        rows = [row for table in TABLES for row in keyed(self._connection, table, numbers)]
        return mask & self._among([row.id for row in rows if where.matches(row.row)])

    def _named(self, names: Iterable[str]) -> Sequence[int]:
        """The ids of rows that callers know by these names."""
        values = {"spaces": [view.space.space_no for view in self._views], "names": sorted(names)}
        return self._connection.execute(_ids_of_names, values).scalars().all()

    def _among(self, ids: Sequence[int]) -> Mask:
        """Which rows have one of these ids."""
        mask = np.zeros(int(self._starts[-1]), np.bool_)
        mask[self._places(ids)] = True
        return mask

    def _places(self, ids: Sequence[int]) -> Rows:
        """Where rows of these ids stand; those that are not among the views are left out."""
        keys, places = np.sort(np.asarray(ids, np.int64)), [np.zeros(0, np.intp)]
        for view, start in zip(self._views, self._starts, strict=False):
            at = np.minimum(np.searchsorted(view.ids, keys), len(view.ids) - 1)
            places.append(at[view.ids[at] == keys] + start)
        return np.concatenate(places)

    def _head(self, scored: Scored, after: Rank | None) -> Scored:
        """The first rows by score and time, with all that share the last one's place."""
        (rows, scores, total), limit = scored, self._request.limit
        if after is not None:
            times = self._times[rows]
            level = (scores == after.score) & (times == after.ts)
            limit += int(level.sum())  # they may be left out later by their names
            beyond = (scores < after.score) | ((scores == after.score) & (times < after.ts)) | level
            rows, scores = rows[beyond], scores[beyond]
        if len(rows) > limit:
            first = scores >= np.partition(scores, len(rows) - limit)[len(rows) - limit]
            rows, scores = rows[first], scores[first]
        times = self._times[rows]
        order = np.lexsort((-times, -scores))
        if len(order) > limit:
            last = order[limit - 1]
            level = (scores[order] == scores[last]) & (times[order] == times[last])
            order = order[: int(np.flatnonzero(level)[-1]) + 1]
        return Scored(rows[order], scores[order], total)

    def _matches(self, head: Scored, after: Rank | None) -> tuple[Match, ...]:
        """The head of a ranking in its final order: best score, then newest, then by name."""
        keys = map(self._keys.__getitem__, head.rows.tolist())
        places = [*zip(head.scores.tolist(), self._times[head.rows].tolist(), strict=True)]
        pairs = zip(keys, places, strict=True)
        matches = [Match(*key, time, score) for key, (score, time) in pairs]
        if any(map(eq, places, places[1:])):  # the head is in order but for those that are level
            matches.sort(key=lambda it: (-it.score, -it.ts, it.id, it.agent_id, it.user_id))
        if after is not None:
            place = (-after.score, -after.ts, after.id)
            matches = [it for it in matches if (-it.score, -it.ts, it.id) > place]
        return tuple(matches[: self._request.limit])

    def _current(self, scored: Scored, after: Rank) -> Rank:
        """The place of a row in today's ranking; deletions may have changed its score."""
        for row in self._places(self._named([after.id])):
            for score in scored.scores[scored.rows == row].tolist():
                return Rank(score, int(self._times[row]), after.id, after.mark)
        return after

    def _load_keys(self, heads: Sequence[Rows]) -> None:
        """The keys of rows, and their numbers, by which they are fetched."""
        # Not np.unique(), whose first call imports a tenth of numpy more.
        rows = np.array(sorted({row for head in heads for row in head.tolist()}), np.intp)
        borders = np.searchsorted(rows, self._starts)
        for at, view in enumerate(self._views):
            own, space = rows[borders[at] : borders[at + 1]], view.space
            place = own - self._starts[at]
            keys = [(space.agent_id, space.user_id, it) for it in view.names(place)]
            types = [Note if it >= len(ROLES) else Message for it in view.kinds[place].tolist()]
            numbers = zip(types, view.ids[place].tolist(), strict=True)
            self._keys.update(zip(own.tolist(), keys, strict=True))
            self.numbers.update(zip(keys, numbers, strict=True))


def _join(arrays: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    if len(arrays) == 1:
        return arrays[0].astype(dtype, copy=False)
    return np.concatenate(arrays).astype(dtype, copy=False) if arrays else np.zeros(0, dtype)


def _ask_hidden_and_ended(
    connection: sa.Connection, where: Where, views: Sequence[SpaceSnapshot]
) -> Iterable[Any]:
    """Rows that the columns show and a Where does not: what had ended, or not begun, at the time
    that it asks for, and what is sensitive. And messages in whose place their sessions went on,
    unless they are hidden for that.
    """
    if not views:
        return ()
    dated = bool(where.kinds & NOTES) and any((view.kinds >= len(ROLES)).any() for view in views)
    not_begun = where.known_by is not None and dated
    ends: tuple[sa.Column[Any], ...] = ()
    if where.valid_at is not None:  # messages are context, too, where only notes are asked for
        ends = (message.c.valid_until, *((note.c.valid_until, note.c.expire_time) if dated else ()))
    later = where.valid_at is not None and where.known_by is None  # only those that end later
    values: Values = {"valid_at": where.valid_at, "known_by": where.known_by}
    values |= {"spaces": [view.space.space_no for view in views]}
    return connection.execute(_hidden_and_ended(ends, not_begun, where.sensitive, later), values)


@cache
def _hidden_and_ended(
    ends: Sequence[sa.Column[Any]], not_begun: bool, sensitive: bool, later: bool
) -> Any:
    """The ids of rows, each with 1 where it is hidden and 0 where it has ended."""
    # One statement for each reason, as each has an index of its own.
    at: sa.BindParameter[int] = sa.bindparam("valid_at")
    until = message.c.valid_until
    hidden: list[tuple[sa.FromClause, sa.ColumnElement[bool]]]
    hidden = [(end.table, end <= at) for end in ends]
    if not_begun:
        hidden.append((note, note.c.valid_from > sa.bindparam("known_by")))
    if not sensitive:
        hidden += [(rows.table, rows.table.c.sensitive) for rows in TABLES]
    reasons = [(*it, "1") for it in hidden]
    reasons.append((message, until > at if later else until.is_not(None), "0"))
    return sa.union_all(
        *(
            sa.select(table.c.id, sa.literal_column(hides, sa.Integer)).where(
                one_of(table.c.space_no, "spaces"), reason
            )
            for table, reason, hides in reasons
        )
    )


_ids_of_names = sa.union_all(
    *(
        sa.select(it.table.c.id).where(
            one_of(it.table.c.space_no, "spaces"), in_list(it.name, "names")
        )
        for it in TABLES
    )
)
