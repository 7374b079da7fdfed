"""Requests over HTTP, and the answers that are not records themselves.

Limits are only described here: kemem itself checks them, for every caller alike.
"""

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from kemem.chat import Member
from kemem.chat.group import MAX_MEMBERS
from kemem.errors import InvalidArgument
from kemem.records import MESSAGES, NOTE_KINDS, ROLES, Checkpoint, Relation
from kemem.serialization import Share
from kemem.text.ids import MAX_ID

T = TypeVar("T")

ID_LIMITS: dict[str, Any] = {
    "minLength": 1,
    "maxLength": MAX_ID,
    "pattern": r"^(?!\s)[^\u0000-\u001f\u007f-\u009f\u2028\u2029]+(?<!\s)$",
}
_MESSAGE = {
    "type": "object",
    "required": ["content"],
    "description": "A message as POST /v1/users/{user_id}/messages takes it; without a role, the "
    "user's.",
    "properties": {"content": {"type": "string"}, "role": {"enum": list(ROLES)}},
}
_MESSAGES = [{"type": "string"}, _MESSAGE, {"type": "array", "minItems": 1, "items": _MESSAGE}]


def limited(**limits: Any) -> Any:
    return Field(json_schema_extra=limits)


def also_named(name: str, other: str) -> Any:
    """A field that is also known by the name that other requests have for it."""
    return Field(validation_alias=AliasChoices(name, other))


Id = Annotated[str, limited(**ID_LIMITS)]
NotBlank = Annotated[str, limited(pattern=r"\S")]
Time = Annotated[str, limited(format="date-time")]
Role = Annotated[str, limited(enum=list(ROLES))]
Size = Annotated[int, limited(minimum=1)]
Kind = Annotated[str, limited(enum=[*MESSAGES, *NOTE_KINDS])]
Kinds = Annotated[list[Kind], Field(fail_fast=True, json_schema_extra={"minItems": 1})]
FiltersInUrl = Annotated[
    str,
    Field(
        description='Conditions as JSON: {"tag": "work"}',
        json_schema_extra={"contentMediaType": "application/json"},
    ),
]
TopK = Annotated[Size | None, Field(description="Another name of limit.")]
Granted = Annotated[bool, Field(description="Whether sensitive memories may be seen.")]
Instructions = Annotated[str, Field(description="What the model is told beside its rules.")]


class Arguments(BaseModel):
    """A request whose fields are the arguments of a method of the memory."""

    def arguments(self) -> dict[str, Any]:
        """The fields by their names."""
        return {name: getattr(self, name) for name in type(self).model_fields}


class StrictModel(Arguments):
    """A JSON body: no value is converted, no unknown field is accepted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class QueryString(Arguments):
    """A query string: no unknown parameter is accepted."""

    model_config = ConfigDict(extra="forbid")


class Ids(Arguments):
    """Whose memories are meant: those that carry all the ids that are given."""

    user_id: Id | None = None
    agent_id: Id | None = None
    session_id: Id | None = None
    run_id: Annotated[Id | None, Field(description="Another name of session_id.")] = None

    def arguments(self) -> dict[str, Any]:
        """The fields by their names, the session under its one name."""
        arguments = super().arguments()
        run_id, session_id = arguments.pop("run_id"), self.session_id
        if None not in (run_id, session_id) and run_id != session_id:
            raise InvalidArgument(
                f"session_id is {session_id!r:.80}, but run_id, which means the same, is "
                f"{run_id!r:.80}",
                field="session_id",
            )
        return {**arguments, "session_id": run_id if session_id is None else session_id}


class OwnerIds(Arguments):
    """The user and agent that are meant."""

    user_id: Id | None = None
    agent_id: Id | None = None


class Items(TypedDict, Generic[T]):
    """A whole list."""

    items: list[T]


# Memories


class AddRequest(StrictModel, Ids):
    """Messages to store and to remember."""

    messages: Annotated[Any, limited(anyOf=_MESSAGES)]  # kemem says which message is wrong
    metadata: dict[str, Any] | None = None
    infer: bool = True
    memory_type: Literal["short", "long"] | None = None
    prompt: NotBlank | None = None
    timestamp: Time | None = None
    expires_at: Time | None = None
    sensitive: bool = False


class SearchRequest(StrictModel, Ids):
    """A question to the memory."""

    query: NotBlank
    limit: Size = 100
    top_k: TopK = None
    filters: dict[str, Any] | None = None
    threshold: Share | None = None
    rerank: bool = True
    kinds: Kinds | None = None
    as_of: Time | None = None
    since: Time | None = None
    until: Time | None = None
    keywords: (
        Annotated[
            list[Annotated[str, limited(pattern=r"\S", maxLength=256)]],
            Field(fail_fast=True, json_schema_extra={"minItems": 1, "maxItems": 20}),
        ]
        | None
    ) = None
    mode: Literal["hybrid", "lexical", "semantic"] = "hybrid"
    explain: bool = False
    count: bool = False


class ListQuery(QueryString, Ids):
    """The query string of a list of memories."""

    kinds: Kinds | None = None
    limit: Size = 100
    top_k: TopK = None
    cursor: str | None = None
    as_of: Time | None = None
    filters: FiltersInUrl | None = None


class DeleteQuery(QueryString, Ids):
    """The query string of an erasure."""

    kinds: Kinds | None = None
    filters: FiltersInUrl | None = None


class MemoryQuery(QueryString, Ids):
    """Whose memory an id means; over HTTP an id alone is never enough."""

    def arguments(self) -> dict[str, Any]:
        """The ids, of which there must be one."""
        arguments = super().arguments()
        if not any(value is not None for value in arguments.values()):
            raise InvalidArgument(
                "user_id, agent_id or session_id is required beside the id", field="user_id"
            )
        return arguments


class HistoryQuery(QueryString, OwnerIds):
    """Whose note an id means, and how much of its history is wanted."""

    limit: Size = 100

    def arguments(self) -> dict[str, Any]:
        """The fields by their names; an id alone is refused."""
        if self.user_id is None and self.agent_id is None:
            raise InvalidArgument("user_id or agent_id is required beside the id", field="user_id")
        return super().arguments()


class UpdateRequest(StrictModel):
    """What a note is to say, or to carry, from now on."""

    content: NotBlank | None = None
    metadata: dict[str, Any] | None = None

    def arguments(self) -> dict[str, Any]:
        """The fields by their names; a change of nothing is refused."""
        if self.content is None and self.metadata is None:
            raise InvalidArgument("content or metadata is required", field="content")
        return super().arguments()


class ExtractRequest(StrictModel, Ids):
    """Whose messages to draw facts from anew."""

    prompt: NotBlank | None = None


class ForgetRequest(StrictModel, OwnerIds):
    """Whose notes to apply the policy of forgetting to."""


class ForgottenQuery(QueryString, OwnerIds):
    """Whose deleted notes are asked for."""

    limit: Size = 100


class Deleted(TypedDict):
    """How many messages and notes went."""

    deleted: int


class Forgotten(TypedDict):
    """The ids of notes that went, each with the reason."""

    forgotten: dict[str, str]


# Sessions, the graph, the directory and jobs


class PageQuery(QueryString):
    """The query string of a list of agents."""

    limit: Size = 100
    cursor: str | None = None


class UsersQuery(PageQuery):
    """The query string of a list of users."""

    agent_id: Id | None = None


class SessionsQuery(PageQuery):
    """The query string of a list of sessions."""

    user_id: Id | None = None
    agent_id: Id | None = None


class ContextQuery(QueryString, OwnerIds):
    """The query string of a session's context."""

    max_tokens: Annotated[int, limited(minimum=50)] = 2000


