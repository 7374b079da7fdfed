"""What requests and responses over HTTP share: types of fields, ids, pages and lists.

Limits are only described here: kemem itself checks them, for every caller alike.
"""

import json
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import fastapi
from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from kemem.errors import InvalidArgument
from kemem.records import ROLES
from kemem.records.times import wrong_time
from kemem.scope import CallScope
from kemem.serve.http.responses import EVENT_STREAM
from kemem.text.ids import MAX_ID

T = TypeVar("T")

_ID_LIMITS: dict[str, Any] = {
    "minLength": 1,
    "maxLength": MAX_ID,
    "pattern": r"^(?!\s)[^\u0000-\u001f\u007f-\u009f\u2028\u2029]+(?<!\s)$",
}


@cache
def described(name: str) -> Any:
    """A part of the API's description that no type gives."""
    return json.loads(Path(__file__).with_name("described.json").read_text("utf-8"))[name]


def events(route: str) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI description of a response that streams events."""
    text = f"Events with JSON as data: {described('events')[route]}"
    return {200: {"content": {EVENT_STREAM: {"schema": {"type": "string", "description": text}}}}}


def limited(**limits: Any) -> Any:
    """A field with limits in its JSON schema."""
    return Field(json_schema_extra=limits)


def many(**limits: Any) -> Any:
    """A list, read up to its first wrong item."""
    return Field(fail_fast=True, json_schema_extra=limits or None)


def also_named(name: str, *others: str) -> Any:
    """A field that is also known by the names that other requests have for it."""
    return Field(validation_alias=AliasChoices(name, *others))


def _check_time(value: object) -> object:
    """Say of a number, too, what a time looks like, and not only that it must be a text."""
    if isinstance(value, int | float):
        raise ValueError(wrong_time(value, "").message.strip())
    return value


Id = Annotated[str, limited(**_ID_LIMITS)]
PathId = Annotated[str, fastapi.Path(json_schema_extra=_ID_LIMITS)]
NotBlank = Annotated[str, limited(pattern=r"\S")]
Time = Annotated[str, BeforeValidator(_check_time), limited(format="date-time")]
Role = Annotated[str, limited(enum=list(ROLES))]
Size = Annotated[int, limited(minimum=1, maximum=1000)]
Messages = Annotated[Any, limited(anyOf=described("messages"))]  # kemem says which one is wrong
Past = Annotated[bool, Field(description="Whether the question asks for what is no longer true.")]
Granted = Annotated[bool, Field(description="Whether to include sensitive memories.")]


class Arguments(BaseModel):
    """A request whose fields are the arguments of a method of the memory."""

    def arguments(self) -> dict[str, Any]:
        """The fields by their names."""
        return dict(self)


class StrictModel(Arguments):
    """A JSON body: no value is converted, no unknown field is accepted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class QueryString(Arguments):
    """A query string: no unknown parameter is accepted."""

    model_config = ConfigDict(extra="forbid")


class OwnerIds(Arguments):
    """The user and agent that are meant."""

    user_id: Id | None = None
    agent_id: Id | None = None


class Ids(OwnerIds):
    """Whose memories are meant: those that carry all the ids that are given."""

    session_id: Id | None = None
    run_id: Annotated[Id | None, Field(description="An alias of `session_id`.")] = None

    def arguments(self) -> dict[str, Any]:
        """The fields by their names, the session under its one name.

        A server has many users: what names none is refused, instead of meaning "default".
        """
        fields = dict(self)
        run_id, filters = fields.pop("run_id"), fields.get("filters")
        ids = (self.user_id, self.agent_id, self.session_id, run_id)
        scope = CallScope().restrict(*ids, filters=filters)
        if scope.user_id is None and scope.agent_id is None:
            reason = "user_id is required: the user that the memory belongs to, such as 'u_1'"
            raise InvalidArgument(reason, field="user_id")
        session = CallScope().restrict(session_id=self.session_id, run_id=run_id)
        return {**fields, "session_id": session.session_id}


class LimitQuery(QueryString):
    limit: Annotated[Size, also_named("limit", "top_k")] = 100


class PageQuery(LimitQuery):
    limit: Annotated[Size, also_named("limit", "top_k", "page_size")] = 100
    cursor: str | None = None


class Items(TypedDict, Generic[T]):
    """A complete list."""

    items: list[T]
