"""Conversations that agent platforms kept: threads of Zep, agent files of Letta, LoCoMo."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from kemem.imports.items import Item, moment, readable, source_id, stable_id
from kemem.text.parts import Fields

ZEP, LETTA, LOCOMO = "Zep", "Letta", "LoCoMo"
_PERSONA = "persona"  # Letta's block about the agent itself
_SAY = "send_message"  # the tool by which Letta's agents speak; their text is a thought


def _dicts(value: object) -> list[dict[str, Any]]:
    return [it for it in value if isinstance(it, dict)] if isinstance(value, list) else []


# Zep


def is_zep(value: object) -> bool:
    """Whether a value is the answer of Zep's `thread.get`: messages with a uuid and a role."""
    first = next(iter(_dicts(value.get("messages"))), {}) if isinstance(value, dict) else {}
    return {"uuid", "content"} <= first.keys() and bool(first.keys() & {"role", "role_type"})


def read_zep(value: Fields, place: str) -> Iterator[Item]:
    """The messages of a thread; `role_type` is the role in versions where `role` is a name."""
    thread = value.get("thread_id") or value.get("session_id") or value.get("uuid")
    for number, it in enumerate(_dicts(value["messages"]), start=1):
        role = it.get("role_type") or it.get("role")
        name = it.get("role") if it.get("role_type") else it.get("name")
        fields = {
            "role": role if role in ("user", "assistant", "system", "tool") else "user",
            "content": readable(it.get("content")),
            "message_id": source_id("zep", it.get("uuid")),
            "ts": moment(it.get("created_at")),
            "session_id": source_id("zep", thread) if thread else None,
            "name": name if isinstance(name, str) and name != role else None,
            "metadata": {"source": "zep"},
        }
        yield Item(f"{place}: message {number}", ZEP, fields, value.get("user_id"))


# Letta


def is_letta(value: object) -> bool:
    """Whether a value is an agent file: agents and blocks, or one agent with its core memory."""
    if not isinstance(value, dict):
        return False
    is_one = isinstance(value.get("core_memory"), list) and "agent_type" in value
    return is_one or (isinstance(value.get("agents"), list) and "blocks" in value)


def read_letta(value: Fields, place: str) -> Iterator[Item]:
    """Blocks about others than the agent as memories, and what was said."""
    blocks = _dicts(value.get("blocks") or value.get("core_memory"))
    for number, block in enumerate(blocks, start=1):
        text, label = readable(block.get("value")).strip(), readable(block.get("label"))
        if text and label != _PERSONA:
            own_id = stable_id("letta", block.get("id") or label, text)
            fields, metadata = {"content": text, "message_id": own_id}, {"source": "letta"}
            metadata |= {"label": label} if label else {}
            at = f"{place}: block {number}"
            yield Item(at, LETTA, fields, is_memory=True, metadata=metadata)
    for agent in _dicts(value["agents"]) if "agents" in value else [value]:
        name = readable(agent.get("name") or agent.get("id")) or "agent"
        for number, message in enumerate(_dicts(agent.get("messages")), start=1):
            if said := _letta_message(message):
                ts = moment(message.get("created_at"))
                kept = {"source": "letta", "agent": name}
                own = {"ts": ts, "session_id": source_id("letta", name), "metadata": kept}
                at = f"{place}: agent {name!r:.60}: message {number}"
                yield Item(at, LETTA, {**said, **own})


def _letta_message(message: Fields) -> dict[str, Any] | None:
    """What was said in a message; Letta wraps what users say in JSON, beside its own events."""
    role, content = message.get("role"), message.get("content", message.get("text"))
    if role == "user":
        text = _unwrapped(_joined(content))
        return {"role": "user", "content": text} if text else None
    if role != "assistant":
        return None
    calls = [it.get("function") for it in _dicts(message.get("tool_calls"))]
    said = [_argument(it) for it in calls if isinstance(it, dict) and it.get("name") == _SAY]
    text = "\n".join(filter(None, said)) if said else "" if calls else _joined(content)
    return {"role": "assistant", "content": text} if text.strip() else None


def _joined(content: object) -> str:
    if isinstance(content, str):
        return readable(content)
    parts = (it for it in _dicts(content) if it.get("type") == "text")
    return "\n".join(readable(it.get("text")) for it in parts)


def _unwrapped(text: str) -> str:
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        return text.strip()
    if not isinstance(event, dict) or "type" not in event:
        return text.strip()
    return readable(event.get("message")).strip() if event["type"] == "user_message" else ""


def _argument(function: Fields) -> str:
    try:
        arguments = json.loads(function.get("arguments") or "{}")
    except (TypeError, ValueError, RecursionError):
        return ""
    return readable(arguments.get("message")) if isinstance(arguments, dict) else ""


# LoCoMo


def is_locomo(value: object) -> bool:
    """Whether a value is a sample of LoCoMo."""
    talk = value.get("conversation") if isinstance(value, dict) else None
    return isinstance(talk, dict) and {"speaker_a", "speaker_b"} <= talk.keys()


def read_locomo(value: Fields, place: str) -> Iterator[Item]:
    """The sessions of a sample in their order; each sample is a user unless one is named."""
    talk, sample = value["conversation"], readable(str(value.get("sample_id") or "locomo"))
    names = [key for key in talk if key.startswith("session_") and key[8:].isdecimal()]
    for name in sorted(names, key=lambda key: int(key[8:])):
        ts = _locomo_time(talk.get(f"{name}_date_time"))
        for number, turn in enumerate(_dicts(talk[name]), start=1):
            shown = readable(turn.get("blip_caption"))
            lines = (readable(turn.get("text")), f"[image: {shown}]" if shown else "")
            text = "\n".join(filter(None, lines))
            fields = {
                "role": "user",
                "name": readable(turn.get("speaker")) or None,
                "content": text,
                "message_id": source_id("locomo", sample, turn.get("dia_id") or f"{name}:{number}"),
                "session_id": source_id("locomo", sample, name),
                "ts": ts,
            }
            if text.strip():
                at = f"{place}: {name}: turn {number}"
                yield Item(at, LOCOMO, fields, other_user=sample[:64])


def _locomo_time(written: object) -> str | None:
    """A time as LoCoMo writes it.  "1:56 pm on 8 May, 2023" """
    try:
        parsed = datetime.strptime(str(written), "%I:%M %p on %d %B, %Y")
    except ValueError:
        return None
    return parsed.replace(tzinfo=UTC).isoformat()
