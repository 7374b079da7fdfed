"""The parts that a message's content has in the formats of others, read as pieces.

A part is read by the entry of PARTS under its type, else by the end of its type, else by a key that
only such parts have. Objects of client libraries are read by their fields.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from reprlib import repr as shown
from typing import Any

from kemem.text.attachments import Attachment, read_attachment
from kemem.text.jsonable import dumped, jsonable, to_fields

Fields = Mapping[str, Any]

MAX_KEPT = 16_384  # characters of the arguments of a call that its metadata repeats

_TYPE = ("type", "part_kind", "kind", "block_type")
_ID = ("call_id", "tool_call_id", "tool_use_id", "toolCallId", "id")
_NAME = ("name", "tool_name", "toolName")
_ARGUMENTS = ("arguments", "args", "input", "parameters", "tool_kwargs")
_RESULT = ("content", "output", "response", "result", "results")
_THOUGHT = ("thinking", "reasoning", "reasoning_content", "content", "text", "summary")
_OF_SERVERS = {*_TYPE, *_ID, *_NAME, "status", "signature", "caller", "provider_details"}


class Unreadable(Exception):
    """A value that no content can hold."""

    def __init__(self, value: object) -> None:
        super().__init__(f"be a text or a list of parts, not {shown(value)}")


@dataclass(frozen=True, slots=True)
class Piece:
    """Something that a message holds: what is said, a call or a result of a tool, a thought."""

    kind: str  # text, tool_call, tool_result or thinking
    said: tuple[str | Attachment, ...]
    role: str | None = None  # None: that of the message
    metadata: Fields = field(default_factory=dict)
    ts: object = None
    unknown: str | None = None  # the type of a part that no reader knows


Reader = Callable[[Fields], Iterator[Piece]]


def first(fields: Fields, names: tuple[str, ...]) -> Any:
    """The value of the first name that has one."""
    return next((value for name in names if (value := fields.get(name)) is not None), None)


def read_content(content: object) -> Iterator[Piece]:
    """The pieces of a content: a text, parts, or one part."""
    if content is None:
        return
    for part in content if isinstance(content, list | tuple) else [content]:
        found = to_fields(part)
        if isinstance(part, str):
            yield Piece("text", (part,))
        elif found is None:
            raise Unreadable(part)
        else:
            yield from read_part(found)


def read_part(part: Fields) -> Iterator[Piece]:
    """The pieces of one part, by its type or its keys; of an unknown one at least its text."""
    kind = first(part, _TYPE)
    if isinstance(kind, str):
        ending = (it for end, it in _ENDINGS if kind.endswith(end))
        reader = PARTS.get(kind) or next(ending, _unknown)
    else:
        reader = next((it for key, it in _KEYED if part.get(key) is not None), _unknown)
    yield from reader(part)


def _text(part: Fields) -> Iterator[Piece]:
    if part.get("thought") is True:
        yield from thought(part)
        return
    text = first(part, ("text", "content", "refusal", "transcript", "value"))
    if not isinstance(text, str):
        text = (to_fields(text) or {}).get("value", "") if text is not None else ""
    yield Piece("text", (text,) if isinstance(text, str) else (dumped(text),))


def _unknown(part: Fields) -> Iterator[Piece]:
    """A part of a type that is not known: its text, or else all of it as JSON."""
    kind, text = first(part, _TYPE), part.get("text")
    said = text if isinstance(text, str) else dumped(part)
    name = kind if isinstance(kind, str) else ", ".join(map(str, part)) or "{}"
    yield Piece("text", (said,) if part else (), unknown=name)


def thought(part: Fields) -> Iterator[Piece]:
    """What a model thought; nothing where it is encrypted."""
    value = first(part, _THOUGHT)
    texts = [value] if isinstance(value, str) else [*_texts(value)]
    yield Piece("thinking", tuple(text for text in texts if text.strip()), role="tool")


def _texts(parts: object) -> Iterator[str]:
    for part in parts if isinstance(parts, list | tuple) else ():
        text = part if isinstance(part, str) else (to_fields(part) or {}).get("text")
        if isinstance(text, str):
            yield text


def call(part: Fields) -> Iterator[Piece]:
    """A call of a tool, as text `name({"argument": …})`."""
    inner = to_fields(first(part, ("function", "custom", "function_call", "functionCall"))) or {}
    merged = {k: v for level in (part, inner) for k, v in level.items() if v is not None}
    kind = str(first(part, _TYPE) or "tool")
    name = first(merged, _NAME) or kind.removesuffix("_call")
    arguments = first(merged, _ARGUMENTS)
    if arguments is None:  # a tool of the model's server: whatever it was asked
        arguments = {k: v for k, v in merged.items() if k not in _OF_SERVERS and k != "function"}
    written = arguments if isinstance(arguments, str) else dumped(arguments)
    metadata = {"tool_name": jsonable(str(name)[:200]), **_call_id(merged)}
    if len(written) <= MAX_KEPT:
        metadata["arguments"] = _loaded(written)
    yield Piece("tool_call", (f"{name}({written})",), "tool", metadata, part.get("timestamp"))


def result(part: Fields) -> Iterator[Piece]:
    """What a tool answered: its text, or the JSON of anything else."""
    value = first(part, _RESULT)
    name = first(part, _NAME)
    metadata = {"tool_name": jsonable(name[:200])} if isinstance(name, str) else {}
    metadata |= _call_id(part)
    failed = part.get("is_error") is True or part.get("status") == "error"
    if failed or part.get("part_kind") == "retry-prompt" or part.get("outcome") == "failed":
        metadata |= {"is_error": True}
    yield Piece("tool_result", _returned(value), "tool", metadata, part.get("timestamp"))


def _returned(value: object) -> tuple[str | Attachment, ...]:
    if isinstance(value, str):
        return (value,)
    parts = value if isinstance(value, list | tuple) else [value]
    if parts and all(isinstance(it, str) or _is_part(it) for it in parts):
        return tuple(one for piece in read_content(parts) for one in piece.said)
    return () if value in (None, [], ()) else (dumped(value),)


def _is_part(value: object) -> bool:
    """Whether a value in a result is a text or an attachment rather than data."""
    found = to_fields(value) or {}
    kind = first(found, _TYPE)
    return isinstance(kind, str) and PARTS.get(kind) in (_text, *_MEDIA.values())


def _loaded(written: str) -> Any:
    """Arguments as an object; as they were written where they are not JSON."""
    try:
        return jsonable(json.loads(written))
    except (ValueError, RecursionError):
        return jsonable(written)


def _call_id(part: Fields) -> dict[str, Any]:
    value = first(part, _ID)
    return {"tool_call_id": jsonable(value[:200])} if isinstance(value, str) and value else {}


def _media(kind: str | None) -> Reader:
    def read(part: Fields) -> Iterator[Piece]:
        fields = _media_of_block(part) if "block_type" in part else part
        plain = {name: to_fields(value) or value for name, value in fields.items()}
        source = plain.get("source")
        if isinstance(source, Mapping) and isinstance(source.get("content"), list | str):
            yield from read_content(source["content"])  # a document in Anthropic's blocks
            return
        if isinstance(text := plain.get("transcript"), str):
            yield Piece("text", (text,))
        yield Piece("text", (read_attachment(plain, kind),))

    return read


def _media_of_block(block: Fields) -> Fields:
    """An image, a recording or a file of LlamaIndex, whose bytes are base64, as others write it."""
    kind = block["block_type"]
    data = block.get("data" if kind == "document" else kind)
    url, name = block.get("url"), block.get("title") or block.get("path")
    return {
        "data": data.decode(errors="replace") if isinstance(data, bytes) else data,
        "mime_type": block.get(f"{kind}_mimetype"),
        "format": block.get("format"),
        "url": None if url is None else str(url),
        "name": None if name is None else PurePath(str(name)).name,
    }


def _nothing(part: Fields) -> Iterator[Piece]:
    """A mark for the model's server, which says nothing."""
    yield from ()


