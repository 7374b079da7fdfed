"""ItemLog: items of any framework, kept as messages of one session and given back as they were."""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from reprlib import repr as short_repr
from typing import Any

from kemem.errors import InvalidArgument, NotFound
from kemem.memory import AsyncMemory
from kemem.records import MESSAGES, Message, Micros
from kemem.records.privacy import ContentPolicy
from kemem.records.times import to_rfc3339
from kemem.text.ids import is_blank, new_id
from kemem.text.personal import apply_policy_to_value

# Keys of a message's metadata: the rest of an item beside its text, and a part of another's rest.
_ITEM, _PART, _PART_OF = "agents_item", "agents_item_part", "agents_item_of"
_MAX_INLINE = 2_000  # characters of JSON beside the text; longer JSON is stored in messages behind
_MAX_PART = 30_000  # characters of JSON in one of those: escaped, still less than metadata may be
_PART_CONTENT = "…"  # their text: nothing that a search would find
_MAX_SHOWN = 1_000  # characters of an item without a text that are shown in the log
_PAGE = 500  # messages that are read at once
_SPEAKERS = ("user", "assistant", "system")

_Path = list[str | int]

log = logging.getLogger("kemem")


class ItemLog:
    """JSON objects with a role and a text, appended to the session of a handle.

    Texts can be searched, and facts are drawn from them; the rest of an item is in the metadata.
    """

    def __init__(self, memory: AsyncMemory) -> None:
        self._memory = memory
        # The log gives back its own items, sensitive or not: without the result of a call that it
        # shows, a model refuses the conversation. Other sensitive messages need a grant.
        self._log = copy(memory)
        self._log._scope = replace(memory.scope, sensitive=True)

    async def newest(self, limit: int | None = None) -> list[Mapping[str, Any]]:
        """The newest items, oldest of them first; all of them without a limit."""
        return [item for item, *_ in reversed(await self._newest(limit))]

    async def add(self, items: Sequence[object]) -> None:
        """Append items, durable on return: all of them, or where one is invalid, none."""
        deps, policy = await self._memory.runtime.deps(), self._memory.settings.content_policy
        copies = [_copied(item, f"items[{index}]", policy) for index, item in enumerate(items)]
        if not copies:
            return
        last = (await self._memory.messages(page_size=1)).items
        now = deps.clock()
        messages = [it for item in copies for it in _to_messages(item, now, policy.max_bytes)]
        # A clock that was set back must not put new items before older ones. One time for all of
        # them: nothing that is added at the same moment comes between.
        ts = max(now, last[0].ts + 1) if last else now
        await self._memory.add(messages, timestamp=to_rfc3339(ts), wait=False)

    async def pop(self) -> Mapping[str, Any] | None:
        """Take the newest item out of the log, with the memories that were drawn from it alone."""
        deps = await self._memory.runtime.deps()
        async with deps.lock(self._memory.scope.scope):
            while entries := await self._newest(1):
                item, message_id, has_parts = entries[0]
                try:
                    await self._log.delete(message_id)
                except NotFound:  # another process took it
                    continue
                if has_parts:
                    await self._memory.delete_all(filters={_PART_OF: message_id}, kinds=MESSAGES)
                return item
        return None

    async def clear(self) -> None:
        """Erase all of the session, what was remembered of it included."""
        await self._memory.delete_all()

    async def _newest(self, limit: int | None) -> list[tuple[Mapping[str, Any], str, bool]]:
        """The newest items, newest first; all of them where the limit is negative, as in SQL.

        Each has the id of the message that shows it, and whether others hold parts of it.
        """
        limit = limit if limit is not None and limit >= 0 else None
        entries: list[tuple[Mapping[str, Any], str, bool]] = []
        parts: dict[str, list[str]] = {}  # of messages that are yet to come
        size, cursor = _PAGE if limit is None else min(limit, _PAGE), None
        while limit is None or len(entries) < limit:
            page = await self._log.messages(page_size=size, cursor=cursor)
            for message in page.items:
                if message.withdrawn or not self._shows(message):
                    continue
                owner, part = message.metadata.get(_PART_OF), message.metadata.get(_PART)
                if isinstance(owner, str) and isinstance(part, str):
                    parts.setdefault(owner, []).append(part)
                    continue
                own = parts.pop(message.message_id, [])
                if (item := _to_item(message, "".join(reversed(own)))) is not None:
                    entries.append((item, message.message_id, bool(own)))
            cursor = page.next_cursor
            if cursor is None:
                break
        return entries[:limit]

    def _shows(self, message: Message) -> bool:
        is_item = _ITEM in message.metadata or _PART_OF in message.metadata
        return is_item or not message.sensitive or self._memory.scope.sensitive


