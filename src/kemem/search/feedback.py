"""Last but one stage of search: what a user thought of hits for questions like this one.

A hit that was voted down sinks and one that was voted up rises; none is hidden. How far depends on
how alike the questions are, by their words and vectors, and on how long ago the vote was.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kemem.ports.request import SearchRequest
from kemem.records import Line, Micros, Model, Note, Vector
from kemem.records.feedback import Feedback
from kemem.results import Hit
from kemem.text.reading import read

KIND = "feedback"  # of lines in the journal
VOTES = (KIND, 500)  # what a search reads of the journal: the newest votes of its user
_MOST = 0.5  # of the way down to 0, or up to 1, that votes move a score at most
_HALF_LIFE: Micros = 90 * 86_400_000_000  # after which a vote counts half
# Questions are alike from the first value on, and the same from the second.
_WORDS = (0.34, 0.75)  # the share of words in common
_ANGLES = (0.6, 0.9)  # the cosine of their vectors


def by_votes(
    hits: Sequence[Hit],
    lines: Sequence[Line],
    text: str,
    request: SearchRequest,
    now: Micros,
    most: int,
) -> list[Hit]:
    """The first `most` hits of a search for a text, in the order that votes give them."""
    if not lines:
        return [*hits[:most]]
    votes = [Feedback.of(it) for it in lines]
    vector = None if request.vectors is None else request.vectors[0]
    return reorder(hits, weigh(votes, text, vector, request.model, now), most)


def weigh(
    votes: Sequence[Feedback], text: str, vector: Vector | None, model: Model | None, now: Micros
) -> dict[str, float]:
    """What votes say of memories for a question, -1 to 1, by the ids of the memories."""
    words, weights = read(text).words, dict[str, float]()
    for vote in votes:
        if like := _likeness(vote, words, vector, model):
            age = max(now - vote.created, 0) / _HALF_LIFE
            weight = like * math.pow(0.5, age) * (1 if vote.vote == "up" else -1)
            weights[vote.memory_id] = weights.get(vote.memory_id, 0.0) + weight
    return {name: min(max(weight, -1.0), 1.0) for name, weight in weights.items()}


def _likeness(
    vote: Feedback, words: frozenset[str], vector: Vector | None, model: Model | None
) -> float:
    """How alike the question of a vote and another one are, 0-1."""
    own = read(vote.query).words
    alike = _scaled(len(own & words) / max(len(own | words), 1), _WORDS)
    if vector is not None and vote.vector is not None and vote.model == model:
        norms = float(np.linalg.norm(vector) * np.linalg.norm(vote.vector)) or 1.0
        alike = max(alike, _scaled(float(vector @ vote.vector) / norms, _ANGLES))
    return alike


def _scaled(value: float, limits: tuple[float, float]) -> float:
    least, most = limits
    return min(max((value - least) / (most - least), 0.0), 1.0)


def reorder(hits: Sequence[Hit], weights: dict[str, float], most: int) -> list[Hit]:
    """The first `most` hits after votes; a vote against one of them moves it to the end at most."""
    if not weights:
        return [*hits[:most]]
    voted = [_voted(hit, weights) for hit in hits]
    ranked = sorted(voted, key=lambda hit: -hit.score)
    best = ranked[:most]
    shown = {hit.id for hit in best}
    kept = [it for it in voted[:most] if it.id not in shown and _weight(it, weights) < 0]
    return [*best[: len(best) - len(kept)], *kept]


def _weight(hit: Hit, weights: dict[str, float]) -> float:
    """What votes say of a hit; a vote on a message counts for the notes drawn from it alone."""
    if hit.id in weights or not isinstance(hit.row, Note) or len(hit.sources) != 1:
        return weights.get(hit.id, 0.0)
    return weights.get(hit.sources[0], 0.0)


def _voted(hit: Hit, weights: dict[str, float]) -> Hit:
    if not (weight := _weight(hit, weights)):
        return hit
    room = 1 - hit.score if weight > 0 else hit.score
    score = round(hit.score + _MOST * weight * room, 6)
    said = f"feedback: {'up' if weight > 0 else 'down'} {abs(weight):.2f}"
    return replace(hit, score=score, why=(*hit.why, said))
