"""Filters as callers write them: what each operator means, and what is refused."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kemem.errors import InvalidArgument
from kemem.records import MESSAGES, NOTES, Message, Note, Scope, Where
from kemem.records.filters import COMPARISONS, Filter
from kemem.text.filters import (
    MAX_CONDITIONS,
    MAX_DEPTH,
    MAX_VALUES,
    check_satisfiable,
    split_filters,
)
from kemem_conformance.note_world import filter_pool
from tests.cases import each

ALL = MESSAGES | NOTES
DAY, LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
NOW = 1_769_424_420_000_000  # 2026-01-26T10:47:00Z
KNOWN = {
    "标签": "工作",
    "tag": "Work",
    "n": 3,
    "f": 2.5,
    "on": True,
    "who": ["小明", "Ann"],
    "no": None,
}


def note(**changed: Any) -> Note:
    """A note of the first user."""
    usual = {"kind": "knowledge", "content": "用户不吃辣 no spice", "metadata": KNOWN, **changed}
    times = {"ts": NOW, "created": NOW, "updated": NOW + 1, "valid_from": NOW}
    given_ids = {"agent_id": "agent", "user_id": "u_1", "session_id": None}
    return Note(note_id="n", digest="d", **{**given_ids, **times, **usual})


def message() -> Message:
    """A message of the first user."""
    return Message(
        "m", "agent", "u_1", "s", "user", "我不吃辣 no spice", NOW, NOW + 5, metadata=KNOWN
    )


def holds(given_filter: Mapping[str, Any], row: Note | Message | None = None) -> bool:
    """Whether a row fulfils a filter, ids included."""
    row = row or note()
    ids, rest = split_filters(given_filter)
    mine = all(getattr(row, name) == value for name, value in ids.items())
    return mine and (rest is None or rest.matches(row))


@pytest.mark.parametrize(
    ("operator", "key", "fulfilled", "failed"),
    [
        ("eq", "标签", ["工作"], ["工", "工作 ", None, 3]),
        ("eq", "tag", ["Work"], ["work", "工作"]),
        ("eq", "n", [3, 3.0], ["3", True, None, 4]),
        ("eq", "on", [True], [1, "true", False]),
        ("eq", "no", [None], ["", 0, False]),
        ("eq", "missing", [None], ["没有", 0]),
        ("eq", "who", ["小明", "Ann"], ["ann", "小", None]),
        ("ne", "标签", ["home", None, 3], ["工作"]),
        ("ne", "missing", ["x"], [None]),
        ("gt", "n", [2, 2.99], [3, 4, "2", None, True]),
        ("gte", "n", [3, 2.5], [3.01, "3"]),
        ("lt", "f", [3, 2.6], [2.5, 1, "9"]),
        ("lte", "f", [2.5, 3], [2.4, None]),
        ("gt", "标签", ["工", "a"], ["工作", "火", 1]),
        ("lte", "tag", ["Work", "工作"], ["W", 9]),
        ("gt", "missing", [], [0, "", None]),
        ("in", "标签", [["家", "工作"], ["工作"]], [["家"], [None]]),
        ("in", "n", [[1, 3]], [["3"], [True]]),
        ("in", "who", [["Bob", "Ann"]], [["Bob", "an"]]),
        ("nin", "tag", [["work"], [], [None]], [["Work", "家"]]),
        ("nin", "missing", [["没有"]], [[None]]),
        ("contains", "标签", ["作", "工作", ""], ["家", "工 作"]),
        ("contains", "tag", ["or"], ["OR", "%", "W_rk"]),
        ("contains", "who", ["小明"], ["小", "ann"]),
        ("contains", "n", [], [3, "3"]),
        ("icontains", "tag", ["WOR", "work"], ["工"]),
        ("icontains", "who", ["ANN", "小明"], ["AN"]),
    ],
)
def test_an_operator_means_one_thing(
    operator: str, key: str, fulfilled: list[Any], failed: list[Any]
) -> None:
    """In Chinese and English, for messages and notes alike."""
    for row in (note(), message()):
        for value in fulfilled:
            assert holds({key: {operator: value}}, row), value
        for value in failed:
            assert not holds({key: {operator: value}}, row), value


def test_a_bare_value_is_an_equality_and_a_list_a_choice() -> None:
    """{"tag": "x"} and {"tag": ["x", "y"]}; several keys must all hold."""
    assert holds({"标签": "工作", "tag": ["Work", "家"], "n": {"gt": 1, "lt": 4}})
    assert not holds({"标签": "工作", "tag": ["家", "work"]})
    assert not holds({"n": {"gt": 1, "lt": 3}})
    assert holds({}) and holds({"AND": [{}]}) and not holds({"NOT": {}})


@pytest.mark.parametrize("row", [note(), message()], ids=["note", "message"])
def test_metadata_can_be_named_in_full(row: Note | Message) -> None:
    """So that a key which is also a field can still be reached."""
    assert holds({"metadata.标签": "工作", "metadata.tag": "Work"}, row)
    assert not holds({"metadata.content": "用户不吃辣 no spice"}, row)


def test_fields_are_seen_under_all_their_names() -> None:
    """Also under those that users of such systems know."""
    full = note(keywords=("火锅", "Hotpot"), topic="口味", importance=0.75, sensitive=True)
    for key, value in {
        "memory": "用户不吃辣 no spice",
        "memory_id": "n",
        "run_id": None,
        "kind": "knowledge",
        "keywords": "火锅",
        "topic": "口味",
        "importance": 0.75,
        "sensitive": True,
        "memory_type": "general",
        "role": None,
    }.items():
        wrapped = {key: {"in": [value]}} if key != "run_id" else {"NOT": {key: {"ne": ""}}}
        assert holds(wrapped, full) is (key != "run_id"), key
    assert holds({"role": "user", "kind": "message", "run_id": "s"}, message())


@each("key", ["created_at", "updated_at", "ts", "timestamp"])
def test_times_are_written_as_everywhere_else(key: str) -> None:
    """RFC 3339, in any zone; numbers and other texts are refused."""
    assert holds({key: {"gte": "2026-01-26T10:47:00Z", "lt": "2026-01-26T18:47:01+08:00"}})
    assert not holds({key: {"gt": "2026-01-26T18:47:01+08:00"}})
    for wrong in (NOW, "昨天", "yesterday", None, True, ["2026-01-26T10:47:00Z", 5]):
        with pytest.raises(InvalidArgument):
            split_filters({key: wrong})


@each(
    ("given_filter", "ids"),
    [
        ({"user_id": "小明"}, {"user_id": "小明"}),
        ({"user_id": "u_1", "run_id": "s"}, {"user_id": "u_1", "session_id": "s"}),
        ({"session_id": {"eq": "会话"}}, {"session_id": "会话"}),
        (
            {"AND": [{"agent_id": "a"}, {"AND": [{"user_id": "小明"}]}]},
            {"agent_id": "a", "user_id": "小明"},
        ),
        ({"run_id": "s", "session_id": "s"}, {"session_id": "s"}),
    ],
)
def test_ids_that_must_hold_belong_to_the_scope(
    given_filter: Mapping[str, Any], ids: dict[str, str]
) -> None:
    """However deep in ANDs they stand; nothing is left to check."""
    assert split_filters(given_filter) == (ids, None)


@each(
    "given_filter",
    [
        {"user_id": ["u_1", "小明"]},
        {"user_id": {"ne": "小明"}},
        {"OR": [{"user_id": "小明"}, {"标签": "工作"}]},
        {"NOT": [{"user_id": "小明"}]},
        {"OR": [{"AND": [{"user_id": "小明"}]}]},
    ],
)
def test_ids_that_need_not_hold_stay_conditions(given_filter: Mapping[str, Any]) -> None:
    """They narrow what the scope shows and never name a scope."""
    ids, rest = split_filters(given_filter)
    assert ids == {} and rest is not None
    alternatives = {"OR": [{"user_id": "小明"}, {"标签": "工作"}]}
    assert holds(alternatives) and not holds({"OR": [{"user_id": "小明"}]})


@each("one, other", [("u_1", "u_2"), ("小明", "小红")])
def test_one_id_cannot_be_two(one: str, other: str) -> None:
    """Nothing could fulfil that; it is a mistake."""
    for wrong in (
        {"user_id": one, "AND": [{"user_id": other}]},
        {"run_id": one, "session_id": other},
    ):
        with pytest.raises(InvalidArgument):
            split_filters(wrong)


@given(condition=st.sampled_from(filter_pool()))
def test_a_filter_never_shows_more_than_its_scope(condition: Filter) -> None:
    """Whatever is nested in it, NOT included; and it shows exactly what it lets through."""
    where = Where(
        Scope("agent", "u_1"), kinds=frozenset({"message", "knowledge"}), filters=condition
    )
    for row in (note(), message()):
        assert where.matches(row) == condition.matches(row)
    for stranger in (note(user_id="小明"), note(user_id=""), note(agent_id="助手"), note(kind="x")):
        assert not where.matches(stranger)


@given(parts=st.lists(st.sampled_from(filter_pool()), min_size=1, max_size=3).map(tuple))
def test_groups_are_logic(parts: tuple[Filter, ...]) -> None:
    """AND is all, OR is any, NOT is none."""
    for row in (note(), message()):
        each = [part.matches(row) for part in parts]
        assert Filter("AND", parts=parts).matches(row) == all(each)
        assert Filter("OR", parts=parts).matches(row) == any(each)
        assert Filter("NOT", parts=parts).matches(row) == (not any(each))


def test_groups_can_be_nested() -> None:
    """As deep as a person would; NOT takes one filter or a list of them."""
    either = {"OR": [{"标签": "家"}, {"AND": [{"tag": "Work"}, {"NOT": {"n": {"gt": 3}}}]}]}
    assert holds(either)
    assert holds({"NOT": [{"标签": "家"}, {"tag": "work"}]})
    assert not holds({"NOT": [{"标签": "家"}, {"tag": "Work"}]})
    assert not holds({"NOT": either})


@each(
    "wrong",
    [
        "tag = 'x'",
        [{"标签": "工作"}],
        7,
        {1: "x"},
        {"": "x"},
        {"键" * 257: "x"},
        {"tag": {}},
        {"tag": {"$eq": "x"}},
        {"tag": {"like": "工%"}},
        {"tag": {"eq": {"深": 1}}},
        {"tag": {"eq": ["x"]}},
        {"tag": {"gt": float("nan")}},
        {"tag": float("inf")},
        {"tag": b"x"},
        {"tag": {"x"}},
        {"tag": {"in": "工作"}},
        {"tag": {"in": [["x"]]}},
        {"tag": {"nin": [{"深": 1}]}},
        {"tag": {1: "x"}},
        {"tag": object()},
        {"user_id": 7},
        {"agent_id": None},
        {"run_id": {"in": ["s", 1]}},
        {"AND": {"标签": "工作"}},
        {"OR": []},
        {"OR": "x"},
        {"NOT": ["x"]},
        {"NOT": []},
        {"AND": [None]},
    ],
)
def test_what_is_no_filter_is_refused(wrong: object) -> None:
    """With the field that is at fault, and without echoing all of it."""
    with pytest.raises(InvalidArgument) as caught:
        split_filters(wrong)
    assert caught.value.details["field"] == "filters"
    assert len(caught.value.message) < 300


@each(
    ("unmet", "kinds", "told"),
    [
        ({"role": "user"}, NOTES, "kinds=['message'], or name 'metadata.role'"),
        ({"AND": [{"role": ["user", "tool"]}]}, NOTES, "only messages have the role tool, user"),
        ({"role": "user", "AND": [{"role": "tool"}]}, MESSAGES, "two things at once"),
        ({"role": None}, MESSAGES, "every message has one"),
        ({"kind": "message"}, NOTES, "kind is demanded to be message, but this call reads"),
        ({"kind": ["user_info", "knowledge"]}, MESSAGES, "knowledge, user_info, but"),
        ({"kind": "message", "AND": [{"kind": "knowledge"}]}, ALL, "two things at once"),
        ({"ts": {"gt": DAY, "lt": DAY}}, ALL, "no ts is gt 2026-01-01T00:00:00"),
        ({"created_at": {"gte": LATER}, "AND": [{"created_at": {"lte": DAY}}]}, ALL, "2026-01-02"),
    ],
)
def test_a_filter_that_nothing_can_fulfil_is_refused(
    unmet: Mapping[str, Any], kinds: frozenset[str], told: str
) -> None:
    """It says what contradicts what, instead of finding nothing."""
    with pytest.raises(InvalidArgument) as caught:
        check_satisfiable(split_filters(unmet)[1], kinds)
    assert told in caught.value.message
    assert caught.value.details["field"] == "filters"


@each(
    "met",
    [
        {"OR": [{"role": "user"}, {"标签": "工作"}]},
        {"NOT": {"role": "user"}},
        {"role": {"ne": "user"}},
        {"role": [None, "user"]},
        {"metadata.role": "user", "metadata.kind": "随便 whatever"},
        {"kind": {"contains": "info"}},
        {"tag": "a", "AND": [{"tag": "b"}]},  # a list of tags has both
        {"ts": {"gte": DAY, "lte": DAY}},
        {"memory_type": 5, "importance": "high", "tag": {"nin": []}},
    ],
)
def test_a_filter_that_something_can_fulfil_is_not(met: Mapping[str, Any]) -> None:
    """Any key and value of metadata may be stored."""
    check_satisfiable(split_filters(met)[1], NOTES)


@each(
    ("wrong", "right"),
    [
        ({"kind": "fact"}, "kind must be one of message, user_info"),
        ({"kind": {"nin": ["message", "事实"]}}, "not '事实'; metadata is 'metadata.kind'"),
        ({"OR": [{"role": "human"}]}, "role must be one of user, assistant, system, tool"),
        ({"tag": []}, "'tag': in takes a list of 1-1000 values, not []"),
        ({"标签": {"in": []}}, "'标签': in takes a list of 1-1000 values, not []"),
        ({"sensitive": "yes"}, "sensitive must be True or False, not 'yes'"),
        ({"sensitive": 1}, "sensitive must be True or False, not 1"),
        ({"memory_id": 7}, "memory_id must be a text, not 7"),
        ({"content": {"contains": None}}, "content must be a text, not None"),
    ],
)
def test_a_field_is_compared_with_what_it_may_hold(wrong: Mapping[str, Any], right: str) -> None:
    """The error names what would be right, and how a key of the metadata is named."""
    with pytest.raises(InvalidArgument) as caught:
        split_filters(wrong)
    assert right in caught.value.message


@given(condition=st.sampled_from(filter_pool()), kinds=st.sampled_from([NOTES, MESSAGES, ALL]))
def test_what_is_refused_matches_no_row(condition: Filter, kinds: frozenset[str]) -> None:
    """No filter that some row fulfils is refused."""
    try:
        check_satisfiable(condition, kinds)
    except InvalidArgument:
        rows = (note(), note(kind="user_info"), note(metadata={}), message())
        assert not any(condition.matches(row) for row in rows if row.kind in kinds)


def test_hostile_keys_and_values_are_only_compared() -> None:
    """They reach no engine as anything but values."""
    for text in (
        "'; DROP TABLE note; --",
        '" OR 1=1',
        "$.a[*]",
        "%_\\",
        "\0",
        "__class__",
        "𠮷" * 200,
    ):
        assert not holds({text: "工作"})
        assert not holds({"标签": text})
        assert holds({text: {"ne": "工作"}, "tag": {"nin": [text]}})
    assert holds({"a'b": "x"}, note(metadata={"a'b": "x"}))


def nested(depth: int, operator: str) -> dict[str, Any]:
    """A filter inside of groups."""
    return {operator: [nested(depth - 1, operator)]} if depth else {"标签": "工作"}


@each("operator", ["AND", "OR", "NOT"])
def test_filters_have_a_depth(operator: str) -> None:
    """One that is deeper is refused, not followed."""
    assert split_filters(nested(MAX_DEPTH, operator))[1] is not None
    for depth in (MAX_DEPTH + 1, 500):
        with pytest.raises(InvalidArgument):
            split_filters(nested(depth, operator))


def test_filters_have_a_size() -> None:
    """In conditions, groups included, and in the values of a list."""
    assert split_filters({f"键{n}": n for n in range(MAX_CONDITIONS)})[1] is not None
    wide = {"OR": [{"tag": n} for n in range(MAX_CONDITIONS // 2)]}
    for wrong in ({f"k{n}": n for n in range(MAX_CONDITIONS + 1)}, wide):
        with pytest.raises(InvalidArgument):
            split_filters(wrong)
    assert holds({"n": list(range(MAX_VALUES))})
    with pytest.raises(InvalidArgument):
        split_filters({"n": list(range(MAX_VALUES + 1))})


def test_no_filter_is_no_condition() -> None:
    """Neither None nor an empty one."""
    assert split_filters(None) == split_filters({}) == ({}, None)


def test_every_operator_is_tested_here() -> None:
    """A new one comes with its cases."""
    (cases,) = (mark.args[1] for mark in test_an_operator_means_one_thing.pytestmark)
    assert {case[0] for case in cases} == COMPARISONS.keys()
