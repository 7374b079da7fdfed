"""Errors in Chinese, and what the library can raise at a command line, for test_cli_language."""

import ast
import errno
import os
import re
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

import kemem
from kemem import errors
from kemem.ports import faults
from kemem.serve.cli.language import error_patterns, translated_error
from tests.cases import each

ROOT = Path(kemem.__file__).parent
# Read by programs and by those who write them, or shown in English and Chinese on their own.
NOT_AT_A_TERMINAL = (
    *("compat", "integrations", "testing", "serve/http", "serve/rpc", "serve/mcp"),
    *("serve/dashboard", "serve/cli", "chat/items", "chat/proxy", "chat/service", "chat/base"),
    *("recall", "hooks", "sync", "fork", "workspace", "backends/llm", "backends/qdrant"),
    *("records/__init__", "store/search", "store/vectors", "store/history", "store/store"),
    *("facts", "text/when", "text/lexicon", "text/summary", "serve/telemetry/metrics"),
)
RAISING = {name for name, it in vars(errors).items() if isinstance(it, type)}
HELPERS = {"refuse", "_refuse", "wrong", "_wrong"}
VALUE = "‹1›"  # in the place of a value
NEVER_SHOWN = {
    *("nobody listens", "Expecting value after a comma", "Expecting ',' or ']'"),
    f"{VALUE} must be , not {VALUE}; metadata is 'metadata.{VALUE}'",
}
# In examples, which are no words of a sentence.
EXAMPLES = "Policy limit bug report app example com hook https gpt mini tag work refuse none local"
EXAMPLES += " openai fastembed MODEL URL neo4j bolt host pip install data dir database url PRIVACY"
Texts = dict[str, list[str]]


