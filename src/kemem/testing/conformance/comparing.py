"""Comparing what two stores show, up to what is left open to them.

Left open: the order of one id in two users' hands, numbers after drops, the last digits of a score.
"""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from kemem.errors import Conflict, InvalidArgument
from kemem.ports import Store
from kemem.testing.conformance.suite import EVERYTHING
from kemem.testing.world import MODELS, vector
from kemem.text.query import Query
from kemem.types import Applied, Batch, Match, Message, Model, Where

QUESTION = vector((0.7, 0.5, 0.4, 0.3))  # another angle to each direction of the small world
HALF_PRECISION = 2e-3  # what a store may lose by keeping vectors as float16
WORD_PRECISION = 1e-6


def names(message: Message) -> tuple[str, str, str]:
    """What makes a message unique."""
    return (message.agent_id, message.user_id, message.message_id)


def unnumbered(messages: Iterable[Message]) -> list[Message]:
    """Messages without their sequence numbers, in an order of ours."""
    return sorted((replace(one, sequence_no=0) for one in messages), key=names)


def same_messages(seen: list[Message], wanted: list[Message]) -> None:
    """Check that two lists have the same messages in the same order."""
    places = [(one.ts, one.message_id) for one in wanted]
    assert [(one.ts, one.message_id) for one in seen] == places
    assert unnumbered(seen) == unnumbered(wanted)


def same_matches(found: Iterable[Match], wanted: Iterable[Match], precision: float) -> None:
    """Check that two rankings have the same messages, order and scores."""
    found, wanted = list(found), list(wanted)
    assert [replace(match, score=0) for match in found] == [
        replace(match, score=0) for match in wanted
    ]
    scores = [match.score for match in wanted]
    assert [match.score for match in found] == pytest.approx(scores, abs=precision, rel=0)


async def same_search(store: Store, reference: Store, where: Where, query: Query) -> None:
    """Check that two stores rank alike by words."""
    found = await store.search(where, query, limit=EVERYTHING)
    wanted = await reference.search(where, query, limit=EVERYTHING)
    same_matches(found.matches, wanted.matches, WORD_PRECISION)
    assert found.total == wanted.total


async def same_nearest(store: Store, reference: Store, where: Where, model: Model) -> None:
    """Check that two stores rank alike by vectors."""
    hits = await store.nearest(where, QUESTION, model, EVERYTHING)
    wanted = await reference.nearest(where, QUESTION, model, EVERYTHING)
    same_matches(hits, wanted, HALF_PRECISION)


async def same_contents(store: Store, reference: Store, queries: list[Query]) -> None:
    """Check that two stores show the same in every way they can be asked."""
    scopes = await reference.scopes()
    assert await store.scopes() == scopes
    assert await store.jobs() == await reference.jobs()
    got, wanted = await store.health(), await reference.health()
    assert (got.messages, got.vectors) == (wanted.messages, wanted.vectors)
    assert (got.pending_jobs, got.failed_jobs) == (wanted.pending_jobs, wanted.failed_jobs)
    for where in map(Where, scopes):
        same_messages(await store.scan(where), await reference.scan(where))
        for query in queries:
            await same_search(store, reference, where, query)
        for model in MODELS:
            await same_nearest(store, reference, where, model)


async def outcome(store: Store, batch: Batch) -> Applied | None:
    """What a batch changed, in a form that compares; None when it was refused."""
    try:
        applied = await store.apply(batch)
    except (Conflict, InvalidArgument):
        return None
    ignored = tuple(sorted(set(applied.ignored)))
    return replace(applied, inserted=tuple(unnumbered(applied.inserted)), ignored=ignored)
