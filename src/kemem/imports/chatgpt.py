"""The export of ChatGPT: conversations are trees, of which the path that was shown is read."""

from collections.abc import Iterator, Mapping
from typing import Any

from kemem.imports.items import Item, moment, readable, source_id
from kemem.text.parts import Fields

FORMAT = "ChatGPT"
_LONGEST_TITLE = 200
_POINTERS = {"image_asset_pointer": "image", "video_container_asset_pointer": "video"}


def is_conversation(value: object) -> bool:
    """Whether a value is a conversation of the export."""
    return isinstance(value, dict) and isinstance(value.get("mapping"), dict)


def read_conversation(value: Fields, place: str) -> Iterator[Item]:
    """The messages of the branch that was shown, oldest first, each the parent of the next."""
    name = value.get("conversation_id") or value.get("id") or value.get("title") or place
    title = readable(value.get("title"))[:_LONGEST_TITLE]
    session, ts = source_id("chatgpt", name), moment(value.get("create_time"))
    parent = None
    for number, node in enumerate(_shown(value["mapping"], value.get("current_node")), start=1):
        message = node.get("message")
        if not isinstance(message, dict) or not (fields := _message(message)):
            continue
        ts = moment(message.get("create_time")) or ts
        own_id = source_id("chatgpt", message.get("id") or node.get("id") or f"{name}-{number}")
        own = {"message_id": own_id, "session_id": session, "ts": ts, "parent_message_id": parent}
        model = (message.get("metadata") or {}).get("model_slug")
        kept = {"source": "chatgpt", "title": title, "model": model}
        metadata = {key: it for key, it in kept.items() if it and isinstance(it, str)}
        fields = {**fields, **own, "metadata": metadata}
        yield Item(f"{place}: message {number}", FORMAT, fields)
        parent = own_id


def _shown(mapping: Mapping[str, Any], current: object) -> list[Fields]:
    """The nodes from the root to the current one; without it, to the newest leaf."""
    nodes = {key: node for key, node in mapping.items() if isinstance(node, dict)}
    if not isinstance(current, str) or current not in nodes:
        leaves = [key for key, node in nodes.items() if not node.get("children")]
        current = max(leaves, key=lambda key: _time(nodes[key]), default=None)
    path: dict[str, Fields] = {}
    while isinstance(current, str) and current in nodes and current not in path:
        path[current] = nodes[current]
        current = nodes[current].get("parent")
    return list(path.values())[::-1]


def _time(node: Fields) -> float:
    message = node.get("message")
    time = message.get("create_time") if isinstance(message, dict) else None
    return time if isinstance(time, int | float) else 0


def _message(message: Fields) -> dict[str, Any] | None:
    """A message as those of model APIs are; None where nothing of it was shown."""
    author, content = message.get("author") or {}, message.get("content")
    metadata = message.get("metadata") or {}
    if not (isinstance(author, dict) and isinstance(content, dict) and isinstance(metadata, dict)):
        return None
    role = author.get("role")
    if metadata.get("is_visually_hidden_from_conversation"):
        return None
    parts = [*_parts(content), *_files(metadata)]
    if role not in ("user", "assistant", "system", "tool") or not parts:
        return None
    recipient = message.get("recipient")
    if role == "tool":
        return {"role": "tool", "name": str(author.get("name") or "tool"), "content": parts}
    if role == "assistant" and recipient not in (None, "all"):
        written = "\n".join(part["text"] for part in parts if part["type"] == "text")
        function = {"name": str(recipient), "arguments": written}
        return {"role": "assistant", "tool_calls": [{"id": message.get("id"), **function}]}
    return {"role": role, "content": parts}


def _parts(content: Fields) -> Iterator[dict[str, Any]]:
    """What was said or shown, part by part; thoughts of the model are left out."""
    if content.get("content_type") in ("thoughts", "reasoning_recap", "user_editable_context"):
        return
    parts = content.get("parts")
    named = [content.get("text"), content.get("result")]
    for part in parts if isinstance(parts, list) else named:
        if isinstance(part, dict):
            kind = _POINTERS.get(str(part.get("content_type")))
            if kind:
                yield {"type": kind, "url": readable(part.get("asset_pointer"))}
                continue
            part = part.get("text")
        if text := readable(part).strip():
            yield {"type": "text", "text": text}


def _files(metadata: Fields) -> Iterator[dict[str, Any]]:
    """Files that were uploaded; images are parts of the content already."""
    attached = metadata.get("attachments")
    for each in attached if isinstance(attached, list) else ():
        if isinstance(each, dict) and not str(each.get("mime_type")).startswith("image/"):
            kept = {"filename": readable(each.get("name")), "mime_type": each.get("mime_type")}
            yield {"type": "file", **kept}
