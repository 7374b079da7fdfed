"""Search by words and by meaning, over the columns of the scope's spaces."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from kemem.records import ROLES, Found, Match, Model, Rank, Vector, Where
from kemem.store.columns import Columns, View, unit_rows
from kemem.store.database import Database, Space
from kemem.store.notes import hidden_rows, named_notes, spaces_of
from kemem.store.scan import Stored, named
from kemem.store.vectors import check_vectors, model_number
from kemem.store.words import rows_with
from kemem.text.conversation import Conversation, context_scope
from kemem.text.query import Mask, Query
from kemem.text.rank import Scores, word_scores

_ROUNDING = 1e-6  # scores closer than this can be equal


def search(
    connection: Connection,
    database: Database,
    columns: Columns,
    where: Where,
    query: Query,
    limit: int,
    after: Rank | None,
) -> Found:
    """The best matches by words, ranked by the statistics of these spaces alone."""
    spaces = spaces_of(connection, where)
    mark = after.mark if after else _mark(spaces)
    views = _frozen(_views(connection, columns, spaces, where, None), mark)
    counted = _join([view.counted(where.kinds) for view in views], np.bool_)
    masks = [rows_with(connection, database, view.space, view.ids, query.phrases) for view in views]
    together = {
        phrase: _join([mask[phrase] for mask in masks], np.bool_) & counted
        for phrase in query.phrases
    }
    lengths = _join([view.lengths for view in views], np.int64)
    talk = _talk(connection, views, where) if query.conversation else None
    scores = word_scores(query, together, lengths, counted, talk)
    matched = query.evaluate(together.__getitem__, counted)
    if talk:
        matched |= scores > 0
    matched &= _visible(connection, views, where)
    matched = _passing(connection, views, matched, where)
    ranking = _Ranking(views, scores, matched)
    return Found(tuple(ranking.best(limit, after)), int(matched.sum()), mark)


def nearest(
    connection: Connection, columns: Columns, where: Where, vector: Vector, model: Model, limit: int
) -> list[Match]:
    """The most similar rows among those embedded by the model."""
    check_vectors(np.reshape(vector, (1, -1)), 1, model.width)
    number = connection.execute(
        model_number, {"of_name": model.name, "of_width": model.width}
    ).scalar()
    if number is None:
        return []
    spaces = spaces_of(connection, where)
    views = _views(connection, columns, spaces, where, (number, model.width))
    asked = unit_rows(np.asarray(vector, np.float32))
    # Not "@": its threads wait for each other in a busy loop, which costs ten times the product
    # itself on a machine that has other work.
    cosines = _join([np.einsum("ij,j->i", view.vectors, asked) for view in views], np.float32)
    matched = _visible(connection, views, where)
    matched &= _join([view.embedded for view in views], np.bool_)
    matched = _passing(connection, views, matched, where)
    matched &= _near_best(cosines, matched, limit)
    scores = np.zeros(len(cosines))
    scores[matched] = np.round(np.clip(cosines[matched].astype(np.float64), 0, 1), 6)
    return _Ranking(views, scores, matched).best(limit)


def _talk(connection: Connection, views: Sequence[View], where: Where) -> Conversation:
    """The conversations that a Where lets a row borrow words from."""
    seen = _visible(connection, views, context_scope(where))
    if len(views) == 1 and seen.sum() == (views[0].sorts < len(ROLES)).sum():
        return views[0].talk
    sessions, known = [], 0
    for view in views:
        sessions.append(view.sessions.astype(np.int64) + known)
        known += int(view.sessions.max(initial=-1)) + 1
    return Conversation.of(
        _join(sessions, np.int64),
        _join([view.times for view in views], np.int64),
        _join([view.sorts for view in views], np.int8),
        _join([view.asks for view in views], np.bool_),
        seen,
    )


def _near_best(cosines: NDArray[np.float32], matched: Mask, limit: int) -> Mask:
    """Rows that can be among the first `limit`; only they are rounded and put in order."""
    seen = cosines[matched]
    if len(seen) <= limit:
        return matched
    least = np.partition(seen, len(seen) - limit)[len(seen) - limit] - _ROUNDING
    return cosines >= least if least > 0 else matched  # what is below 0 counts as 0: all tie


def _views(
    connection: Connection,
    columns: Columns,
    spaces: Sequence[Space],
    where: Where,
    model: tuple[int, int] | None,
) -> list[View]:
    session_id = where.scope.session_id
    return [columns.view(connection, each, session_id=session_id, model=model) for each in spaces]


def _join(arrays: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    if len(arrays) == 1:
        return arrays[0].astype(dtype, copy=False)
    return np.concatenate(arrays).astype(dtype) if arrays else np.zeros(0, dtype)


def _mark(spaces: Sequence[Space]) -> str:
    """The state that is being ranked: how far each space reaches."""
    return ",".join(f"{each.space_no}:{each.next_seq}" for each in spaces)


def _frozen(views: Sequence[View], mark: str) -> list[View]:
    """The columns without what came after the mark."""
    reach: dict[int, int] = {}
    for part in filter(None, mark.split(",")):
        space_no, next_seq = part.split(":")
        reach[int(space_no)] = int(next_seq)
    frozen = []
    for view in views:
        end = np.searchsorted(view.ids, view.space.first_id + reach.get(view.space.space_no, 0))
        if end:
            frozen.append(view.upto(int(end)))
    return frozen


def _visible(connection: Connection, views: Sequence[View], where: Where) -> Mask:
    masks = []
    for view in views:
        mask = view.visible(where)
        hidden = hidden_rows(connection, where, view.space)
        if hidden:
            mask &= ~np.isin(view.ids, hidden)
        masks.append(mask)
    return _join(masks, np.bool_)


def _passing(connection: Connection, views: Sequence[View], matched: Mask, where: Where) -> Mask:
    """Of the rows that match, those that conditions on their contents let pass."""
    if where.filters is None and where.marks is None and where.sources is None:
        return matched
    start, masks = 0, []
    for view in views:
        mask = matched[start : start + len(view.ids)].copy()
        start += len(view.ids)
        names = [view.names[at] for at in np.flatnonzero(mask)]
        rows: list[Stored[Any]] = list(named(connection, [view.space], names))
        rows += named_notes(connection, view.space, names)
        passed = [row.id for row in rows if where.matches(row.row)]
        masks.append(mask & np.isin(view.ids, passed))
    return _join(masks, np.bool_)


class _Ranking:
    """Matched rows in order: best score, then newest, then by id."""

    def __init__(self, views: Sequence[View], scores: Scores, matched: Mask) -> None:
        self._views = views
        self._starts = np.cumsum([0, *(len(view.ids) for view in views)])
        self._times = _join([view.times for view in views], np.int64)
        self._scores = scores
        self._matched = matched

    def best(self, limit: int, after: Rank | None = None) -> list[Match]:
        """The first `limit` rows beyond `after`."""
        matched = self._matched
        if after is not None:
            after = self._current(after)
            matched = matched & (
                (self._scores < after.score)
                | ((self._scores == after.score) & (self._times <= after.ts))
            )
        found = self._matches(self._head(np.flatnonzero(matched), limit, after))
        found.sort(key=lambda it: (-it.score, -it.ts, it.id, it.agent_id, it.user_id))
        if after is not None:
            place = (-after.score, -after.ts, after.id)
            found = [row for row in found if (-row.score, -row.ts, row.id) > place]
        return found[:limit]

    def _matches(self, rows: NDArray[np.intp]) -> list[Match]:
        numbers = np.searchsorted(self._starts, rows, side="right") - 1
        owners = [(view.space.agent_id, view.space.user_id, view.names) for view in self._views]
        columns = (numbers, rows - self._starts[numbers], self._times[rows], self._scores[rows])
        return [
            Match(agent_id, user_id, names[place], time, score)
            for number, place, time, score in zip(*(it.tolist() for it in columns), strict=True)
            for agent_id, user_id, names in (owners[number],)
        ]

    def _current(self, after: Rank) -> Rank:
        """The place of a row in today's ranking; deletions may have changed its score."""
        for start, view in zip(self._starts, self._views, strict=False):
            with suppress(ValueError):
                row = int(start) + view.names.index(after.id, 0, len(view.ids))
                if self._matched[row]:
                    place = float(self._scores[row]), int(self._times[row])
                    return Rank(*place, after.id, after.mark)
        return after

    def _head(self, rows: NDArray[np.intp], limit: int, after: Rank | None) -> NDArray[np.intp]:
        """The first rows by score and time, with all that share the last one's place."""
        wanted = limit
        if after:  # rows on a level with it may be left out later by their ids
            level = (self._scores[rows] == after.score) & (self._times[rows] == after.ts)
            wanted += int(level.sum())
        if len(rows) > wanted:
            scores = self._scores[rows]
            least = np.partition(scores, len(rows) - wanted)[len(rows) - wanted]
            rows = rows[scores >= least]
        scores, times = self._scores[rows], self._times[rows]
        order = np.lexsort((-times, -scores))
        if len(order) > wanted:
            last = order[wanted - 1]
            level = (scores[order] == scores[last]) & (times[order] == times[last])
            order = order[: int(np.flatnonzero(level)[-1]) + 1]
        return rows[order]
