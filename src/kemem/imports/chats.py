"""Chats of messengers: WhatsApp's text, Telegram's JSON, WeChat as text, CSV rows or JSON.

All that people say is a user's message with its speaker. Messengers write local times without a
zone; they are taken for UTC.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from kemem.imports.items import Item, moment, readable, source_id, version_of
from kemem.text.parts import Fields

WHATSAPP, TELEGRAM, WECHAT = "WhatsApp", "Telegram", "WeChat"
_LOOKED_AT = 40  # lines of a text, one of which must be the head of a message

_DAY = r"(\d{1,4})([./-])(\d{1,2})\2(\d{1,4})"
_CLOCK = r"(上午|下午|凌晨|中午|晚上)?\s?(\d{1,2}):(\d{2})(?::(\d{2}))?"
_CLOCK += r"(?:\s?([AaPp])\.?\s?[Mm]\.?)?"
_WHATSAPP = re.compile(rf"\[?{_DAY},?\s+{_CLOCK}(?:\]| -) (?:([^:\n]{{1,80}}): )?(.*)")
_MARKS = str.maketrans({"\u200e": None, "\u200f": None, "\u202f": " ", "\u00a0": " "})
_OMITTED = re.compile(
    r"<Media omitted>|<媒体已忽略>|<?(?:image|video|audio|sticker|GIF|document) omitted>?|"
    r"null|This message was deleted\.?|You deleted this message\.?|此消息已删除"
)
_STAMP = r"\d{4}[-/年]\d{1,2}[-/月]\d{1,2}日? \d{1,2}:\d{2}(?::\d{2})?"
_TIME_FIRST = re.compile(rf"({_STAMP})\s+(\S.{{0,60}})")
_NAME_FIRST = re.compile(rf"(\S.{{0,60}}?)\s*[（( ]({_STAMP})[)）]?")
_TELEGRAM_CHATS = re.compile(r"\w+_(?:chat|group|supergroup|channel)|saved_messages")


class Said(NamedTuple):
    """A message of a text: the number of its line, who spoke when, and what."""

    line: int
    ts: str | None
    speaker: str
    lines: list[str]


# Text


def read_text(text: str, name: str, chat: str) -> Iterator[Item] | None:
    """The messages of a chat that was saved as text; None where it is no such text."""
    lines = text.translate(_MARKS).splitlines()
    head = [line for line in lines if line.strip()][:_LOOKED_AT]
    if any(_WHATSAPP.fullmatch(line) for line in head):
        return _items(_whatsapp(lines), WHATSAPP, name, chat)
    for pattern, is_time_first in ((_TIME_FIRST, True), (_NAME_FIRST, False)):
        if any(pattern.fullmatch(line.strip()) for line in head):
            return _items(_wechat(lines, pattern, is_time_first), WECHAT, name, chat)
    return None


def _items(said: Iterator[Said], format: str, name: str, chat: str) -> Iterator[Item]:
    return (it for each in said for it in _item(each, format, f"{name}:{each.line}", chat))


def _item(said: Said, format: str, place: str, chat: str) -> Iterator[Item]:
    """A message, unless it only says that something was left out."""
    label, content = format.lower(), readable("\n".join(said.lines)).strip()
    if content and not _OMITTED.fullmatch(content):
        fields = {"role": "user", "name": said.speaker, "content": content, "ts": said.ts}
        fields |= {"session_id": source_id(label, chat)}
        yield Item(place, format, {**fields, "metadata": {"source": label, "chat": chat[:200]}})


def _whatsapp(lines: Sequence[str]) -> Iterator[Said]:
    heads = [_WHATSAPP.fullmatch(line) for line in lines]
    order = _order([head for head in heads if head])

    def said(number: int, head: re.Match[str]) -> Said | None:
        # A line without a speaker is the messenger's own: who joined, that it is encrypted.
        speaker, first = head[10], head[11]
        return Said(number, _whatsapp_time(head, order), speaker, [first]) if speaker else None

    return _messages(lines, heads, said)


def _messages(
    lines: Sequence[str],
    heads: Sequence[re.Match[str] | None],
    said: Callable[[int, re.Match[str]], Said | None],
) -> Iterator[Said]:
    """What the lines say that begin with a head, each with the lines up to the next one."""
    current: Said | None = None
    for number, (line, head) in enumerate(zip(lines, heads, strict=True), start=1):
        if head is None:
            if current:
                current.lines.append(line)
            continue
        if current:
            yield current
        current = said(number, head)
    if current:
        yield current


def _order(heads: Sequence[re.Match[str]]) -> str:
    """Whether dates begin with the year, the day or the month: what all of them allow."""
    if any(len(head[1]) == 4 for head in heads):
        return "ymd"
    if any(int(head[1]) > 12 for head in heads):
        return "dmy"
    is_american = any(head[2] == "/" and head[9] for head in heads)  # 1/26/26, 10:47 PM
    return "mdy" if is_american or any(int(head[3]) > 12 for head in heads) else "dmy"


def _whatsapp_time(head: re.Match[str], order: str) -> str | None:
    numbers = dict(zip(order, (int(head[1]), int(head[3]), int(head[4])), strict=True))
    year = numbers["y"] + (2000 if numbers["y"] < 100 else 0)
    hour, half = int(head[6]), (head[9] or "").lower()
    if half or head[5]:
        is_late = half == "p" or head[5] in ("下午", "晚上") or (head[5] == "中午" and hour < 6)
        hour = hour % 12 + 12 * (is_late or (head[5] == "中午" and hour == 12))
    try:
        day = (year, numbers["m"], numbers["d"])
        return datetime(*day, hour, int(head[7]), int(head[8] or 0), tzinfo=UTC).isoformat()
    except ValueError:
        return None


def _wechat(lines: Sequence[str], pattern: re.Pattern[str], is_time_first: bool) -> Iterator[Said]:
    def said(number: int, head: re.Match[str]) -> Said:
        stamp, speaker = (head[1], head[2]) if is_time_first else (head[2], head[1])
        return Said(number, stamp_to_time(stamp), speaker.strip(" :："), [])

    return _messages(lines, [pattern.fullmatch(line.strip()) for line in lines], said)


def stamp_to_time(written: str) -> str | None:
    """A time as WeChat's exporters write it.  "2026年1月26日 9:05" """
    day, _, clock = written.replace("日", "").partition(" ")
    parts = [part.zfill(2) for part in re.split("[-/年月]", day)]
    hours = [part.zfill(2) for part in clock.split(":")]
    return moment(f"{'-'.join(parts)}T{':'.join(hours)}")


