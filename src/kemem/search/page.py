"""Pages: their sizes, and cursors, which are sealed and bound to the query they continue."""

import base64
import binascii
import hashlib
import hmac
import json
from dataclasses import fields, is_dataclass
from typing import Any

from kemem.errors import InvalidArgument
from kemem.records import Position, Rank

MAX_PAGE = 1000
_PREFIX = "c_"
_SEAL = 16  # bytes
_MOST = 4096  # characters


def page_limit(size: int, field: str) -> int:
    """A size from 1 on; more than a page can hold is a full page."""
    if type(size) is not int or size < 1:
        raise InvalidArgument(f"{field} must be 1-{MAX_PAGE}, not {size!r:.80}", field=field)
    return min(size, MAX_PAGE)


def least_score(score: float | None, field: str) -> float:
    """A threshold from 0 to 1; without one everything passes."""
    if score is None:
        return 0.0
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        raise InvalidArgument(f"{field} must be 0-1, not {score!r:.80}", field=field)
    return float(score)


def seal_position(position: Position, query: object, secret: bytes) -> str:
    """A cursor that goes on after a place in the order of time."""
    return _seal([position.ts, position.arrival], query, secret)


def open_position(cursor: str, query: object, secret: bytes) -> Position:
    """The place a cursor names; anything but a cursor of this very query is refused."""
    ts, arrival = _open(cursor, query, secret)
    return Position(ts, arrival)


def seal_rank(rank: Rank, query: object, secret: bytes) -> str:
    """A cursor that goes on after a place in a ranking."""
    return _seal([rank.score, rank.ts, rank.id, rank.mark], query, secret)


def open_rank(cursor: str, query: object, secret: bytes) -> Rank:
    """The place in a ranking a cursor names."""
    score, ts, name, mark = _open(cursor, query, secret)
    return Rank(score, ts, name, mark)


def seal_place(place: tuple[str, str, str], query: object, secret: bytes) -> str:
    """A cursor that goes on after a place in the directory."""
    return _seal(list(place), query, secret)


def open_place(cursor: str, query: object, secret: bytes) -> tuple[str, str, str]:
    """The place in the directory a cursor names."""
    name, agent_id, user_id = _open(cursor, query, secret)
    return (name, agent_id, user_id)


def _seal(place: list[object], query: object, secret: bytes) -> str:
    body = json.dumps(place, ensure_ascii=False, separators=(",", ":")).encode()
    return _PREFIX + base64.urlsafe_b64encode(_tag(body, query, secret) + body).decode()


def _open(cursor: str, query: object, secret: bytes) -> list[Any]:
    refusal = InvalidArgument(
        "cursor is not one that this query returned; start again without a cursor", field="cursor"
    )
    if not isinstance(cursor, str) or not cursor.startswith(_PREFIX):
        raise refusal
    if len(cursor) > _MOST or not cursor.isascii():
        raise refusal
    try:
        raw = base64.b64decode(cursor.removeprefix(_PREFIX), altchars=b"-_", validate=True)
    except binascii.Error:
        raise refusal from None
    seal, body = raw[:_SEAL], raw[_SEAL:]
    # The text is compared too: base64 has several spellings of the same bytes.
    again = _PREFIX + base64.urlsafe_b64encode(raw).decode()
    if again != cursor or not hmac.compare_digest(seal, _tag(body, query, secret)):
        raise refusal
    place: list[Any] = json.loads(body)
    return place


def _tag(body: bytes, query: object, secret: bytes) -> bytes:
    bound = repr(_stable(query)).encode("utf-8", "backslashreplace")
    return hmac.digest(secret, hashlib.sha256(bound).digest() + body, "sha256")[:_SEAL]


def _stable(value: object) -> object:
    """A value that is written alike in every process; sets have no order of their own."""
    if isinstance(value, frozenset):
        return sorted(value)
    if is_dataclass(value):
        return [type(value).__name__, *(_stable(getattr(value, it.name)) for it in fields(value))]
    return [_stable(each) for each in value] if isinstance(value, tuple) else value
