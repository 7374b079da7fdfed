"""Commands for programs: each that prints data speaks JSON, and shells complete their names."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kemem import Memory
from kemem.records import Scope
from kemem.records.batch import Job
from kemem.serve.cli.app import app
from kemem.settings import load
from tests.command import own_logs
from tests.test_cli_jobs import LATER, change

GIVEN = {"KEMEM_EMBEDDER": "none", "KEMEM_LLM": "none"}
BOTH = pytest.mark.parametrize("said", ["我不吃辣", "No spicy food, please."])
TALKING = {"serve", "chat", "rpc"}  # they answer as long as they are asked


def spoken(home: Path, *arguments: str) -> Any:
    """What a command says with --json, which is all that it says."""
    here = ("--json", "--data-dir", str(home / "data"))
    with own_logs():
        ran = CliRunner().invoke(app, [*arguments, *here], env=GIVEN)
    assert (ran.exit_code, ran.stderr) == (0, ""), ran.output
    return json.loads(ran.stdout)


@BOTH
def test_an_import_and_a_reindex_count_for_programs(tmp_path: Path, said: str) -> None:
    """The numbers that people see, under the same names."""
    talk = tmp_path / "talk.jsonl"
    talk.write_text(json.dumps({"content": said}))
    imported = {"inserted": 1, "ignored": 0, "truncated": 0, "skipped": 0, "pending": False}
    imported |= {"notes": 0, "removed": 0}
    shown = spoken(tmp_path, "import", str(talk), "--user", "u")
    assert shown == {**imported, "problems": [], "left_out": []}
    again = spoken(tmp_path, "import", str(talk), "--user", "u")
    assert (again["inserted"], again["ignored"]) == (0, 1)
    derived = spoken(tmp_path, "reindex")
    assert derived.pop("seconds") >= 0
    assert derived == {"messages": 1, "notes": 0, "vectors": 0}


@BOTH
def test_a_delete_says_what_became_of_the_messages(tmp_path: Path, said: str) -> None:
    """Withdrawn, or erased if that is asked for; another's memory is not found."""
    with Memory(settings=load(data_dir=tmp_path / "data", embedder="none", llm="none")) as memory:
        added = [memory.add(said, "u", infer=False) for _ in range(2)]
    for one, flag, what in zip(added, ([], ["--sources"]), ("withdrawn", "erased"), strict=True):
        note, messages = one.results[0].id, list(one.message_ids)
        here = ("--data-dir", str(tmp_path / "data"))
        for whose in (["--user", "v"], []):
            with own_logs():
                other = CliRunner().invoke(app, ["delete", note, *whose, *flag, *here], env=GIVEN)
            assert other.exit_code != 0 and said not in other.output
        answer = spoken(tmp_path, "delete", note, "--user", "u", *flag)
        assert answer == {"deleted": 1 + len(flag), "withdrawn": [], "erased": [], what: messages}


@pytest.mark.parametrize("error", ["模型不在", "the model is away"])
def test_work_speaks_json_at_every_step(tmp_path: Path, error: str) -> None:
    """A job that is tried again is shown as `kemem jobs` shows it; nothing done is a number."""
    job = Job("j_1", "forget", Scope("default", "u"), LATER, state="failed", error=error)
    change(tmp_path, job)
    assert spoken(tmp_path, "work", "--once") == {"done": 0}
    again = spoken(tmp_path, "retry", "j_1")
    assert (again["id"], again["state"], again["error"]) == ("j_1", "pending", error)
    assert spoken(tmp_path, "jobs")["items"] == [again]
    assert spoken(tmp_path, "retry", "--all") == {"retried": 0}
    assert spoken(tmp_path, "work", "--once") == {"done": 1}


def test_every_command_that_prints_data_speaks_json() -> None:
    """A new command has to say which kind it is."""
    listed = (it for it in app.registered_commands if not it.hidden)
    names = {(it.name or getattr(it.callback, "__name__", "")) for it in listed}
    for name in sorted(names - TALKING):
        assert "--json" in CliRunner().invoke(app, [name, "--help"]).stdout, name


def answered(*arguments: str, **given: str) -> str:
    return CliRunner().invoke(app, arguments, prog_name="kemem", env=given).stdout


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("kemem re", {"recall", "reopen", "restore", "reindex", "retry"}),
        ("kemem search 火锅 --m", {"--mode"}),
    ],
)
def test_a_shell_completes_commands_and_options(typed: str, offered: set[str]) -> None:
    """As the script of `kemem --install-completion` asks for them."""
    asked = {"COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    assert set(answered(_KEMEM_COMPLETE="complete_bash", **asked).split()) == offered


def test_a_shell_is_told_how_to_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """The script can be read before it is installed; the help does not grow by it."""
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    assert "_KEMEM_COMPLETE=complete_bash" in answered("--show-completion", "bash")
    assert "completion" not in answered("--help")


@pytest.mark.parametrize("user", ["李明", "ann"])
def test_a_client_is_told_which_database_to_use(user: str) -> None:
    """A client starts the command without our environment: what was named is in its arguments."""
    url = "postgresql://kemem@127.0.0.1/kemem"
    named = ("--user", user, "--database-url", url)
    shown = json.loads(answered("mcp", "install", "--client", "cursor", *named))
    assert shown["mcpServers"]["kemem"]["args"] == ["mcp", *named]
