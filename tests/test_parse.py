"""What callers hand in: kept exactly as it is, cut where it says so, or refused as a whole."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kemem.add.parse import MAX_MESSAGES, MAX_METADATA_BYTES, parse_messages
from kemem.errors import Exhausted, InvalidArgument, KeMemError
from kemem.records import ROLES, Message
from kemem.records.privacy import ContentPolicy
from kemem.records.times import LATEST, to_rfc3339
from kemem.scope import Owner
from kemem.text.ids import is_blank
from tests.cases import each

NOW = 1_767_225_600_000_000  # 2026-01-01
LIMIT = 102_400
OWNER = Owner("小明")


def parsed(messages: Any, most: int = LIMIT) -> list[Message]:
    return parse_messages(messages, OWNER, NOW, ContentPolicy(most)).messages


def one(**fields: Any) -> Message:
    (message,) = parsed({"content": "我不吃辣", **fields})
    return message


def refusal(messages: Any) -> KeMemError:
    """Why messages are refused; the reason must be fit to be printed and sent."""
    with pytest.raises(KeMemError) as caught:
        parsed(messages)
    caught.value.message.encode()
    assert len(caught.value.message) < 400
    return caught.value


def refused_field(**fields: Any) -> object:
    error = refusal([{"content": "hello"}, {"content": "你好", **fields}])
    assert isinstance(error, InvalidArgument)
    return error.details["field"]


@each("text", ["我不吃辣", "I can't eat spicy food"])
def test_a_text_is_something_a_user_said_now(text: str) -> None:
    (message,) = parsed(text)
    assert message == Message(
        message_id=message.message_id,
        agent_id="default",
        user_id="小明",
        session_id="default",
        role="user",
        content=text,
        ts=NOW,
        ingest_time=NOW,
    )
    assert message.message_id.startswith("m_")


@each("text", ["我不吃辣", "I can't eat spicy food"])
def test_a_message_may_say_everything_itself(text: str) -> None:
    fields = {
        "role": "assistant",
        "content": text,
        "message_id": "消息",
        "ts": "2025-12-31T16:00:00+08:00",
        "session_id": "s_1",
        "agent_id": "a_1",
        "content_type": "markdown",
        "parent_message_id": "m_0",
        "metadata": {"speaker": "小红", "n": [1, {"x": None}]},
    }
    (message,) = parsed(MappingProxyType(fields))
    kept = {name: getattr(message, name) for name in fields if name != "ts"}
    assert kept == {name: value for name, value in fields.items() if name != "ts"}
    assert (to_rfc3339(message.ts), message.ingest_time) == ("2025-12-31T08:00:00.000000Z", NOW)
    assert message.user_id == "小明"


@each("text", ["你好", "hello"])
def test_what_is_none_is_not_said(text: str) -> None:
    """The owner's ids fill in."""
    names = ("message_id", "ts", "session_id", "agent_id", "content_type", "parent_message_id")
    owner = Owner("u", "助手", "会话")
    fields = {"content": text, "metadata": None, **dict.fromkeys(names)}
    (message,) = parse_messages([fields], owner, NOW, ContentPolicy(LIMIT)).messages
    assert (message.agent_id, message.session_id, message.user_id) == ("助手", "会话", "u")
    assert (message.content_type, message.parent_message_id, message.ts) == ("text", None, NOW)
    assert message.metadata == {}


@settings(deadline=None)
@given(texts=st.lists(st.text(min_size=1).filter(lambda it: not is_blank(it)), min_size=1))
def test_messages_stay_in_order_and_exactly_as_they_were(texts: list[str]) -> None:
    """Each with an id of its own."""
    messages = parsed([{"content": text} for text in texts])
    assert [message.content for message in messages] == texts
    assert len({message.message_id for message in messages}) == len(texts)
    assert parsed(tuple({"content": text} for text in texts))[-1].content == texts[-1]


