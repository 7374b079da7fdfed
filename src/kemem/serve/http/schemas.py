"""What travels over HTTP: bodies and queries in, messages out."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NotRequired, cast, get_args

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from kemem.records import ROLES, Message
from kemem.results import Hit
from kemem.text.ids import MAX_ID
from kemem.text.times import to_rfc3339

FieldName = Literal[
    "message_id",
    "ts",
    "user_id",
    "role",
    "content",
    "session_id",
    "agent_id",
    "content_type",
    "parent_message_id",
    "metadata",
]
FIELD_NAMES: tuple[FieldName, ...] = get_args(FieldName)

# Limits are only described here: kemem itself checks them, for every caller alike.
ID_LIMITS: dict[str, Any] = {
    "minLength": 1,
    "maxLength": MAX_ID,
    "pattern": r"^(?!\s)[^\u0000-\u001f\u007f-\u009f\u2028\u2029]+(?<!\s)$",
}
Id = Annotated[str, Field(json_schema_extra=ID_LIMITS)]
NotBlank = Annotated[str, Field(json_schema_extra={"pattern": r"\S"})]
ContentType = Annotated[str, Field(json_schema_extra={"minLength": 1, "maxLength": 50})]
Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
Role = Annotated[str, Field(json_schema_extra={"enum": list(ROLES)})]
Size = Annotated[int, Field(json_schema_extra={"minimum": 1})]
Count = Annotated[int, Field(json_schema_extra={"minimum": 0, "maximum": 1000})]
Share = Annotated[float, Field(json_schema_extra={"minimum": 0, "maximum": 1})]
ReturnFields = Annotated[list[FieldName], Field(fail_fast=True)]


class Body(BaseModel):
    """A JSON body: nothing is guessed, nothing unknown is let through."""

    model_config = ConfigDict(extra="forbid", strict=True)


class TimeRange(Body):
    """From `since` on and before `until`."""

    since: Time | None = None
    until: Time | None = None


class Filter(Body):
    """Which messages a search may see."""

    time_range: TimeRange | None = None
    role: Role | None = None


class Search(Body):
    """What every search is told."""

    user_id: Id
    filter: Filter | None = None
    return_fields: ReturnFields | None = None

    @property
    def since(self) -> str | None:
        return self._times.since

    @property
    def until(self) -> str | None:
        return self._times.until

    @property
    def role(self) -> str | None:
        return self.filter.role if self.filter else None

    @property
    def _times(self) -> TimeRange:
        return (self.filter.time_range if self.filter else None) or TimeRange()


class LexicalSearch(Search):
    """A search by words: plain, "phrases", AND, OR, NOT, prefix* and ( )."""

    query_text: str
    page_size: Size = 50
    cursor: str | None = None


class SemanticSearch(Search):
    """A search by meaning, for a text or for a vector: one of the two."""

    query_text: NotBlank | None = None
    query_embedding: Annotated[list[float], Field(fail_fast=True)] | None = None
    top_k: Size = 20
    min_score: Share | None = None


class HybridSearch(Search):
    """A search by words and meaning together."""

    query_text: NotBlank
    limit: Size = 10


class NewMessage(Body):
    """A message to store."""

    role: Role
    content: NotBlank
    message_id: Id | None = None
    ts: Time | None = None
    session_id: Id | None = None
    agent_id: Id | None = None
    content_type: ContentType | None = None
    parent_message_id: Id | None = None
    metadata: dict[str, Any] | None = None


class NewMessages(Body):
    """Messages that are stored all or none."""

    messages: Annotated[list[NewMessage], Field(fail_fast=True, json_schema_extra={"minItems": 1})]


class Asked(BaseModel):
    """A query string: nothing unknown is let through."""

    model_config = ConfigDict(extra="forbid")


class RangeQuery(Asked):
    """The query string of a range read."""

    since: Time | None = None
    until: Time | None = None
    role: Role | None = None
    page_size: Size = 50
    cursor: str | None = None


class NeighborsQuery(Asked):
    """The query string of a look around a message."""

    before: Count = 20
    after: Count = 0


class SelectedMessage(TypedDict, total=False):
    """A message, or those of its fields that were asked for."""

    message_id: str
    ts: Time
    user_id: str
    role: str
    content: str
    session_id: str
    agent_id: str
    content_type: str
    parent_message_id: str | None
    metadata: dict[str, Any]


class ChatMessage(TypedDict):
    """A message."""

    message_id: str
    ts: Time
    user_id: str
    role: str
    content: str
    session_id: str
    agent_id: str
    content_type: str
    parent_message_id: str | None
    metadata: dict[str, Any]


class MessagePage(TypedDict):
    """Some of the messages; `next_cursor` is there when there are more."""

    items: list[ChatMessage]
    next_cursor: NotRequired[str]


class Context(TypedDict):
    """Messages in the order they were said."""

    items: list[ChatMessage]


class Highlight(TypedDict):
    """Where a message matches."""

    message_id: str
    snippets: list[str]


class Score(TypedDict):
    """How well a message matches."""

    message_id: str
    score: float


class LexicalAnswer(TypedDict):
    """Messages by their words, best first."""

    items: list[SelectedMessage]
    next_cursor: NotRequired[str]
    highlights: list[Highlight]
    scores: list[Score]


class SemanticItem(SelectedMessage):
    """A message and how near its meaning is."""

    semantic_score: float


class SemanticAnswer(TypedDict):
    """Messages by their meaning, nearest first."""

    items: list[SemanticItem]


class HybridItem(SelectedMessage):
    """A message, how good it is, why, and where it matches."""

    score: float
    why: list[str]
    highlights: list[str]


class HybridAnswer(TypedDict):
    """Messages by words and meaning, best first."""

    items: list[HybridItem]


class Stored(TypedDict):
    """What became of new messages."""

    inserted: list[str]
    ignored: list[str]
    failed: list[str]
    truncated: list[str]
    pending: bool


def chat_message(message: Message) -> ChatMessage:
    """A message as HTTP shows it."""
    return ChatMessage(
        message_id=message.message_id,
        ts=to_rfc3339(message.ts),
        user_id=message.user_id,
        role=message.role,
        content=message.content,
        session_id=message.session_id,
        agent_id=message.agent_id,
        content_type=message.content_type,
        parent_message_id=message.parent_message_id,
        metadata=dict(message.metadata),
    )


def selected(hit: Hit, names: Sequence[FieldName] | None) -> SelectedMessage:
    """The wanted fields of a message that was found; all of them when none are named."""
    whole = chat_message(hit.message)
    wanted = FIELD_NAMES if names is None else names
    return cast(SelectedMessage, {name: whole[name] for name in wanted})
