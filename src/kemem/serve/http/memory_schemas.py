"""What travels over HTTP about memories: bodies and queries in, notes and messages out."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import BaseModel, Field
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from kemem.errors import InvalidArgument
from kemem.records import MESSAGES, NOTE_KINDS, ROLES, Change
from kemem.serve.http.schemas import Asked, Body, Id, NotBlank, Share, Size, Time
from kemem.text.times import to_rfc3339

_MESSAGE = {
    "type": "object",
    "required": ["content"],
    "description": "A message as POST /v1/users/{user_id}/messages takes it; without a role, the "
    "user's.",
    "properties": {"content": {"type": "string"}, "role": {"enum": list(ROLES)}},
}
# Only described here, as the limits are: kemem itself says which message is wrong, and how.
Given = Annotated[
    Any,
    Field(
        json_schema_extra={
            "anyOf": [
                {"type": "string"},
                _MESSAGE,
                {"type": "array", "minItems": 1, "items": _MESSAGE},
            ]
        }
    ),
]
Kind = Annotated[str, Field(json_schema_extra={"enum": [*MESSAGES, *NOTE_KINDS]})]
Kinds = Annotated[list[Kind], Field(fail_fast=True, json_schema_extra={"minItems": 1})]
Keyword = Annotated[str, Field(json_schema_extra={"pattern": r"\S", "maxLength": 256})]
Keywords = Annotated[
    list[Keyword], Field(fail_fast=True, json_schema_extra={"minItems": 1, "maxItems": 20})
]
FiltersInUrl = Annotated[
    str,
    Field(
        description='Conditions as JSON: {"tag": "work"}',
        json_schema_extra={"contentMediaType": "application/json"},
    ),
]


class Named(TypedDict):
    """The ids of a request by the names that kemem gives them."""

    user_id: str | None
    agent_id: str | None
    session_id: str | None


class Ids(BaseModel):
    """Whose memories are meant: those that carry all the ids that are given."""

    user_id: Id | None = None
    agent_id: Id | None = None
    session_id: Id | None = None
    run_id: Annotated[Id | None, Field(description="Another name of session_id.")] = None

    @property
    def ids(self) -> Named:
        """The ids, with the session under its one name."""
        both = self.session_id is not None and self.run_id is not None
        if both and self.session_id != self.run_id:
            raise InvalidArgument(
                f"session_id is given as {self.session_id!r:.80} and as {self.run_id!r:.80}",
                field="session_id",
            )
        session_id = self.run_id if self.session_id is None else self.session_id
        return Named(user_id=self.user_id, agent_id=self.agent_id, session_id=session_id)


class NewMemories(Body, Ids):
    """Messages to store and to remember."""

    messages: Given
    metadata: dict[str, Any] | None = None
    infer: bool = True
    memory_type: Literal["short", "long"] | None = None
    prompt: NotBlank | None = None
    timestamp: Time | None = None
    expires_at: Time | None = None
    sensitive: bool = False


class MemorySearch(Body, Ids):
    """A question to the memory."""

    query: NotBlank
    limit: Size = 100
    top_k: Annotated[Size | None, Field(description="Another name of limit.")] = None
    filters: dict[str, Any] | None = None
    threshold: Share | None = None
    rerank: bool = True
    kinds: Kinds | None = None
    as_of: Time | None = None
    since: Time | None = None
    until: Time | None = None
    keywords: Keywords | None = None
    mode: Literal["hybrid", "lexical", "semantic"] = "hybrid"
    explain: bool = False
    count: bool = False


class ListQuery(Asked, Ids):
    """The query string of a list of memories."""

    kinds: Kinds | None = None
    limit: Size = 100
    top_k: Annotated[Size | None, Field(description="Another name of limit.")] = None
    cursor: str | None = None
    as_of: Time | None = None
    filters: FiltersInUrl | None = None


class EraseQuery(Asked, Ids):
    """The query string of an erasure."""

    kinds: Kinds | None = None
    filters: FiltersInUrl | None = None


class OneQuery(Asked, Ids):
    """Whose memory an id means; over HTTP an id alone is never enough."""

    @property
    def owner(self) -> Named:
        """The ids, of which there must be one."""
        if not any(value is not None for value in self.ids.values()):
            raise _no_owner("user_id, agent_id or session_id")
        return self.ids


class HistoryQuery(Asked):
    """Whose note an id means, and how much of its history is wanted."""

    user_id: Id | None = None
    agent_id: Id | None = None
    limit: Size = 100

    def check_owner(self) -> None:
        """Refuse an id alone."""
        if self.user_id is None and self.agent_id is None:
            raise _no_owner("user_id or agent_id")


class NewWords(Body):
    """What a note is to say, or to carry, from now on."""

    content: NotBlank | None = None
    metadata: dict[str, Any] | None = None


class Extraction(Body, Ids):
    """Whose messages to draw facts from anew."""

    prompt: NotBlank | None = None


class Forgetting(Body):
    """Whose notes to apply the policy of forgetting to."""

    user_id: Id | None = None
    agent_id: Id | None = None


class ForgottenQuery(Asked):
    """Whose deleted notes are asked for."""

    user_id: Id | None = None
    agent_id: Id | None = None
    limit: Size = 100


class MemoryItem(TypedDict):
    """A note, or a message, which has a role and none of the fields that may be missing."""

    id: str
    memory: str
    kind: Kind
    agent_id: str
    user_id: str | None
    session_id: str | None
    event_time: Time
    created_at: Time
    updated_at: Time
    metadata: dict[str, Any]
    sources: list[str]
    role: NotRequired[str]
    memory_type: NotRequired[str]
    valid_from: NotRequired[Time]
    valid_until: NotRequired[Time | None]
    expires_at: NotRequired[Time | None]
    keywords: NotRequired[list[str]]
    importance: NotRequired[float]
    supersedes: NotRequired[str | None]


class FoundItem(MemoryItem):
    """A note or message, how good it is, and why where that was asked for."""

    score: float
    why: NotRequired[list[str]]


class MemoryList(TypedDict):
    """Some of the memories; `next_cursor` is there when there are more."""

    results: list[MemoryItem]
    next_cursor: NotRequired[str]


class Answer(TypedDict):
    """Memories, best first; `missing` names signals that could not be asked.

    `total` is there if they were to be counted and there are any.
    """

    results: list[FoundItem]
    missing: NotRequired[list[str]]
    total: NotRequired[int]


class Fate(TypedDict):
    """What became of one fact."""

    id: str
    memory: str
    event: Literal["ADD", "UPDATE", "DELETE", "NONE"]
    previous_memory: NotRequired[str]


class Triple(TypedDict):
    """A relation without its details."""

    source: str
    relationship: str
    destination: str


class Remembered(TypedDict):
    """What became of messages that were added."""

    results: list[Fate]
    relations: list[Triple]
    message_ids: list[str]
    ignored: list[str]
    truncated: list[str]
    pending: bool
    problems: list[str]


class Deleted(TypedDict):
    """How many messages and notes went."""

    deleted: int


class Forgotten(TypedDict):
    """The ids of notes that went, each with the reason."""

    forgotten: dict[str, str]


class HistoryLine(TypedDict):
    """One event in the life of a note; what was deleted left no text."""

    memory_id: str
    agent_id: str
    user_id: str | None
    event: Literal["add", "update", "delete"]
    at: Time
    before: str | None
    after: str | None
    reason: str | None


class History(TypedDict):
    """Events, newest first."""

    items: list[HistoryLine]


def history_line(change: Change) -> HistoryLine:
    """A change as HTTP shows it."""
    return HistoryLine(
        memory_id=change.note_id,
        agent_id=change.agent_id,
        user_id=change.user_id or None,
        event=change.event,
        at=to_rfc3339(change.at),
        before=change.before,
        after=change.after,
        reason=change.reason,
    )


def _no_owner(names: str) -> InvalidArgument:
    return InvalidArgument(f"give {names} too: an id alone is not enough", field="user_id")
