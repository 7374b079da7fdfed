"""Similarities of different embedders: on one scale, and in one list while the embedder changes."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

import numpy as np

from kemem.errors import Unavailable
from kemem.ports import Deps
from kemem.ports.request import SearchRequest, key_of
from kemem.records import Match, Model

Nearest = tuple[tuple[Match, ...], ...]  # for each text

# By these a model tells how similar it finds texts that have nothing to do with each other.
_UNRELATED = (
    "今天股市下跌了百分之三",
    "The kettle is on the stove",
    "他小时候在海边捡贝壳",
    "Her violin needs new strings",
    "请把第二章的脚注删掉",
    "Trains to the airport leave at noon",
)
_levels: dict[Model, float] = {}
_REST = 0.01  # of a similarity, at least
_ALIKE = 0.3  # from this level on, similarities have to be moved
_LOCAL_LEVEL = 0.060  # of the local model, for whose similarities scores were measured

log = logging.getLogger("kemem")


async def nearest_before(texts: Sequence[str], within: SearchRequest, deps: Deps) -> Nearest:
    """For each text the rows whose vectors are of the embedder before; nothing once all are new.

    To be asked before the rows with new vectors are: one that changes in between is in both lists,
    and none is missed. Similarities are moved to where the embedder in use has its own.
    """
    if deps.previous is None or deps.vectors is not None or deps.model in deps.settled:
        return ()
    before = replace(deps, embedder=deps.previous, previous=None)
    is_recorded = (await deps.store.info()).model == before.model
    if not is_recorded and not await deps.store.jobs(1, kinds=("reembed",)):
        if deps.model is not None:
            deps.settled.add(deps.model)
        return ()
    try:
        vectors = await before.embed(texts, purpose="query")
        old = await _level(before)
        response = await deps.store.search(replace(within, vectors=vectors, model=before.model))
    except Unavailable as error:
        log.warning("%s; old vectors are left out", error.message)
        return ()
    try:
        new = await _level(deps)
    except Unavailable:  # then there is nothing to compare them with
        new = old
    return scaled(response.candidates.vectors, (1 - new) / (1 - old))


async def scale(deps: Deps) -> float:
    """By how much more a lack of similarity counts, so that unrelated texts score as they should.

    1.0 for a model that finds them hardly more alike than the local one does.
    """
    try:
        level = await _level(deps)
    except Unavailable:  # then similarities are taken as they are
        return 1.0
    return (1 - _LOCAL_LEVEL) / (1 - level) if level > _ALIKE else 1.0


def scaled(nearest: Nearest, slope: float) -> Nearest:
    """Rows with their similarities on the scale of the local model."""
    return nearest if slope == 1.0 else tuple(_scaled(matches, slope) for matches in nearest)


def _scaled(matches: Sequence[Match], slope: float) -> tuple[Match, ...]:
    # None that was listed is lost: whatever has some similarity keeps a little.
    moved = ((it, max(1 - slope * (1 - it.score), _REST * it.score)) for it in matches)
    return tuple(it._replace(score=_rounded(score)) for it, score in moved)


def join(new: Nearest, old: Nearest) -> Nearest:
    """Both lists of each text as one, best first, without what is in both."""
    return tuple(_join(*it) for it in zip_longest(new, old, fillvalue=())) if old else new


def _join(new: Sequence[Match], old: Sequence[Match]) -> tuple[Match, ...]:
    known = {key_of(match) for match in new}
    rest = (match for match in old if key_of(match) not in known)
    return tuple(sorted([*new, *rest], key=lambda it: (-it.score, -it.ts, it.id)))


async def _level(deps: Deps) -> float:
    """How similar an embedder finds unrelated texts, 0-0.95: some put all above 0.7."""
    model = deps.model
    if model is None or model not in _levels:
        matrix = await deps.embed(_UNRELATED, purpose="passage")
        units = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
        cosines = np.vecdot(units[:, None, :], units[None, :, :])
        others = cosines[~np.eye(len(units), dtype=bool)]
        model = Model(deps.embedder.name if deps.embedder else "", matrix.shape[1])
        _levels[model] = min(max(float(others.mean()), 0.0), 0.95)
    return _levels[model]


def _rounded(score: float) -> float:
    return round(min(max(score, 0.0), 1.0), 6)
