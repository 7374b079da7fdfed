"""The command line in Chinese and in English: every text has both, and the locale decides."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from kemem.serve.cli import language
from kemem.serve.cli.app import app
from kemem.serve.cli.help import described
from kemem.serve.cli.language import PLACE, Phrase, catalogue, t
from tests.cases import each
from tests.command import kemem
from tests.test_error_language import all_errors, in_english, unused

SERVE = Path(language.__file__).parents[1]
SOURCES = [*sorted(SERVE.glob("cli/*.py")), *sorted(SERVE.glob("*/command.py"))]
TRANSLATING = {"t", "Phrase"}
PRINTING = {"print", "confirm", "BadParameter", "progress", "status", "InvalidArgument", "Conflict"}
NOT_SHOWN = {"install_completion", "show_completion"}
ONLY_VALUES = {"", "{error}"}
LETTERS = re.compile(r"[A-Za-z]{3,}")


def calls(source: str) -> Iterator[tuple[str, ast.Call]]:
    """Every call of a source with the last name of what is called."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
                yield name, node


def texts_in_code() -> set[str]:
    """The texts that the code asks to be translated."""
    found = (call for path in SOURCES for call in calls(path.read_text("utf-8")))
    firsts = (call.args[0] for name, call in found if name in TRANSLATING and call.args)
    return {str(it.value) for it in firsts if isinstance(it, ast.Constant)} - ONLY_VALUES


def texts_of_help(command: Any) -> Iterator[str]:
    """What the help shows of a command and of those below it."""
    yield from described(command.help)[0]
    if isinstance(command.rich_help_panel, str):
        yield command.rich_help_panel
    yield from (it.help for it in command.params if it.help and it.name not in NOT_SHOWN)
    for inner in getattr(command, "commands", {}).values():
        yield from texts_of_help(inner)


def constants() -> set[str]:
    """Every text in the code; words that are translated by a variable are among them."""
    trees = (ast.walk(ast.parse(path.read_text("utf-8"))) for path in SOURCES)
    return {str(it.value) for tree in trees for it in tree if isinstance(it, ast.Constant)}


HELP = set(texts_of_help(typer.main.get_command(app)))


def test_every_text_has_a_translation() -> None:
    """Whoever adds a text adds a line to zh.toml; this test names the texts."""
    assert sorted((texts_in_code() | HELP) - catalogue().keys()) == []


def test_no_translation_is_left_over() -> None:
    assert sorted(catalogue().keys() - texts_in_code() - HELP - constants()) == []


def test_texts_for_people_are_translated_where_they_are_printed() -> None:
    """No sentence goes to a terminal, a question or an error without `t`."""
    bare = [
        f"{path.name}:{call.lineno}: {it.value!r}"
        for path in SOURCES
        for name, call in calls(path.read_text("utf-8"))
        if name in PRINTING
        for it in call.args
        if isinstance(it, ast.Constant) and isinstance(it.value, str) and LETTERS.search(it.value)
    ]
    assert bare == []


@each("english", sorted(catalogue()))
def test_a_translation_is_chinese_and_has_the_same_places(english: str) -> None:
    chinese = catalogue()[english]
    assert set(PLACE.findall(chinese)) == set(PLACE.findall(english))
    assert re.search("[\u4e00-\u9fff]", chinese) or not LETTERS.search(PLACE.sub("", chinese))


