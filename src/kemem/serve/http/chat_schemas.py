"""What travels over HTTP about chats: replies and events."""

from typing import Any, NotRequired

from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12

from kemem.chat import ErrorEvent, Event
from kemem.serialization import Share
from kemem.serve.http.errors import Reason
from kemem.serve.http.schemas import Time


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
