"""`kemem recall`: evidence for people and programs, in a process of its own."""

import json
import subprocess
from pathlib import Path

import pytest

from kemem import Memory
from kemem.recall import Recalled
from kemem.records.serialization import adapter
from kemem.settings import load
from tests.command import kemem, kemem_cold

SAID = [
    ("zh", "用户不吃辣，火锅要清汤", "火锅要清汤吗？"),
    ("en", "User orders the mild hotpot without chilli", "Which hotpot does the user order?"),
]
BOTH = pytest.mark.parametrize(("user", "note", "question"), SAID)
ONE = pytest.mark.parametrize(("user", "note", "question"), SAID[:1])


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a note, and a sensitive one, for a user of each language."""
    folder = tmp_path_factory.mktemp("home")
    with Memory(settings=load(data_dir=folder / "data", embedder="none", llm="none")) as memory:
        for user, note, _ in SAID:
            when = "2026-01-26T10:47:00Z"
            memory.add(note, user_id=user, infer=False, timestamp=when)
            memory.add(f"{note} PIN 4711", user_id=user, infer=False, sensitive=True)
        memory.add(f"火锅 hotpot \x1b[2J\x1b]0;owned\x07 {'长' * 300}", "mallory", infer=False)
    return folder


def recall(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command without a model; it must succeed."""
    ran = kemem(home, "recall", *arguments, KEMEM_LLM="none")
    assert ran.returncode == 0, ran.stderr
    return ran


@BOTH
def test_a_recall_shows_the_hand_over_and_the_evidence(
    home: Path, user: str, note: str, question: str
) -> None:
    """Score, day and key of each memory, and how it begins; nothing on standard error."""
    ran = recall(home, question, "--user", user)
    assert ran.stderr == ""
    found = json.loads(recall(home, question, "--user", user, "--json").stdout)
    key = next(it["memory_key"] for it in found["evidence"])
    message, _, evidence = ran.stdout.partition("\n\n" + f"{found['evidence'][0]['score']:.2f}")
    assert key in message
    head, text = evidence.splitlines()[:2]
    assert (head.split(), text) == (["2026-01-26", key], f"      {note}")
    assert "4711" not in ran.stdout


@ONE
def test_a_recall_speaks_json(home: Path, user: str, note: str, question: str) -> None:
    """What POST /v1/recall answers, within the rounds that were allowed."""
    ran = recall(home, question, "--user", user, "--json", "--max-iterations", "2")
    found = json.loads(ran.stdout)
    assert found.keys() == adapter(Recalled).json_schema(mode="serialization")["properties"].keys()
    assert (found["by"], found["limits"]["max_iterations"]) == ("rules", 2)
    assert note in {it["content"] for it in found["evidence"]}


@ONE
def test_a_trace_stands_on_standard_error(home: Path, user: str, note: str, question: str) -> None:
    """A line for each step, with its time; standard output is the same as without."""
    ran = recall(home, question, "--user", user, "--json", "--trace")
    trace = json.loads(ran.stdout)["trace"]
    lines = [line.split()[:4] for line in ran.stderr.splitlines()]
    assert lines == [[str(it["number"]), f"{it['seconds']:.3f}", "s", it["tool"]] for it in trace]
    assert lines[0][-1] == "search_memories" and lines[-1][-1] == "handoff"


@ONE
def test_what_is_sensitive_needs_a_word(home: Path, user: str, note: str, question: str) -> None:
    """It is not shown unless it is asked for."""
    assert "4711" not in recall(home, question, "--user", user).stdout
    assert "4711" in recall(home, question, "--user", user, "--sensitive").stdout


@ONE
def test_an_agent_and_a_session_narrow_a_recall(
    home: Path, user: str, note: str, question: str
) -> None:
    """Memories of another agent are not shown; the session is where the question comes from."""
    own = ("--user", user, "--agent", "default", "--session", "default")
    assert note in recall(home, question, *own).stdout
    assert note not in recall(home, question, "--user", user, "--agent", "other").stdout


def test_nothing_found_is_no_failure(home: Path) -> None:
    """The handoff says so."""
    arguments = ("火锅要清汤吗？", "--user", "nobody")
    ran = recall(home, *arguments)
    assert ran.stdout.strip() and ran.stderr == ""
    assert json.loads(recall(home, *arguments, "--json").stdout)["evidence"] == []


def test_memories_cannot_steer_the_terminal(home: Path) -> None:
    """Control characters become blanks, and what is long is cut."""
    ran = recall(home, "火锅 hotpot", "--user", "mallory", "--trace")
    assert not set(ran.stdout + ran.stderr) & {"\x1b", "\x07"}
    last = ran.stdout.splitlines()[-1].strip()
    assert last.startswith("火锅 hotpot") and last.endswith("长…") and len(last) == 201


@pytest.mark.parametrize(
    "arguments",
    [
        ("hotpot", "--user", "u", "--max-iterations", "0"),
        ("hotpot", "--user", "u", "--max-iterations", "11"),
    ],
)
def test_a_wrong_call_is_a_usage_error(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Exit code 2 and nothing on standard output."""
    ran = kemem(tmp_path, "recall", *arguments)
    assert (ran.returncode, ran.stdout) == (2, "")


def test_commands_need_no_packages_of_the_server(tmp_path: Path) -> None:
    """They start without loading any; whoever only recalls need not install them."""
    for name in ("fastapi", "jwt", "prometheus_client", "starlette", "uvicorn"):
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError('{name}')")
    ran = kemem_cold(tmp_path, "recall", "火锅 hotpot", "--user", "u", KEMEM_LLM="none")
    assert (ran.returncode, ran.stderr) == (0, "")