@each(
    "text",
    [
        *("火\0锅", "hot\0pot", "\ufeff你好", "\u202eevil", "👩\u200d👩\u200d👧", "𠮷𪚥"),
        *("e\u0301", "é", "\\u0000", " 你好\n", "\thello ", "a\u200b", "\uffff", "x\x1b[31m"),
    ],
)
def test_content_is_kept_verbatim(text: str) -> None:
    """NUL, marks of direction, blanks at the ends, either composition."""
    (message,) = parsed(text)
    assert message.content == text
    assert message.metadata == {}


@each(
    "content",
    [
        *(5, 1.5, True, b"hello", "你好".encode(), object(), [5], [["你好"]]),
        *("\ud800", "你好\udfff", "hello \ud83d"),
    ],
)
def test_content_must_be_a_text_or_parts(content: Any) -> None:
    """And a lone surrogate is no text."""
    error = refusal({"content": content})
    assert isinstance(error, InvalidArgument)
    assert error.details == {"field": "messages[0].content"}


INVISIBLE = ["\u200b", "\u2060\ufeff", "\0", "\x1b", "\u202e\u202c", " \u200d\n"]


@each("content", [None, "", " ", "\n\t", "\u3000", "\x1f", [], [""], *INVISIBLE])
def test_a_message_without_content_is_left_out(content: Any) -> None:
    """The others stay. Nor is a text of which nothing can be seen a content."""
    assert [it.content for it in parsed([{"content": content}, {"content": "你好"}])] == ["你好"]


@each(
    "messages",
    [
        *(None, 5, 1.5, True, b"hello", "你好".encode(), object(), {1, 2}, [], (), iter(["你好"])),
        *INVISIBLE,
        *("", " ", "\u3000", {}, {"text": "hello"}, [None], [{"content": "你好"}, None]),
        *([[{"content": "hello"}]], [{"content": "你好"}, {}]),
        *([{"content": "hello", "user_id": "u_2"}], [{"content": "你好", "user_id": 5}]),
    ],
)
def test_what_is_no_message_is_refused(messages: Any) -> None:
    """One wrong message refuses them all; nobody names another user."""
    assert isinstance(refusal(messages), InvalidArgument)


@each("text", ["你好", "hello"])
def test_a_call_takes_at_most_5000_messages(text: str) -> None:
    assert len(parsed([{"content": text}] * MAX_MESSAGES)) == MAX_MESSAGES
    for count in (MAX_MESSAGES + 1, 10_000):
        error = refusal([{"content": text}] * count)
        assert isinstance(error, Exhausted)
        assert error.message == f"at most 5000 messages in one call, not {count}"