def texts(node: ast.expr | None, names: Texts) -> list[str]:
    """The texts that an expression can give, with VALUE in the places of values."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr(values=parts):
            return ["".join(it) for it in product(*(texts(part, names) for part in parts))]
        case ast.FormattedValue(value=inner):
            return texts(inner, names)
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return ["".join(it) for it in product(texts(left, names), texts(right, names))]
        case ast.IfExp(body=one, orelse=other):
            return texts(one, names) + texts(other, names)
        case ast.BinOp(op=ast.Mult(), left=ast.Constant(value=str()) as left):  # by a condition
            return ["", *texts(left, names)]
        case ast.BoolOp(op=ast.And(), values=[*_, last]):
            return ["", *texts(last, names)]
        case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)) if name in names:
            return names[name]
    return [VALUE]


def assigned(tree: ast.AST, known: Texts) -> Texts:
    """The texts that the variables of a function can hold."""
    names, own = dict(known), dict[str, list[str]]()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                if (given := texts(value, names)) != [VALUE]:
                    names[name] = own[name] = [*own.get(name, []), *given]
            case ast.AugAssign(target=ast.Name(id=name), value=value) if name in names:
                names[name] = ["".join(it) for it in product(names[name], texts(value, names))]
    return names


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def parsed(path: str | None) -> tuple[ast.Module, Texts]:
    """A module, and the texts that its constants hold and its functions return."""
    tree = ast.parse(Path(str(path)).read_text("utf-8"))
    known = assigned(ast.Module([it for it in tree.body if isinstance(it, ast.Assign)], []), {})
    for function in functions(tree):
        names = assigned(function, known)
        returns = (it.value for it in ast.walk(function) if isinstance(it, ast.Return))
        own = [text for it in returns for text in texts(it, names)]
        if set(own) != {VALUE}:
            known = {**known, function.name: own}
    return tree, known


SHARED = parsed(errors.__file__)[1] | parsed(faults.__file__)[1]
PLAIN = [f" {re.sub('{.*?}', VALUE, it)}, not {VALUE}" for it in errors._PLAIN.values()]
SHARED["plain_reason"] = PLAIN


def errors_of(path: Path) -> Iterator[str]:
    """Each error that a module raises, as it reads."""
    tree, known = parsed(str(path))
    for function in functions(tree):
        names = assigned(function, SHARED | known)
        for node in ast.walk(function):
            match node:
                case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[_, *_]):
                    is_setting = name == "ValueError" and path.name == "settings.py"
                    if name in RAISING or is_setting:
                        yield from texts(node.args[0], names)
                    elif name in HELPERS:  # the place first, then what is wrong with it
                        for text in texts(node.args[:2][-1], names):
                            yield (
                                f"must {text}"
                                if text.startswith(("be ", "have ", "name "))
                                else text
                            )


@cache
def all_errors() -> dict[str, str]:
    """The errors that can be shown at a terminal, each with its module."""
    paths = {str(it.relative_to(ROOT)): it for it in sorted(ROOT.rglob("*.py"))}
    return {
        text: name
        for name, path in paths.items()
        if not name.startswith(NOT_AT_A_TERMINAL)
        for text in errors_of(path)
        if " " in text.strip() and text.replace(VALUE, "").strip(" :;") and text not in NEVER_SHOWN
    }


KEPT = {word for _, it in error_patterns() for word in re.findall("[A-Za-z]{2,}", it)}
KEPT |= set(EXAMPLES.split())


def in_english(text: str) -> list[str]:
    """The English words that the translation of an error leaves, but for names of fields."""
    shown = re.sub(r"^(?:--)?[\w.\[\]]+(?=[ .])", "", translated_error(text, "zh"))
    return [it for it in re.findall("[A-Za-z]{2,}", shown) if it not in KEPT]


def parts(text: str) -> Iterator[str]:
    """An error and the parts of it that are translated on their own."""
    yield text
    for pattern, _ in error_patterns():
        if match := pattern.fullmatch(text):
            for name in {"reason", "rule", "noun"} & match.groupdict().keys():
                if match[name] != text:
                    yield from parts(match[name])


def unused() -> list[str]:
    """The Chinese of entries that are no errors of the library or the system: they are typer's."""
    modules = (ast.walk(ast.parse(it.read_text("utf-8"))) for it in ROOT.rglob("*.py"))
    constants = {str(it.value) for nodes in modules for it in nodes if isinstance(it, ast.Constant)}
    known = {part for text in all_errors() for part in parts(text)} | constants
    known |= set(map(os.strerror, errno.errorcode))
    return [zh for pattern, zh in error_patterns() if not any(map(pattern.fullmatch, known))]


@each(
    ("english", "chinese"),
    [
        ("no memory 'n_没有'", "没有记忆 'n_没有'"),
        (
            "'/home/李/x.zip' exists already; name another file",
            "'/home/李/x.zip' 已经存在；请换一个文件名",
        ),
        ("a.json: user_id must be a string, not 5", "a.json：user_id 必须是字符串，而不是 5"),
        (
            "setting embeder (KEMEM_EMBEDER) does not exist (did you mean 'embedder'?)",
            "设置 embeder（KEMEM_EMBEDER）不存在（是不是 'embedder'？）",
        ),
        (
            "setting language (KEMEM_LANGUAGE) must be 'auto', 'zh' or 'en', not 'fr'",
            "设置 language（KEMEM_LANGUAGE）必须是 'auto', 'zh' 或 'en'，而不是 'fr'",
        ),
        (
            "filters: kind must be one of message, knowledge, not 'x'; metadata is 'metadata.kind'",
            "filters：kind 必须是 message, knowledge 之一，而不是 'x'；元数据请写 'metadata.kind'",
        ),
        (
            "the LLM 'qwen3' at http://h/v1 answered 404: it knows no such path or model",
            "http://h/v1 的大模型 'qwen3' 应答 404：它没有这个路径或模型",
        ),
        ("filters: what nobody wrote", "filters: what nobody wrote"),
        ("OSError: [Errno 5] broken", "OSError: [Errno 5] broken"),
    ],
)
def test_an_error_is_translated_with_its_parts_or_not_at_all(english: str, chinese: str) -> None:
    assert translated_error(english, "zh") == chinese
    assert translated_error(english, "en") == english
