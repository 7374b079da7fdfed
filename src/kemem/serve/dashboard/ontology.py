"""Own types on the dashboard: shown with their counts, added, changed and removed."""

from dataclasses import fields
from typing import Any

from fastapi import APIRouter, Request, Response

from kemem.errors import InvalidArgument
from kemem.memory import AsyncMemory
from kemem.records.ontology import MAX_DESCRIPTION, MAX_EXAMPLES, Ontology
from kemem.serve.dashboard.page import DashboardRoute, Fields, done, page
from kemem.serve.http.routing import Memory

PATH = "/dashboard/ontology"
GROUPS = tuple(each.name for each in fields(Ontology))

router = APIRouter(route_class=DashboardRoute)


@router.get(PATH)
async def show_types(request: Request, memory: Memory) -> Response:
    """All own types, and a form for another or, by `group` and `name`, for one of them."""
    return await _page(request, memory)


@router.post(PATH)
async def change_types(request: Request, memory: Memory) -> Response:
    """Save or remove one type."""
    form = Fields(await request.form())
    group = form.one_of("group", GROUPS, "notes")
    name, given = form.text("name") or "", (await memory.ontology.stored()).to_dict()
    removes = form.one_of("action", ("save", "remove"), "save") == "remove"
    given[group].pop(name, None)
    if not removes:
        lines = (form.text("examples") or "").splitlines()
        examples = [line.strip() for line in lines if line.strip()]
        given[group][name] = {"description": form.text("description"), "examples": examples}
    try:
        await memory.ontology.set(given)
    except InvalidArgument as problem:
        values = {it: form.text(it) or "" for it in ("group", "name", "description", "examples")}
        return await _page(request, memory, problem.status, problem=problem, edited=values)
    return done(request, PATH, "type_removed" if removes else "type_saved", name=name)


async def _page(
    request: Request, memory: AsyncMemory, status: int = 200, **values: Any
) -> Response:
    types, stored = await memory.ontology.get(), await memory.ontology.stored()
    asked = Fields(request.query_params)
    group, name = asked.text("group"), asked.text("name")
    own = getattr(stored, group).get(name) if group in GROUPS else None
    edited = {"group": group or "notes", "name": "", "description": "", "examples": ""}
    if own is not None:
        texts = {"description": own.description, "examples": "\n".join(own.examples)}
        edited |= {"name": name or "", **texts}
    shown: dict[str, Any] = {
        "groups": {it: getattr(types, it) for it in GROUPS},
        "stored": {it: getattr(stored, it) for it in GROUPS},
        "counts": await memory.ontology.counts(),
        "edited": edited,
        "problem": None,
        "most": {"description": MAX_DESCRIPTION, "examples": MAX_EXAMPLES},
    }
    return page(request, "ontology.html", status, **shown | values)
