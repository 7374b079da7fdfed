"""Own types on the dashboard: shown with their counts, added, changed and removed."""

from dataclasses import fields
from typing import Any

from fastapi import APIRouter, Request, Response

from kemem.errors import InvalidArgument, NotFound
from kemem.memory import AsyncMemory
from kemem.records.ontology import MAX_DESCRIPTION, MAX_EXAMPLES, Ontology
from kemem.serve.dashboard.fields import Fields, refusal
from kemem.serve.dashboard.page import DashboardRoute, done, page
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
    """Save one type."""
    form = Fields(await request.form())
    name, given = form.text("name") or "", (await memory.ontology.stored()).to_dict()
    lines = (form.text("examples") or "").splitlines()
    examples = [line.strip() for line in lines if line.strip()]
    own = {"description": form.text("description"), "examples": examples}
    try:
        given[form.one_of("group", GROUPS, "notes")][name] = own
        await memory.ontology.set(given)
    except InvalidArgument as problem:
        last = str(problem.details.get("field")).rpartition(".")[2]
        problem.details["field"] = last if last in ("group", *own) else "name"
        return await _page(request, memory, **refusal(problem, form))
    return done(request, PATH, "type_saved", name=name)


@router.get(PATH + "/remove")
async def ask_to_remove(request: Request, memory: Memory) -> Response:
    """Ask whether a type is to be removed."""
    group, name = await _stored_type(Fields(request.query_params), memory)
    own = getattr(await memory.ontology.stored(), group)[name]
    count = (await memory.ontology.counts())[group][name]
    values = {"group": group, "name": name, "own": own, "count": count}
    return page(request, "ontology_remove.html", **values)


@router.post(PATH + "/remove")
async def remove_type(request: Request, memory: Memory) -> Response:
    """Remove one type."""
    group, name = await _stored_type(Fields(await request.form()), memory)
    rest = (await memory.ontology.stored()).to_dict()
    del rest[group][name]
    await memory.ontology.set(rest)
    return done(request, PATH, "type_removed", name=name)


async def _stored_type(fields: Fields, memory: AsyncMemory) -> tuple[str, str]:
    """The group and name of a type that the store keeps."""
    group, name = fields.one_of("group", GROUPS, "notes"), fields.text("name") or ""
    if name not in getattr(await memory.ontology.stored(), group):
        raise NotFound(f"no type {name!r:.80} in {group}")
    return group, name


async def _page(request: Request, memory: AsyncMemory, **values: Any) -> Response:
    types, stored = await memory.ontology.get(), await memory.ontology.stored()
    asked = Fields(request.query_params)
    edited = {"group": "notes", "name": "", "description": "", "examples": ""}
    if asked.text("name"):
        group, name = await _stored_type(asked, memory)
        own = getattr(stored, group)[name]
        texts = {"description": own.description, "examples": "\n".join(own.examples)}
        edited = {"group": group, "name": name, **texts}
    shown: dict[str, Any] = {
        "groups": {it: getattr(types, it) for it in GROUPS},
        "stored": {it: getattr(stored, it) for it in GROUPS},
        "counts": await memory.ontology.counts(),
        "edited": edited,
        "most": {"description": MAX_DESCRIPTION, "examples": MAX_EXAMPLES},
    }
    return page(request, "ontology.html", **shown | values)
