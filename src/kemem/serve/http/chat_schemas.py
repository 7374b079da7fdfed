"""What travels over HTTP about chats: turns in, replies and events out."""

from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from kemem.chat import ErrorEvent, Event, Member
from kemem.chat.group import MOST_MEMBERS
from kemem.serve.http.failures import Reason
from kemem.serve.http.recall_schemas import Granted
from kemem.serve.http.schemas import Body, Id, NotBlank, Share, Time

Instructions = Annotated[str, Field(description="What the model is told beside its rules.")]
NewId = Annotated[Id, Field(description="Of the user's message, so that a turn can be repeated.")]
Mentions = Annotated[list[Id], Field(fail_fast=True, description="Who is asked to speak.")]


class Turn(Body):
    """What a user says."""

    user_id: Id
    message: NotBlank
    message_id: NewId | None = None
    sensitive: Granted = False


class ChatTurn(Turn):
    """What a user says to a model, and in which conversation."""

    session_id: Id
    agent_id: Id | None = None
    instructions: Instructions | None = None


class GroupMember(Body):
    """Somebody that a model plays; the id is the agent whose memories it has."""

    id: Id
    name: str | None = None
    instructions: Instructions | None = None


class GroupTurn(Turn):
    """What a user says to a group, and who is in it, in the order of their turns to speak."""

    members: Annotated[
        list[GroupMember],
        Field(fail_fast=True, json_schema_extra={"minItems": 1, "maxItems": MOST_MEMBERS}),
    ]
    mentions: Mentions | None = None

    @property
    def group(self) -> list[Member]:
        """The members as a chat takes them."""
        return [Member(it.id, it.name or "", it.instructions) for it in self.members]


class RecalledMemory(TypedDict):
    """A memory as the model was shown it."""

    id: str
    kind: str
    time: Time
    said_by: NotRequired[str]
    content: str
    score: Share


class UsedTool(TypedDict):
    """A tool that the model called; `arguments` are JSON as it wrote them."""

    call_id: str
    name: str
    arguments: str
    result: str


class ChatReply(TypedDict):
    """A reply, what was recalled for it, and how many tool calls in its text nobody saw."""

    text: str
    message_id: str
    recall: list[RecalledMemory]
    tool_calls: list[UsedTool]
    leaks: int


class MemberReply(ChatReply):
    """What a member of a group replied; an empty text is silence."""

    member_id: str
    error: NotRequired[Reason]


class GroupReplies(TypedDict):
    """What the members of a group replied, in their order."""

    replies: list[MemberReply]


def failed_turn(error: ErrorEvent) -> dict[str, Any]:
    """A turn that failed, in the form of every failure; the part of the reply is in its details."""
    part = {"text": error.text, "message_id": error.message_id}
    return {"error": {"code": error.code, "message": error.message, "details": part}}


def event_item(event: Event) -> dict[str, Any]:
    """An event as HTTP shows it: an error in the form of every failure, the others as they are."""
    if not isinstance(event, ErrorEvent):
        return event.to_dict()
    named = {"member_id": event.member_id} if event.member_id else {}
    return {"type": event.type, **named, **failed_turn(event)}
