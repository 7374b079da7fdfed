"""What is released: the files in the wheel, the version, the targets that CI runs."""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

import kemem
from scripts.badges import badges
from tests.conftest import NOT_RUN

ROOT = Path(__file__).parents[1]
VENDOR = "src/kemem/serve/dashboard/static/vendor"


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git says which files are ignored")
def test_every_data_file_is_in_the_wheel() -> None:
    """Hatch takes all files of the package but those that git ignores and nobody names."""
    build = project()["tool"]["hatch"]["build"]
    assert build == {"artifacts": [VENDOR], "targets": {"wheel": {"packages": ["src/kemem"]}}}
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
    assert [path for path in ignored.stdout.splitlines() if not path.startswith(VENDOR)] == []


def test_the_scripts_are_copied_with_the_licences_of_what_they_bundle(tmp_path: Path) -> None:
    """Also of packages that only another package needs; a nested copy hides the outer one."""
    if shutil.which("node") is None:
        pytest.skip(f"{NOT_RUN}: node is missing")
    packages = {
        "chart": ({"color": "1", "@scope/time": "2"}, "MIT"),
        "color": ({}, "ISC"),
        "chart/node_modules/color": ({}, "0BSD"),
        "@scope/time": ({}, "BSD-3-Clause"),
        "unused": ({}, "GPL-3.0"),
    }
    for place, (needs, licence) in packages.items():
        folder = tmp_path / "node_modules" / place
        folder.mkdir(parents=True, exist_ok=True)
        name = place.rpartition("node_modules/")[2]
        manifest = {"name": name, "version": "1.0", "license": licence, "dependencies": needs}
        (folder / "package.json").write_text(json.dumps(manifest))
        (folder / "LICENSE.md").write_text(f"The text of {licence}")
    (tmp_path / "node_modules/chart/chart.min.js").write_text("chart()")
    root = {"dependencies": {"chart": "1"}, "vendor": ["chart/chart.min.js"]}
    (tmp_path / "package.json").write_text(json.dumps(root))
    script = ROOT / "scripts/vendor.mjs"
    subprocess.run(["node", script, "out"], cwd=tmp_path, check=True, timeout=30)
    assert (tmp_path / "out/chart.min.js").read_text() == "chart()"
    licences = (tmp_path / "out/LICENSES.txt").read_text()
    assert re.findall(r"The text of (.*)", licences) == ["BSD-3-Clause", "MIT", "0BSD"]


def test_the_version_is_the_same_wherever_it_is_written() -> None:
    """Packages, images and the changelog."""
    version = kemem.__version__
    kit = tomllib.loads((ROOT / "packages/kemem-conformance/pyproject.toml").read_text("utf-8"))
    assert kit["project"]["version"] == version
    for manifest in ("package.json", "clients/typescript/package.json"):
        assert json.loads((ROOT / manifest).read_text("utf-8"))["version"] == version, manifest
    images = re.findall(
        r"kemem:(\d+\.\d+\.\d+)", (ROOT / "deploy/kubernetes.yaml").read_text("utf-8")
    )
    assert set(images) == {version}
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert f"To be released as {version}." in changes or f"## [{version}] - " in changes


def test_the_workflow_runs_targets_that_there_are() -> None:
    """A workflow that names a missing target would be noticed only after a push."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    workflow = (ROOT / ".github/workflows/ci.yml").read_text("utf-8")
    named = re.findall(r"- run: make (\S+)", workflow)
    assert {"test", "test-dist", "test-frameworks", "test-kit", "docs", "sbom"} <= set(named)
    assert set(named) <= targets
    minor = re.findall(r"Python :: (3\.\d+)\"", (ROOT / "pyproject.toml").read_text("utf-8"))
    matrix = re.search(r"python: \[(.*)\]", workflow)
    assert matrix and json.loads(f"[{matrix[1]}]") == minor


def test_the_badges_of_the_readme_are_true() -> None:
    """`python scripts/badges.py` writes them."""
    for name, svg in badges().items():
        assert (ROOT / "docs/images" / name).read_text("utf-8") == svg, name