@each(
    ("variables", "expected"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_TW"}, "zh"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LC_MESSAGES": "zh_CN.UTF-8", "LANG": "en_US.UTF-8"}, "zh"),
        ({"LC_ALL": "C.UTF-8", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"LC_ALL": "", "LANG": "zh_CN.UTF-8"}, "zh"),
    ],
)
def test_the_locale_decides_as_in_posix(
    variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in language.LOCALE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert language.locale_language() == expected


def test_the_setting_wins_over_the_locale(tmp_path: Path) -> None:
    """By the variable or the file; a wrong one is an error in the language of the locale."""
    chinese, english = "没有找到。\n", "Nothing was found.\n"
    search = ("search", "茶 tea")
    assert kemem(tmp_path, *search, LC_ALL="zh_CN.UTF-8").stdout == chinese
    assert kemem(tmp_path, *search, LC_ALL="zh_CN.UTF-8", KEMEM_LANGUAGE="en").stdout == english
    (tmp_path / "kemem.toml").write_text('language = "zh"')
    assert kemem(tmp_path, *search).stdout == chinese
    wrong = kemem(tmp_path, *search, LC_ALL="zh_CN.UTF-8", KEMEM_LANGUAGE="fr")
    assert wrong.returncode == 2 and wrong.stderr.startswith("错误：设置 language")


def test_what_is_stored_is_told_in_the_language_of_the_reader(tmp_path: Path) -> None:
    """Labels change; texts, ids and JSON stay."""

    def run(*arguments: str, code: int = 0, typed: str = "") -> str:
        ran = kemem(tmp_path, *arguments, typed=typed, KEMEM_LANGUAGE="zh")
        assert ran.returncode == code, ran.stderr
        return ran.stdout + ran.stderr

    assert run("add", "I live in Lisbon", "--user", "mia").startswith("已保存  m_")
    assert "更新  User lives in Lisbon → User lives in Porto" in run(
        "add", "I moved to Porto", "--user", "mia"
    )
    assert "智能体 default · 最近变更 " in run("users")
    assert run("get", "n_没有", code=3) == "错误：没有记忆 'n_没有'\n"
    assert run("doctor").startswith("一切正常。\n")
    assert '"healthy": true' in run("doctor", "--json")
    assert run("backup", "--path", "all.json").endswith(" 字节\n") is False
    assert "消息: 2, 笔记: 2" in run("backup", "--path", "more.json")
    assert run("restore", "all.json", code=1, typed="n\n").endswith("已取消。\n")


def test_the_help_is_chinese_and_in_columns(tmp_path: Path) -> None:
    overview = kemem(tmp_path, KEMEM_LANGUAGE="zh").stdout
    assert overview.startswith("用法：kemem COMMAND [OPTIONS]\n\n大模型智能体的记忆")
    assert "记住  add        记住一句话。\n" in overview
    shown = kemem(tmp_path, "search", "--help", KEMEM_LANGUAGE="zh").stdout
    for words in ("查找能回答问题的笔记和消息。", "[1–1000, 默认：10]", "显示这份帮助。", "示例"):
        assert words in shown


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("messages",), "缺少选项 --user。"),
        (("search",), "缺少参数 QUERY。"),
        (("configure",), "缺少参数 LEVEL。可选：agent, user, session"),
        (("mcp", "install"), "缺少选项 --client。可选：claude, claude-desktop, cursor, vscode"),
        (("search", "茶", "--usr", "u"), "没有选项 --usr（可能是：--user）"),
        (("search", "茶", "--qqq", "u"), "没有选项 --qqq"),
        (("profle",), "没有命令 profle。是不是 'profile'？"),
        (("添加", "hi"), "没有命令 添加。是不是 'add'？"),
        (("brew",), "没有命令 brew。"),
        (("search", "茶", "tea", "绿茶"), "多余的参数：tea 绿茶"),
        (("search", "茶", "--user"), "选项 --user 需要一个值。"),
        (("search", "茶", "--limit", "0"), "--limit 必须不小于 1，而不是 '0'"),
        (("search", "茶", "--limit", "9999"), "--limit 必须不大于 1000，而不是 '9999'"),
        (("search", "茶", "--limit", "多"), "--limit 必须是整数，而不是 '多'"),
        (("search", "茶", "--threshold", "高"), "--threshold 必须是数字，而不是 '高'"),
        (
            ("search", "茶", "--mode", "magic"),
            "--mode 的值无效：'magic' 不是 'hybrid', 'lexical', 'semantic' 之一。",
        ),
        (("import", "missing"), "PATH 的值无效：missing 不存在"),
        (("admin", "quality", "missing"), "path 的值无效：文件 missing 不存在。"),
        (("get", "n_1"), "没有记忆 'n_1'"),
        (("messages", "--user", "u", "--around", "m_1"), "没有消息 'm_1'"),
        (("retry", "j_1"), "没有任务 'j_1'"),
        (("graph",), "需要 --user、--agent 或 --session"),
        (
            ("search", "茶", "--as-of", "昨天"),
            "--as-of 必须是 RFC 3339 时间，如 '2026-01-26T10:47:00Z'，而不是 '昨天'",
        ),
        (
            ("search", "茶", "--as-of", "2026-02-30"),
            "--as-of 必须是 RFC 3339 时间，如 '2026-01-26T10:47:00Z'，"
            "而不是 '2026-02-30'：没有这一天",
        ),
        (("list", "--cursor", "abc"), "--cursor 'abc' 不是这个查询返回的；请不带 cursor 重新开始"),
        (("add", "\u200b"), "TEXT 的值无效：文本是空的"),
        (("search", " "), "query 必须是非空白的文本，而不是 ' '"),
        (
            ("search", "茶", "--kind", "tea"),
            "--kind 必须选自 experience, knowledge, message, short_term, user_info，而不是 ['tea']",
        ),
        (
            ("search", "茶", "--filters", '{"a": {"in": 1}}'),
            "filters：'a'：in 需要 1-1000 个值的列表，而不是 1",
        ),
        (("session", "show", "s"), "没有会话 's'"),
        (("move", "--from", "missing", "--to", "new"), "'missing' 中没有存储"),
        (("users", "--project", "acme"), "没有项目 'acme'；配置中有：none"),
        (("keys", "revoke", "key_1"), "没有密钥 'key_1'"),
        (("webhooks", "delete", "wh_1"), "没有 Webhook 'wh_1'"),
        (
            ("messages", "--user", "长" * 256),
            f"--user 必须为 1-255 个字符，而不是 256 个：'{'长' * 12}...{'长' * 13}'",
        ),
        (
            ("webhooks", "create", "ftp://a"),
            "url 必须形如 https://example.com/hook，而不是 'ftp://a'",
        ),
        (("keys", "create", "a", "--role", "user"), "角色为 user 的密钥需要 user_id"),
        (
            ("keys", "create", "a", "--role", "admin", "--user", "u"),
            "角色为 admin 的密钥不能有 user_id",
        ),
        (
            ("keys", "create", "a"),
            "第一个密钥必须是不属于任何项目的 admin 密钥：否则无人能管理服务器",
        ),
    ],
)
def test_a_mistake_is_named_in_chinese(
    tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    """Errors of typer and the common ones of the library come with their values in place."""
    ran = kemem(tmp_path, *arguments, KEMEM_LANGUAGE="zh")
    assert ran.returncode in (2, 3) and ran.stdout == ""
    assert ran.stderr.splitlines()[0] == f"错误：{reason}"


def test_every_error_of_the_library_has_a_chinese_twin() -> None:
    """Whoever adds an error adds a line to zh_errors.toml; this test names the errors."""
    assert [f"{path}: {text}" for text, path in all_errors().items() if in_english(text)] == []


def test_every_pattern_of_an_error_is_provoked() -> None:
    """By the cases above, where no error of the library has it: it is one of typer's."""
    cases = [it.args[1] for it in test_a_mistake_is_named_in_chinese.pytestmark]  # type: ignore[attr-defined]
    shown = "\n".join(reason for _, reason in cases[0])
    for chinese in unused():
        form = PLACE.sub(".+", re.escape(chinese).replace(r"\{", "{").replace(r"\}", "}"))
        assert re.search(form, shown), chinese


def test_a_phrase_is_english_until_it_is_translated(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the phrases among its values."""
    found = Phrase("{pending} pending, {failed} failed", pending=1, failed=2)
    both = Phrase("{jobs}; {error}", jobs=found, error="model away")
    assert both == "1 pending, 2 failed; model away"
    monkeypatch.setattr(language, "_current", "zh")
    assert t(both) == "待办 1 个，失败 2 个；model away"
