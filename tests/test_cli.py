"""The command line, run as people run it: in a process of its own, in an empty home."""

import json
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.command import COMMAND, SECONDS, command, environment, kemem, kemem_cold

TALK = [
    {"user_id": "李明", "content": "我不吃辣，火锅要清汤。", "ts": "2026-01-26T10:47:00Z"},
    {"user_id": "李明", "role": "assistant", "content": "记住了。", "ts": "2026-01-26T10:48:00Z"},
    {"user_id": "ann", "content": "I can't eat spicy food.", "ts": "2026-01-27T09:00:00Z"},
    {"user_id": "ann", "content": "ok"},
    {"user_id": "ann", "content": "ok"},
    {"user_id": "mallory", "content": "火锅 \x1b[2J\x1b]0;owned\x07 [red]hotpot[/red]"},
]


def write_lines(folder: Path, *lines: object) -> Path:
    path = folder / "talk.jsonl"
    texts = (it if isinstance(it, str) else json.dumps(it, ensure_ascii=False) for it in lines)
    path.write_text("\n".join(texts) + "\n", "utf-8")
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose store holds the talk, with vectors."""
    folder = tmp_path_factory.mktemp("home")
    stored = kemem(folder, "import", str(write_lines(folder, *TALK)), KEMEM_EMBEDDER="local")
    assert (stored.returncode, stored.stdout) == (0, "6 inserted, 0 ignored, 0 truncated\n")
    assert stored.stderr == ""  # no progress bar outside a terminal
    return folder


def test_a_second_import_inserts_nothing(home: Path) -> None:
    """Lines without an id have one all the same; said twice, they are two messages."""
    again = kemem(home, "import", "-", typed=(home / "talk.jsonl").read_text("utf-8"))
    assert (again.returncode, again.stdout) == (0, "0 inserted, 6 ignored, 0 truncated\n")


@pytest.mark.parametrize(
    ("mode", "query", "user", "found"),
    [
        ("hybrid", "火锅", "李明", "我不吃辣，火锅要清汤。"),
        ("lexical", "foods", "ann", "I can't eat spicy food."),
        ("semantic", "不能吃辣的东西", "ann", "I can't eat spicy food."),
    ],
)
def test_a_search_shows_the_best_first(
    home: Path, mode: str, query: str, user: str, found: str
) -> None:
    """Score and text; kind, role, time and id; the reasons, for who asks for them."""
    asked = ("search", query, "--user", user, "--mode", mode)
    ran = kemem(home, *asked, "--explain", KEMEM_EMBEDDER="local")
    assert ran.returncode == 0, ran.stderr
    head, about, why, *_ = ran.stdout.splitlines()
    score, text = head.split("  ", 1)
    assert 0 < float(score) <= 1 and text == found
    kind, said, memory_id = about.strip().split(" · ")
    assert (kind, said[:9], memory_id[:2]) == ("message (user)", "2026-01-2", "m_")
    assert ("lexical#1" in why) == (mode != "semantic")
    assert "#1" not in kemem(home, *asked, KEMEM_EMBEDDER="local").stdout


def test_search_speaks_json(home: Path) -> None:
    """The results are those of the HTTP API; filters apply."""
    asked = ("search", "火锅 记住", "--user", "李明", "--json", "--limit", "1")
    later = ("--role", "assistant", "--since", "2026-01-26T10:48:00Z", "--explain")
    (item,) = json.loads(kemem(home, *asked, *later).stdout)["results"]
    assert (item["memory"], item["role"]) == ("记住了。", "assistant")
    assert item["event_time"] == "2026-01-26T10:48:00.000000Z"
    assert "terms: 记住" in item["why"]


def test_an_unknown_user_has_nothing(home: Path) -> None:
    """A stranger looks like somebody who said nothing of the kind."""
    ran = kemem(home, "search", "火锅 hotpot", "--user", "nobody")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "Nothing was found.\n", "")


def test_text_cannot_steer_the_terminal(home: Path) -> None:
    """What was said may hold escape sequences and markup; they are shown as text."""
    shown = kemem_cold(home, "search", "hotpot", "--user", "mallory", FORCE_COLOR="1").stdout
    assert "\x1b[2J" not in shown
    assert "\x1b]0" not in shown
    assert "[red]" in shown
    assert "\x1b[1;33mhotpot\x1b[0m" in shown


def test_reindex_counts_what_it_derived(home: Path) -> None:
    """Words and vectors come back as they were."""
    ran = kemem(home, "reindex", KEMEM_EMBEDDER="local")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("messages: 6, notes: 0, vectors: 6, seconds: ")


def test_a_bad_line_is_named_and_earlier_batches_stay(tmp_path: Path) -> None:
    """The summary tells what is stored, the error where to look."""
    wrong = {"user_id": "李明", "role": "老师", "content": "你好"}
    path = write_lines(tmp_path, *TALK[:2], "", TALK[2], wrong)
    ran = kemem(tmp_path, "import", str(path), "--batch", "2")
    assert (ran.returncode, ran.stdout) == (1, "3 inserted, 0 ignored, 0 truncated\n")
    assert ran.stderr == (
        f"error: {path}:5: role must be one of user, assistant, system, tool, not '老师'\n"
    )
    path.write_text(path.read_text("utf-8").replace("老师", "user"), "utf-8")
    again = kemem(tmp_path, "import", str(path), "--batch", "2")
    assert again.stdout == "1 inserted, 3 ignored, 0 truncated\n"


@pytest.mark.parametrize("query, problem", [("", "not blank"), ("辣" * 10_001, "not 10001")])
def test_a_query_that_cannot_be_is_named_as_the_command_does(
    tmp_path: Path, query: str, problem: str
) -> None:
    ran = kemem(tmp_path, "search", query, "--user", "u")
    assert ran.returncode == 2 and problem in ran.stderr
    assert ran.stderr.startswith("error: query must be ")


def test_a_taken_message_id_is_named(tmp_path: Path) -> None:
    """An id stands for one content for ever."""
    first = {"user_id": "u", "message_id": "m_1", "content": "我不吃辣"}
    path = write_lines(tmp_path, first, {**first, "content": "I can't eat spicy food"})
    ran = kemem(tmp_path, "import", str(path))
    assert (ran.returncode, ran.stdout) == (1, "0 inserted, 0 ignored, 0 truncated\n")
    assert ran.stderr == f"error: {path}:2: another message has this message_id\n"


def test_the_doctor_finds_a_healthy_store(home: Path) -> None:
    """Counts, the model at work, and where each setting comes from."""
    (home / "kemem.toml").write_text('max_content_bytes = 1000\napi_key = "s3cret"\n')
    ran = kemem(home, "doctor", "--json", KEMEM_EMBEDDER="local")
    (home / "kemem.toml").unlink()
    found = json.loads(ran.stdout)
    assert (ran.returncode, found["healthy"]) == (0, True)
    settings = {it["name"]: (it["value"], it["source"]) for it in found["settings"]}
    assert settings["embedder"] == ("local", "environment")
    assert settings["max_content_bytes"] == (1000, "kemem.toml")
    assert settings["port"] == (8420, "default")
    assert settings["api_key"] == ("***", "kemem.toml")
    checks = {it["name"]: it["found"] for it in found["checks"]}
    counts = r"sqlite, schema \d+, messages: 6, notes: 0, vectors: 6"
    assert re.fullmatch(counts, checks["store"]), checks["store"]
    assert checks["jobs"] == "0 pending, 0 failed"
    assert "512 dimensions" in checks["embedder"]


def test_the_doctor_names_what_is_wrong(tmp_path: Path) -> None:
    """A damaged store and a misspelt variable, each with advice; other commands say it too."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "kemem.db").write_text("这不是数据库 this is no database " * 100)
    ran = kemem(tmp_path, "doctor", KEMEM_DATADIR="data")
    assert ran.returncode == 1
    assert ran.stdout.startswith("2 problems:\nwrong settings     unknown: KEMEM_DATADIR\n")
    assert f"wrong store        the store {data / 'kemem.db'} is damaged" in ran.stdout
    search = kemem(tmp_path, "search", "火锅", "--user", "u")
    assert (search.returncode, search.stdout) == (4, "")
    assert search.stderr.startswith(f"error: the store {data / 'kemem.db'} is damaged")
    assert search.stderr.count("\n") == 1


