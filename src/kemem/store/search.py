"""One search: rankings by words and by vectors over cached columns, the graph, and the rows."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, bindparam, select, union_all

from kemem.errors import InvalidArgument
from kemem.ports.request import Candidates, Key, Ranking, SearchRequest, SearchResponse, key_of
from kemem.records import NOTES, ROLES, Match, Rank, Relation, Row, Where
from kemem.store.database import Database, Space, in_list
from kemem.store.graph import around
from kemem.store.index import SpaceCache, SpaceSnapshot, load_names
from kemem.store.read import keyed, matching_ids, named
from kemem.store.rows import RowTable, Stored, messages, notes, one_of
from kemem.store.schema import message, note
from kemem.store.spaces import spaces_and_model, visible_spaces
from kemem.store.vectors import check_vectors
from kemem.store.words import rows_with
from kemem.text.query import Mask, Query
from kemem.text.rank import Conversation, Scores, context_scope, word_scores

_ROUNDING = 1e-6  # scores closer than this can be equal

Rows = NDArray[np.intp]  # places among the rows of all spaces


def search(
    connection: Connection, database: Database, cache: SpaceCache, request: SearchRequest
) -> SearchResponse:
    """Answer a request from one state of the database."""
    where, near = request.where, request.around
    if request.vectors is not None:
        if request.model is None:
            raise InvalidArgument("vectors need the model that made them", field="model")
        check_vectors(request.vectors, len(request.vectors), request.model.width)
    spaces, model_no = spaces_and_model(connection, where, request.model)
    ranked = _Ranked(connection, database, cache, request, spaces, model_no)
    words, vectors = ranked.rankings()
    relations: list[Relation] = []
    note_rows: dict[Key, int] = {}
    if near is not None:
        same = (near.where.scope, near.where.shared) == (where.scope, where.shared)
        reached = spaces if same else visible_spaces(connection, near.where)
        relations, note_rows = around(connection, near, reached)
    admitted = ranked.admitted_notes() if relations and request.keywords else None
    candidates = Candidates(words, vectors, tuple(relations), admitted)
    if request.select is None:
        return SearchResponse(candidates)
    selected = [key_of(match) for match in request.select(candidates)]
    numbers = {key: (notes, row) for key, row in note_rows.items()} | ranked.numbers
    return SearchResponse(candidates, _fetch(connection, where, spaces, selected, numbers))


def _fetch(
    connection: Connection,
    where: Where,
    spaces: Sequence[Space],
    keys: Sequence[Key],
    numbers: Mapping[Key, tuple[RowTable[Any], int]],
) -> dict[Key, Row]:
    """The visible rows of some keys; those whose numbers are not known are notes."""
    found: list[Stored[Any]] = []
    for table in (messages, notes):
        wanted = {numbers[key][1] for key in keys if key in numbers and numbers[key][0] is table}
        found += keyed(connection, table, sorted(wanted))
    if unknown := {key[-1] for key in keys if key not in numbers}:
        found += named(connection, notes, spaces, unknown)
    asked = {*keys}
    rows = {key_of(stored.row): stored.row for stored in found}
    return {key: row for key, row in rows.items() if key in asked and where.matches(row)}


class _Ranked:
    """The rankings of one request over the columns of its spaces."""

    def __init__(
        self,
        connection: Connection,
        database: Database,
        cache: SpaceCache,
        request: SearchRequest,
        spaces: Sequence[Space],
        model_no: int | None,
    ) -> None:
        self._connection = connection
        self._request = request
        self._where = request.where
        self.numbers: dict[Key, tuple[RowTable[Any], int]] = {}  # of the rows in rankings
        queries = (*request.queries, *filter(None, [request.keywords]))
        self._embeds = request.vectors is not None and model_no is not None
        if not queries and not self._embeds:
            spaces = ()
        self._mark = request.after.mark if request.after else _mark_of(spaces)
        model = None
        if self._embeds and model_no is not None and request.model is not None:
            model = (model_no, request.model.width)
        session_id = self._where.scope.session_id
        snapshots = [
            cache.snapshot(connection, each, session_id=session_id, model=model) for each in spaces
        ]
        self._views = views = _frozen(snapshots, self._mark)
        self._starts = np.cumsum([0, *(len(view.ids) for view in views)])
        self._times = _join([view.times for view in views], np.int64)
        phrases = tuple(dict.fromkeys(it for query in queries for it in query.phrases))
        self._counted = _join([view.counted(self._where.kinds) for view in views], np.bool_)
        self._masks = rows_with(
            connection,
            database,
            [(view.space, view.ids, view.postings) for view in views],
            phrases,
        )
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
        afters: list[Rank | None] = [None] * len(scored)
        if request.after is not None:
            afters[0] = self._current(*scored[0], request.after)
        heads = [self._head(*it, after) for it, after in zip(scored, afters, strict=True)]
        self._load_names(heads)
        matches = [
            self._matches(scores, head, after)
            for (scores, _), head, after in zip(scored, heads, afters, strict=True)
        ]
        words = tuple(
            Ranking(best, int(np.count_nonzero(matched)), self._mark)
            for best, (_, matched) in zip(matches[:by_words], scored, strict=False)
        )
        count = 0 if request.vectors is None else len(request.vectors)
        return words, tuple(matches[by_words:]) or ((),) * count

    def admitted_notes(self) -> frozenset[Key]:
        """The notes that the keywords admit."""
        kinds = _join([view.kinds for view in self._views], np.int8)
        rows = np.flatnonzero(self._visible & (kinds >= len(ROLES)))
        self._load_names([rows])
        return frozenset(self._keys(rows))

    def _by_words(self, query: Query) -> tuple[Scores, Mask]:
        lengths = _join([view.lengths for view in self._views], np.int64)
        talk = self._talk() if query.conversation else None
        scores = word_scores(query, self._masks, lengths, self._counted, talk)
        matched = query.evaluate(self._masks.__getitem__, self._counted)
        if talk:
            matched = matched | (scores > 0)
        return scores, matched & self._visible

    def _by_vector(self, vector: NDArray[np.float32]) -> tuple[Scores, Mask]:
        wanted = np.asarray(vector / np.linalg.norm(vector), np.float32)
        # Not "@": its threads wait for each other in a busy loop, which costs ten times the product
        # itself on a machine that has other work.
        products = [np.vecdot(view.vectors, wanted) for view in self._views]
        cosines = _join(products, np.float32)
        matched = self._visible & _join([view.embedded for view in self._views], np.bool_)
        near = _near_best(cosines, matched, self._request.limit)
        scores = np.zeros(len(cosines))
        scores[near] = np.round(np.clip(cosines[near].astype(np.float64), 0, 1), 6)
        return scores, near

    def _talk(self) -> Conversation:
        """The conversations that a Where lets a row borrow words from."""
        seen = self._seen(context_scope(self._where))
        talks = []
        for view, start in zip(self._views, self._starts, strict=False):
            talks.append(view.talk(seen[start : start + len(view.ids)]))
        return Conversation.join(talks, self._starts)

    def _seen(self, where: Where) -> Mask:
        """Rows that a Where admits, whatever their contents."""
        mask = _join([view.visible(where) for view in self._views], np.bool_)
        mask[self._hidden] = False
        return mask

    def _admissible(self) -> Mask:
        """Rows that the Where and the keywords admit."""
        self._hidden = self._places(_hidden_rows(self._connection, self._where, self._views))
        mask = self._seen(self._where)
        where, keywords = self._where, self._request.keywords
        if where.ids is not None:
            mask &= self._among(_row_ids(self._connection, where.ids, self._views))
        if keywords is not None:
            mask &= keywords.evaluate(self._masks.__getitem__, self._counted)
        unindexed = (where.filters, where.marks, where.sources, where.beyond)
        if any(condition is not None for condition in unindexed):
            mask = self._passing(mask)
        return mask

    def _passing(self, mask: Mask) -> Mask:
        """Of some rows those that conditions on their contents let pass."""
        spaces = [view.space for view in self._views]
        found, exact = matching_ids(self._connection, self._where, spaces)
        mask = mask & self._among(found)
        if exact:
            return mask
        ids = _join([view.ids for view in self._views], np.int64)
        numbers = [int(number) for number in ids[mask]]
        rows: list[Stored[Any]] = [*keyed(self._connection, messages, numbers)]
        rows += keyed(self._connection, notes, numbers)
        return mask & self._among([row.id for row in rows if self._where.matches(row.row)])

    def _among(self, ids: Sequence[int]) -> Mask:
        """Which rows have one of these ids."""
        mask = np.zeros(int(self._starts[-1]), np.bool_)
        mask[self._places(ids)] = True
        return mask

    def _places(self, ids: Sequence[int]) -> Rows:
        """Where rows of these ids stand; those that are not among the views are left out."""
        if not len(ids):
            return np.zeros(0, np.intp)
        wanted, found = np.sort(np.asarray(ids, np.int64)), []
        for view, start in zip(self._views, self._starts, strict=False):
            at = np.minimum(np.searchsorted(view.ids, wanted), len(view.ids) - 1)
            found.append(at[view.ids[at] == wanted] + start)
        return np.concatenate(found) if found else np.zeros(0, np.intp)

    def _head(self, scores: Scores, matched: Mask, after: Rank | None) -> Rows:
        """The first rows by score and time, with all that share the last one's place."""
        limit = self._request.limit
        if after is not None:
            level = (scores == after.score) & (self._times == after.ts)
            matched = matched & (
                (scores < after.score)
                | ((scores == after.score) & (self._times < after.ts))
                | level
            )
            limit += int((level & matched).sum())  # they may be left out later by their names
        rows = np.flatnonzero(matched)
        if len(rows) > limit:
            own = scores[rows]
            rows = rows[own >= np.partition(own, len(rows) - limit)[len(rows) - limit]]
        own, times = scores[rows], self._times[rows]
        order = np.lexsort((-times, -own))
        if len(order) > limit:
            last = order[limit - 1]
            level = (own[order] == own[last]) & (times[order] == times[last])
            order = order[: int(np.flatnonzero(level)[-1]) + 1]
        return rows[order]

    def _matches(self, scores: Scores, head: Rows, after: Rank | None) -> tuple[Match, ...]:
        """The head of a ranking in its final order: best score, then newest, then by name."""
        times, worths = self._times[head].tolist(), scores[head].tolist()
        found = [
            Match(*key, time, score)
            for key, time, score in zip(self._keys(head), times, worths, strict=True)
        ]
        found.sort(key=lambda it: (-it.score, -it.ts, it.id, it.agent_id, it.user_id))
        if after is not None:
            place = (-after.score, -after.ts, after.id)
            found = [row for row in found if (-row.score, -row.ts, row.id) > place]
        return tuple(found[: self._request.limit])

    def _current(self, scores: Scores, matched: Mask, after: Rank) -> Rank:
        """The place of a row in today's ranking; deletions may have changed its score."""
        found = _row_ids(self._connection, [after.id], self._views)
        for row in self._places(found):
            if matched[row]:
                return Rank(float(scores[row]), int(self._times[row]), after.id, after.mark)
        return after

    def _load_names(self, heads: Sequence[Rows]) -> None:
        rows = np.unique(np.concatenate([*heads, np.zeros(0, np.intp)]))
        borders = np.searchsorted(rows, self._starts)
        of_views = [
            rows[borders[at] : borders[at + 1]] - self._starts[at] for at in range(len(self._views))
        ]
        load_names(self._connection, self._views, of_views)

    def _keys(self, rows: Rows) -> list[Key]:
        """The keys of rows, whose numbers are noted for fetching them."""
        keys = []
        of_views = np.searchsorted(self._starts, rows, side="right") - 1
        places = rows - self._starts[of_views]
        for at, place in zip(of_views.tolist(), places.tolist(), strict=True):
            view = self._views[at]
            key = (view.space.agent_id, view.space.user_id, view.names[place])
            table: RowTable[Any] = notes if view.kinds[place] >= len(ROLES) else messages
            self.numbers[key] = (table, int(view.ids[place]))
            keys.append(key)
        return keys


