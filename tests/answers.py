"""Ordinary answers of assistants: prose, code, JSON, XML, templates and examples of tool calls.

None of them calls a tool that is on offer. They are made from templates, always the same ones.
"""

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

TOOLS = ("get_weather", "search_web", "send_email", "create_event", "lookup_order", "run_sql")
"""Names in examples; none of these tools is on offer."""

NAMES = ("Alice", "李明", "web-01", "kemem", "王芳", "O'Brien", "my-app", "数据库")
CITIES = ("Paris", "成都", "São Paulo", "北京")


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _call_examples() -> Iterator[str]:
    """JSON that would be a call if its tool were on offer."""
    for tool, city in product(TOOLS, CITIES):
        arguments = {"city": city, "days": 3}
        function = {"name": tool, "arguments": _json(arguments)}
        definition = {"name": tool, "description": f"… {city}", "parameters": {"type": "object"}}
        values: tuple[Any, ...] = (
            {"name": tool, "arguments": arguments},
            {"name": tool, "parameters": arguments},
            {"tool": tool, "args": arguments},
            {"function": tool, "input": arguments},
            {"arguments": arguments, "name": tool},
            {"id": "call_1", "type": "function", "function": function},
            {"tool_calls": [{"id": "call_1", "type": "function", "function": function}]},
            {"calls": [{"name": tool, "arguments": arguments}]},
            {"function_call": function},
            {"type": "function", "function": definition},
            [{"name": tool, "arguments": arguments}, {"name": "now", "arguments": {}}],
            definition,
        )
        yield from (_json(value, indent) for value, indent in product(values, (None, 2)))


def _documents() -> Iterator[str]:
    """Configuration files and records, as JSON."""
    for name, number in product(NAMES, range(4)):
        yield _json({"name": name, "age": 20 + number, "tags": ["a", "乙"]})
        yield _json({"name": name, "version": f"0.{number}.0", "scripts": {"test": "jest"}}, 2)
        yield _json([{"id": number, "name": name}, {"id": number + 1, "name": None}])
        yield _json({"id": f"call_{number}", "price": 3.5, "type": "phone"})
        yield _json({"type": "object", "properties": {"name": {"type": "string"}}}, 4)
        yield _json({"type": "function", "name": name, "returns": "void"})
        yield _json({"parameters": {"timeout": number}, "in": "query", "name": name})
        yield _json({"input": {"text": name}, "expected": {"label": number}})
        yield _json({"calls": [{"from": name, "minutes": number}], "total": 1})
        yield _json({"tool": name, "uses": number, "arguments": ["-v", "--quiet"]})
        yield f'{{"name": "{name}", "arguments": {number}'  # cut short


_CODE = (
    ("python", "def f(x):\n    return {{'name': x, 'arguments': {{}}, 'n': {n}}}\n"),
    ("python", 'print(f"{{{{name}}}} is {{name!r:>{n}}}")\nd = {{"name": "x", "args": ({n},)}}\n'),
    ("js", "const u = {{name: 'Ann', input: {{}}}};\nconst g = x => ({{...u, n: {n}}});\n"),
    ("ts", "type T = {{ name: string; arguments: Record<string, number>[] }}; // {n}\n"),
    ("go", 'm := map[string]any{{"name": "go", "parameters": []int{{{n}}}}}\n'),
    ("rust", 'let v = json!({{"name": "r", "args": [{n}]}}); Vec::<Option<u8>>::new();\n'),
    ("css", "a {{ color: red }} .tool > b {{ margin: {n}px }}\n"),
    ("latex", "\\frac{{a}}{{{{b}}^{n}}} \\text{{名字}}\n"),
    ("bash", 'echo "${{name}}" | jq \'{{name: .x, n: {n}}}\' && [[ -f x ]]\n'),
    ("xml", "<tools>\n  <tool name='saw' size='{n}'/>\n</tools>\n"),
    ("xml", "<tool_response>\n{{\"rows\": {n}}}\n</tool_response>\n"),
    ("xml", '<tool_call>\n{{"name": "get_weather", "arguments": {{"n": {n}}}}}\n</tool_call>\n'),
    ("yaml", "name: app\narguments:\n  - --n={n}\n  - '{{{{ .Values.name }}}}'\n"),
    ("toml", '[tool.ruff]\nname = "x"\nargs = {{ n = {n} }}\n'),
    ("jinja", "{{% for u in users %}}{{{{ u.name }}}}: {{{{ url_for(endpoint='x', n={n}) }}}}\n"),
    ("handlebars", "{{{{#if name}}}}Dear {{{{name}}}}, {{{{{{raw}}}}}} x{n}{{{{/if}}}}\n"),
    ("vue", "<p>{{{{ user.name }}}} {{{{ format(n={n}) }}}}</p>\n"),
    ("sql", "SELECT name, arguments FROM calls WHERE n < {n} AND a > '[{{}}]';\n"),
    ("c", "struct s {{ char *name; int args[{n}]; }} t = {{ .name = \"x\" }};\n"),
    ("", "$ kemem search '{{\"name\": 1}}' --limit {n}\n"),
)  # fmt: skip

_PROSE = (
    "Use {{{{name}}}} where the name goes; Mustache escapes it, {{{{{{name}}}}}} does not ({n}).",
    "模板里写 {{{{名字}}}}，渲染后就是用户的名字，第 {n} 行除外。",
    "The set {{1, 2, {n}}} has three members; so has {{{{a}}, {{b}}, {{c}}}}.",
    "集合 {{甲, 乙}} 与 [{{x}}] 不同，{n} < 5 而且 a[{n}] 是数组。",
    "A tool call has a \"name\" and \"arguments\"; step {n} sends them as JSON.",
    "调用由 \"name\" 和 \"arguments\" 组成，见第 {n} 步；`<tools>` 里是定义。",
    "Qwen wraps definitions in <tools> and results in <tool_response>, says chapter {n}.",
    "结果放在 <tool_response> 与 </tool_response> 之间（共 {n} 个）。",
    "<tools><tool>锤子</tool><tool>hammer {n}</tool></tools>",
    "The {{name: value}} notation, and {{\"name\": …}}, are explained in section {n}.",
    "Press [{n}] or {{Enter}}; `{{` opens, `}}` closes, \"{{{{\" escapes.",
    "1. **name**: Ann\n2. **arguments**: none\n\n> {{\"quoted\": {n}}}\n",
)  # fmt: skip

_INTROS = (
    ("", ""),
    ("Here is what it looks like:\n\n", "\n\nTell me if you need more."),
    ("可以这样写：\n\n", "\n\n还有别的问题吗？"),
)


def ordinary_answers() -> Iterator[str]:
    """Answers that must reach the user to the letter."""
    for value, (before, after) in product([*_call_examples(), *_documents()], _INTROS):
        yield f"{before}{value}{after}"
    examples = [*_call_examples()]
    for value, (before, after) in zip(examples, _INTROS * len(examples), strict=False):
        yield f"{before}```json\n{value}\n```{after}"
        yield f"{before}```\n{value}{after}"
        yield f"{before}`{value}`{after}"
    for (language, code), n, (before, after) in product(_CODE, range(1, 9), _INTROS):
        yield f"{before}```{language}\n{code.format(n=n)}```{after}"
    for prose, n, (before, after) in product(_PROSE, range(1, 9), _INTROS):
        yield f"{before}{prose.format(n=n)}{after}"
