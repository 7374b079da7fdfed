"""Tool calls that are written as text are hidden and read, in every form and in any pieces."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kemem.text.leaks import (
    MAX_BLOCK,
    FilteredText,
    Leak,
    LeakedCall,
    StreamGuard,
    UntypedText,
    filter_text,
)
from tests.cases import each
from tests.leaky import (
    ARGUMENTS,
    BARE,
    FRAGMENTS,
    PLAIN,
    SHAPES,
    TOOL,
    Dsml,
    Shape,
    dsml_shapes,
    pieces,
)

SIZES = (1, 2, 3, 7, 16, 100_000)
AROUND = (
    ("好的，我查一下：a < b。\n\n", ""),
    ("Let me look it up. ", "\n\n找到了 [1]，see `x < y`."),
)
CALL = PLAIN[0].write(TOOL, {"query": "成都"})
DSML = Dsml()(TOOL, {"query": "成都"})


def fed(text_pieces: Iterable[str], tools: Iterable[str] = (TOOL,)) -> FilteredText:
    """What a guard shows and hides of a text in pieces."""
    guard = StreamGuard(tuple(tools))
    seen = [*map(guard.feed, text_pieces), guard.close()]
    return FilteredText(
        "".join(it.text for it in seen), tuple(leak for it in seen for leak in it.leaks)
    )


def calls(shown: FilteredText) -> list[tuple[str, dict[str, Any]]]:
    return [(it.name, dict(it.arguments)) for leak in shown.leaks for it in leak.calls]


def cases() -> Iterator[tuple[Shape, dict[str, Any], str, str, int]]:
    """Plain forms with all arguments and sizes; DSML with some of them in turn."""
    for turn, (shape, arguments, size) in enumerate(product((*PLAIN, *BARE), ARGUMENTS, SIZES)):
        yield shape, arguments, *AROUND[(turn + turn // len(SIZES)) % 2], size
    for turn, (shape, _) in enumerate(product(dsml_shapes(), range(4))):
        (before, after), size = AROUND[turn // 4 % 2], SIZES[turn % 11 % 6]
        yield shape, ARGUMENTS[turn % 10], before, "" if shape.open_ended else after, size


def test_no_call_is_seen_or_misread_in_any_form_and_split() -> None:
    counted = 0
    for shape, arguments, before, after, size in cases():
        text = before + shape.write(TOOL, arguments) + after
        shown = fed(pieces(text, size))
        told = f"{shape.name} {arguments} in pieces of {size}"
        assert shown.text == (before + after if after else before.rstrip()), told
        assert [leak.form for leak in shown.leaks] == [shape.form], told
        assert calls(shown) == [(TOOL, shape.expected(arguments))], told
        counted += 1
    assert counted >= 5_000


def test_values_without_a_type_are_told_from_strings() -> None:
    for shape in SHAPES:
        (call,) = filter_text(shape.write(TOOL, {"query": "成都"}), [TOOL]).leaks[0].calls
        assert type(call.arguments["query"]) is (UntypedText if shape.written else str), shape.name


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
_JSON_SHAPES = [
    it for it in SHAPES if it.name in ("hermes", "mistral compact", "deepseek v3", "kimi k2")
]


@given(
    st.dictionaries(st.text(), _values, max_size=3),
    st.sampled_from(_JSON_SHAPES),
    st.integers(1, 9),
)
def test_whatever_json_holds_is_read_as_it_is(
    arguments: dict[str, Any], shape: Shape, size: int
) -> None:
    shown = fed(pieces(f"好 {shape.write(TOOL, arguments)} then", size))
    assert (shown.text, calls(shown)) == ("好  then", [(TOOL, arguments)])


@given(st.text(alphabet=st.characters(exclude_characters="<＜", exclude_categories=["Cs"])))
def test_a_string_of_dsml_is_read_to_the_letter(value: str) -> None:
    assert calls(filter_text(Dsml()(TOOL, {"query": value}))) == [(TOOL, {"query": value})]


_mixtures = st.lists(st.sampled_from([*FRAGMENTS, CALL, DSML]) | st.text(max_size=3), max_size=14)


@given(_mixtures.map("".join), st.data())
def test_the_pieces_of_a_text_make_no_difference(text: str, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=8).map(sorted))
    parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole = filter_text(text, [TOOL])
    assert fed(parts) == fed(text) == whole  # in parts, in characters, at once


@given(_mixtures.map("".join))
def test_every_character_is_shown_or_reported(text: str) -> None:
    shown = filter_text(text, [TOOL])
    hidden = [leak.text for leak in shown.leaks]
    assert Counter(shown.text + "".join(hidden)) == Counter(text)
    assert all(it in text for it in hidden)


@given(_mixtures)
def test_a_tag_of_dsml_is_never_shown(parts: list[str]) -> None:
    # A bare DSML is left out: what is left of others might form a tag with it.
    text = filter_text("".join(it for it in parts if it != "DSML")).text
    assert "<｜DSML" not in text
    assert "</｜DSML" not in text


@each("before", ["好的，我查一下。\n", "Let me look. "])
def test_wherever_a_block_of_dsml_is_cut_nothing_of_it_is_seen(before: str) -> None:
    for end in range(2, len(DSML)):
        shown = fed(pieces(before + DSML[:end], 5))
        assert shown.text == before.rstrip(), DSML[:end]
        assert len(shown.leaks) == 1
        for name, arguments in calls(shown):
            assert name == TOOL
            assert "成都".startswith(arguments.get("query", ""))


def test_a_call_that_is_cut_behind_its_name_is_hidden() -> None:
    seen = []
    for text in (shape.write(TOOL, {"query": "成都 and 火锅"}) for shape in (*PLAIN, *BARE)):
        for end in range(text.index(TOOL) + len(TOOL), len(text) + 1):
            shown = fed(pieces("好的。" + text[:end], 9))
            if shown.text != "好的。" or len(shown.leaks) != 1:
                seen.append(text[:end])
            for name, arguments in calls(shown):
                assert name == TOOL
                assert "成都 and 火锅".startswith(arguments.get("query", "")), text[:end]
    assert seen == []


@each(
    "text, shown",
    [
        ("DeepSeek 写 <｜DSML｜tool_calls> 来开头。", "DeepSeek 写  来开头。"),
        ("It opens `<｜DSML｜invoke name=\"x\">` and waits.", "It opens `` and waits."),
        ("```\n<|DSML|parameter name=\"q\">\n```\n例子", "```\n\n```\n例子"),
        ("标记 <｜DSML｜ 本身", "标记  本身"),
        ("so </｜DSML｜invoke> it ends", "so  it ends"),
    ],
)  # fmt: skip
def test_a_lone_tag_of_dsml_goes_and_the_words_around_stay(text: str, shown: str) -> None:
    for size in SIZES:
        seen = fed(pieces(text, size))
        assert seen.text == shown
        assert [(leak.form, leak.calls) for leak in seen.leaks] == [("dsml", ())]


@each(
    "text",
    [
        "```json\n{call}\n```",
        "例子是 `{call}`。",
    ],
)
def test_in_code_a_call_is_an_example_unless_the_tool_is_known(text: str) -> None:
    text = text.replace("{call}", CALL)
    assert filter_text(text, ["another_tool"]) == FilteredText(text, ())
    assert [leak.form for leak in filter_text(text, [TOOL]).leaks] == ["hermes"]
    assert TOOL not in filter_text(text, [TOOL]).text
    assert "DSML" not in filter_text(text.replace(CALL, DSML), ["another_tool"]).text


def test_out_of_code_a_call_of_an_unknown_tool_is_hidden() -> None:
    for (before, after), shape in product(AROUND, PLAIN):
        shown = filter_text(
            before + shape.write("get_weather", {"city": "巴黎 Paris"}) + after, [TOOL]
        )
        assert shown.text == (before + after if after else before.rstrip()), shape.name
        assert calls(shown) == [("get_weather", {"city": "巴黎 Paris"})]


def test_json_is_a_call_only_of_a_tool_that_is_on_offer() -> None:
    """Whoever explains JSON to somebody is not interrupted."""
    for (before, after), shape, size in product(AROUND, BARE, SIZES):
        text = before + shape.write("get_weather", {"city": "巴黎 Paris"}) + after
        assert fed(pieces(text, size)) == FilteredText(text, ()), shape.name


@each(
    "text",
    [
        '{"name": "recall_memory", "description": "…", "parameters": {"type": "object"}}',
        '{"name": "recall_memory", "parameters": {"type": "object", "properties": {}}}',
        '{"name": "recall_memory"}',
        '{"name": "recall_memory", "arguments": {"query": "x"}, "price": 7}',
        '<tools>{"name": "recall_memory", "description": "…"}</tools>',
        '{"calls": [{"name": "recall_memory", "caller": "李明"}]}',
    ],
)
def test_the_definition_of_a_tool_is_no_call(text: str) -> None:
    assert filter_text(text, [TOOL]) == FilteredText(text, ())


@each("answer", ["你对花生过敏。", "You are allergic to peanuts."])
def test_a_result_that_a_model_makes_up_is_hidden(answer: str) -> None:
    """Ids and scores are not for the user; what the model says of them is."""
    result = json.dumps({"events": [{"id": "n_1", "content": answer, "score": 0.2}]})
    for name, size in product(("tool_response", "tool_result"), SIZES):
        text = f"<{name}>\n{result}\n</{name}>\n{answer}"
        shown = fed(pieces(text, size))
        assert shown.text.strip() == answer
        assert [leak.calls for leak in shown.leaks] == [()]
        code = f"```\n{text}\n```"
        assert fed(pieces(code, size)) == FilteredText(code, ())


MEMORIES = (
    {
        "id": "n_01KJQV9Z8019FWVRBC8RQB2227",
        "kind": "user_info",
        "time": "2026-03-02T18:00:00.000000Z",
        "content": "User's dog is called Biscuit",
        "score": 0.6,
    },
    {"id": "m_1", "kind": "message", "time": "2026-03-05T18:00:00Z", "content": "我儿子叫小川"},
)


@each("memory", MEMORIES)
def test_memories_that_a_model_repeats_as_they_came_are_hidden(memory: dict[str, Any]) -> None:
    """As Qwen2.5-Coder answers; events of other kinds are part of an answer."""
    told = {"events": [memory]}
    other = {"events": [{"id": 1, "title": memory["content"], "time": memory["time"]}]}
    words = "好的。Fine."
    for indent, size in product((None, 2), SIZES):
        written = json.dumps(told, ensure_ascii=False, indent=indent)
        for text in (written, f"```json\n{written}\n```", f"```\n{written}\n```"):
            shown = fed(pieces(f"{text}\n\n{words}", size))
            assert shown.text.strip() == words, text
            assert [leak.calls for leak in shown.leaks] == [()]
            assert fed(pieces(text, size)).text == ""
        cut = f"```json\n{written[: written.index(memory['content']) + 4]}"
        assert fed(pieces(cut, size)).text == ""
        plain = f"```json\n{json.dumps(other, ensure_ascii=False, indent=indent)}\n```"
        assert fed(pieces(plain, size)) == FilteredText(plain, ())


@each("before", ["好的。", "Sure. "])
def test_a_closing_fence_is_not_the_opening_of_another(before: str) -> None:
    code = f"{before}```python\nx = 1\n```"
    for size in SIZES:
        shown = fed(pieces(f"{code}\n{BARE[0].write(TOOL, {'query': 'x'})}", size))
        assert (shown.text, calls(shown)) == (code, [(TOOL, {"query": "x"})])


@each("words", ["好的。", "Let me look."])
def test_blanks_around_a_call_that_ends_the_text_are_hidden_with_it(words: str) -> None:
    for size in SIZES:
        shown = fed(pieces(f"{words}\n\n{CALL} \n", size))
        assert shown.text == words
        assert [leak.text for leak in shown.leaks] == [f"\n\n{CALL} \n"]
        assert fed(pieces(f"{words}\n\n", size)).text == f"{words}\n\n"


@each("between, shown", [("然后 then", "然后 then"), ("\n\n", ""), ("", "")])
def test_calls_one_after_another_are_one_leak_unless_words_part_them(
    between: str, shown: str
) -> None:
    seen = filter_text(f"{CALL}{between}{CALL}", [TOOL])
    assert seen.text == shown
    assert len(seen.leaks) == (2 if between.strip() else 1)
    assert calls(seen) == [(TOOL, {"query": "成都"})] * 2


@each(
    "bad",
    [
        "<｜DSML｜invoke>",
        '<｜DSML｜invoke name="bad">query=成都',
        '<｜DSML｜invoke name="bad">{"query": "成都" oops ] here}',
        '<｜DSML｜invoke name="bad"><｜DSML｜parameter name="q" string="false">{{{',
    ],
)
def test_a_malformed_call_does_not_take_the_others_with_it(bad: str) -> None:
    good = DSML.removeprefix("<｜DSML｜tool_calls>")
    shown = filter_text(f"好<｜DSML｜tool_calls>\n{bad}</｜DSML｜invoke>{good} then")
    assert shown.text == "好 then"
    assert calls(shown)[-1] == (TOOL, {"query": "成都"})


@each(
    "written, read",
    [
        ('{"name": "T", "arguments": {"query": "他说"好"，走了"}}', {"query": '他说"好"，走了'}),
        ('{"name": "T", "arguments": {"query": "5" disk", "n": 3}}', {"query": '5" disk', "n": 3}),
        ("{'name': 'T', 'arguments': {'query': '成都'}}", {"query": "成都"}),
        ('{"name": "T", "arguments": {"query": "x"}', {"query": "x"}),
        ('{“name”: “T”, “arguments”: {“query”: “成都”}}', {"query": "成都"}),
    ],
)  # fmt: skip
def test_broken_json_is_read_as_far_as_it_can_be(written: str, read: dict[str, Any]) -> None:
    text = f"好 <tool_call>\n{written.replace('T', TOOL)}\n</tool_call> then"
    for size in SIZES:
        shown = fed(pieces(text, size))
        assert (shown.text, calls(shown)) == ("好  then", [(TOOL, read)])


@each("said", ['他说"好"，走了', 'the 5" disk, he said', 'a "b" c'])
def test_quotes_that_are_not_escaped_do_not_end_a_value(said: str) -> None:
    text = f'[TOOL_CALLS]{TOOL}[ARGS]{{"query": "{said}", "n": 3}} 然后 "then"'
    for size in SIZES:
        shown = fed(pieces(text, size))
        assert (shown.text, calls(shown)) == (' 然后 "then"', [(TOOL, {"query": said, "n": 3})])


@each("after", ["好的，结果如下。", "Here is what I found, enjoy."])
def test_text_behind_a_call_that_never_closes_is_shown(after: str) -> None:
    for text in (
        '<tool_call>{"name": "recall_memory", "arguments": {"query": "x"}\n\n',
        '<｜DSML｜tool_calls><｜DSML｜invoke name="recall_memory">{"query": "x"}\n',
        '<｜DSML｜invoke name="recall_memory"><|DSML|parameter name="query">x</|DSML|parameter> ',
    ):
        shown = filter_text(text + after, [TOOL])
        assert shown.text.strip() == after
        assert calls(shown) == [(TOOL, {"query": "x"})]


@each("value", ["长", "long "])
def test_a_block_without_end_ends_all_the_same(value: str) -> None:
    text = (
        f'前 <｜DSML｜invoke name="x"><｜DSML｜parameter name="q" string="true">{value * MAX_BLOCK}'
    )
    for size in (9_973, len(text)):
        shown = fed(pieces(text, size))
        assert len(shown.leaks[0].text) == MAX_BLOCK
        assert shown.leaks[0].calls == ()
        assert shown.text == "前 " + text[2 + MAX_BLOCK :]


def test_a_leak_does_not_print_what_was_hidden() -> None:
    (leak,) = filter_text(DSML).leaks
    assert leak == Leak("dsml", (LeakedCall(TOOL, {"query": "成都"}),), DSML)
    assert "｜" not in repr(leak)


def test_python_calls_take_named_literals_only() -> None:
    for code, read in (
        ("recall_memory(query='成都', n=(1, 2))", {"query": "成都", "n": [1, 2]}),
        ("recall_memory(deep=true, none=null)", {"deep": True, "none": None}),
        ("recall_memory(query=open('x'))", None),
        ("recall_memory(query='a', **more)", None),
        ("recall_memory(query='\\d', n=-1)", {"query": "\\d", "n": -1}),
    ):  # fmt: skip
        shown = filter_text(f"好\n```tool_code\n{code}\n```\nthen", [TOOL])
        assert shown.text == "好\n\nthen"
        assert calls(shown) == ([] if read is None else [(TOOL, read)]), code


def test_what_a_value_says_is_no_markup() -> None:
    for value in ("</tool_call>", "<tool_call>{}", "[TOOL_CALLS]", "``` <｜x｜>", "}</function>"):
        text = f"好 {PLAIN[0].write(TOOL, {'query': value, 'n': 1})} then"
        assert calls(filter_text(text)) == [(TOOL, {"query": value, "n": 1})]
    xml = "<parameter>成都</parameter></invoke>"
    assert calls(filter_text(Dsml()(TOOL, {"query": xml}) + " then")) == [(TOOL, {"query": xml})]


def test_json_numbers_keep_their_kind() -> None:
    (call,) = filter_text(Dsml()(TOOL, {"a": 1, "b": 1.0, "c": "1", "d": ["1"]})).leaks[0].calls
    assert json.dumps(dict(call.arguments)) == '{"a": 1, "b": 1.0, "c": "1", "d": ["1"]}'