def _inside(name: str, reader: Reader) -> tuple[str, Reader]:
    """Reads what a part has under a name, which is also its type."""
    return name, lambda part: reader({"type": name, **(to_fields(part[name]) or {})})


def _by(role: str) -> Reader:
    """Reads a part whose speaker is not that of the message."""

    def read(part: Fields) -> Iterator[Piece]:
        for piece in read_content(part.get("content")):
            own = role if piece.role is None else piece.role
            yield Piece(piece.kind, piece.said, own, piece.metadata, part.get("timestamp"))

    return read


_MEDIA: dict[str | None, Reader] = {
    kind: _media(kind) for kind in ("image", "audio", "video", "file")
}
PARTS: Mapping[str, Reader] = {
    **dict.fromkeys(("text", "input_text", "output_text", "refusal", "text-plain"), _text),
    **dict.fromkeys(("thinking", "redacted_thinking", "reasoning", "reasoning_content"), thought),
    **dict.fromkeys(("tool_use", "tool_call", "tool-call", "function", "custom"), call),
    **dict.fromkeys(("tool_result", "tool-return", "retry-prompt", "search_result"), result),
    **dict.fromkeys(
        ("image", "image_url", "input_image", "image-url", "image_file"), _MEDIA["image"]
    ),
    **dict.fromkeys(("audio", "input_audio", "audio_url", "audio-url"), _MEDIA["audio"]),
    **dict.fromkeys(("video", "video_url", "video-url", "input_video"), _MEDIA["video"]),
    **dict.fromkeys(("file", "input_file", "document", "document-url", "media"), _MEDIA["file"]),
    **dict.fromkeys(("binary", "image_generation_call", "container_upload"), _MEDIA["file"]),
    "cache": _nothing,
    "citable": lambda part: read_content(part.get("content")),
    "citation": lambda part: read_content(part.get("cited_content")),
    "system-prompt": _by("system"),
    "user-prompt": _by("user"),
}
_ENDINGS: tuple[tuple[str, Reader], ...] = (
    *(("_call_output", result), ("_tool_result", result), ("tool-return", result)),
    *(("_call", call), ("_tool_use", call), ("tool-call", call), ("_approval_request", call)),
)
_KEYED: tuple[tuple[str, Reader], ...] = (  # Gemini's parts, which have no type
    *(_inside(name, call) for name in ("function_call", "functionCall")),
    *(_inside(name, result) for name in ("function_response", "functionResponse")),
    *(_inside(name, call) for name in ("executable_code", "executableCode")),
    *(_inside(name, result) for name in ("code_execution_result", "codeExecutionResult")),
    *((name, _MEDIA["file"]) for name in ("inline_data", "inlineData", "file_data", "fileData")),
    ("text", _text),
)
