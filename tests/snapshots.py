"""What a store holds, as one value: two stores that look alike here hold the same."""

from typing import Any, Literal

from kemem.ports import Store, read_health, read_messages, read_notes, read_owners
from kemem.records import MESSAGES, NOTES, Scope, Where
from kemem.text.query import parse
from kemem_conformance.suite import around, nearest, ranking
from kemem_conformance.world import DIRECTIONS, MODELS, vector

MANY = 10_000
LEVELS: tuple[Literal["agent", "user", "session"], ...] = ("agent", "user", "session")


async def picture(store: Store) -> dict[str, Any]:
    """All that can be read, by time, words, meaning and graph, of every owner."""
    health = await read_health(store)
    return {
        "counts": (health.messages, health.notes, health.vectors, health.oldest_error),
        "jobs": await store.jobs(MANY),
        "directory": [await store.directory(level, None, limit=MANY) for level in LEVELS],
        "owners": {scope: await _of(store, scope) for scope in await read_owners(store)},
    }


async def _of(store: Store, scope: Scope) -> list[Any]:
    where = Where(scope, kinds=MESSAGES | NOTES)
    found = [
        await ranking(store, where, parse(it), limit=MANY) for it in ("火锅", "spicy OR hotpot")
    ]
    return [
        await read_messages(store, where, limit=MANY),
        await read_notes(store, where, limit=MANY),
        await store.history(scope, limit=MANY),
        await store.checkpoints(scope, limit=MANY),
        await around(store, where, (), limit=100),
        [[(match.id, match.score) for match in each.matches] for each in found],
        [await nearest(store, where, vector(DIRECTIONS[0]), model, 100) for model in MODELS],
    ]
