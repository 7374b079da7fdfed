"""What callers hand in, checked and turned into messages and tasks."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import chain, islice
from reprlib import repr as shown
from typing import Any, NamedTuple, NoReturn

from kemem.errors import Exhausted, InvalidArgument, PermissionDenied
from kemem.records import ROLES, Message, Messages, Micros
from kemem.records.privacy import ContentPolicy
from kemem.records.times import LATEST, to_micros
from kemem.scope import Owner, Time, check_flag, to_time
from kemem.text.ids import check_id, encode, is_blank, new_id
from kemem.text.personal import apply_policy, apply_policy_to_value
from kemem.text.shapes import to_items
from kemem.text.turns import Turn, read_turns

MAX_MESSAGES = 5_000
MAX_METADATA_BYTES = 65_536
MAX_PROMPT_BYTES = 4_000
MAX_METADATA_DEPTH = 32
MAX_SUMMARY = 1_000  # characters
MAX_TAGS = 20
MAX_TAG = 64  # characters
_WIDEST = 4  # bytes of a character
_LOOK_AHEAD = 16_384  # bytes behind the limit, where personal data that it would cut may go on
_LAST: Micros = LATEST - 1_000_000  # the end of time is left free for moving on from ties
_IDS = ("message_id", "id")  # KeMem's own, and what others call a message
_ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")  # in JSON, not behind a backslash


class Parsed(NamedTuple):
    """Messages ready to be stored."""

    messages: list[Message]
    truncated: tuple[str, ...]  # ids of those that were cut to the size limit
    has_ids: bool  # some have an id of the caller's: they may be stored already


@dataclass(frozen=True, slots=True)
class Task:
    """How notes are extracted from messages; a job keeps it as its details."""

    kind: str  # of the notes
    infer: bool = True  # False: each message becomes a note verbatim
    prompt: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    expires: Micros | None = None
    sensitive: bool = False

    @classmethod
    def parse(
        cls,
        owner: Owner,
        policy: ContentPolicy,
        memory_type: str | None,
        prompt: object,
        metadata: object,
        expires_at: Time | None,
        *,
        infer: bool,
        sensitive: bool,
    ) -> "Task":
        """The task that the arguments of `add` describe; what nobody owns is knowledge."""
        if memory_type not in (None, "long", "short"):
            refuse("memory_type", "be short or long", memory_type)
        long = "user_info" if owner.user_id else "knowledge"
        kind = "short_term" if memory_type == "short" else long
        fields, is_marked = allowed_metadata(metadata, "metadata", policy)
        return cls(
            kind,
            check_flag(infer, "infer"),
            check_prompt(prompt),
            fields,
            to_time(expires_at, "expires_at"),
            check_flag(sensitive, "sensitive") or is_marked,
        )


def parse_messages(messages: Messages, owner: Owner, now: Micros, policy: ContentPolicy) -> Parsed:
    """What callers mean, in their order; the first wrong message refuses them all."""
    return parse_turns(read_turns(to_list(messages)).turns, owner, now, policy)


def parse_turns(turns: Iterable[Turn], owner: Owner, now: Micros, policy: ContentPolicy) -> Parsed:
    """Messages ready to be stored, in their order; the first wrong one refuses them all.

    The policy is applied: personal data in them is kept, marked, masked or refused.
    """
    turns = list(turns)
    parsed = [_message(turn.fields, turn.origin, owner, now, policy) for turn in turns]
    first: dict[str, Message] = {}
    for turn, (message, _) in zip(turns, parsed, strict=True):
        other = first.setdefault(message.message_id, message)
        # A store ignores a message that comes again, whatever its time is.
        if other is not message and other != replace(
            message, ts=other.ts, ingest_time=other.ingest_time
        ):
            name = f"{turn.origin}.message_id"
            reason = f"{name} {message.message_id!r} occurs twice in this call, with other content"
            raise InvalidArgument(reason, field=name, message_ids=[message.message_id])
    cut = tuple(message.message_id for message, truncated in parsed if truncated)
    has_ids = any(turn.fields.get(name) is not None for turn in turns for name in _IDS)
    return Parsed([message for message, _ in parsed], cut, has_ids)


def to_list(messages: object) -> list[object]:
    """The messages of a call, one or many, as a list."""
    if isinstance(messages, str) and is_blank(messages):
        refuse("messages[0].content", "be a text that is not blank", messages)
    items = to_items(messages)
    if items is None:
        refuse("messages", "be a text, a message or a list of messages", messages)
    if not items:
        raise InvalidArgument("messages must have at least one message", field="messages")
    if len(items) > MAX_MESSAGES:
        problem = f"at most {MAX_MESSAGES} messages in one call, not {len(items)}"
        raise Exhausted(problem, field="messages")
    return items


def with_defaults(turns: Iterable[Turn], metadata: Mapping[str, Any], ts: object) -> list[Turn]:
    """Turns with what the call says of all of them; their own words win."""
    completed = []
    for origin, fields in turns:
        own = check_metadata(fields.get("metadata"), f"{origin}.metadata") if metadata else {}
        times = {} if ts is None else {"ts": ts}
        all_metadata = {"metadata": {**metadata, **own}} if metadata else {}
        completed.append(Turn(origin, {**times, **fields, **all_metadata}))
    return completed


def _message(
    item: Mapping[str, Any], field: str, owner: Owner, now: Micros, policy: ContentPolicy
) -> tuple[Message, bool]:
    if item.get("user_id", owner.user_id) != owner.user_id:
        refuse(f"{field}.user_id", "be the user_id of the call", item["user_id"])
    content, truncated, is_marked = _allowed(item.get("content"), f"{field}.content", policy)
    metadata, has_mark = allowed_metadata(item.get("metadata"), f"{field}.metadata", policy)

    def own_id(name: str) -> str | None:
        value = item.get(name)
        if value is not None and name in owner.fixed and value != getattr(owner, name):
            raise PermissionDenied(f"{field}.{name} is not the one that this handle is bound to")
        return None if value is None else check_id(value, f"{field}.{name}")

    ts, role = item.get("ts"), item.get("role", "user")
    micros = now if ts is None else to_micros(ts, f"{field}.ts")
    if micros > _LAST:
        refuse(f"{field}.ts", "be before 9999-12-31T23:59:59Z", ts)
    if not isinstance(role, str) or role not in ROLES:
        refuse(f"{field}.role", f"be one of {', '.join(ROLES)}", role)
    # The store moves a message whose two times are equal, but never one that came with a time.
    is_moment_given = ts is not None and micros == now
    message = Message(
        message_id=own_id("message_id") or "",
        agent_id=own_id("agent_id") or owner.agent_id,
        user_id=owner.user_id,
        session_id=own_id("session_id") or owner.session_id,
        role=role,
        content=content,
        ts=micros,
        ingest_time=now + is_moment_given,
        content_type=_content_type(item.get("content_type"), f"{field}.content_type"),
        parent_message_id=own_id("parent_message_id"),
        metadata={**metadata, "truncated": True} if truncated else metadata,
        sensitive=is_marked or has_mark,
    )
    if not message.message_id:
        is_named = item.get("id") is not None
        own = _id_by_content(message, item["id"]) if is_named else new_id("m", now)
        message = replace(message, message_id=own)
    return message, truncated


def _id_by_content(message: Message, name: object) -> str:
    """An id that is the same whenever a message comes again under the name that others gave it.

    Others change what a message says and keep its name, and fork sessions with their messages.
    """
    whose = (message.user_id, message.agent_id, message.session_id)
    said = (message.role, message.content_type, message.content, message.parent_message_id)
    key = json.dumps([name, *whose, *said, message.metadata], sort_keys=True)
    return f"m_{sha256(key.encode()).hexdigest()[:32]}"


def refuse(field: str, rule: str, value: object) -> NoReturn:
    """Say what would be right in the place of a value."""
    raise InvalidArgument(f"{field} must {rule}, not {shown(value)}", field=field)


def _content_type(content_type: object, field: str) -> str:
    if content_type is None:
        return "text"
    if not isinstance(content_type, str) or not 1 <= len(content_type) <= 50:
        refuse(field, "be 1-50 characters", content_type)
    _refuse_nul(b"\0" in encode(content_type, field), field)
    return content_type


def _content(content: object, field: str, most: int) -> tuple[str, bool]:
    """The text, and whether it was cut to `most` bytes at a character border."""
    raw = encode(content, field) if isinstance(content, str) else b""
    text = raw[:most].decode(errors="ignore")
    if is_blank(text):
        refuse(field, "be a text that is not blank", content)
    return text, len(raw) > most


def _allowed(content: object, field: str, policy: ContentPolicy) -> tuple[str, bool, bool]:
    """The text as it may be stored, whether it was cut, and whether it is sensitive."""
    whole, is_cut = _content(content, field, policy.max_bytes + _LOOK_AHEAD)
    text, is_marked = apply_policy(whole, policy, field)
    if text is whole and len(text) * _WIDEST <= policy.max_bytes:
        return text, is_cut, is_marked
    text, truncated = _content(text, field, policy.max_bytes)
    return text, is_cut or truncated, is_marked


def allowed_metadata(
    metadata: object, field: str, policy: ContentPolicy
) -> tuple[Mapping[str, Any], bool]:
    """Metadata as it may be stored, and whether it is sensitive."""
    checked = check_metadata(metadata, field)
    return apply_policy_to_value(checked, policy, field) if checked else (checked, False)


def allowed_text(text: object, field: str, policy: ContentPolicy) -> tuple[str, bool]:
    """A text that must not be cut, as it may be stored, and whether it is sensitive."""
    return apply_policy(check_text(text, field, policy.max_bytes), policy, field)


def check_metadata(metadata: object, field: str) -> Mapping[str, Any]:
    """Metadata that can be stored: a JSON object that is neither deep nor large."""
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        refuse(field, "be an object", metadata)
    _check_nesting(metadata, field)
    try:
        raw = json.dumps(metadata, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{field} must be JSON: {error}", field=field) from None
    if len(raw) > MAX_METADATA_BYTES:
        problem = f"{field} must be at most {MAX_METADATA_BYTES} bytes, not {len(raw)}"
        raise Exhausted(problem, field=field)
    _refuse_nul(_ESCAPED_NUL.search(raw.decode()), field)
    checked: Mapping[str, Any] = json.loads(raw)  # a copy: tuples become lists, keys strings
    return checked


def _check_nesting(metadata: object, field: str) -> None:
    """Refuse what is nested deep or without end, before anything tries to follow it."""
    level = [metadata]
    for _ in range(MAX_METADATA_DEPTH):
        level = list(islice(chain.from_iterable(map(_children, level)), MAX_METADATA_BYTES))
        if len(level) == MAX_METADATA_BYTES:
            raise Exhausted(f"{field} must be at most {MAX_METADATA_BYTES} bytes", field=field)
        if not level:
            return
    problem = f"{field} must not be nested deeper than {MAX_METADATA_DEPTH}"
    raise InvalidArgument(problem, field=field)


def _children(item: object) -> Iterable[object]:
    if isinstance(item, Mapping):
        return item.values()
    return item if isinstance(item, list | tuple) else ()


def _refuse_nul(has_nul: object, field: str) -> None:
    """Only message content may hold NUL: databases keep no other text with it."""
    if has_nul:
        raise InvalidArgument(f"{field} must not hold NUL", field=field)


def check_text(text: object, field: str, most: int) -> str:
    """A text that must not be cut."""
    checked, truncated = _content(text, field, most)
    if truncated:
        raise Exhausted(f"{field} must be at most {most} bytes", field=field)
    return checked


def check_label(text: object, field: str, most: int) -> str:
    """A short text of at most `most` characters, as titles and tags are."""
    label = check_text(text, field, 4 * most).strip()
    if len(label) > most:
        raise Exhausted(f"{field} must be at most {most} characters, not {len(label)}", field=field)
    _refuse_nul("\0" in label, field)
    return label


def check_tags(tags: object) -> tuple[str, ...]:
    """Words to find a text by, each once."""
    if not isinstance(tags, list | tuple):
        refuse("tags", "be a list of words", tags)
    if len(tags) > MAX_TAGS:
        raise Exhausted(f"at most {MAX_TAGS} tags, not {len(tags)}", field="tags")
    checked = (check_label(tag, f"tags[{at}]", MAX_TAG) for at, tag in enumerate(tags))
    return tuple(dict.fromkeys(checked))


def check_prompt(prompt: object) -> str | None:
    """The caller's own words to the model, if any."""
    return None if prompt is None else check_text(prompt, "prompt", MAX_PROMPT_BYTES)