class SessionRequest(StrictModel, OwnerIds):
    """Whose session an id means; required where several users or agents have one of that id."""


class RestoreRequest(SessionRequest):
    """Which checkpoint to go back to; the newest if none is named."""

    checkpoint_id: Id | None = None


class GraphQuery(QueryString, Ids):
    """The query string of a look at the graph."""

    around: (
        Annotated[list[str], Field(description="Entities, each with a parameter of its own.")]
        | None
    ) = None
    hops: Size = 1
    limit: Size = 100
    as_of: Time | None = None


class JobsQuery(QueryString):
    """The query string of a list of jobs."""

    limit: Size = 100


class Summary(TypedDict):
    """The State of a session; null while all of it still fits verbatim."""

    checkpoint: Checkpoint | None


class Relations(TypedDict):
    """Some relations of the graph."""

    relations: list[Relation]


class JobsRun(TypedDict):
    """How many steps were done."""

    done: int


class Status(TypedDict):
    """The state of the server in one word."""

    status: Literal["alive", "ready"]


# Recalls and chats


class RecallRequest(StrictModel, Ids):
    """A question to one user's memories; a session is the conversation that it comes from."""

    question: Annotated[NotBlank, also_named("question", "query")]
    user_id: Id
    max_iterations: Annotated[int, limited(minimum=1, maximum=10)] | None = None
    sensitive: Granted = False


class TurnRequest(StrictModel):
    """What a user says."""

    user_id: Id
    message: NotBlank
    message_id: (
        Annotated[Id, Field(description="Of the user's message, so that a turn can be repeated.")]
        | None
    ) = None
    sensitive: Granted = False


class ChatRequest(TurnRequest):
    """What a user says to a model, and in which conversation."""

    session_id: Id
    agent_id: Id | None = None
    instructions: Instructions | None = None


class GroupMember(StrictModel):
    """Somebody that a model plays; the id is the agent whose memories it has."""

    id: Id
    name: str | None = None
    instructions: Instructions | None = None


class GroupRequest(TurnRequest):
    """What a user says to a group, and who is in it, in the order of their turns to speak."""

    members: Annotated[
        list[GroupMember],
        Field(fail_fast=True, json_schema_extra={"minItems": 1, "maxItems": MAX_MEMBERS}),
    ]
    mentions: (
        Annotated[list[Id], Field(fail_fast=True, description="Who is asked to speak.")] | None
    ) = None

    def arguments(self) -> dict[str, Any]:
        """The fields by their names, members as a chat takes them."""
        members = [Member(it.id, it.name or "", it.instructions) for it in self.members]
        return {**super().arguments(), "members": members, "mentions": self.mentions or ()}
