"""Every switch works and is documented, and no text names a switch that does not exist."""

import ast
import re
from pathlib import Path

import pytest

from kemem.settings import Settings

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").glob("**/*.py"))
READERS = [path for path in SOURCES if path.name != "settings.py"]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]
REFERENCE = [ROOT / "README.md", ROOT / "docs" / "reference.md"]

PREFIX = "KEMEM_"
VARIABLE = re.compile(r"\bKEMEM_[A-Z0-9_]*[A-Z0-9]\b", re.ASCII)
FIELDS = sorted(Settings.model_fields)
VARIABLES = {PREFIX + name.upper() for name in FIELDS}


def attributes_read(source: str) -> set[str]:
    """The names read as attributes somewhere in a source: "settings.host" -> {"host"}"""
    return {
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


def variables_named(text: str) -> set[str]:
    """The environment variables of ours that a text names."""
    return set(VARIABLE.findall(text))


@pytest.fixture(scope="module")
def read_somewhere() -> set[str]:
    return {name for path in READERS for name in attributes_read(path.read_text("utf-8"))}


def test_settings_come_from_our_own_variables() -> None:
    """The rest of this file, and every page, counts on the prefix."""
    assert Settings.model_config.get("env_prefix") == PREFIX


@pytest.mark.parametrize("name", FIELDS)
def test_a_setting_is_read_somewhere(name: str, read_somewhere: set[str]) -> None:
    """A switch that nothing listens to is a lie."""
    assert name in read_somewhere


@pytest.mark.parametrize("name", FIELDS)
def test_a_setting_is_documented(name: str) -> None:
    """The reference or the README names its variable."""
    documented = {it for page in REFERENCE for it in variables_named(page.read_text("utf-8"))}
    assert PREFIX + name.upper() in documented


@pytest.mark.parametrize("path", [*PAGES, *SOURCES], ids=lambda path: str(path.relative_to(ROOT)))
def test_a_text_names_only_real_settings(path: Path) -> None:
    """Pages, docstrings, messages and the help of commands: no variable is invented."""
    assert variables_named(path.read_text("utf-8")) - VARIABLES == set()


def test_a_planted_fault_would_be_found() -> None:
    """Writing to a setting is not reading it, and a name in 中文 text is seen as well."""
    assert attributes_read("settings.port = settings.host") == {"host"}
    assert variables_named("设置KEMEM_NOPE。See `KEMEM_DATA_DIR` or KEMEM_*.") == {
        "KEMEM_NOPE",
        "KEMEM_DATA_DIR",
    }
