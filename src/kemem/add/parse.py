"""What callers hand in, checked and turned into messages."""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from reprlib import repr as shown
from typing import Any, NamedTuple

from kemem.errors import Exhausted, InvalidArgument, PermissionDenied
from kemem.records import ROLES, Message, Messages, Micros
from kemem.records.times import LATEST, to_micros
from kemem.scope import Owner
from kemem.text.ids import check_id, new_id

MAX_MESSAGES = 5_000
MAX_METADATA_BYTES = 65_536
MAX_PROMPT_BYTES = 4_000
MAX_METADATA_DEPTH = 32
MAX_SUMMARY = 1_000  # characters
MAX_TAGS = 20
MAX_TAG = 64  # characters
_LAST: Micros = LATEST - 1_000_000  # the end of time is left free for moving on from ties
_ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")  # in JSON, not behind a backslash
_FIELDS = {
    *("role", "content", "message_id", "ts", "session_id", "agent_id"),
    *("content_type", "parent_message_id", "metadata"),
}


class Parsed(NamedTuple):
    """Messages ready to be stored."""

    messages: list[Message]
    truncated: tuple[str, ...]  # ids of those that were cut to the size limit
    has_ids: bool  # some have an id of the caller's: they may be stored already


def parse_messages(messages: Messages, owner: Owner, now: Micros, max_content_bytes: int) -> Parsed:
    """What callers mean, in their order; the first wrong message refuses them all."""
    items = to_list(messages)
    parsed = [
        _message(item, f"messages[{index}]", owner, now, max_content_bytes)
        for index, item in enumerate(items)
    ]
    cut = tuple(message.message_id for message, truncated in parsed if truncated)
    has_ids = any(isinstance(it, Mapping) and it.get("message_id") is not None for it in items)
    return Parsed([message for message, _ in parsed], cut, has_ids)


def to_list(messages: object) -> list[object]:
    """The messages of a call, one or many, as a list."""
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    items = [messages] if isinstance(messages, Mapping) else messages
    if not isinstance(items, list | tuple) or not items:
        raise InvalidArgument(
            f"messages must be a text, a message or a list of messages, not {shown(messages)}",
            field="messages",
        )
    if len(items) > MAX_MESSAGES:
        raise Exhausted(
            f"at most {MAX_MESSAGES} messages in one call, not {len(items)}", field="messages"
        )
    return list(items)


def with_defaults(messages: Messages, metadata: Mapping[str, Any], ts: object) -> list[Any]:
    """Messages of a call with what the call says of all of them; their own words win."""
    items = to_list(messages)
    if ts is not None:
        items = [{"ts": ts, **it} if isinstance(it, Mapping) else it for it in items]
    if metadata:
        items = [_with_metadata(it, metadata, at) for at, it in enumerate(items)]
    return items


def _with_metadata(message: object, metadata: Mapping[str, Any], at: int) -> object:
    if not isinstance(message, Mapping):
        return message
    own = check_metadata(message.get("metadata"), f"messages[{at}].metadata")
    return {**message, "metadata": {**metadata, **own}}


def _message(
    item: object, field: str, owner: Owner, now: Micros, max_content_bytes: int
) -> tuple[Message, bool]:
    if not isinstance(item, Mapping):
        raise InvalidArgument(f"{field} must be a message with role and content", field=field)
    unknown = sorted(str(key) for key in item.keys() - _FIELDS)
    if unknown:
        raise InvalidArgument(f"{field} has unknown fields {unknown!r:.200}", field=field)
    content, truncated = _content(item.get("content"), f"{field}.content", max_content_bytes)
    metadata = check_metadata(item.get("metadata"), f"{field}.metadata")

    def own_id(name: str) -> str | None:
        value = item.get(name)
        if value is not None and name in owner.fixed and value != getattr(owner, name):
            raise PermissionDenied(f"{field}.{name} is not the one that this handle is bound to")
        return None if value is None else check_id(value, f"{field}.{name}")

    ts = _time(item.get("ts"), f"{field}.ts", now)
    # The store moves a message whose two times are equal, but never one that came with a time.
    is_moment_given = item.get("ts") is not None and ts == now
    message = Message(
        message_id=own_id("message_id") or new_id("m", now),
        agent_id=own_id("agent_id") or owner.agent_id,
        user_id=owner.user_id,
        session_id=own_id("session_id") or owner.session_id,
        role=_role(item.get("role", "user"), f"{field}.role"),
        content=content,
        ts=ts,
        ingest_time=now + is_moment_given,
        content_type=_content_type(item.get("content_type"), f"{field}.content_type"),
        parent_message_id=own_id("parent_message_id"),
        metadata={**metadata, "truncated": True} if truncated else metadata,
    )
    return message, truncated


