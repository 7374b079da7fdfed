"""What mem0's callers pass and get, as KeMem means it: configs, ids, times, filters, results."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from reprlib import repr as shown
from typing import Any

from kemem.errors import InvalidArgument
from kemem.records import TIME_FIELDS, Change, Note
from kemem.records.times import to_datetime, to_rfc3339
from kemem.results import Added, Hit, Item
from kemem.scope import DEFAULT
from kemem.text.filters import MAX_DEPTH

# Providers of models that speak OpenAI's API, and where they listen; None: where the openai
# package finds OpenAI.
BASE_URLS = {
    "openai": None,
    "openai_structured": None,
    "deepseek": "https://api.deepseek.com",
    "groq": "https://api.groq.com/openai/v1",
    "lmstudio": "http://localhost:1234/v1",
    "ollama": "http://localhost:11434/v1",
    "together": "https://api.together.xyz/v1",
    "vllm": "http://localhost:8000/v1",
    "xai": "https://api.x.ai/v1",
}
_IDS = frozenset({"user_id", "agent_id", "run_id"})
# Fields of KeMem's own that in mem0 are keys of the metadata, as any other name is.
_FIELDS = {"kind", "role", "topic", "importance", "keywords", "sources", "sensitive"}
_RENAMED = {"categories": "memory_type"}
_UNNAMED = {"version"}  # parts of a config that are about mem0 itself
_DAY = len("2026-01-31")


@dataclass(frozen=True, slots=True)
class Config:
    """What a mem0 config means here."""

    settings: Mapping[str, str] = field(default_factory=dict)  # KeMem's, by their names
    instructions: str | None = None  # to the model that draws facts
    ignored: tuple[str, ...] = ()  # "vector_store (qdrant)", "llm.temperature"

    @classmethod
    def read(cls, config: object) -> "Config":
        """The config of a dict or of a `MemoryConfig`."""
        dump = getattr(config, "model_dump", None)
        given = dump() if callable(dump) else {} if config is None else config
        if not isinstance(given, Mapping):
            raise InvalidArgument(f"config must be a dict, not {shown(config)}", field="config")
        settings, ignored = _model(given.get("llm"))
        for name, value in given.items():
            if value is None or name in {"llm", "custom_instructions", *_UNNAMED}:
                continue
            provider = value.get("provider") if isinstance(value, Mapping) else None
            ignored.append(f"{name} ({provider})" if provider else str(name))
        return cls(settings, given.get("custom_instructions"), tuple(ignored))


def _model(llm: object) -> tuple[dict[str, str], list[str]]:
    """The settings that name a config's model, and what is ignored of it."""
    given: Mapping[str, Any] = llm if isinstance(llm, Mapping) else {}
    provider, config = given.get("provider", "openai"), given.get("config") or {}
    if provider not in BASE_URLS:
        return {}, [f"llm ({provider})"]
    own = {"model": "llm_model", "api_key": "llm_api_key"}
    own |= {name: "llm_base_url" for name in config if name.endswith("base_url")}
    settings = {own[name]: str(value) for name, value in config.items() if name in own and value}
    ignored = [f"llm.{name}" for name, it in config.items() if name not in own and it is not None]
    if (address := BASE_URLS[provider]) is not None:
        settings.setdefault("llm_base_url", address)
        # Without a key of its own it would be sent that of OpenAI.
        key = os.environ.get(f"{provider.upper()}_API_KEY") or "none"
        settings.setdefault("llm_api_key", key)
    if provider == "ollama" and not settings["llm_base_url"].rstrip("/").endswith("/v1"):
        settings["llm_base_url"] = settings["llm_base_url"].rstrip("/") + "/v1"
    return settings, ignored


