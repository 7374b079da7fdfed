"""Memories that other systems drew: those of mem0, rows of LangGraph's store, Graphiti's facts.

Each is kept as a note, word for word.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from kemem.imports.items import Item, end_of, moment, readable, source_id, stable_id, version_of
from kemem.text.jsonable import dumped, jsonable
from kemem.text.parts import Fields

MEM0, LANGGRAPH, GRAPHITI = "mem0", "LangGraph store", "Graphiti"
_TEXTS = ("content", "memory", "text", "data", "value")  # where values of LangGraph hold a text
_EDGE = {"fact", "source_node_uuid", "target_node_uuid"}
_EPISODE = {"content", "source", "source_description"}


def _lists(value: object, *names: str) -> Iterator[object]:
    """The items of the lists that a response has under some names; or the value itself."""
    lists = [value[name] for name in names if name in value] if isinstance(value, dict) else []
    found = [it for it in lists if isinstance(it, list)]
    yield from (it for some in found for it in some) if found else (value,)


def _has(value: object, keys: set[str]) -> bool:
    return isinstance(value, dict) and keys <= value.keys()


# mem0


def is_mem0(value: object) -> bool:
    """Whether a value is a memory of mem0, or the answer of its `get_all`."""
    first = next(_lists(value, "results"), None)
    return _has(first, {"id", "memory"}) and isinstance(first, dict) and "role" not in first


def read_mem0(value: object, place: str) -> Iterator[Item]:
    """The memories of `get_all`, or one of them."""
    for number, it in enumerate(_lists(value, "results"), start=1):
        if isinstance(it, dict) and (text := readable(it.get("memory")).strip()):
            yield mem0_item(it, text, f"{place}: memory {number}")


def mem0_item(record: Fields, text: str, place: str) -> Item:
    """A memory of mem0: its ids, its time, its metadata and when it expires."""
    kept = record.get("metadata")
    metadata = {"source": "mem0", **(jsonable(kept) if isinstance(kept, Mapping) else {})}
    if isinstance(record.get("categories"), list):
        metadata["categories"] = jsonable(record["categories"])
    fields = {
        "content": text,
        "message_id": source_id("mem0", record.get("id"), version_of(text)),
        "ts": moment(record.get("created_at")),
        "agent_id": record.get("agent_id"),
        "session_id": record.get("run_id"),
    }
    user, expires = record.get("user_id"), end_of(record.get("expiration_date"))
    return Item(place, MEM0, fields, user, None, True, metadata, expires)


# LangGraph


def is_langgraph(value: object) -> bool:
    """Whether a value is an item of LangGraph's store, or a row of its table."""
    is_row = _has(value, {"prefix", "key", "value"}) or _has(value, {"namespace", "key", "value"})
    return is_row and isinstance(value, dict) and isinstance(value["value"], dict | str)


def read_langgraph(value: Fields, place: str) -> Iterator[Item]:
    """The text of an item, or all of its value as JSON."""
    namespace = value.get("namespace", value.get("prefix"))
    path = "/".join(map(str, namespace)) if isinstance(namespace, list) else str(namespace)
    text, key = _text(value["value"]).strip(), readable(str(value["key"]))
    if text:
        metadata = {"source": "langgraph", "namespace": readable(path), "key": key}
        fields = {
            "content": text,
            "message_id": stable_id("langgraph", path, key, text),
            "ts": moment(value.get("updated_at")) or moment(value.get("created_at")),
        }
        expires = moment(value.get("expires_at"))
        yield Item(place, LANGGRAPH, fields, None, None, True, metadata, expires)


def _text(value: object) -> str:
    """The text of a value: "I ski", {"content": "I ski"}, {"content": {"content": "I ski"}}."""
    inner = value
    while isinstance(inner, dict):
        inner = next((inner[name] for name in _TEXTS if name in inner), None)
    return readable(inner) if isinstance(inner, str) else dumped(value)


# Graphiti and Zep's graph


def is_graphiti(value: object) -> bool:
    """Whether a value is an entity edge or an episode, or holds lists of them."""
    first = next(_lists(value, "edges", "episodes"), None)
    return _has(first, _EDGE) or _has(first, _EPISODE)


def read_graphiti(value: object, place: str) -> Iterator[Item]:
    """Facts that are still true as memories, episodes as messages."""
    for number, it in enumerate(_lists(value, "edges", "episodes"), start=1):
        if not isinstance(it, dict):
            continue
        ts = moment(it.get("valid_at")) or moment(it.get("created_at"))
        own_id = source_id("graphiti", it.get("uuid") or stable_id("", dumped(it)))
        group = it.get("group_id")
        other = group if isinstance(group, str) and group else None
        is_fact = _has(it, _EDGE)
        text = readable(it.get("fact" if is_fact else "content")).strip()
        has_ended = is_fact and (it.get("invalid_at") or it.get("expired_at"))
        if text and not has_ended:
            name = readable(it.get("name"))
            metadata: dict[str, Any] = {"source": "graphiti", **({"name": name} if name else {})}
            fields: dict[str, Any] = {"content": text, "message_id": own_id, "ts": ts}
            fields |= {} if is_fact else {"metadata": metadata}
            at = f"{place}: {'edge' if is_fact else 'episode'} {number}"
            yield Item(at, GRAPHITI, fields, None, other, is_fact, metadata)