def _near_best(cosines: NDArray[np.float32], matched: Mask, limit: int) -> Mask:
    """Rows that can be among the first `limit`; only they are rounded and put in order."""
    seen = cosines[matched]
    if len(seen) <= limit:
        return matched
    least = np.partition(seen, len(seen) - limit)[len(seen) - limit] - _ROUNDING
    # What is below 0 counts as 0: all tie.
    return matched & (cosines >= least) if least > 0 else matched


def _join(arrays: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    if len(arrays) == 1:
        return arrays[0].astype(dtype, copy=False)
    return np.concatenate(arrays).astype(dtype, copy=False) if arrays else np.zeros(0, dtype)


def _mark_of(spaces: Sequence[Space]) -> str:
    """The state that is being ranked: how far each space reaches."""
    return ",".join(f"{each.space_no}:{each.next_seq}" for each in spaces)


def _frozen(snapshots: Sequence[SpaceSnapshot], mark: str) -> list[SpaceSnapshot]:
    """The columns without what came after the mark; spaces without any rows are left out."""
    reach: dict[int, int] = {}
    for part in filter(None, mark.split(",")):
        space_no, next_seq = part.split(":")
        reach[int(space_no)] = int(next_seq)
    frozen = []
    for it in snapshots:
        end = np.searchsorted(it.ids, it.space.first_id + reach.get(it.space.space_no, 0))
        if end:
            frozen.append(it.upto(int(end)))
    return frozen


def _hidden_rows(
    connection: Connection, where: Where, views: Sequence[SpaceSnapshot]
) -> Sequence[int]:
    """Rows that the columns show and a Where does not: notes that had ended, or not begun, at the
    time that it asks for, and what is sensitive.
    """
    dated = bool(where.kinds & NOTES) and any(view.has_notes for view in views)
    ended, not_begun = where.valid_at is not None and dated, where.known_by is not None and dated
    if not views or not (ended or not_begun or not where.sensitive):
        return ()
    values = {
        "spaces": [view.space.space_no for view in views],
        "valid_at": where.valid_at,
        "known_by": where.known_by,
    }
    return connection.execute(_hidden(ended, not_begun, where.sensitive), values).scalars().all()


@cache
def _hidden(ended: bool, not_begun: bool, sensitive: bool) -> Any:
    reasons: list[ColumnElement[bool]] = []
    if ended:
        reasons += [
            end <= bindparam("valid_at") for end in (note.c.valid_until, note.c.expire_time)
        ]
    if not_begun:
        reasons.append(note.c.valid_from > bindparam("known_by"))
    # One statement for each reason, as each has an index of its own.
    rows = [(note, reason) for reason in reasons]
    if not sensitive:
        rows += [(table, table.c.sensitive) for table in (message, note)]
    return union_all(
        *(
            select(table.c.id).where(one_of(table.c.space_no, "spaces"), reason)
            for table, reason in rows
        )
    )


_ids_of_names = union_all(
    *(
        select(it.table.c.id).where(
            one_of(it.table.c.space_no, "spaces"), in_list(it.name, "names")
        )
        for it in (messages, notes)
    )
)


def _row_ids(
    connection: Connection, names: Iterable[str], views: Sequence[SpaceSnapshot]
) -> Sequence[int]:
    """The numbers of rows that callers know by these names."""
    values = {"spaces": [view.space.space_no for view in views], "names": sorted(names)}
    return connection.execute(_ids_of_names, values).scalars().all()
