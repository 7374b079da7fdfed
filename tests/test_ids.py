"""Ids: which are taken from outside, and how our own sort."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kemem.errors import InvalidArgument
from kemem.text.ids import MAX_ID, check_id, new_id
from tests.cases import each

NOW = 1_767_225_600_000_000  # 2026-01-01


@each(
    "value",
    [
        *("u_1", "小明", "a", "用" * 255, "x" * 255, "𠮷" * 191, "a b", "user@x.com", "🎉"),
        *("*", "%", "_", "/", '"', "\\", "...", "../../etc/passwd", "'; DROP TABLE message; --"),
        *("e\u0301", "é", "ａ", "A", "\u202eevil", "\u200b", "\ufeff", "0", "None", "null"),
    ],
)
def test_an_id_is_kept_byte_by_byte(value: str) -> None:
    """Nothing is folded: what only looks alike stays apart."""
    assert check_id(value, "user_id") == value


@each(
    ("value", "why"),
    [
        *(("", "1-255 characters, not 0"), ("x" * 256, "not 256"), ("用" * 256, "not 256")),
        ("🎉" * 192, "at most 765 bytes, not 768"),
        *((value, "end with blanks") for value in (" a", "a ", "\u3000小明", "a\n", " ", "\x1f")),
        *((value, "not be '[.]+', which no path can name") for value in (".", "..")),
        *((value, "control characters") for value in ("a\0b", "小\n明", "a\x7fb", "a\x85b")),
        *((value, "control characters") for value in ("\ud800", "a\udfffb", "a\u2028b")),
        *((value, "be a string") for value in (None, 5, 1.5, True, b"a", ["a"], {"a": 1}, object)),
    ],
)
def test_what_cannot_be_an_id_is_refused(value: Any, why: str) -> None:
    """With the field, the reason and a message that can be printed anywhere."""
    with pytest.raises(InvalidArgument, match=f"^user_id must .*{why}") as caught:
        check_id(value, "user_id")
    assert caught.value.details == {"field": "user_id"}
    caught.value.message.encode()
    assert caught.value.message.isprintable()


def test_a_refusal_of_a_deep_value_is_a_refusal_too() -> None:
    """Showing the value must not fail on its own."""
    deep: list[object] = []
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(InvalidArgument, match="must be a string"):
        check_id(deep, "user_id")


@given(value=st.text(max_size=270) | st.text(" \n\0a小\u2028", max_size=6))
def test_a_text_is_an_id_or_refused(value: str) -> None:
    try:
        assert check_id(value, "user_id") == value
    except InvalidArgument:
        return
    assert 1 <= len(value) <= MAX_ID
    assert value.strip() == value
    assert "\0" not in value


@settings(deadline=None)
@given(earlier=st.integers(0, 2**47), later=st.integers(0, 2**47))
def test_our_ids_sort_by_time(earlier: int, later: int) -> None:
    """To the millisecond."""
    if earlier // 1000 < later // 1000:
        assert new_id("m", earlier) < new_id("m", later)


@each("now", [NOW, 0, -1, -62_135_596_800_000_000, 253_402_300_799_999_999])
def test_our_ids_can_be_ids(now: int) -> None:
    """Whatever the clock says: a prefix and 26 characters that cannot be misread."""
    made = {new_id("m", now) for _ in range(1_000)}
    assert len(made) == 1_000
    for value in made:
        assert check_id(value, "message_id") == value
        assert value.startswith("m_")
        assert len(value) == 28
        assert not set(value[2:]) - set("0123456789ABCDEFGHJKMNPQRSTVWXYZ")
