"""Every switch works and is documented, and no text names a switch that does not exist."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from kemem.errors import InvalidArgument
from kemem.settings import Settings, load
from tests.cases import each

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


def test_settings_come_from_our_own_variables() -> None:
    """The rest of this file, and every page, counts on the prefix."""
    assert Settings.model_config.get("env_prefix") == PREFIX


def test_every_setting_is_read_somewhere() -> None:
    """A switch that nothing listens to is a lie."""
    attributes = {name for path in READERS for name in attributes_read(path.read_text("utf-8"))}
    assert FIELDS and set(FIELDS) - attributes == set()


def test_every_setting_is_documented() -> None:
    """The reference or the README names its variable."""
    documented = {it for page in REFERENCE for it in variables_named(page.read_text("utf-8"))}
    assert VARIABLES - documented == set()


def test_texts_name_only_real_settings() -> None:
    """Pages, docstrings, messages and the help of commands: no variable is invented."""
    tests = "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("*.py"))
    known = VARIABLES | {it for it in variables_named(tests) if it.startswith("KEMEM_TEST_")}
    invented = {
        str(path.relative_to(ROOT)): unknown
        for path in (*PAGES, *SOURCES)
        if (unknown := variables_named(path.read_text("utf-8")) - known)
    }
    assert SOURCES and not invented


def test_a_planted_fault_would_be_found() -> None:
    """Writing to a setting is not reading it, and a name in 中文 text is seen as well."""
    assert attributes_read("settings.port = settings.host") == {"host"}
    assert variables_named("设置KEMEM_NOPE。See `KEMEM_DATA_DIR` or KEMEM_*.") == {
        "KEMEM_NOPE",
        "KEMEM_DATA_DIR",
    }


@each(
    ("given", "reason"),
    [
        ({"jwt_secret": "short"}, "jwt_secret (KEMEM_JWT_SECRET) must have at least 32 characters"),
        ({"api_key": ""}, "api_key (KEMEM_API_KEY) must have at least 1 character"),
        ({"colour": "red"}, "colour (KEMEM_COLOUR) does not exist"),
        ({"embeder": "none"}, "embeder (KEMEM_EMBEDER) does not exist (did you mean 'embedder'?)"),
        ({"port": "x"}, "port (KEMEM_PORT) must be an integer, not 'x'"),
        ({"port": 70_000}, "port (KEMEM_PORT) must be at most 65535, not 70000"),
        ({"language": "fr"}, "language (KEMEM_LANGUAGE) must be 'auto', 'zh' or 'en', not 'fr'"),
        ({"data_dir": 5}, "data_dir (KEMEM_DATA_DIR) must be a path, not 5"),
        ({"llm_api_key": 5}, "llm_api_key (KEMEM_LLM_API_KEY) must be a text"),
        ({"projects": [{"api_key": "s3cret"}]}, "projects (KEMEM_PROJECTS) must be an object"),
        (
            {"projects": {"acme": {"llm_modl": "m"}}},
            "projects (KEMEM_PROJECTS) must not have acme.llm_modl: there is no such setting "
            "(did you mean 'llm_model'?)",
        ),
        ({"llm_model": ""}, "llm_model (KEMEM_LLM_MODEL) must have at least 1 character, not ''"),
        (
            {"reranker": "m@http://host:port/rerank"},
            "reranker (KEMEM_RERANKER) must be local, none, URL or MODEL@URL, where a URL begins "
            "as http://host or https://host, not 'm@http://host:port/rerank'",
        ),
        *(
            (
                {"llm_base_url": value},
                "llm_base_url (KEMEM_LLM_BASE_URL) must be a URL, where a URL begins as "
                f"http://host or https://host, not {shown!r}",
            )
            for value, shown in [
                ("htp://x", "htp://x"),
                ("localhost:11434/v1", "localhost:11434/v1"),
                ("me:s3cret@host/v1?k=1", "host/v1"),
                ("http://s3cret@[::1/v1", "http://[::1/v1"),
                ("http://host:port/v1", "http://host:port/v1"),
                ("http://", "http://"),
            ]
        ),
    ],
)
def test_a_wrong_setting_is_explained_in_plain_words(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        load(**given)
    assert str(raised.value) == f"setting {reason}"


def test_a_wrong_variable_is_named_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEMEM_JWT_SECRET", "short")
    with pytest.raises(InvalidArgument, match=r"jwt_secret \(KEMEM_JWT_SECRET\) must"):
        load()


@pytest.mark.parametrize("name", ["projects", "ontology"])
def test_a_variable_that_is_not_json_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its value, in which keys may be."""
    variable = f"KEMEM_{name.upper()}"
    monkeypatch.setenv(variable, "{s3cret")
    with pytest.raises(InvalidArgument) as raised:
        load()
    assert str(raised.value).startswith(f"setting {name} ({variable}) must be a JSON object, as {{")
    assert "s3cret" not in str(raised.value)


def test_an_empty_variable_is_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the setting; the file, another variable of it, or the default has its value."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kemem.toml").write_text("port = 9000\n")
    without = load()
    for name in VARIABLES:
        monkeypatch.setenv(name, "")
    assert load() == without and load().port == 9000
    monkeypatch.setenv("OPENAI_API_KEY", "sk")
    key = load().llm_api_key
    assert key is not None and key.get_secret_value() == "sk"
