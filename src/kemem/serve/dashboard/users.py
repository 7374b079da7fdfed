"""Users in the dashboard: whether there is one of an id, and whom the id may have meant."""

from dataclasses import dataclass
from difflib import get_close_matches

from kemem.memory import AsyncMemory
from kemem.records import Entry, Scope

SCANNED = 2_000  # users that are looked at for a similar id
SIMILAR = 6  # ids that are suggested


@dataclass(frozen=True, slots=True)
class Unknown:
    """An id that nothing is stored for, and ids that may have been meant."""

    level: str  # user or agent
    id: str
    similar: tuple[str, ...] = ()


async def find_entry(
    user_id: str | None, agent_id: str | None, memory: AsyncMemory
) -> Entry | None:
    """The user, or the agent where no user is named; None for an id that nothing is stored for."""
    store = (await memory.runtime.deps()).store
    if user_id is not None:
        return next(iter(await store.directory("user", Scope(agent_id, user_id), limit=1)), None)
    return next(iter(await store.directory("agent", Scope(agent_id=agent_id), limit=1)), None)


async def unknown_owner(
    user_id: str | None, agent_id: str | None, memory: AsyncMemory
) -> Unknown | None:
    """What of these ids is unknown; None where both are known or missing."""
    store = (await memory.runtime.deps()).store
    if agent_id is not None and await find_entry(None, agent_id, memory) is None:
        entries = await store.directory("agent", limit=SCANNED)
        return Unknown("agent", agent_id, similar(agent_id, entries))
    if user_id is not None and await find_entry(user_id, agent_id, memory) is None:
        scope = None if agent_id is None else Scope(agent_id=agent_id)
        entries = await store.directory("user", scope, limit=SCANNED)
        return Unknown("user", user_id, similar(user_id, entries))
    return None


def similar(id_: str, entries: list[Entry]) -> tuple[str, ...]:
    """Ids that contain an id or are spelled much like it."""
    names = {entry.id.casefold(): entry.id for entry in entries if entry.id}
    part = id_.casefold()
    close = [name for name in names if part in name or name in part]
    close += get_close_matches(part, names, n=SIMILAR, cutoff=0.6)
    return tuple(names[name] for name in dict.fromkeys(close))[:SIMILAR]