def _to_item(message: Message, parts: str) -> Mapping[str, Any] | None:
    """The item as it was added; of a message that came another way its text, unless a tool's."""
    stored = message.metadata.get(_ITEM)
    if stored is not None:
        try:
            item = json.loads(stored["json"] or parts)
            if stored["text_at"]:
                _set_text(item, stored["text_at"], message.content)
            return dict(item)
        except (TypeError, ValueError, LookupError):  # a part was deleted or changed by others
            log.warning("the item of %s is incomplete; its text is used", message.message_id)
    plain = {"role": message.role, "content": message.content}
    return plain if message.role in _SPEAKERS else None


def _to_messages(item: dict[str, Any], now: Micros, max_bytes: int) -> Iterator[dict[str, Any]]:
    """The messages that hold an item: one with its text, more where its JSON is long."""
    message, text_at = _to_message(item, max_bytes)
    if text_at and message["role"] in _SPEAKERS and item == message:
        yield message
        return
    if text_at:
        _set_text(item, text_at, "")  # it is in the log once, and hooks may have changed it there
    message_id, whole = new_id("m", now), json.dumps(item)
    inline, apart = (whole, "") if len(whole) <= _MAX_INLINE else ("", whole)
    stored = {"json": inline, "text_at": text_at}
    yield {**message, "message_id": message_id, "metadata": {_ITEM: stored}}
    for start in range(0, len(apart), _MAX_PART):
        part = {_PART_OF: message_id, _PART: apart[start : start + _MAX_PART]}
        yield {"role": "tool", "content": _PART_CONTENT, "metadata": part}


def _to_message(item: Mapping[str, Any], max_bytes: int) -> tuple[dict[str, Any], _Path | None]:
    """An item as the log shows it, and where in the item the text stands.

    An item without a text is shown as JSON of a tool. Without a place, the text is not exactly
    what the item says.
    """
    at: _Path | None = None
    match item:
        case {"content": str(text)}:
            at = ["content"]
        case {"content": [{"text": str(text)}]}:
            at = ["content", 0, "text"]
        case {"content": list(parts)}:
            texts = (part.get("text") for part in parts if isinstance(part, dict))
            text = "\n".join(it for it in texts if isinstance(it, str))
        case {"output": str(text)}:
            at = ["output"]
        case _:
            text = ""
    content = text.encode(errors="replace").decode()  # a store can encode no lone surrogate
    beginning = content.encode()[:max_bytes].decode(errors="ignore")  # what the log keeps of it
    if is_blank(beginning):
        shown = json.dumps(item, ensure_ascii=False)[:_MAX_SHOWN]
        return {"role": "tool", "content": shown.encode(errors="replace").decode()}, None
    role = "system" if item.get("role") == "developer" else item.get("role")
    message = {"role": role if role in _SPEAKERS else "tool", "content": content}
    return message, at if beginning == text else None


def _set_text(item: Any, at: Sequence[str | int], text: str) -> None:
    *path, last = at
    for step in path:
        item = item[step]
    item[last] = text


def _copied(item: object, field: str, policy: ContentPolicy) -> dict[str, Any]:
    """A copy of an item by way of JSON, as it may be stored; InvalidArgument where it is none."""
    if not isinstance(item, Mapping):
        raise InvalidArgument(f"{field} must be an object, not {short_repr(item)}", field=field)
    try:
        copied: dict[str, Any] = json.loads(json.dumps(item, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"{field} must be JSON: {error}", field=field) from None
    allowed: dict[str, Any] = apply_policy_to_value(copied, policy, field)[0]
    return allowed