@each("size", [1, LIMIT - 1, LIMIT])
@each("filler", ["a", "火", "𠮷", "é"])
def test_content_up_to_the_limit_is_kept_whole(filler: str, size: int) -> None:
    text = filler * max(size // len(filler.encode()), 1)
    text += "a" * (size - len(text.encode()))
    (message,) = parsed(text)
    assert message.content == text
    assert message.metadata == {}


@each("beyond", [1, 2, 3, 10_000_000])
@each("filler", ["a", "火", "𠮷", "é", "e\u0301"])
def test_longer_content_is_cut_at_a_character_and_flagged(filler: str, beyond: int) -> None:
    """As much as fits in 102,400 bytes, and the caller's metadata beside the flag."""
    size = len(filler.encode())
    text = filler * ((LIMIT + beyond) // size + 1)
    (message,) = parsed({"content": text, "metadata": {"truncated": "no", "小": 1}})
    kept = message.content.encode()
    assert text.startswith(message.content)
    assert LIMIT - 4 < len(kept) <= LIMIT
    assert len(message.content) < len(text)
    assert message.metadata == {"truncated": True, "小": 1}


@settings(deadline=None)
@given(text=st.text("aé火𠮷\u0301", min_size=1, max_size=12), most=st.integers(1, 40))
def test_the_longest_beginning_that_fits_is_kept(text: str, most: int) -> None:
    """Character by character; where not even one fits there is nothing to keep."""
    fitting = [text[:end] for end in range(1, len(text) + 1) if len(text[:end].encode()) <= most]
    if not fitting:
        with pytest.raises(InvalidArgument, match="not blank"):
            parsed(text, most)
        return
    (message,) = parsed(text, most)
    assert message.content == fitting[-1]
    assert ("truncated" in message.metadata) == (fitting[-1] != text)


@each("word", ["火锅", "hotpot"])
def test_a_text_that_is_blank_up_to_the_limit_is_blank(word: str) -> None:
    """What would be stored counts, not what was cut away."""
    assert "not blank" in refusal({"content": " " * LIMIT + word}).message
    (message,) = parsed(" " * (LIMIT - 10) + word)
    assert message.content.endswith(word)


@each("role", ROLES)
def test_a_role_is_one_of_four(role: str) -> None:
    assert one(role=role).role == role


@each("role", ["", "User", "robot", "用户", " user", None, 5, ["user"], {}])
def test_another_role_is_refused(role: Any) -> None:
    assert refused_field(role=role) == "messages[1].role"


@each("content_type", ["text", "markdown", "图片", "x" * 50, "\\u0000", "a b"])
def test_a_content_type_is_a_short_text(content_type: str) -> None:
    assert one(content_type=content_type).content_type == content_type


@each("content_type", ["", "x" * 51, 5, ["text"], "a\0b", "\ud800", "文\udc00"])
def test_another_content_type_is_refused(content_type: Any) -> None:
    assert refused_field(content_type=content_type) == "messages[1].content_type"


ID_FIELDS = ("message_id", "session_id", "agent_id", "parent_message_id")


@each("name", ID_FIELDS)
@each("value", ["*", "%", "_", "...", "ｍ", "e\u0301", "é", '"', "'; --", "消息", "x" * 255, "a b"])
def test_a_hostile_id_is_kept_byte_by_byte(name: str, value: str) -> None:
    assert getattr(one(**{name: value}), name) == value


@each("name", ID_FIELDS)
@each(
    "value",
    ["", " a", "a ", "消息\n", "..", "a\0b", "用" * 256, "\ud800", 5, b"a", ["a"]],
)
def test_what_cannot_be_an_id_is_refused(name: str, value: Any) -> None:
    """Also an empty one: it does not mean that none was given."""
    assert refused_field(**{name: value}) == f"messages[1].{name}"


@each(
    "ts", [0, 1_767_225_600, True, "", "昨天", "yesterday", "2026-01-01", datetime(2026, 1, 1), []]
)
def test_a_time_without_a_zone_or_meaning_is_refused(ts: Any) -> None:
    assert refused_field(ts=ts) == "messages[1].ts"


@each("text", ["你好", "hello"])
def test_the_last_second_of_the_calendar_is_left_free(text: str) -> None:
    """Messages of one time are told apart by moving on, which must not lead out of it."""
    last = LATEST - 1_000_000
    assert one(content=text, ts=to_rfc3339(last)).ts == last
    assert one(content=text, ts=datetime(1, 1, 1, tzinfo=UTC)).ts == -62_135_596_800_000_000
    assert refused_field(content=text, ts=to_rfc3339(last + 1)) == "messages[1].ts"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
    lambda values: (
        st.lists(values, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "小", "a.b", '"', "$", ""]), values, max_size=3)
    ),
    max_leaves=10,
)  # fmt: skip


@settings(deadline=None)
@given(metadata=st.dictionaries(st.sampled_from(["speaker", "说话人", 'a"b', "a.b", "\\"]), JSON))
def test_metadata_comes_back_as_it_was(metadata: dict[str, Any]) -> None:
    """And as a copy: what the caller changes later is not ours."""
    before = json.dumps(metadata)
    kept = one(metadata=metadata).metadata
    assert kept == metadata
    for value in metadata.values():
        if isinstance(value, list | dict):
            value.clear()
    assert json.dumps(kept) == before


