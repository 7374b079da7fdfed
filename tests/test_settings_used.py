"""Every switch works and is documented, and no text names a switch that does not exist."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from kemem.errors import InvalidArgument
from kemem.settings import Settings, load

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


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"jwt_secret": "short"}, "jwt_secret (KEMEM_JWT_SECRET) must have at least 32 characters"),
        ({"api_key": ""}, "api_key (KEMEM_API_KEY) must have at least 1 character"),
        ({"colour": "red"}, "colour (KEMEM_COLOUR) does not exist"),
        ({"port": "x"}, "port (KEMEM_PORT) must be an integer"),
        ({"port": 70_000}, "port (KEMEM_PORT) must be at most 65535"),
        ({"llm_model": ""}, "llm_model (KEMEM_LLM_MODEL) must have at least 1 character"),
    ],
)
def test_a_wrong_setting_is_explained_in_plain_words(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        load(**given)
    assert str(raised.value) == f"setting {reason}"


def test_a_wrong_variable_is_named_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEMEM_LLM_API_KEY", "")
    with pytest.raises(InvalidArgument, match=r"llm_api_key \(KEMEM_LLM_API_KEY\) must"):
        load()
