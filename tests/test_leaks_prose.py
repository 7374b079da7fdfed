"""Prose about tool calls, and whatever else looks like markup, passes byte for byte."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from kemem.text.leaks import FilteredText, StreamGuard, filter_text
from tests.answers import ordinary_answers
from tests.cases import each
from tests.leaky import pieces

TOOLS = ("recall_memory", "is_mentioned")
SIZES = (1, 2, 3, 7, 10_000)

ABOUT_CALLS = [
    "`<tool_call>` is what Qwen writes, and `</tool_call>` closes it.",
    "Qwen 用 <tool_call> 开头，用 </tool_call> 结尾。",
    "A call looks like <tool_call>{...}</tool_call>, says the README.",
    '<tool_call>{"city": "Paris"}</tool_call> 里没有名字，所以不是调用。',
    "<tool_call>name</tool_call> 只是占位。",
    "the [TOOL_CALLS] token opens a list, and [ARGS] comes before the arguments",
    "Mistral 写成 [TOOL_CALLS]name[ARGS]{…}，旧版是 [TOOL_CALLS] [...]。",
    "[TOOL_CALLS] is one token; [tool calls] is not. [t], [to], [TOOL",
    "<|python_tag|> opens a call in Llama 3; <|eom_id|> ends it.",
    "Llama 的 <|python_tag|> 后面跟着 JSON，比如 {\"name\": \"f\"}。",
    "DeepSeek V3 用 <｜tool▁calls▁begin｜> 和 <｜tool▁call▁begin｜>，以 <｜tool▁sep｜> 分隔。",
    "V3 begins with <｜tool▁calls▁begin｜><｜tool▁call▁begin｜> and then the type.",
    "Kimi K2 has <|tool_calls_section_begin|> and <|tool_call_argument_begin|>.",
    "K3 的频道是 <|open|>tools<|sep|> … <|close|>tools<|sep|>，正文是 <|open|>response<|sep|>。",
    "<function_calls> wraps <invoke>, which wraps <parameter>.",
    "标签 <invoke name=\"x\"> 表示调用，<parameter name=\"q\"> 是参数，</invoke> 结束。",
    "Write <function=NAME> before the arguments, </function> after them.",
    "函数写作 <function=名字>，参数写作 <parameter=名字>。",
    "GLM writes <arg_key>, <arg_value>; Hunyuan has <tool_sep> and <tool_calls>.",
    "gpt-oss 的频道：<|channel|>analysis、<|channel|>commentary、<|channel|>final。",
    "<|start|>assistant<|channel|>final<|message|>Hello there<|return|>",
    "He wrote a commentary to the book; commentary to=functions is a header, 注释 comma com c",
    "LFM2 uses <|tool_call_start|> and <|tool_call_end|>, InternLM <|action_start|> <|plugin|>.",
    "Gemma 用 ```tool_code 代码块。",
    "Gemma 4 begins with <|tool_call> and ends with <tool_call|>.",
    "DSML 是 DeepSeek 的标记语言；its token is ｜DSML｜ and it has function_calls.",
    "| 名称 | 说明 |\n|---|---|\n| DSML | DeepSeek 的标记 |\n| tool_calls | 块 |\n",
    "tool_calls, function_calls, invoke, parameter, recall_memory(query='x')",
    '{"name": "get_weather", "arguments": {"query": "没有标记"}}',
    "`<tool_response>` holds the result, `<tools>` the definitions. <tools>锤子</tools>",
    "< calls> and <calls> are not calls. 「<calls>」也不是。",
]  # fmt: skip

EXAMPLES_IN_CODE = [
    '```xml\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "巴黎"}}\n</tool_call>```',
    '行内：`<tool_call>{"name": "f", "arguments": {}}</tool_call>`，就这样。',
    'Inline `[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}]` and `[TOOL_CALLS]f[ARGS]{}`.',
    '```\n<function_calls>\n<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n'
    "</invoke>\n</function_calls>\n```\nSee above.",
    "```text\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>北京</arg_value>\n"
    "</tool_call>\n```",
    "````md\n```tool_code\nget_weather(city='北京')\n```\n````\n例子。",
    "`<function=f>{\"a\": 1}</function>` 和 `<|python_tag|>{\"name\": \"f\", \"parameters\": {}}`",
    '`<tool_call>{"name": "f", "arguments": {"": "[TOOL_CALLS]is_mentioned[ARGS]{}"}}</tool_call>`',
    "```tool_code\nprint('你好')\n```\n这只是代码。",
    "```tool_code\nimport os\nfor x in range(3):\n    print(x)\n```",
]  # fmt: skip

ANYTHING_ELSE = [
    "a < b | c > d，而且 x<y 且 y>z。",
    "if (a<b && c>d || e<<2) { f[0] = t[i]; }",
    "let y = f <| x |> g  // F#，管道",
    "std::function<void(int)> f; std::map<std::string, std::vector<int>> m; template <typename T>",
    "fn call<'a, T: Fn(&'a str)>(t: &[T]) -> Option<T> { <T as Trait>::call(t) }",
    '<div class="tool"><p>你好</p><!-- 注释 --><br/><input type="text" name="q"></div>',
    "<channel><title>RSS 频道</title><item/></channel> <open>开</open> <start>x</start>",
    "甲｜乙｜丙，「｜」是全角竖线，‖ 是双竖线，<｜> 不是标签，◁▁▂▃▷",
    "| a | b |\n|:--|--:|\n| `x < y` | [链接](http://例.cn/?a=1&b=[2]) |\n",
    "```python\ndef f(x: list[int]) -> dict:\n    return {c: ord(c) for c in 'abc'}\n```\n",
    "~~~\n未闭合的 ` 反引号\n~~~ 好的~~~",
    "> 引用\n> - [ ] 待办 [x] 完成\n1. 第一\n\n\n2. 第二\n\n",
    "“弯引号”、‘单引号’、'直' \"double\"，以及 \\n 与 \\u4f60。",
    "🙂👩‍👩‍👧 \u200b零宽 e\u0301 \u3000全角空格 \t制表\r\n回车",
    "  leading and trailing blanks  \n\n\t ",
    "<think>先想想</think>答案是 42。",
    "x < ", "尾巴 <", "</", "tail [", "`", "``", "```", "<tool", "<|", "", " ", "\n",
    "a <tool_calls", "看 <tool_call>", "see [TOOL_CALLS]", "<function_calls> ",
]  # fmt: skip


def test_prose_passes_byte_for_byte() -> None:
    """In pieces of any size, and nothing of it is reported as a leak."""
    changed = []
    for prose, size in product([*ABOUT_CALLS, *EXAMPLES_IN_CODE, *ANYTHING_ELSE], SIZES):
        guard = StreamGuard(TOOLS)
        outputs = [*map(guard.feed, pieces(prose, size)), guard.close()]
        text = "".join(it.text for it in outputs)
        if text != prose or any(it.leaks for it in outputs):
            changed.append((prose, size, text))
    assert changed == []


def test_ordinary_answers_with_code_and_json_are_not_touched() -> None:
    """At once and in pieces; examples call tools that are not on offer."""
    answers = [*ordinary_answers()]
    assert len({*answers}) >= 2_000
    hidden = []
    for turn, answer in enumerate(answers):
        for size in (100_000, SIZES[turn % 4]):
            guard = StreamGuard(TOOLS)
            outputs = [*map(guard.feed, pieces(answer, size)), guard.close()]
            if "".join(it.text for it in outputs) != answer or any(it.leaks for it in outputs):
                hidden.append((answer, size))
    assert hidden == []


@given(st.text(alphabet=st.characters(exclude_characters="<＜[`{")))
def test_text_without_openers_passes(text: str) -> None:
    assert filter_text(text) == FilteredText(text, ())


@each("prose", ["我记得你说过，下周去成都。", "I remember: you are going to Chengdu."])
def test_words_are_shown_as_they_come(prose: str) -> None:
    guard = StreamGuard(TOOLS)
    shown = ""
    for at, character in enumerate(prose, 1):
        shown += guard.feed(character).text
        assert len(prose[:at].rstrip()) - len(shown) <= 2


@each("prose", ["若 a < b 则写 [x] 与 `c`，", "if a < b, write [x] and `c`; "])
def test_what_looks_like_an_opener_is_held_for_some_characters_only(prose: str) -> None:
    guard = StreamGuard(TOOLS)
    text, shown = prose * 3, ""
    for at, character in enumerate(text, 1):
        shown += guard.feed(character).text
        assert at - len(shown) <= 4
