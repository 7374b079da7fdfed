"""Tests that need the packages of `make test-frameworks`, run in a process that has them."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FRAMEWORKS = Path(pytest.__file__).parents[4] / "frameworks"  # beside the packages of .venv
_FAILED = {"failure", "error", "skipped"}
# Some packages have escapes that Python warns of when it first compiles them.
IGNORED = ("-W", "ignore::SyntaxWarning", "-W", "ignore::DeprecationWarning")
_OPTIONS = ("-q", "-p", "no:cacheprovider", "--tb=short", *IGNORED)


def environment(*folders: Path) -> Mapping[str, str]:
    """An environment where the frameworks and some folders can be imported."""
    assert FRAMEWORKS.is_dir(), "make test-frameworks installs them"
    inherited = {name: it for name, it in os.environ.items() if not name.startswith("PYTEST_")}
    path = os.pathsep.join(str(folder) for folder in (*folders, FRAMEWORKS))
    return {**inherited, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def outcomes(
    files: Sequence[str], report: Path, cwd: Path, plugins: Sequence[str], *folders: Path
) -> dict[str, str]:
    """Run tests; what is wrong with each, nothing where it passed."""
    chosen = [part for name in plugins for part in ("-p", name)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *_OPTIONS, *chosen, f"--junitxml={report}", *files],
        cwd=cwd,
        env=environment(*folders),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    cases = list(ElementTree.parse(report).iter("testcase"))
    return {
        case.attrib["name"]: "\n".join(it.text or it.tag for it in case if it.tag in _FAILED)
        for case in cases
    }
