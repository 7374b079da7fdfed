"""The user's own types over HTTP, for operators: read and replaced."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field

from kemem.records.ontology import MAX_DESCRIPTION, MAX_EXAMPLE, MAX_EXAMPLES, MAX_TYPES, Ontology
from kemem.serve.http.routing import Memory, OperatorRoute
from kemem.serve.http.schemas import StrictModel, limited

router = APIRouter(route_class=OperatorRoute, tags=["operators"])


class TypeFields(StrictModel):
    """What a type means, and texts of it."""

    description: Annotated[str, limited(minLength=1, maxLength=MAX_DESCRIPTION)]
    examples: Annotated[
        list[Annotated[str, limited(maxLength=MAX_EXAMPLE)]], limited(maxItems=MAX_EXAMPLES)
    ] = Field(default=[])


Types = Annotated[Mapping[str, TypeFields], limited(maxProperties=MAX_TYPES)]


class OntologyRequest(StrictModel):
    """All own types that the store is to keep, in the place of those before."""

    notes: Types = Field(default={})
    entities: Types = Field(default={})
    relations: Types = Field(default={})


@router.get("/v1/ontology")
async def get_ontology(memory: Memory) -> Ontology:
    """The own types of notes, entities and relations, those of the settings included."""
    return await memory.ontology.get()


@router.put("/v1/ontology")
async def set_ontology(body: OntologyRequest, memory: Memory) -> Ontology:
    """Replace the own types that the store keeps; all servers use them within a second.

    Stored memories stay as they are. Types of the settings cannot be changed here.
    """
    given: dict[str, Any] = body.model_dump()
    return await memory.ontology.set(given)
