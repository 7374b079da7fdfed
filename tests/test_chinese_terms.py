"""One Chinese word for one thing: on the dashboard, at the command line, in the documentation."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from kemem.serve import cli, dashboard
from tests.cases import each

ROOT = Path(__file__).parents[1]
CLI, PAGES = Path(cli.__file__).parent, Path(dashboard.__file__).parent
TERMS = {  # what is written, and what is not
    "撤销": "吊销",  # to revoke
    "提取": "抽取",  # to extract
    "控制台": "仪表[盘板]",  # the dashboard
    "词元": r"(?<![\w（-])(?<!\| )tokens?(?![\w-])",  # of a model; a credential is 令牌
    "大模型": "(?<!多)语言模型(?!：)",  # the glossary explains it by this word
    "嵌入模型": "向量模型",
    "撤下": "撤回",  # to withdraw
    "置信度": "信心度",
    "分数": "得分",
}
HAN, LATIN = "\u4e00-\u9fff", "A-Za-z0-9"
CODE = re.compile(r"```.*?```|~~~.*?~~~|`[^`\n]*`|\]\([^)\n]*\)|<[^>\n]*>|^    .*$", re.S | re.M)
TEXT = re.compile(r'"([^"\n]*)"|' + r"'([^'\n]*)'")
UNSPACED = re.compile(f"[{HAN}][{LATIN}]|[{LATIN}][{HAN}]")


def chinese_texts() -> Iterator[tuple[str, str]]:
    """Every Chinese text that people read, with the file that it is in."""
    for path in (*sorted((ROOT / "docs/zh").rglob("*.md")), ROOT / "README.zh.md"):
        for line in CODE.sub(" x ", path.read_text("utf-8")).splitlines():
            yield path.name, line
    for path in (CLI / "zh.toml", CLI / "zh_errors.toml"):
        for text in tomllib.loads(path.read_text("utf-8")).values():
            yield path.name, text
    for path in sorted((*PAGES.rglob("*.html"), *PAGES.glob("*.py"), *PAGES.glob("*.toml"))):
        for match in TEXT.finditer(path.read_text("utf-8")):
            text = match[1] or match[2] or ""
            if re.search(f"[{HAN}]", text):
                yield path.name, text


ALL = list(chinese_texts())


def test_texts_are_found_on_every_face() -> None:
    names = {name for name, _ in ALL}
    assert {"glossary.md", "README.zh.md", "zh.toml", "zh_errors.toml"} <= names
    assert {"system.html", "flash.py", "labels.toml"} <= names and len(ALL) > 3000


@each(("settled", "rejected"), TERMS.items())
def test_one_thing_has_one_name(settled: str, rejected: str) -> None:
    """The settled word is used; its rejected twin is nowhere."""
    assert any(settled in text for _, text in ALL)
    assert [it for it in ALL if re.search(rejected, it[1])] == []


def test_a_blank_stands_between_chinese_and_latin() -> None:
    """On the dashboard as in the documentation."""
    shown = [it for it in ALL if it[0].endswith((".html", ".py", ".toml"))]
    assert [it for it in shown if UNSPACED.search(re.sub(r"{[^}]*}|%[sd]", " ", it[1]))] == []
