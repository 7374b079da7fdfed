"""Records as JSON: the form and its schema come from the annotations of the dataclass.

HTTP responses, their OpenAPI schemas and `to_dict` all derive from here: which fields are shown,
under which name, and how a time is written.
"""

from functools import cache
from operator import not_
from typing import Annotated, Any

from pydantic import ConfigDict, Field, PlainSerializer, TypeAdapter, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from kemem.records.readable import readable
from kemem.records.times import Micros, to_rfc3339

Timestamp = Annotated[
    Micros,
    PlainSerializer(to_rfc3339, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
OwnerId = Annotated[str, PlainSerializer(lambda user_id: user_id or None, return_type=str | None)]
Share = Annotated[float, Field(json_schema_extra={"minimum": 0, "maximum": 1})]
Hidden = Field(exclude=True)
IfAny = Field(exclude_if=not_)  # left out of the JSON where there is nothing to say
OptionalText = Annotated[str | SkipJsonSchema[None], IfAny]
OptionalTimestamp = Timestamp | SkipJsonSchema[None]


def without_defaults(schema: dict[str, Any]) -> None:
    """Leave defaults of the constructor out of a schema: an answer has every field."""
    for described in schema["properties"].values():
        described.pop("default", None)


def as_memory(schema: dict[str, Any]) -> None:
    """Describe a memory: a note, or a message, which has a role and only the required fields."""
    without_defaults(schema)
    schema["properties"] |= {"role": {"type": "string"}, "withdrawn": {"type": "boolean"}}
    ids = ["id", "agent_id", "user_id", "session_id"]
    times = ["event_time", "created_at", "updated_at"]
    schema["required"] = [*ids, "kind", "memory", *times, "metadata", "sources"]


class Record:
    """A frozen dataclass whose JSON form and schema pydantic derives from its annotations."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(
        json_schema_serialization_defaults_required=True, json_schema_extra=without_defaults
    )

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # A dataclass writes a repr of every field into its class unless there is one.
        if "__repr__" not in vars(cls):
            cls.__repr__ = readable  # type: ignore[method-assign]

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON, as HTTP and the command line show it."""
        kind: Any = type(self)
        shown: dict[str, Any] = adapter(kind).dump_python(self, mode="json", by_alias=True)
        return shown


@cache
def adapter(record_type: Any) -> TypeAdapter[Any]:
    """Writes records of a type as JSON; built on first use, so that importing stays fast."""
    return TypeAdapter(record_type)
