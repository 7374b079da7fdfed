"""The turns of messages of any shape, in KeMem's own fields."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from kemem.errors import InvalidArgument
from kemem.records.times import since_1970, to_micros
from kemem.text.attachments import Attachment
from kemem.text.ids import is_blank
from kemem.text.jsonable import dumped, jsonable
from kemem.text.parts import Fields, Piece
from kemem.text.shapes import Item, read_item, role_of

NOT_SAID = frozenset({"tool_call", "tool_result", "thinking"})  # content types that tell no fact
NO_CONTENT = "a message has no content and is not stored"
MAX_EXTRA = 8_192  # characters of a key that is kept as metadata
MAX_EXTRAS = 32_768  # characters of all of them
MAX_ATTACHMENTS = 20  # of a message, in its metadata
_PLAIN = 64  # characters of a derived id, then a hash: another limit would give other ids

_OWN = (
    *("message_id", "ts", "session_id", "agent_id", "content_type", "parent_message_id"),
    *("metadata", "user_id"),
)
_SIMPLE = frozenset({"role", "content", *_OWN})
_TIMES = ("timestamp", "created_at")  # what others call `ts`
_AS_TIMES = "RFC 3339 time such as '2026-01-26T10:47:00Z'"
_KNOWN = ("id", "run_id", "conversation_id", "model", "model_name", *_TIMES)  # kept as metadata


class Turn(NamedTuple):
    """One message in KeMem's own fields, and which of the caller's messages it comes from."""

    origin: str  # "messages[3]"
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reading:
    """What the messages of a call say."""

    turns: tuple[Turn, ...]
    skipped: tuple[str, ...] = ()  # messages without any content
    problems: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()


def read_turns(
    messages: Sequence[object],
    *,
    thinking: bool = False,
    descriptions: Mapping[Attachment, str] | None = None,
) -> Reading:
    """The turns of messages of any shape, in their order.

    Thoughts are left out unless `thinking` asks for them. `descriptions` are texts that attachments
    are shown with.
    """
    turns: list[Turn] = []
    attachments: list[Attachment] = []
    skipped, problems = [], dict[str, None]()
    tools: dict[str, Any] = {}  # names by the ids of their calls
    for index, message in enumerate(messages):
        origin = f"messages[{index}]"
        if (fields := _simple(message)) is not None and not is_blank(fields["content"]):
            turns.append(Turn(origin, fields))
            continue
        item, pieces = read_item(message, origin)
        said = [_named(it, tools) for it in pieces if thinking or it.kind != "thinking"]
        extras, reasons = _extras(item.rest)
        attachments += [it for piece in said for it in piece.said if isinstance(it, Attachment)]
        made = [*_turns(origin, item, said, extras, descriptions or {})]
        is_command = role_of(item.role) == "system"  # LangChain's RemoveMessage is none to store
        if not made and len(said) == len(pieces) and not is_command:
            keys = ", ".join(repr(it)[:60] for it in extras)
            reasons = [f"{NO_CONTENT}; it has {keys}" if keys else NO_CONTENT]
        reasons += [f"unknown part {it.unknown!r:.60} of a message" for it in said if it.unknown]
        problems |= dict.fromkeys(reasons)
        turns += made
        skipped += [] if made else [origin]
    return Reading(tuple(turns), tuple(skipped), tuple(problems), tuple(attachments))


def _simple(message: object) -> dict[str, Any] | None:
    """The fields of a message that is a text in KeMem's own words, as most are; None for others.

    They are those that all the rest would make of it, in a fifth of the time.
    """
    if type(message) is not dict or not message.keys() <= _SIMPLE or "role" not in message:
        return None
    content = message.get("content")
    if type(content) is not str:
        return None
    own = {name: message[name] for name in _OWN if message.get(name) is not None}
    return {"role": role_of(message["role"]), "content": content, **own}


def _named(piece: Piece, tools: dict[str, Any]) -> Piece:
    """A result with the name of the tool whose call it answers."""
    metadata = piece.metadata
    call_id, name = metadata.get("tool_call_id"), metadata.get("tool_name")
    if piece.kind == "tool_call" and call_id:
        tools[call_id] = name
    elif piece.kind == "tool_result" and not name and call_id in tools:
        return replace(piece, metadata={**metadata, "tool_name": tools[call_id]})
    return piece


def _extras(rest: Fields) -> tuple[dict[str, Any], list[str]]:
    """The fields that are kept as metadata, and what is to be said of those that nobody knows."""
    kept: dict[str, Any] = {}
    reasons: list[str] = []
    room = MAX_EXTRAS
    for key, value in rest.items():
        if value is None or key in _OWN or key == "name":
            continue
        written = dumped(value)
        fits = len(written) <= min(MAX_EXTRA, room)
        if fits:
            room -= len(written)
            kept[jsonable(str(key)[:200])] = jsonable(value)
        if fits and key in _TIMES and rest.get("ts") is None and _time(value) is None:
            reasons.append(f"{key} of a message is no {_AS_TIMES}, kept as metadata")
        if key not in _KNOWN or not fits:
            end = "kept as metadata" if fits else "too large to keep"
            reasons.append(f"unknown key {str(key)!r:.60} of a message, {end}")
    return kept, reasons


def _turns(
    origin: str,
    item: Item,
    pieces: Sequence[Piece],
    extras: Fields,
    descriptions: Mapping[Attachment, str],
) -> Iterator[Turn]:
    """The turns of a message: neighbours of one speaker together, calls and results apart."""
    role = role_of(item.role)
    own = {name: item.rest[name] for name in _OWN if item.rest.get(name) is not None}
    if times := [it for key in _TIMES if (it := _time(item.rest.get(key))) is not None]:
        own.setdefault("ts", times[0])
    name = item.rest.get("name")
    if isinstance(name, str) and name.strip() and role in ("user", "assistant"):
        extras = {**extras, "speaker" if role == "user" else "name": jsonable(name[:64])}
    made = []
    places = [_place(at, piece, role) for at, piece in enumerate(pieces)]
    for _, group in groupby(zip(places, pieces, strict=True), key=lambda it: it[0]):
        together = [piece for _, piece in group]
        content = _joined([one for piece in together for one in piece.said], descriptions)
        if not is_blank(content):
            made.append((content, together))
    ids, name_of_others = _ids(own, len(made)), extras.get("id")
    is_name = isinstance(name_of_others, str | int) and name_of_others not in ("", False, True)
    foreign = {"id": name_of_others} if is_name else {}
    for (content, together), chained in zip(made, ids, strict=True):
        first = together[0]
        fields = {"role": first.role or role, "content": content, **own, **chained, **foreign}
        if first.kind != "text":
            fields["content_type"] = first.kind
            if call_id := first.metadata.get("tool_call_id"):  # a name as good as a message's
                fields.setdefault("id", call_id)
        if first.ts is not None:
            fields.setdefault("ts", first.ts)
        said, metadata = own.get("metadata", {}), _metadata(together, extras)
        if metadata and isinstance(said, Mapping):  # else it is refused later
            fields["metadata"] = {**metadata, **said}
        yield Turn(origin, fields)


def _time(value: Any) -> Any:
    """A time as messages have it, also one that counts from 1970; another may mean anything.

    1769424420 -> "2026-01-26T10:47:00Z"
    """
    try:
        to_micros(value)
    except InvalidArgument:
        return since_1970(value)
    return value


def _metadata(pieces: Sequence[Piece], extras: Fields) -> dict[str, Any]:
    """What is kept of a turn beside its content."""
    metadata = {
        k: v for level in (extras, *(it.metadata for it in pieces)) for k, v in level.items()
    }
    attached = [it for piece in pieces for it in piece.said if isinstance(it, Attachment)]
    if attached:
        metadata["attachments"] = [it.properties for it in attached[:MAX_ATTACHMENTS]]
    return metadata


def _place(number: int, piece: Piece, role: object) -> tuple[object, ...]:
    """Equal for pieces that make one turn."""
    return ("text", piece.role or role) if piece.kind == "text" else (number,)


def _joined(said: Sequence[str | Attachment], descriptions: Mapping[Attachment, str]) -> str:
    """Texts one below the other, unless a text was cut within a line; a line for attachments."""
    joined, ends = "", True  # whether a line must end here
    for one in said:
        is_line = isinstance(one, Attachment)
        text = one.line(descriptions.get(one)) if isinstance(one, Attachment) else one
        if not text:
            continue
        is_apart = is_line or ends or not (joined[-1:].isspace() or text[0].isspace())
        joined += f"\n{text}" if joined and is_apart and not joined.endswith("\n") else text
        ends = is_line
    return joined


def _ids(own: Fields, count: int) -> list[dict[str, str]]:
    """Ids and parents of the turns of one message: the last has the message's own id.

    Those before it have ids of their own, the same whenever the message comes again, and each is
    the parent of the next, so that who follows parents finds all of them.
    """
    message_id = own.get("message_id")
    if count < 2 or not isinstance(message_id, str):
        return [{}] * count
    names = [f"{message_id}.{number}" for number in range(1, count)]
    if len(names[-1]) > _PLAIN:
        names = [f"m_{sha256(name.encode(errors='replace')).hexdigest()[:40]}" for name in names]
    ids = [*names, message_id]
    pairs = pairwise(ids)
    return [
        {"message_id": ids[0]},
        *({"message_id": it, "parent_message_id": parent} for parent, it in pairs),
    ]
