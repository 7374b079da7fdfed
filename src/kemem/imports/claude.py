"""The export of Claude: conversations with messages in Anthropic's blocks."""

from collections.abc import Iterator, Sequence
from typing import Any

from kemem.imports.items import Item, moment, readable, source_id
from kemem.text.parts import Fields

FORMAT = "Claude"
_LONGEST_TITLE = 200
_LONGEST_FILE = 20_000  # characters of a file's text that are kept with its message
_BLOCKS = ("text", "tool_use", "tool_result", "image", "document")


def is_conversation(value: object) -> bool:
    """Whether a value is a conversation of the export."""
    return isinstance(value, dict) and isinstance(value.get("chat_messages"), list)


def read_conversation(value: Fields, place: str) -> Iterator[Item]:
    """The messages that were shown, oldest first."""
    name = value.get("uuid") or value.get("name") or place
    title = readable(value.get("name"))[:_LONGEST_TITLE]
    metadata = {"source": "claude", **({"title": title} if title else {})}
    session, ts = source_id("claude", name), moment(value.get("created_at"))
    messages = _shown(value["chat_messages"], value.get("current_leaf_message_uuid"))
    for number, message in messages:
        content = [*_said(message), *_files(message)]
        role = {"human": "user", "assistant": "assistant"}.get(str(message.get("sender")))
        if role is None or not content:
            continue
        ts = moment(message.get("created_at")) or ts
        own_id = source_id("claude", message.get("uuid") or f"{name}-{number}")
        own = {"message_id": own_id, "session_id": session, "ts": ts, "metadata": metadata}
        fields = {"role": role, "content": content, **own}
        yield Item(f"{place}: message {number}", FORMAT, fields)


def _shown(messages: Sequence[object], leaf: object) -> list[tuple[int, Fields]]:
    """Messages by their numbers; where the last one shown is named, only those before it."""
    numbered: list[tuple[int, Fields]] = [
        (at, it) for at, it in enumerate(messages, start=1) if isinstance(it, dict)
    ]
    by_id = {str(it.get("uuid")): (at, it) for at, it in numbered}
    path: dict[str, tuple[int, Fields]] = {}
    current = str(leaf)
    while current in by_id and current not in path:
        path[current] = by_id[current]
        current = str(by_id[current][1].get("parent_message_uuid"))
    return list(path.values())[::-1] or numbered


def _said(message: Fields) -> Iterator[Any]:
    blocks = message.get("content")
    known = [
        it
        for it in (blocks if isinstance(blocks, list) else ())
        if isinstance(it, dict) and it.get("type") in _BLOCKS
    ]
    for block in known:
        if block["type"] != "text":
            yield block
        elif text := readable(block.get("text")).strip():
            yield {"type": "text", "text": text}
    if not known and (text := readable(message.get("text")).strip()):
        yield {"type": "text", "text": text}


def _files(message: Fields) -> Iterator[dict[str, Any]]:
    """What was attached: the text that the export has of it, else a line with its name."""
    listed = [message.get(key) for key in ("attachments", "files")]
    for each in (it for some in listed if isinstance(some, list) for it in some):
        if not isinstance(each, dict):
            continue
        name = readable(each.get("file_name")) or "file"
        if text := readable(each.get("extracted_content")).strip():
            yield {"type": "text", "text": f"[{name}]\n{text[:_LONGEST_FILE]}"}
        else:
            yield {"type": "file", "filename": name}
