"""Tables with a header: a message in each row."""

import csv
import io
from collections.abc import Iterator, Mapping

from kemem.imports.chats import is_wechat_row, wechat_row
from kemem.imports.items import Item, moment, readable, wrong

FORMAT = "CSV"
# What columns are called; the first that a row has counts, others become metadata.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "content": ("content", "text", "message", "body", "内容", "消息", "消息内容"),
    "role": ("role", "角色"),
    "name": ("name", "speaker", "sender", "from", "author", "发送者", "发送人", "昵称"),
    "ts": ("ts", "time", "timestamp", "date", "datetime", "created_at", "时间", "日期"),
    "user_id": ("user_id", "user"),
    "agent_id": ("agent_id", "agent"),
    "session_id": ("session_id", "session", "conversation_id", "thread_id", "会话"),
    "message_id": ("message_id",),
}
_MAX_FIELD = 10_000_000  # characters


def read_table(text: str, name: str, chat: str, *, tabs: bool = False) -> Iterator[Item]:
    """The rows of a table; its first line names the columns."""
    csv.field_size_limit(_MAX_FIELD)
    lines = io.StringIO(text, newline="")  # which ends no line at U+2028, as splitlines does
    reader = csv.reader(lines, delimiter="\t" if tabs else ",")
    rows = _rows(reader, name)
    header = [column.strip() for column in next(rows, (1, []))[1]]
    places = _columns(header)
    if "content" not in places and not is_wechat_row(dict.fromkeys(header)):
        known = ", ".join(COLUMNS["content"])
        raise wrong(f"{name}:1", f"expected a header with a column {known}, not {header!r:.120}")
    for line, row in rows:
        if not any(row):
            continue
        if len(row) > len(header):
            reason = f"expected {len(header)} columns, as the header has, not {len(row)}"
            raise wrong(f"{name}:{line}", reason)
        named = dict(zip(header, row, strict=False))
        if is_wechat_row(named):
            yield from wechat_row(named, f"{name}:{line}", chat)
        else:
            yield _item(named, places, f"{name}:{line}")


def _rows(reader: Iterator[list[str]], name: str) -> Iterator[tuple[int, list[str]]]:
    """Rows by the numbers of the lines where they end."""
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            line = getattr(reader, "line_num", 0)
            raise wrong(f"{name}:{line}", f"expected CSV: {error}") from None
        yield getattr(reader, "line_num", 0), row


def _columns(header: list[str]) -> dict[str, str]:
    """The column of each field."""
    lower = {column.lower(): column for column in reversed(header)}
    found = {
        field: next((lower[it] for it in names if it in lower), None)
        for field, names in COLUMNS.items()
    }
    return {field: column for field, column in found.items() if column is not None}


def _item(row: Mapping[str, str], places: Mapping[str, str], place: str) -> Item:
    fields = {field: row.get(column) or None for field, column in places.items()}
    user, written = fields.pop("user_id", None), fields.get("ts")
    if written is not None:
        fields["ts"] = moment(written)
        if fields["ts"] is None:
            raise wrong(place, f"expected a time such as 2026-01-26 10:47, not {written!r:.60}")
    extras = {k: readable(v) for k, v in row.items() if v and k not in places.values() and k}
    message = {**fields, "content": readable(fields["content"] or ""), "metadata": extras or None}
    return Item(place, FORMAT, message, user)
