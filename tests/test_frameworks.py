"""The adapters for agent frameworks, tested with the real packages; see tests/frameworks/."""

from pathlib import Path

import pytest

from tests.with_frameworks import TESTS, outcomes

FILES = sorted((TESTS / "frameworks").glob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_an_adapter_works_with_its_framework(file: Path, tmp_path: Path) -> None:
    """Each file of tests runs in a process of its own: nobody else imports these packages."""
    plugins = ("anyio",)
    folders = (TESTS.parent, TESTS.parent / "src")
    found = outcomes([str(file)], tmp_path / "report.xml", TESTS.parent, plugins, *folders)
    assert len(found) > 1
    assert {name: problem for name, problem in found.items() if problem} == {}
