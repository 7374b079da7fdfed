"""The adapters for agent frameworks, tested with the real packages: each `on_*.py` beside this."""

from pathlib import Path

import pytest

from tests.frameworks.with_frameworks import HERE, ROOT, outcomes

FILES = sorted(HERE.glob("on_*.py"))


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_an_adapter_works_with_its_framework(file: Path, tmp_path: Path) -> None:
    """Each file of tests runs in a process of its own: nobody else imports these packages."""
    plugins = ("anyio",)
    found = outcomes([str(file)], tmp_path / "report.xml", ROOT, plugins, ROOT, ROOT / "src")
    assert len(found) > 1
    assert {name: problem for name, problem in found.items() if problem} == {}