def to_id(value: object) -> Any:
    """An id as mem0 takes it: a number is a text, blanks around it do not count."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value.strip() if isinstance(value, str) else value


def to_count(limit: object, top_k: object, default: int) -> int:
    """How many results a call wants, by the name of mem0 1.x or 2.x."""
    count = next((it for it in (limit, top_k) if it is not None), default)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise InvalidArgument(f"top_k must be at least 1, not {shown(count)}", field="top_k")
    return count


def to_moment(value: object, *, last: bool = False) -> Any:
    """A time as mem0 takes it: Unix seconds, a day, or without a zone, which means UTC.

    A day is its beginning or its `last` moment. What is none of these is returned as it is.
    """
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
        if not isinstance(value, str):
            return value
        moment = datetime.fromisoformat(value)
        if last and len(value) == _DAY:
            moment += timedelta(days=1) - timedelta(microseconds=1)
    except (ValueError, OverflowError, OSError):
        return value
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def to_expiry(day: object) -> datetime | None:
    """The end of the day that is a memory's last."""
    try:
        match day:
            case None:
                return None
            case datetime():
                last = day.date()
            case date():
                last = day
            case _:
                last = date.fromisoformat(day)  # type: ignore[arg-type]  # it refuses the rest
        return datetime.combine(last + timedelta(days=1), time(), UTC)
    except (TypeError, ValueError, OverflowError):
        reason = f"expiration_date must be a day such as '2027-01-31', not {shown(day)}"
        raise InvalidArgument(reason, field="expiration_date") from None


def to_filters(filters: object, *, depth: int = 0, required: bool = True) -> Any:
    """mem0's filters as KeMem's: "*" is any value, a time may be a day, other names are metadata.

    An id that may be any is no condition where all conditions are `required`. What is wrong with
    a filter otherwise is left to KeMem to say.
    """
    if not isinstance(filters, Mapping) or depth > MAX_DEPTH:
        return filters
    conditions: dict[Any, Any] = {}
    for name, value in filters.items():
        if name == "app_id":
            raise InvalidArgument("app_id has no counterpart; use agent_id", field="filters")
        if name in ("AND", "OR", "NOT") and isinstance(value, list | tuple):
            is_required = required and name == "AND"
            parts = [to_filters(it, depth=depth + 1, required=is_required) for it in value]
            conditions[name] = parts
            if name == "AND" and not any(parts):  # only ids that may be any
                del conditions[name]
        elif name in _IDS and value == "*":
            if not required:
                reason = f"{name} '*' is no condition by itself within OR and NOT; leave it out"
                raise InvalidArgument(f"filters: {reason}", field="filters")
        else:
            key = f"metadata.{name}" if name in _FIELDS else _RENAMED.get(name, name)
            conditions[key] = _condition(name, value)
    return conditions


def _condition(name: str, value: object) -> object:
    if name in _IDS:
        return to_id(value)
    if value == "*":
        return {"ne": None}
    if name not in TIME_FIELDS:
        return value
    if isinstance(value, Mapping):
        return {it: to_moment(each, last=it in ("lte", "gt")) for it, each in value.items()}
    return to_moment(value)


def to_memory(item: Item) -> dict[str, Any]:
    """A memory as mem0 shows it, with the ids that were given, and the score of a hit."""
    row = item.to_dict()
    metadata = {name: it for name, it in row["metadata"].items() if name != "role"}
    memory: dict[str, Any] = {
        "id": item.id,
        "memory": item.memory,
        "hash": hashlib.md5(item.memory.encode(), usedforsecurity=False).hexdigest(),
        "metadata": metadata or None,
        "created_at": row["created_at"],
        "updated_at": row["updated_at"],
    }
    ids = {"user_id": row["user_id"], "agent_id": row["agent_id"], "run_id": row["session_id"]}
    defaults = {"agent_id": DEFAULT, "run_id": DEFAULT}
    memory |= {name: it for name, it in ids.items() if it not in (None, defaults.get(name))}
    if role := item.metadata.get("role"):  # of the message that became a memory verbatim
        memory["role"] = role
    if isinstance(item.row, Note) and item.row.expires is not None:
        memory["expiration_date"] = to_datetime(item.row.expires - 1).date().isoformat()
    if isinstance(item, Hit):
        memory["score"] = item.score
        memory |= {"score_details": {"why": list(item.why)}} if item.why else {}
    return memory


def to_events(added: Added) -> list[dict[str, Any]]:
    """What became of the memories that an `add` touched, without those that it left as they are."""
    return [outcome.to_dict() for outcome in added.results if outcome.event != "NONE"]


def to_history(changes: Sequence[Change]) -> list[dict[str, Any]]:
    """The changes of a memory, oldest first, from KeMem's, which are newest first."""
    return [
        {
            "id": f"{change.note_id}-{change.at}",
            "memory_id": change.note_id,
            "old_memory": change.before,
            "new_memory": change.after,
            "event": change.event.upper(),
            "created_at": to_rfc3339(changes[-1].at),
            "updated_at": to_rfc3339(change.at),
            "is_deleted": change.event == "delete",
            "actor_id": None,
            "role": None,
        }
        for change in reversed(changes)
    ]
