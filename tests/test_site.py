"""The documentation as a site: the list of pages is whole, and no link leads nowhere."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.test_docs import FENCE, PAGES, README, ROOT, blocks, each

DOCS = ROOT / "docs"
CHINESE = sorted((DOCS / "zh").glob("*.md"))
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"#{1,6} +(.*)")
MARK = re.compile(r" *(#+ |\||- |\d+\. )")
COMMENT = re.compile(r"(?:^|\s+)(?:#|//) .*$", re.MULTILINE)
NAV = re.compile(r"^ +- [^:]+: (\S+\.md)$|^  - [^:]+: (\S+\.md)$", re.MULTILINE)


def prose(page: Path) -> Iterator[str]:
    """The lines of a page outside its code blocks."""
    mark = ""
    for line in page.read_text("utf-8").splitlines():
        fence = FENCE.fullmatch(line.rstrip())
        if mark:
            mark = "" if fence and fence["mark"] == mark and not fence["info"] else mark
        elif fence:
            mark = fence["mark"]
        else:
            yield line


def anchors(page: Path) -> set[str]:
    """What a link may name on a page, as GitHub and mkdocs both spell it."""
    titles = (match[1] for line in prose(page) if (match := HEADING.fullmatch(line)))
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


def broken(page: Path) -> list[str]:
    """The links of a page that lead nowhere."""
    found = []
    for link in (it for line in prose(page) for it in LINK.findall(line)):
        place, _, anchor = unquote(link).partition("#")
        target = (page.parent / place).resolve() if place else page
        missing = not target.exists()
        lost = anchor and target.suffix == ".md" and not missing and anchor not in anchors(target)
        if "://" not in link and (missing or lost):
            found.append(link)
    return found


@each([*PAGES, *CHINESE])
def test_no_link_leads_nowhere(page: Path) -> None:
    """Files, headings and pictures; what is elsewhere is not asked."""
    assert broken(page) == []


@pytest.mark.parametrize("link", ["没有.md", "page.md#nowhere", "#不在", "images/none.png"])
def test_a_link_that_leads_nowhere_is_found(tmp_path: Path, link: str) -> None:
    """Outside of code, where it is a link."""
    page = tmp_path / "page.md"
    page.write_text(
        f"# 这里 Here\n\n[ok](#这里-here) [no]({link})\n```text\n[code](x.md)\n```\n", "utf-8"
    )
    assert broken(page) == [link]


def test_the_site_lists_every_page_once() -> None:
    """A page that the list lacks would be found by nobody."""
    listed = [one or other for one, other in NAV.findall((ROOT / "mkdocs.yml").read_text("utf-8"))]
    assert sorted(listed) == sorted(
        page.relative_to(DOCS).as_posix() for page in DOCS.glob("**/*.md")
    )


def outline(page: Path) -> list[str]:
    """What the lines of a page are: headings of some level, rows, items, text."""
    return [mark[1] if (mark := MARK.match(line)) else "text" * bool(line) for line in prose(page)]


@each(CHINESE)
def test_a_chinese_page_has_the_lines_and_blocks_of_the_english_one(page: Path) -> None:
    """So what runs on one runs on the other, and a section or row that is new there is missed here.

    Comments in code are translated.
    """
    english = DOCS / page.name
    assert outline(page) == outline(english)
    shown = [
        [(it.info, COMMENT.sub("", it.code)) for it in blocks(each.read_text("utf-8"))]
        for each in (page, english)
    ]
    assert shown[0] == shown[1]


def test_every_page_is_there_in_both_languages() -> None:
    assert [it.name for it in CHINESE] == sorted(it.name for it in DOCS.glob("*.md"))


def test_the_two_readmes_lead_to_each_other_and_show_the_same() -> None:
    """The same program, the same figures, the same pages."""
    english, chinese = README.read_text("utf-8"), (ROOT / "README.zh.md").read_text("utf-8")
    assert "](README.zh.md)" in english and "](README.md)" in chinese
    for page in CHINESE:
        assert f"](docs/zh/{page.name}" in chinese and f"](docs/{page.name}" not in chinese
    chinese = chinese.replace("docs/zh/", "docs/")
    for what in (r"```python\n(.*?)```", r"```text\n(.*?)```"):
        assert re.findall(what, english, re.DOTALL) == re.findall(what, chinese, re.DOTALL)
    for what in (r"\d+(?:[.,]\d+)*", r"docs/[\w/.]+"):
        both = [set(re.findall(what, text.partition("```text")[2])) for text in (english, chinese)]
        assert both[0] <= both[1], both[0] - both[1]


def test_the_figures_of_the_readme_are_those_of_the_benchmarks() -> None:
    """The README shows a part of the tables; what is measured again changes both."""
    text = README.read_text("utf-8").partition("## Measured")[2].partition("## Documentation")[0]
    cells = " ".join(line for line in text.splitlines() if line.startswith("| "))
    versions = r"(?:SQL|Chroma|mem0|LangGraph) [\d.]+"
    figures = set(re.findall(r"\d[\d,]*\.?\d*", re.sub(versions, "", cells)))
    measured = (DOCS / "benchmarks.md").read_text("utf-8")
    assert [it for it in sorted(figures) if not re.search(rf"(?<!\d){it}(?!\d)", measured)] == []