# WeChat: rows and JSON

_ROW = {"IsSender", "CreateTime", "StrContent"}  # the table that exporters of WeChat for PC write
_CHATLOG = {"seq", "time", "talker", "sender", "content"}
_TEXT_TYPE = "1"


def is_wechat_row(fields: Fields) -> bool:
    """Whether a row is one of the table MSG of WeChat for PC."""
    return fields.keys() >= _ROW


def wechat_row(fields: Fields, place: str, chat: str) -> Iterator[Item]:
    """A row of type 1, which is text; others are pictures, links and notices in XML."""
    if str(fields.get("Type", _TEXT_TYPE)) == _TEXT_TYPE:
        is_own = str(fields["IsSender"]) == "1"
        names = (fields.get(key) for key in ("NickName", "Remark", "Sender", "talker"))
        name = readable(next(filter(None, names), None)) or (is_own and "我") or chat
        said = Said(0, moment(str(fields["CreateTime"])), name, [readable(fields["StrContent"])])
        talk = readable(fields.get("StrTalker") or fields.get("TalkerId")) or chat
        yield from _item(said, WECHAT, place, talk)


def is_chatlog(value: object) -> bool:
    """Whether a value is a message as chatlog gives it, an exporter of WeChat."""
    return isinstance(value, dict) and value.keys() >= _CHATLOG


def read_chatlog(value: Fields, place: str) -> Iterator[Item]:
    """A message of chatlog, if it is text."""
    if str(value.get("type", _TEXT_TYPE)) == _TEXT_TYPE:
        name = readable(value.get("senderName") or value["sender"])
        said = Said(0, moment(value["time"]), name, [readable(value["content"])])
        talk = readable(value.get("talkerName") or value["talker"])
        yield from _item(said, WECHAT, place, talk)


# Telegram


def is_telegram(value: object) -> bool:
    """Whether a value is the export of one chat, or of all of them."""
    if not isinstance(value, dict):
        return False
    chats = value.get("chats")
    return (isinstance(chats, dict) and isinstance(chats.get("list"), list)) or _is_chat(value)


def _is_chat(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        return False
    return bool(_TELEGRAM_CHATS.fullmatch(str(value.get("type")))) and "id" in value


def read_telegram(value: Fields, place: str) -> Iterator[Item]:
    """The messages of one chat, or of all of them."""
    chats = value["chats"]["list"] if "chats" in value else [value]
    for chat in filter(_is_chat, chats):
        name = readable(chat.get("name")) or str(chat["id"])
        for number, message in enumerate(chat["messages"], start=1):
            if isinstance(message, dict) and message.get("type") == "message":
                at = f"{place}: chat {name!r:.60}: message {number}"
                yield from _telegram_message(message, chat["id"], name, at)


def _telegram_message(message: Fields, chat: object, name: str, place: str) -> Iterator[Item]:
    written = message.get("text")
    parts = written if isinstance(written, list) else [written]
    texts = [it.get("text") if isinstance(it, dict) else it for it in parts]
    content = "".join(map(readable, texts)).strip()
    if content:
        ts = moment(message.get("date_unixtime")) or moment(message.get("date"))
        speaker = message.get("from") or message.get("from_id")
        fields = {
            "role": "user",
            "name": readable(speaker) or None,
            "content": content,
            "ts": ts,
            "message_id": source_id("telegram", chat, message.get("id"), version_of(content)),
            "session_id": source_id("telegram", chat),
            "metadata": {"source": "telegram", "chat": name[:200]},
        }
        yield Item(place, TELEGRAM, fields)
