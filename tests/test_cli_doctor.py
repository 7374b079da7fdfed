"""What `kemem doctor` says of settings, models and failed work, in a process of its own."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kemem.records import Scope
from kemem.records.batch import Batch, Job, JobKind
from kemem.runtime import open_store
from kemem.settings import Settings, load
from tests.command import kemem

KEY = "sk-秘密s3cret"
NOWHERE = "http://127.0.0.1:1/v1"  # whoever called it would fail


@pytest.fixture(autouse=True)
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have a model of their own."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def examined(home: Path, **given: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings and the checks of a healthy memory, by name; no secret is in them."""
    ran = kemem(home, "doctor", "--json", **given)
    assert ran.returncode == 0, ran.stdout
    assert "s3cret" not in ran.stdout + ran.stderr
    found = json.loads(ran.stdout)
    settings = {it["name"]: (it["value"], it["source"]) for it in found["settings"]}
    return settings, {it["name"]: it["found"] for it in found["checks"]}


def fail(home: Path, *jobs: tuple[JobKind, str]) -> None:
    """Leave jobs behind that were given up, by kind and error."""

    async def put() -> None:
        store = open_store(load(data_dir=home / "data"))
        rows = [
            Job(f"j_{n}", kind, Scope("a", "u"), n, attempts=8, state="failed", error=error)
            for n, (kind, error) in enumerate(jobs)
        ]
        await store.apply(Batch(jobs=tuple(rows)))
        await store.close()

    asyncio.run(put())


@pytest.mark.parametrize(
    ("variables", "source"),
    [
        (("OPENAI_API_KEY", "OPENAI_BASE_URL"), "environment ({})"),
        (("openai_api_key", "openai_base_url"), "environment ({})"),
        (("KEMEM_LLM_API_KEY", "KEMEM_LLM_BASE_URL"), "environment"),
    ],
)
def test_a_setting_is_shown_with_its_true_origin(
    tmp_path: Path, variables: tuple[str, str], source: str
) -> None:
    """The variable of another program is named; it wins over the file, as in use."""
    (tmp_path / "kemem.toml").write_text('llm_api_key = "s3cret"\nllm_model = "通义"\n', "utf-8")
    key, address = variables
    settings, _ = examined(tmp_path, **{key: KEY, address: NOWHERE})
    assert settings["llm_api_key"] == ("***", source.format("OPENAI_API_KEY"))
    assert settings["llm_base_url"] == (NOWHERE, source.format("OPENAI_BASE_URL"))
    assert settings["llm_model"] == ("通义", "kemem.toml")
    both, _ = examined(tmp_path, **{key: KEY, "KEMEM_LLM_API_KEY": KEY})
    assert both["llm_api_key"] == ("***", "environment")
    alone, _ = examined(tmp_path)
    assert alone["llm_api_key"] == ("***", "kemem.toml")
    assert alone["llm_base_url"] == (None, "default")


def test_settings_stand_in_columns(tmp_path: Path) -> None:
    """Every value begins in the same place, whatever the length of its name; no secret shows."""
    given = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"http://{KEY}@host/v1"}
    ran = kemem(tmp_path, "doctor", "-v", **given)
    assert "s3cret" not in ran.stdout + ran.stderr
    names = list(Settings.model_fields)
    lines = ran.stdout.splitlines()[-len(names) :]
    assert [line.split()[0] for line in lines] == names
    start = max(map(len, names)) + 1
    for line in lines:
        assert line[start - 1] == " " and line[start] != " "
    few = kemem(tmp_path, "doctor", **given).stdout.split("\n\n")[-1].split("\n")[:-1]
    chosen = ["data_dir", "embedder", "llm_api_key", "llm_base_url"]
    assert [line.split()[0] for line in few] == chosen


def test_the_doctor_begins_with_the_verdict(tmp_path: Path) -> None:
    """And with what is wrong and what to do, before what is fine."""
    healthy = kemem(tmp_path, "doctor")
    assert (healthy.returncode, healthy.stdout.splitlines()[0]) == (0, "Healthy.")
    fail(tmp_path, ("extract", "模型不在 the model is away"))
    ran = kemem(tmp_path, "doctor")
    verdict, problem, advice, blank, first, *_ = ran.stdout.splitlines()
    assert (ran.returncode, verdict, blank) == (1, "1 problem:", "")
    assert problem == "wrong jobs         0 pending, 1 failed; 模型不在 the model is away"
    assert advice.strip() == f"→ {RETRY}"
    assert first.startswith("ok    settings")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, "none: rules extract notes"),
        ({"OPENAI_API_KEY": KEY, "KEMEM_LLM": "none"}, "none: rules extract notes"),
        ({"OPENAI_API_KEY": KEY}, "gpt-4o-mini at https://api.openai.com/v1, with a key"),
        (
            {"KEMEM_LLM_BASE_URL": NOWHERE, "KEMEM_LLM_MODEL": "通义千问"},
            f"通义千问 at {NOWHERE}, without a key",
        ),
        (
            {"KEMEM_LLM_BASE_URL": "http://me:s3cret@127.0.0.1:1/v1?key=s3cret"},
            f"gpt-4o-mini at {NOWHERE}, without a key",
        ),
    ],
)
def test_the_doctor_says_which_model_would_be_asked(
    tmp_path: Path, given: dict[str, str], found: str
) -> None:
    """By its name and address, never by its key, and without asking it."""
    _, checks = examined(tmp_path, **given)
    assert checks["llm"] == (found if found[:4] == "none" else f"{found}; it was not called")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, "none: the graph is in the store only"),
        (
            {"KEMEM_NEO4J_URL": "neo4j://127.0.0.1:1", "KEMEM_NEO4J_PASSWORD": KEY},
            "neo4j://127.0.0.1:1, its default database, as neo4j; it was not called",
        ),
        (
            {
                "KEMEM_NEO4J_URL": "bolt+s://me:s3cret@127.0.0.1:1",
                "KEMEM_NEO4J_DATABASE": "图谱",
                "KEMEM_NEO4J_USER": "李明",
            },
            "bolt+s://127.0.0.1:1, database 图谱, as 李明; it was not called",
        ),
    ],
)
def test_the_doctor_says_where_the_graph_is_mirrored(
    tmp_path: Path, given: dict[str, str], found: str
) -> None:
    """Without calling the database."""
    _, checks = examined(tmp_path, **given)
    assert checks["neo4j"] == found


REINDEX = "mend the cause, then run: kemem reindex"
RETRY = "see them with: kemem jobs; mend the cause, then run: kemem retry --all"


@pytest.mark.parametrize(
    ("kinds", "advice"),
    [
        (("embed", "reembed"), REINDEX),
        (("extract",), RETRY),
        (("end", "mirror", "forget"), RETRY),
        (("embed", "extract"), RETRY),
    ],
)
def test_the_advice_mends_what_failed(
    tmp_path: Path, kinds: tuple[JobKind, ...], advice: str
) -> None:
    """Vectors are derived again; other work is tried again."""
    error = "模型不在 the model is away"
    fail(tmp_path, *((kind, error) for kind in kinds))
    ran = kemem(tmp_path, "doctor", "--json")
    (jobs,) = [it for it in json.loads(ran.stdout)["checks"] if it["name"] == "jobs"]
    assert (ran.returncode, jobs["healthy"]) == (1, False)
    assert jobs["found"] == f"0 pending, {len(kinds)} failed; {error}"
    assert jobs["advice"] == advice
