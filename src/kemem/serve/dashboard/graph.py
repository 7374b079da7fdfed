"""The graph in the dashboard: as much of it as a person can look at, near what they choose."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from kemem.memory import AsyncMemory
from kemem.records import Note, Relation
from kemem.records.times import to_rfc3339
from kemem.runtime import system_clock
from kemem.serve.dashboard.fields import Fields
from kemem.serve.dashboard.labels import label, labels
from kemem.serve.dashboard.page import DashboardRoute, is_fragment, language_of, link_to, page
from kemem.serve.dashboard.users import unknown_owner, with_counts
from kemem.serve.http.routing import Memory

HOME = "/dashboard/graph"
USERS = 50  # of a page
READ = 1_000  # relations: the most that the graph answers at once
NODES, LINKS = 150, 300  # that can still be told apart on a screen
HOPS = 3
EXPANDED = 12  # entities around which relations are shown at once
CITED = 3  # notes that are quoted of a relation
SIMILAR = 12  # names that are suggested

router = APIRouter(route_class=DashboardRoute)


@dataclass(frozen=True, slots=True)
class GraphView:
    """What a reader wants to see of the graph."""

    user_id: str | None = None
    agent_id: str | None = None
    around: tuple[str, ...] = ()
    hops: int = 1
    day: str = ""  # as it was known at the end of a day; empty: as it is
    relationship: str = ""  # the type of relations that are shown; empty: all

    def only(self, *names: str) -> str:
        """The address of what is seen around some entities."""
        pairs = [("user_id", self.user_id), ("agent_id", self.agent_id)]
        pairs += [("around", name) for name in names]
        pairs += [("hops", str(self.hops)), ("as_of", self.day)]
        pairs += [("relationship", self.relationship)]
        return f"{HOME}?{urlencode([(name, value) for name, value in pairs if value])}"

    def of(self, relationship: str) -> str:
        """The address of what is seen by relations of a type."""
        return replace(self, relationship=relationship).only(*self.around)

    def near(self, name: str) -> str:
        """The address of what is seen with an entity more; the oldest choices make room."""
        others = [each for each in self.around if each != name][1 - EXPANDED :]
        return self.only(*others, name)

    def without(self, *names: str) -> str:
        """The address of what is seen with some entities less."""
        return self.only(*(each for each in self.around if each not in names))


@router.get(HOME)
async def show_graph(request: Request, memory: Memory) -> Response:
    """Relations of a user or agent, drawn and as a table; first of all the users."""
    view = _view(Fields(request.query_params))
    if view.user_id is None and view.agent_id is None:
        users = await memory.users(limit=USERS, cursor=request.query_params.get("cursor"))
        people, rest = await with_counts(users.items, memory), users.next_cursor
        return page(request, "graph_users.html", people=people, next_cursor=rest)
    template = "graph_relations.html" if is_fragment(request) else "graph.html"
    picture, unknown = await _picture(view, memory), None
    if not picture["relations"]:
        unknown = await unknown_owner(view.user_id, view.agent_id, memory)
    own, tones = await memory.ontology.get(), tones_of(picture["types"].values())
    picture["legend"] = [
        (name, count, tones[name], own.entities[name].description if name in own.entities else "")
        for name, count in Counter(picture["types"].values()).most_common()
    ]
    counts = Counter(it.relationship for it in picture["relations"])
    picture["relationships"] = [
        (name, count, own.relations[name].description if name in own.relations else "")
        for name, count in counts.most_common()
    ]
    picture["choices"] = sorted({*counts, *own.relations, view.relationship} - {""})
    data = f"{HOME}/data"
    return page(request, template, view=view, picture=picture, unknown=unknown, data=data)


@router.get(HOME + "/data")
async def read_graph(request: Request, memory: Memory) -> Response:
    """The same relations as nodes and links."""
    picture = await _picture(_view(Fields(request.query_params)), memory)
    degrees, types, language = (
        Counter(_ends(picture["relations"])),
        picture["types"],
        language_of(request),
    )
    tones = tones_of(types.values())
    nodes = [
        {
            "id": name,
            "type": kind,
            "label": label("entity", kind, language),
            "tone": tones[kind],
            "degree": degrees[name],
        }
        for name, kind in types.items()
    ]
    links = [
        {
            "source": it.source,
            "target": it.destination,
            "relationship": it.relationship,
            "label": label("relation", it.relationship, language),
            "valid_from": to_rfc3339(it.valid_from),
            "valid_until": None if it.valid_until is None else to_rfc3339(it.valid_until),
            "count": len(it.note_ids),
            "notes": [
                {"text": note.content, "address": link_to(note)} for note in picture["cited"](it)
            ],
        }
        for it in picture["relations"]
    ]
    read, is_full = picture["read"], picture["is_full"]
    return JSONResponse({"nodes": nodes, "links": links, "read": read, "is_full": is_full})


def _view(fields: Fields) -> GraphView:
    names = dict.fromkeys(name.strip() for name in fields.texts("around") if name.strip())
    moment = fields.datetime("as_of")
    return GraphView(
        user_id=fields.text("user_id"),
        agent_id=fields.text("agent_id"),
        around=tuple(names)[-EXPANDED:],
        hops=fields.integer("hops", HOPS, 1),
        day=moment.date().isoformat() if moment else "",
        relationship=fields.text("relationship") or "",
    )


async def _picture(view: GraphView, memory: AsyncMemory) -> dict[str, Any]:
    """What is shown: nearest first around entities, else the most connected of the newest."""
    owner: dict[str, Any] = {"user_id": view.user_id, "agent_id": view.agent_id}
    as_of = None
    if view.day:
        as_of = datetime.combine(datetime.fromisoformat(view.day), time.max).astimezone()
    options = {**owner, "limit": READ, "as_of": as_of, "relationship": view.relationship or None}
    relations = await memory.graph(**options, around=view.around, hops=view.hops)
    similar: list[str] = []  # entities that may have been meant
    if view.around and not relations:
        part = view.around[-1].casefold()
        names = dict.fromkeys(_ends(await memory.graph(**options)))
        similar = [name for name in names if part in name.casefold()][:SIMILAR]
    shown = _visible(relations, nearest_first=bool(view.around))
    ids = {note_id for relation in shown for note_id in relation.note_ids[-CITED:]}
    notes = {it.id: it for it in (await memory.notes(**owner, ids=ids) if ids else [])}

    def cited(relation: Relation) -> list[Note]:
        return [notes[note_id] for note_id in relation.note_ids[-CITED:] if note_id in notes]

    oldest = await memory.notes(**owner, limit=1, newest_first=False)
    times = [*(it.valid_from for it in relations), *(note.ts for note in oldest)]
    return {
        "relations": shown,
        "cited": cited,  # the newest notes that support a relation
        "types": {it.source: it.source_type for it in shown}
        | {it.destination: it.destination_type for it in shown},
        "read": len(relations),
        "is_full": len(relations) == READ,  # there may be more
        "similar": similar,
        "first": min(times, default=system_clock()),  # from when on there is something to see
    }


def _visible(relations: Sequence[Relation], nearest_first: bool) -> list[Relation]:
    """The first relations that a screen has room for, with both of their ends.

    Those that are not nearest first go by how many others their ends have, the lesser end first,
    so that one hub with a thousand leaves does not hide all else; equal ones stay in their order.
    """
    degrees = Counter(_ends(relations))

    def place(relation: Relation) -> list[int]:
        return sorted((degrees[relation.source], degrees[relation.destination]))

    shown: list[Relation] = []
    names: set[str] = set()
    for relation in relations if nearest_first else sorted(relations, key=place, reverse=True):
        ends = {relation.source, relation.destination}
        if len(names | ends) <= NODES and len(shown) < LINKS:
            names |= ends
            shown.append(relation)
    return shown


def tones_of(types: Iterable[str]) -> dict[str, int]:
    """The number of each type, by which `graph.js` and the legend choose a colour and a shape."""
    known = list(labels()["entity"])
    return {name: tone for tone, name in enumerate([*known, *sorted({*types}.difference(known))])}


def _ends(relations: Iterable[Relation]) -> list[str]:
    return [name for it in relations for name in {it.source, it.destination}]
