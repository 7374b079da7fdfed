"""The wheel holds what the code reads beside itself: pages, texts, tables."""

import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git says which files are ignored")
def test_every_data_file_is_in_the_wheel() -> None:
    """Hatch takes all files of the package but those that git ignores and nobody names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    build = project["tool"]["hatch"]["build"]
    wheel = build["targets"]["wheel"]
    assert build.keys() == {"targets"} and wheel.keys() == {"packages", "artifacts"}
    assert wheel["packages"] == ["src/kemem"]
    files = [path for path in (ROOT / "src/kemem").rglob("*") if path.is_file()]
    data = [
        path.relative_to(ROOT).as_posix() for path in files if path.suffix not in (".py", ".pyc")
    ]
    assert {".html", ".toml", ".md", ".css", ".js", ".json"} <= {Path(it).suffix for it in data}
    ignored = subprocess.run(
        ["git", "check-ignore", "--stdin"],
        input="\n".join(data),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
    )
    named = tuple(wheel["artifacts"])
    assert [path for path in ignored.stdout.splitlines() if not path.startswith(named)] == []