def _time(ts: Any, field: str, now: Micros) -> Micros:
    micros = now if ts is None else to_micros(ts, field)
    if micros > _LAST:
        raise InvalidArgument(
            f"{field} must be before 9999-12-31T23:59:59Z, not {ts!r:.80}", field=field
        )
    return micros


def _role(role: object, field: str) -> str:
    if not isinstance(role, str) or role not in ROLES:
        raise InvalidArgument(
            f"{field} must be one of {', '.join(ROLES)}, not {shown(role)}", field=field
        )
    return role


def _content_type(content_type: object, field: str) -> str:
    if content_type is None:
        return "text"
    if not isinstance(content_type, str) or not 1 <= len(content_type) <= 50:
        raise InvalidArgument(
            f"{field} must be 1-50 characters, not {shown(content_type)}", field=field
        )
    _refuse_nul(b"\0" in _encoded(content_type, field), field)
    return content_type


def _content(content: object, field: str, most: int) -> tuple[str, bool]:
    """The text, and whether it was cut to `most` bytes at a character border."""
    raw = _encoded(content, field) if isinstance(content, str) else b""
    kept = raw[:most].decode(errors="ignore")
    if not kept.strip():
        raise InvalidArgument(
            f"{field} must be a text that is not blank, not {shown(content)}", field=field
        )
    return kept, len(raw) > most


def check_metadata(metadata: object, field: str) -> Mapping[str, Any]:
    """Metadata that can be kept: a JSON object that is neither deep nor large."""
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise InvalidArgument(f"{field} must be an object, not {shown(metadata)}", field=field)
    _check_nesting(metadata, field)
    try:
        raw = json.dumps(metadata, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{field} must be JSON: {error}", field=field) from None
    if len(raw) > MAX_METADATA_BYTES:
        raise Exhausted(
            f"{field} must be at most {MAX_METADATA_BYTES} bytes, not {len(raw)}", field=field
        )
    _refuse_nul(_ESCAPED_NUL.search(raw.decode()), field)
    checked: Mapping[str, Any] = json.loads(raw)  # a copy: tuples become lists, keys strings
    return checked


def _check_nesting(metadata: object, field: str) -> None:
    """Refuse what is nested deep or without end, before anything tries to follow it."""
    level = [metadata]
    for _ in range(MAX_METADATA_DEPTH):
        level = list(islice(_children(level), MAX_METADATA_BYTES))
        if len(level) == MAX_METADATA_BYTES:
            raise Exhausted(f"{field} must be at most {MAX_METADATA_BYTES} bytes", field=field)
        if not level:
            return
    raise InvalidArgument(
        f"{field} must not be nested deeper than {MAX_METADATA_DEPTH}", field=field
    )


def _children(level: list[object]) -> Iterator[object]:
    for item in level:
        if isinstance(item, Mapping):
            yield from item.values()
        elif isinstance(item, list | tuple):
            yield from item


def _encoded(text: str, field: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(
            f"{field} holds a lone surrogate, which is no text", field=field
        ) from None


def _refuse_nul(found: object, field: str) -> None:
    """Only message content may hold NUL: databases keep no other text with it."""
    if found:
        raise InvalidArgument(f"{field} must not hold NUL", field=field)


def check_text(text: object, field: str, most: int) -> str:
    """A text that must not be cut."""
    kept, truncated = _content(text, field, most)
    if truncated:
        raise Exhausted(f"{field} must be at most {most} bytes", field=field)
    return kept


def check_label(text: object, field: str, most: int) -> str:
    """A short text of at most `most` characters, as titles and tags are."""
    kept = check_text(text, field, 4 * most).strip()
    if len(kept) > most:
        raise Exhausted(f"{field} must be at most {most} characters, not {len(kept)}", field=field)
    _refuse_nul("\0" in kept, field)
    return kept


def check_summary(summary: object) -> str | None:
    """What a text is about, if that is said."""
    return None if summary is None else check_label(summary, "summary", MAX_SUMMARY)


def check_tags(tags: object) -> tuple[str, ...]:
    """Words to find a text by, each once."""
    if not isinstance(tags, list | tuple):
        raise InvalidArgument(f"tags must be a list of words, not {shown(tags)}", field="tags")
    if len(tags) > MAX_TAGS:
        raise Exhausted(f"at most {MAX_TAGS} tags, not {len(tags)}", field="tags")
    checked = (check_label(tag, f"tags[{at}]", MAX_TAG) for at, tag in enumerate(tags))
    return tuple(dict.fromkeys(checked))


def check_prompt(prompt: object) -> str | None:
    """The caller's own words to the model, if any."""
    return None if prompt is None else check_text(prompt, "prompt", MAX_PROMPT_BYTES)
