"""Reading the JSON that models write: whole, wrapped, broken, and none at all."""

import json
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kemem.text.loose_json import MAX_CHARACTERS, parse_json
from tests.cases import each

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
KEYS = st.text(max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=10,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4) | st.lists(VALUES, max_size=4)


@given(OBJECTS, st.booleans())
def test_valid_json_is_read_as_it_is(value: Any, ascii_only: bool) -> None:
    """Being tolerant must cost nothing to those who write properly."""
    assert parse_json(json.dumps(value, ensure_ascii=ascii_only)) == value


@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=4))
def test_a_fence_and_prose_around_do_not_matter(value: Any) -> None:
    """Chat models explain themselves, in both languages."""
    written = json.dumps(value, ensure_ascii=False)
    assert parse_json(f"Here are the facts [as asked]:\n```json\n{written}\n```\nOK?") == value
    assert parse_json(f"好的，结果如下：\n{written}\n以上。") == value
    assert parse_json(f'<think>maybe {{"a": 1}}?</think>\n{written}') == value


@each(
    ("written", "meant"),
    [
        ('{"text": "他说"你好", 然后走了", "n": 1}', {"text": '他说"你好", 然后走了', "n": 1}),
        ('{"text": "she said "hi", and left"}', {"text": 'she said "hi", and left'}),
        ('{"facts": [1, 2,],}', {"facts": [1, 2]}),
        ("{'a': 'I can\\'t', 'b': None, 'c': True}", {"a": "I can't", "b": None, "c": True}),
        ('{“text”：“我住在北京”}', {"text": "我住在北京"}),
        ('{"a": "一"\n"b": 2}', {"a": "一", "b": 2}),
        ('{facts: [{text: "x"}]}', {"facts": [{"text": "x"}]}),
        ('{"a": 1, // why\n "b": -2.5e3}', {"a": 1, "b": -2500.0}),
        ('{"a": [{"b": 1}}', {"a": [{"b": 1}]}),
        ('{"a": NaN, "b": Infinity}', {"a": None, "b": None}),
        ('"{\\"facts\\": []}"', {"facts": []}),
        ('\ufeff{"a": "line\nline"}', {"a": "line\nline"}),
        ('{"path": "C:\\new \\q"}', {"path": "C:\\new \\q"}),
        ("see [1]: {\"a\": 1}", {"a": 1}),
        ("[]", []),
        ("null", None),
    ],
)  # fmt: skip
def test_common_mistakes_are_forgiven(written: str, meant: object) -> None:
    """Each of these was written by some model."""
    assert parse_json(written) == meant


@given(st.data())
def test_what_is_cut_short_keeps_what_was_whole(data: st.DataObject) -> None:
    """A half sentence is not a fact: it could say the opposite of the whole one."""
    facts = [{"text": text} for text in ["用户不吃辣", "User does not smoke", "用户住在“北京”"]]
    written = json.dumps({"facts": facts}, ensure_ascii=False)
    cut = written[: data.draw(st.integers(12, len(written)))]
    read = [fact for fact in parse_json(cut)["facts"] if fact]
    assert read == facts[: len(read)]
    assert len(read) >= cut.count('"}')


@given(
    st.lists(st.fixed_dictionaries({"text": st.text("ab 好{}[],:"), "n": NUMBERS}), max_size=4),
    st.data(),
)
def test_of_a_list_that_is_cut_only_whole_objects_are_kept(items: Any, data: st.DataObject) -> None:
    """If that is wanted: what half an object does not say may be what matters."""
    written = json.dumps({"facts": items}, ensure_ascii=False)
    end = data.draw(st.integers(len('{"facts": ['), len(written)))
    ends = [
        len(json.dumps({"facts": items[: at + 1]}, ensure_ascii=False)) - 2
        for at in range(len(items))
    ]
    whole = [item for item, at in zip(items, ends, strict=True) if at <= end]
    assert parse_json(written[:end], whole=True) == {"facts": whole}


@each(
    "text",
    [
        "",
        "  \n",
        "I cannot do that.",
        "抱歉，我无法完成。",
        "I [sadly] can {not}",
        '"yes"',
        "```\n```",
    ],
)
def test_an_answer_without_json_is_a_value_error(text: str) -> None:
    """Prose is not an empty list of facts."""
    with pytest.raises(ValueError):
        parse_json(text)


@given(st.text(alphabet="{}[]\",:\\ \na1火“”`'/-", max_size=200))
def test_garbage_is_read_or_refused(text: str) -> None:
    """No other exception, whatever the text."""
    for written in (text, '{"a": ' + text):
        with suppress(ValueError):
            parse_json(written)


@each(
    "unit",
    [
        "{",
        "[",
        '{"a":',
        '"a',
        "{]",
        "{{]",
        '" ',
        "\\",
        '```{"a',
        '"a": 1,',
        "{a:[",
        " ",
        '{"a": "b"}',
    ],
)
def test_ten_megabytes_take_no_longer_than_what_is_read(unit: str) -> None:
    """A model that has gone wild cannot stop the process: json-repair takes minutes on some."""
    text = '{"facts": [' + unit * (10_000_000 // len(unit))
    begun = time.perf_counter()
    with suppress(ValueError):
        parse_json(text)
    assert time.perf_counter() - begun < 5
    assert len(text) > MAX_CHARACTERS
