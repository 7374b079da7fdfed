"""Users in the dashboard: found by id, name or words; one user's page; ids that are unknown."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from fastapi import APIRouter, Request, Response

from kemem.errors import InvalidArgument, PermissionDenied
from kemem.memory import AsyncMemory
from kemem.ports import read_holdings
from kemem.records import Entry, Holding, Scope
from kemem.results import Hit, Profile
from kemem.runtime import counts_hits
from kemem.serve.dashboard.fields import Fields
from kemem.serve.dashboard.page import DashboardRoute, page
from kemem.serve.http.routing import Memory

HOME, ONE = "/dashboard/users", "/dashboard/user"
PAGE = 50
SCANNED = 2_000  # users that are looked at for an id or name
SIMILAR = 6  # ids that are suggested
AGENTS = 20  # the memories of which are searched
HITS, LEAST = 20, 0.1  # and the score of the last
RECENT = 8  # memories that the page of a user shows

router = APIRouter(route_class=DashboardRoute)


@dataclass(frozen=True, slots=True)
class Unknown:
    """An id that nothing is stored for, and ids that may have been meant."""

    level: str  # user or agent
    id: str
    similar: tuple[str, ...] = ()


@router.get(HOME)
async def list_users(request: Request, memory: Memory) -> Response:
    """All users; with words, those whose id or name has them, and the memories that say them."""
    fields = Fields(request.query_params)
    words, cursor = fields.text("query"), fields.text("cursor")
    hits: list[Hit] = []
    if words:
        request.state.operation = "memory.search_all"  # for the audit log
        store = (await memory.runtime.deps()).store
        entries = named(words, await store.directory("user", limit=SCANNED))[:PAGE]
        hits, next_cursor = await search_all(words, memory), None
    else:
        users = await memory.users(limit=PAGE, cursor=cursor)
        entries, next_cursor = list(users.items), users.next_cursor
    people = await with_counts(entries, memory)
    values: dict[str, Any] = {"people": people, "hits": hits, "next_cursor": next_cursor}
    return page(request, "users.html", query=words or "", scanned=SCANNED, **values)


@router.get(ONE)
async def show_user(request: Request, memory: Memory) -> Response:
    """One user: counts, profile, newest memories, and the way to everything else."""
    user_id, agent_id = Fields(request.query_params).owner
    if user_id is None:
        raise InvalidArgument("user_id is required", field="user_id")
    return await user_page(request, memory, user_id, agent_id)


async def user_page(
    request: Request, memory: AsyncMemory, user_id: str, agent_id: str | None, **refused: Any
) -> Response:
    """The page of a user, also after a form on it was refused."""
    values: dict[str, Any] = {"holding": None, "profile": None, "items": ()}
    unknown = await unknown_owner(user_id, agent_id, memory)
    if unknown is None:
        values["holding"] = (await read_counts([Scope(agent_id, user_id)], memory))[0]
        values["profile"] = await read_profile(user_id, agent_id, memory)
        items = await memory.get_all(user_id, agent_id, limit=RECENT)
        values["items"] = [item for item in items if not item.withdrawn]
    return page(
        request,
        "user.html",
        user_id=user_id,
        agent_id=agent_id,
        entry=await find_entry(user_id, agent_id, memory),
        unknown=unknown,
        to_text=to_text,
        **values | refused,
    )


def to_text(config: Mapping[str, Any]) -> str:
    """The config of a user, agent or session as a form shows it."""
    return json.dumps(dict(config), ensure_ascii=False) if config else ""


def named(words: str, entries: Sequence[Entry]) -> list[Entry]:
    """The entries that have some words in their id or name."""
    part = words.casefold()
    return [it for it in entries if part in it.id.casefold() or part in (it.name or "").casefold()]


async def search_all(words: str, memory: AsyncMemory) -> list[Hit]:
    """The best hits of all users by their words, from one search for each agent."""
    token = counts_hits.set(False)  # an operator who looks around does not use what is found
    try:
        agents = [entry.id for entry in (await memory.agents(limit=AGENTS)).items]
        options: Any = {"limit": HITS, "mode": "lexical", "explain": True, "threshold": LEAST}
        found = await asyncio.gather(
            *(memory.search(words, agent_id=agent_id, **options) for agent_id in agents)
        )
    finally:
        counts_hits.reset(token)
    hits = {(hit.row.agent_id, hit.row.user_id, hit.id): hit for each in found for hit in each}
    return sorted(hits.values(), key=lambda hit: -hit.score)[:HITS]


async def read_profile(user_id: str, agent_id: str | None, memory: AsyncMemory) -> Profile | None:
    """What is known of a user now; None of one who is disabled."""
    with suppress(PermissionDenied):
        handle = memory.for_user(user_id, agent_id=agent_id, sensitive=True)  # for operators
        return await handle.profile()
    return None


async def with_counts(entries: Sequence[Entry], memory: AsyncMemory) -> list[tuple[Entry, Holding]]:
    """Users with how much each holds."""
    owners = [Scope(entry.agent_id, entry.id) for entry in entries]
    return list(zip(entries, await read_counts(owners, memory), strict=True))


async def read_counts(owners: Sequence[Scope], memory: AsyncMemory) -> list[Holding]:
    """How much each owner holds."""
    return await read_holdings((await memory.runtime.deps()).store, owners)


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