@each(
    "key", ['"', "'; --", "a.b", "$.a", "a[0]", "", " ", "\\", "\\u0000", "键", "🎉", "a" * 1_000]
)
def test_any_text_may_be_a_key(key: str) -> None:
    assert one(metadata={key: {key: [key]}}).metadata == {key: {key: [key]}}


def nested(depth: int, kind: type[list[Any]] | type[dict[str, Any]]) -> dict[str, Any]:
    """Metadata of so many containers within each other."""
    inner: Any = kind()
    for _ in range(depth - 2):
        inner = [inner] if kind is list else {"深": inner}
    return {"deep": inner}


@each("kind", [list, dict])
def test_metadata_may_be_nested_32_deep(kind: Any) -> None:
    """Deeper is refused, however deep, before anything can follow it down."""
    assert one(metadata=nested(32, kind)).metadata == nested(32, kind)
    for depth in (33, 1_000, 100_000):
        assert refused_field(metadata=nested(depth, kind)) == "messages[1].metadata"


@each("field", ["content", "metadata", "role", "message_id", "ts"])
def test_a_deep_value_in_the_wrong_place_is_refused(field: str) -> None:
    """Showing it in the message must not fail on its own."""
    deep = nested(5_000, list)["deep"]
    assert refused_field(**{field: deep}) == f"messages[1].{field}"


def endless() -> dict[str, Any]:
    """A parent and children that know their parent: each generation is ten times as large."""
    parent: dict[str, Any] = {}
    parent["children"] = [{"parent": parent} for _ in range(10)]
    return parent


def folded() -> dict[str, Any]:
    """A few small lists that would be billions when written out."""
    inner: list[Any] = []
    for _ in range(30):
        inner = [inner, inner]
    return {"inner": inner}


@each("build", [endless, folded])
def test_metadata_without_end_is_refused_at_once(build: Callable[[], dict[str, Any]]) -> None:
    """Before it fills the memory."""
    assert isinstance(refusal({"content": "你好", "metadata": build()}), Exhausted)


@each(("filler", "size"), [("a", 1), ("火", 3), ("𠮷", 4)])
def test_metadata_may_have_64_kilobytes(filler: str, size: int) -> None:
    """Counted in UTF-8, as it is stored."""
    room = MAX_METADATA_BYTES - len('{"a": ""}')
    text = filler * (room // size) + "x" * (room % size)
    assert one(metadata={"a": text}).metadata == {"a": text}
    for larger in ({"a": text + "x"}, {"a": "x" * 1_048_576}, {"a": [0] * 500_000}):
        error = refusal({"content": "你好", "metadata": larger})
        assert isinstance(error, Exhausted)
        assert error.details == {"field": "messages[0].metadata"}


@each(
    "value",
    [
        *({1, 2}, datetime(2026, 1, 1, tzinfo=UTC), float("nan"), float("inf"), -float("inf")),
        *(b"bytes", object(), 1j, range(3), MappingProxyType({}), {(1, 2): 3}, [10**5_000]),
        *("\ud800", ["深\udfff"], "a\0b", ["\0"], {"\0": 1}, "\\\0", {"\ud800": 1}),
    ],
)
def test_metadata_that_no_database_can_keep_is_refused(value: Any) -> None:
    assert refused_field(metadata={"a": [value]}) == "messages[1].metadata"


@each("metadata", ["", "text", "文", 5, True, [], [["a", 1]], b"{}", {1, 2}])
def test_metadata_must_be_an_object(metadata: Any) -> None:
    assert refused_field(metadata=metadata) == "messages[1].metadata"


@each("text", ["\\u0000", "\\\\u0000", "a\\", "零\\u0000\\"])
def test_a_backslash_is_not_an_escape(text: str) -> None:
    """Only a real NUL is refused, not six characters that spell one in JSON."""
    assert one(metadata={"a": text, text: 1}).metadata == {"a": text, text: 1}


def test_tuples_and_other_keys_become_what_json_has() -> None:
    assert one(metadata={1: ("小", "red")}).metadata == {"1": ["小", "red"]}
