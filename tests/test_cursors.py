"""Cursors: they lead back to their place, and nothing else passes for one."""

import base64
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kemem.errors import InvalidArgument
from kemem.records import Position, Rank, Scope, Where
from kemem.search.pages import seal, unseal
from tests.cases import each

SECRET = b"a key of 32 bytes kept by a store"
WHERE = Where(Scope(user_id="小明"), since=0)
QUERY = ("words", WHERE, "火锅 hotpot")
IDS = st.sampled_from(["m_1", "消息", "𠮷" * 64, "e\u0301", '"],[', "\\"]) | st.text(
    st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=64
)
TIMES = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
POSITIONS = st.builds(Position, TIMES, st.integers(0, 2**62))
RANKS = st.builds(
    Rank, st.floats(0, 1), TIMES, IDS, st.sampled_from(["", "1:5", "1:5,22:7000"]) | IDS
)
CURSOR = seal(Position(1_767_225_600_000_000, 1 << 32), QUERY, SECRET)


def refused(cursor: Any, query: object = QUERY, secret: bytes = SECRET) -> bool:
    """Whether a cursor is turned down, politely and without a hint."""
    with pytest.raises(InvalidArgument) as caught:
        unseal(cursor, query, secret, Position)
    assert caught.value.details == {"field": "cursor"}
    assert " is not one that this query returned; start again" in caught.value.message
    return True


@settings(deadline=None)
@given(position=POSITIONS, rank=RANKS)
def test_a_cursor_leads_back_to_its_place(position: Position, rank: Rank) -> None:
    """Exactly, to the last digit of a score."""
    assert unseal(seal(position, QUERY, SECRET), QUERY, SECRET, Position) == position
    assert unseal(seal(rank, QUERY, SECRET), QUERY, SECRET, Rank) == rank


@settings(deadline=None)
@given(rank=RANKS)
def test_a_cursor_is_short_and_safe_in_a_url(rank: Rank) -> None:
    cursor = seal(rank, QUERY, SECRET)
    assert cursor.startswith("c_")
    assert not set(cursor) - set(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_="
    )
    assert len(cursor) <= 1_000


@given(position=POSITIONS, data=st.data())
def test_a_cursor_with_any_character_changed_is_refused(
    position: Position, data: st.DataObject
) -> None:
    cursor = seal(position, QUERY, SECRET)
    at = data.draw(st.integers(0, len(cursor) - 1))
    other = data.draw(st.sampled_from("Aa0-_=+/ \n\0.火") | st.characters(codec="ascii"))
    if other != cursor[at]:
        assert refused(cursor[:at] + other + cursor[at + 1 :])


def test_a_cursor_with_any_part_missing_doubled_or_moved_is_refused() -> None:
    """Every cut, everything appended, back to front, in the other alphabet of base64."""
    for at in range(len(CURSOR)):
        assert refused(CURSOR[:at])
        assert refused(CURSOR[at + 1 :])
        assert refused(CURSOR[:at] + CURSOR[at + 1 :])
        assert refused(CURSOR[:at] + CURSOR[at] + CURSOR[at:])
    for end in ("A", "=", "==", "AAAA", " ", "\n", "\0", "火", CURSOR):
        assert refused(CURSOR + end)
        assert refused(end + CURSOR)
    assert refused(CURSOR[::-1])
    assert refused("c_" + CURSOR[:1:-1])
    assert refused(CURSOR.swapcase())


@each("size", range(1, 9))
def test_base64_has_one_spelling_only(size: int) -> None:
    """Bits that padding leaves over may not be used to write a cursor in another way."""
    cursor = seal(Position(0, 10**size), QUERY, SECRET)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    body = cursor.rstrip("=")
    for other in set(alphabet) - {body[-1]}:
        assert refused(body[:-1] + other + cursor[len(body) :])
    if body != cursor:
        assert refused(body)


def encoded(raw: bytes) -> str:
    return "c_" + base64.urlsafe_b64encode(raw).decode()


@each(
    "cursor",
    [
        *("", "c_", "c", "next", "2", "下一页", "c_火", "c_ａ", "\ud800", "c_\ud800", "null", "-1"),
        *("c_" + "A" * 9_216, "c_" + "火" * 3_072, "A" * 9_216, CURSOR * 200, "c_====", "c_%%%%"),
        *(encoded(b"{}"), encoded(b"[]"), encoded(b'[0,"m_1"]'), encoded(b"\0" * 16)),
        *(encoded(b"\0" * 16 + b'[0,"m_1"]'), encoded(b"\xff" * 40)),
        *(None, 5, True, [CURSOR], {"cursor": CURSOR}, CURSOR.encode()),
    ],
)
def test_what_is_no_cursor_is_refused(cursor: Any) -> None:
    """Also what is no text at all, and what is far too long."""
    assert refused(cursor)


@each(
    "query",
    [
        ("words", WHERE, "火锅 hotpots"),
        ("words", WHERE, "火鍋 hotpot"),
        ("read", WHERE),
        ("words", Where(Scope(user_id="小红"), since=0), "火锅 hotpot"),
        ("words", Where(Scope(user_id="小明"), since=1), "火锅 hotpot"),
        ("words", Where(Scope(user_id="小明"), since=0, role="user"), "火锅 hotpot"),
        ("words", Where(Scope("agent", "小明"), since=0), "火锅 hotpot"),
        ("words", WHERE, "火锅 \ud800"),
        None,
    ],
)
def test_a_cursor_continues_only_its_own_query(query: object) -> None:
    """Other words, another user, another filter: another answer, so no place in it."""
    assert refused(CURSOR, query)


@each("secret", [b"", b"another key", SECRET[:-1], SECRET + b"x"])
def test_a_cursor_of_another_store_is_refused(secret: bytes) -> None:
    assert refused(CURSOR, secret=secret)
    assert refused(seal(Position(0, 1), QUERY, secret))


@each("text", ["火锅", "hotpot", "\ud800", "\0", "'\""])
def test_any_query_text_can_be_continued(text: str) -> None:
    """Even one that no database could hold."""
    query = ("words", WHERE, text)
    place = Position(0, 1)
    assert unseal(seal(place, query, SECRET), query, SECRET, Position) == place
