"""What callers hand in, checked and turned into messages."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kemem.errors import Exhausted, InvalidArgument
from kemem.text.ids import check_id, new_id
from kemem.text.times import to_micros
from kemem.types import ROLES, Message, Messages, Micros

MAX_MESSAGES = 5_000
MAX_METADATA_BYTES = 65_536
MAX_METADATA_DEPTH = 32
_FIELDS = {
    *("role", "content", "message_id", "ts", "session_id", "agent_id"),
    *("content_type", "parent_message_id", "metadata"),
}


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose the messages are where they do not say it themselves."""

    user_id: str
    agent_id: str = "default"
    session_id: str = "default"


def parse_messages(
    messages: Messages, owner: Owner, now: Micros, max_content_bytes: int
) -> list[Message]:
    """Messages ready to be stored, in the order given; the first wrong one refuses them all."""
    if isinstance(messages, str):
        messages = {"role": "user", "content": messages}
    given = [messages] if isinstance(messages, Mapping) else messages
    if not isinstance(given, list | tuple) or not given:
        raise InvalidArgument(
            f"messages must be a text, a message or a list of messages, not {messages!r:.80}",
            field="messages",
        )
    if len(given) > MAX_MESSAGES:
        raise Exhausted(
            f"at most {MAX_MESSAGES} messages in one call, not {len(given)}", field="messages"
        )
    return [
        _message(item, f"messages[{index}]", owner, now, max_content_bytes)
        for index, item in enumerate(given)
    ]


def _message(
    given: object, field: str, owner: Owner, now: Micros, max_content_bytes: int
) -> Message:
    if not isinstance(given, Mapping):
        raise InvalidArgument(f"{field} must be a message with role and content", field=field)
    unknown = sorted(str(key) for key in given.keys() - _FIELDS)
    if unknown:
        raise InvalidArgument(f"{field} has unknown fields {unknown!r:.200}", field=field)
    content, truncated = _content(given.get("content"), f"{field}.content", max_content_bytes)
    metadata = _metadata(given.get("metadata"), f"{field}.metadata")
    ts, parent = given.get("ts"), given.get("parent_message_id")
    message_id, session_id = given.get("message_id"), given.get("session_id")
    agent_id = given.get("agent_id")
    return Message(
        message_id=(
            new_id("m", now) if message_id is None else check_id(message_id, f"{field}.message_id")
        ),
        agent_id=owner.agent_id if agent_id is None else check_id(agent_id, f"{field}.agent_id"),
        user_id=owner.user_id,
        session_id=(
            owner.session_id if session_id is None else check_id(session_id, f"{field}.session_id")
        ),
        role=_role(given.get("role", "user"), f"{field}.role"),
        content=content,
        ts=now if ts is None else to_micros(ts, f"{field}.ts"),
        ingest_time=now,
        content_type=_content_type(given.get("content_type"), f"{field}.content_type"),
        parent_message_id=(
            None if parent is None else check_id(parent, f"{field}.parent_message_id")
        ),
        metadata={**metadata, "truncated": True} if truncated else metadata,
    )


def _role(role: object, field: str) -> str:
    if not isinstance(role, str) or role not in ROLES:
        raise InvalidArgument(
            f"{field} must be one of {', '.join(ROLES)}, not {role!r:.80}", field=field
        )
    return role


def _content_type(content_type: object, field: str) -> str:
    if content_type is None:
        return "text"
    if not isinstance(content_type, str) or not 1 <= len(content_type) <= 50:
        raise InvalidArgument(
            f"{field} must be 1-50 characters, not {content_type!r:.80}", field=field
        )
    return _clean(content_type, field)


def _content(content: object, field: str, most: int) -> tuple[str, bool]:
    """The text, and whether it was cut to `most` bytes at a character border."""
    if not isinstance(content, str) or not content.strip():
        raise InvalidArgument(
            f"{field} must be a text that is not blank, not {content!r:.80}", field=field
        )
    try:
        raw = content.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(
            f"{field} holds a lone surrogate, which is no text", field=field
        ) from None
    if len(raw) <= most:
        return content, False
    return raw[:most].decode(errors="ignore"), True


def _metadata(metadata: object, field: str) -> Mapping[str, Any]:
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise InvalidArgument(f"{field} must be an object, not {metadata!r:.80}", field=field)
    _check_depth(metadata, field)
    try:
        raw = json.dumps(metadata, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{field} must be JSON: {error}", field=field) from None
    if len(raw) > MAX_METADATA_BYTES:
        raise Exhausted(
            f"{field} must be at most {MAX_METADATA_BYTES} bytes, not {len(raw)}", field=field
        )
    _clean(raw.decode(), field)
    checked: Mapping[str, Any] = json.loads(raw)  # a copy: tuples become lists, keys strings
    return checked


def _check_depth(value: object, field: str) -> None:
    level = [value]
    for _ in range(MAX_METADATA_DEPTH):
        level = [
            child
            for item in level
            if isinstance(item, Mapping | list | tuple)
            for child in (item.values() if isinstance(item, Mapping) else item)
        ]
        if not level:
            return
    raise InvalidArgument(
        f"{field} must not be nested deeper than {MAX_METADATA_DEPTH}", field=field
    )


def _clean(text: str, field: str) -> str:
    """Only message content may hold NUL: databases keep no other text with it."""
    if "\0" in text or "\\u0000" in text:
        raise InvalidArgument(f"{field} must not hold NUL", field=field)
    return text
