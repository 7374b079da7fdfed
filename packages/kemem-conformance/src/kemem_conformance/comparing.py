"""Comparing what two stores show, up to what is left open to them.

Left open: the order of one id in two users' hands, numbers after drops, the last digits of a score.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from kemem.errors import Conflict, InvalidArgument
from kemem.ports import Store, read_health, read_messages, read_notes, read_owners
from kemem.records import Entry, Match, Message, Model, Note, Row, Scope, Where
from kemem.records.batch import Applied, Batch
from kemem.text.query import Query
from kemem_conformance.note_world import ALL_KINDS, NOTE_USERS
from kemem_conformance.suite import EVERYTHING, around, nearest, ranking
from kemem_conformance.world import AGENTS, MODELS, vector

QUESTION = vector((0.7, 0.5, 0.4, 0.3))  # another angle to each direction of the small world
HALF_PRECISION = 2e-3  # what a store may lose by keeping vectors as float16
WORD_PRECISION = 1e-6


def names(row: Message | Note) -> tuple[str, str, str]:
    """What makes a message or a note unique."""
    return (row.agent_id, row.user_id, row.id)


def unnumbered(messages: Iterable[Message]) -> list[Message]:
    """Messages without their sequence numbers, in an order of ours."""
    return sorted((replace(one, sequence_no=0) for one in messages), key=names)


def same_order(seen: Sequence[Row], wanted: Sequence[Row]) -> None:
    """Check that two lists have the same rows in the same order.

    Equal times go by arrival. A store may order those of several owners as it likes, as long as
    the order is one: by the arrivals that it assigned.
    """
    assert [one.ts for one in seen] == [one.ts for one in wanted]
    of_owner = [sorted(rows, key=lambda one: names(one)[:2]) for rows in (seen, wanted)]
    assert [(one.ts, *names(one)) for one in of_owner[0]] == [
        (one.ts, *names(one)) for one in of_owner[1]
    ]
    places = [one.position for one in seen]
    assert places in (sorted(set(places)), sorted(set(places), reverse=True))


def same_notes(seen: list[Note], wanted: list[Note]) -> None:
    """Check that two lists have the same notes in the same order."""
    same_order(seen, wanted)
    assert sorted(seen, key=names) == sorted(wanted, key=names)


def same_messages(seen: list[Message], wanted: list[Message]) -> None:
    """Check that two lists have the same messages in the same order."""
    same_order(seen, wanted)
    assert unnumbered(seen) == unnumbered(wanted)


def same_matches(found: Iterable[Match], wanted: Iterable[Match], precision: float) -> None:
    """Check that two rankings have the same messages, order and scores."""
    found, wanted = list(found), list(wanted)
    assert [match._replace(score=0) for match in found] == [
        match._replace(score=0) for match in wanted
    ]
    scores = [match.score for match in wanted]
    assert [match.score for match in found] == pytest.approx(scores, abs=precision, rel=0)


async def same_search(store: Store, reference: Store, where: Where, query: Query) -> None:
    """Check that two stores rank alike by words."""
    found = await ranking(store, where, query, limit=EVERYTHING)
    wanted = await ranking(reference, where, query, limit=EVERYTHING)
    same_matches(found.matches, wanted.matches, WORD_PRECISION)
    assert found.total == wanted.total


async def same_nearest(store: Store, reference: Store, where: Where, model: Model) -> None:
    """Check that two stores rank alike by vectors."""
    hits = await nearest(store, where, QUESTION, model, EVERYTHING)
    wanted = await nearest(reference, where, QUESTION, model, EVERYTHING)
    same_matches(hits, wanted, HALF_PRECISION)


async def same_contents(store: Store, reference: Store, queries: list[Query]) -> None:
    """Check that two stores show the same in every way they can be asked."""
    scopes = await read_owners(reference)
    assert await read_owners(store) == scopes
    assert await store.jobs() == await reference.jobs()
    got, wanted = await read_health(store), await read_health(reference)
    assert replace(got, backend="", schema_version=0, oldest_error=None) == replace(
        wanted, backend="", schema_version=0, oldest_error=None
    )
    for where in (Where(scope, kinds=ALL_KINDS) for scope in scopes):
        same_messages(await read_messages(store, where), await read_messages(reference, where))
        same_notes(await read_notes(store, where), await read_notes(reference, where))
        assert await around(store, where, ()) == await around(reference, where, ())
        for query in queries:
            await same_search(store, reference, where, query)
        for model in MODELS:
            await same_nearest(store, reference, where, model)


async def same_records(store: Store, reference: Store) -> None:
    """Check that two stores agree about sessions, their states, and what became of notes."""
    for scope in map(Scope, AGENTS):
        seen = await store.history(scope, limit=EVERYTHING)
        wanted = await reference.history(scope, limit=EVERYTHING)
        assert [line.at for line in seen] == [line.at for line in wanted]
        assert sorted(seen, key=repr) == sorted(wanted, key=repr)
        for pair in (Scope(scope.agent_id, user_id) for user_id in NOTE_USERS):
            saved = await store.checkpoints(pair, limit=EVERYTHING)
            assert saved == await reference.checkpoints(pair, limit=EVERYTHING)
        sessions = [await each.directory("session", scope) for each in (store, reference)]
        assert list(map(untimed, sessions[0])) == list(map(untimed, sessions[1]))
        for level in ("agent", "user"):  # these outlive what was erased
            kept = {entry.id for entry in await reference.directory(level, scope)}
            assert kept <= {entry.id for entry in await store.directory(level, scope)}


def untimed(entry: Entry) -> Entry:
    """An entry without the times of a batch, of which a store may take any."""
    return replace(entry, created=0, updated=0)


async def outcome(store: Store, batch: Batch) -> Applied | None:
    """What a batch changed, in a form that compares; None when it was refused."""
    try:
        applied = await store.apply(batch)
    except (Conflict, InvalidArgument):
        return None
    ignored = tuple(sorted(set(applied.ignored)))
    return replace(applied, inserted=tuple(unnumbered(applied.inserted)), ignored=ignored)