def test_the_doctor_creates_nothing_and_shows_no_password(tmp_path: Path) -> None:
    """A directory that is missing stays missing; a URL is shown without its secrets."""
    url = "postgresql://me:s3cret@127.0.0.1:1/kemem?password=s3cret&connect_timeout=1"
    fresh = kemem(tmp_path, "doctor", "--data-dir", "new", KEMEM_DATABASE_URL=url)
    assert fresh.returncode == 0, fresh.stdout
    assert not (tmp_path / "new").exists()
    away = kemem(tmp_path, "doctor", "--database-url", url)
    assert away.returncode == 1
    assert "postgresql://me:***@127.0.0.1:1/kemem" in away.stdout
    assert "wrong store" in away.stdout
    assert "s3cret" not in fresh.stdout + fresh.stderr + away.stdout + away.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("messages",),
        ("search", "火锅", "--mode", "magic"),
        ("import", "missing.jsonl"),
        ("add", "--user", "ann"),
    ],
)
def test_a_wrong_call_is_a_usage_error(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Exit code 2 and nothing on standard output."""
    ran = kemem(tmp_path, *arguments)
    assert (ran.returncode, ran.stdout) == (2, "")


def test_a_server_without_a_key_stays_on_this_machine(tmp_path: Path) -> None:
    """It refuses before it announces anything."""
    ran = kemem(tmp_path, "serve", "--host", "0.0.0.0")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("error: host '0.0.0.0' can be reached from other machines")


def test_a_server_that_is_not_installed_says_how(tmp_path: Path) -> None:
    """The extra is named; the rest of the command works without it."""
    missing = "raise ModuleNotFoundError(\"No module named 'fastapi'\", name='fastapi')"
    (tmp_path / "fastapi.py").write_text(missing)
    ran = kemem_cold(tmp_path, "serve")
    assert ran.returncode == 1
    assert (
        ran.stderr == "error: fastapi is missing; in the checkout, run: pip install '.[server]'\n"
    )


def test_a_server_announces_itself_and_stops_when_asked(tmp_path: Path) -> None:
    """Where to call, on the port that it got, where the data is and who may ask; then Ctrl-C."""
    with subprocess.Popen(
        command("serve", "--port", "0"),
        env=environment(tmp_path),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout and server.stderr
        announced = [server.stdout.readline() for _ in range(8)]
        while "Uvicorn running" not in (line := server.stderr.readline()):
            assert line, "the server did not start"
        port = urlsplit(announced[0].split()[-1]).port
        assert httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).status_code == 200
        server.send_signal(signal.SIGINT)
        _, rest = server.communicate(timeout=SECONDS)
    url = f"http://127.0.0.1:{port}"
    *announced, hint = announced
    assert announced == [
        f"Look    {url}/dashboard\n",
        f"API     {url}/v1\n",
        f"MCP     {url}/mcp\n",
        f"Docs    {url}/docs\n",
        f"Health  {url}/readyz\n",
        f"Data    {tmp_path / 'data'}\n",
        "Access  from this machine, without a key\n",
    ]
    assert hint.startswith("Empty?  ") and "demo fills it with examples" in hint
    assert "Traceback" not in rest


def messages_in(path: Path) -> int:
    if not path.exists():
        return 0
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as store:
        try:
            return int(store.execute("SELECT count(*) FROM message").fetchone()[0])
        except sqlite3.OperationalError:  # the tables are still being made
            return 0


def test_an_import_can_be_interrupted(tmp_path: Path) -> None:
    """Ctrl-C ends with the summary and the exit code of an interrupt, and with nothing else."""
    with subprocess.Popen(
        [sys.executable, *COMMAND, "import", "-", "--user", "李明", "--batch", "1"],
        env=environment(tmp_path),
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as importing:
        assert importing.stdin
        importing.stdin.write('{"content": "你好"}\n')
        importing.stdin.flush()
        deadline = time.monotonic() + SECONDS
        while not messages_in(tmp_path / "data" / "kemem.db"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.5)  # the line is stored; now the command waits for the next one
        importing.send_signal(signal.SIGINT)
        out, err = importing.communicate(timeout=SECONDS)
    assert (importing.returncode, out, err) == (130, "1 inserted, 0 ignored, 0 truncated\n", "")
