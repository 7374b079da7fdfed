"""How commands end: exit codes as documented, one line for what went wrong, quiet interrupts."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kemem.serve.cli.commands import places, synonyms
from tests.command import SECONDS, command, environment, kemem

AWAY = "postgresql://me@127.0.0.1:1/kemem?connect_timeout=1"


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("users",), 0, ""),
        (("demo", "--data-dir", "used", "--yes"), 1, "is in use"),
        (("search", "茶", "--mode", "magic"), 2, "--mode"),
        (("search", "tea", "--since", "yesterday"), 2, "--since must be"),
        (("list", "--kind", "foo"), 2, "--kind must be some of"),
        (("remember", "tea"), 2, "No such command 'remember'. Did you mean 'add'?"),
        (("messages",), 2, "Missing option '--user'"),
        (("brew",), 2, "No such command 'brew'"),
        (("get", "n_没有"), 3, "no memory 'n_没有'"),
        (("delete", "m_1", "--user", "mallory"), 3, "no memory 'm_1'"),
        (("retry", "j_1"), 3, "no job 'j_1'"),
        (("restore", "missing.json"), 3, "there is no backup 'missing.json'"),
        (("audit", "--operation", "nonsense"), 2, "operation must be one of memory.add, "),
        (("keys", "create", "a", "--days", "36501"), 2, "--days must be at most 36500"),
        (("keys", "create", "a", "--expires-at", "soon"), 2, "--expires-at must be an RFC 3339"),
        (("users", "--database-url", AWAY), 4, "127.0.0.1"),
    ],
)
def test_the_exit_code_says_what_kind_of_failure_it_is(
    tmp_path: Path, arguments: tuple[str, ...], code: int, reason: str
) -> None:
    """0 done, 1 failed, 2 a wrong call, 3 not found, 4 unavailable; one line says why."""
    if "used" in arguments:
        kemem(tmp_path, "add", "ok", "--data-dir", "used")
    ran = kemem(tmp_path, *arguments)
    assert ran.returncode == code, ran.stderr
    errors = ran.stderr.splitlines()
    assert [line for line in errors if line.startswith("error: ")] == errors[:1]
    assert reason in "".join(errors[:1]) and len(errors) <= 2


def test_every_command_has_words_that_lead_to_it() -> None:
    """No word leads to a command that does not exist, or is one itself."""
    assert set(synonyms().values()) <= set(places()) and not synonyms().keys() & places().keys()


def test_a_wrong_file_of_settings_is_a_wrong_call(tmp_path: Path) -> None:
    (tmp_path / "kemem.toml").write_text("port = 8420\nllm = = 3\n")
    for language, reason in (("en", "error: kemem.toml is not valid TOML: "), ("zh", "错误：")):
        ran = kemem(tmp_path, "list", KEMEM_LANGUAGE=language)
        assert ran.returncode == 2 and ran.stderr.startswith(reason)
    (tmp_path / "kemem.toml").write_text('port = "abc"\n')
    ran = kemem(tmp_path, "list", KEMEM_LANGUAGE="zh")
    said = "错误：kemem.toml 第 1 行：设置 port（KEMEM_PORT）必须是整数，而不是 'abc'\n"
    assert (ran.returncode, ran.stderr) == (2, said)


def test_a_wrong_call_says_where_help_is(tmp_path: Path) -> None:
    ran = kemem(tmp_path, "messages")
    assert ran.stderr.splitlines()[1] == "See: kemem messages --help"


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (
            ("get", "n_没有", "--json"),
            3,
            {
                "code": "NOT_FOUND",
                "message": "no memory 'n_没有'",
                "details": {"memory_id": "n_没有"},
            },
        ),
        (
            ("search", "茶", "--limit", "0", "--json"),
            2,
            {"code": "INVALID_ARGUMENT", "message": "--limit must be at least 1, not '0'"},
        ),
    ],
)
def test_programs_get_an_error_as_json(
    tmp_path: Path, arguments: tuple[str, ...], code: int, error: dict[str, object]
) -> None:
    """In the form of HTTP and in English, whatever the language of the terminal."""
    ran = kemem(tmp_path, *arguments, KEMEM_LANGUAGE="zh")
    assert (ran.returncode, ran.stdout) == (code, "")
    assert json.loads(ran.stderr) == {"error": error}


def test_an_output_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "kemem.serve.cli.main", "--version"],
            env=environment(tmp_path),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=SECONDS,
        )
    assert (ran.returncode, ran.stderr) == (1, "error: No space left on device\n")


def test_ctrl_c_is_quiet_while_python_still_imports(tmp_path: Path) -> None:
    """A module that is imported early stands for the moment at which it comes."""
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    ran = subprocess.run(
        [sys.executable, "-m", "kemem.serve.cli.main", "users"],
        env=environment(tmp_path) | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")


def test_a_user_without_a_home_names_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container that runs under any number."""
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.setattr(Path, "expanduser", _without_home)
    ran = kemem(tmp_path, "users", KEMEM_DATA_DIR="")
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: setting data_dir (KEMEM_DATA_DIR) must be the path of a ")


def _without_home(path: Path) -> Path:
    if str(path).startswith("~"):
        raise RuntimeError("Could not determine home directory.")
    return path


def test_a_taken_port_is_said_in_one_line_before_any_banner(tmp_path: Path) -> None:
    """And nothing is opened for it."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ran = kemem(tmp_path, "serve", "--port", str(port))
    assert (ran.returncode, ran.stdout) == (1, "")
    advice = "stop what uses it, or choose another --port"
    assert ran.stderr == f"error: port {port} of 127.0.0.1 is in use: {advice}\n"
    assert not (tmp_path / "data").exists()


def test_a_directory_that_cannot_be_is_said_before_anything_is_served(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    ran = kemem(tmp_path, "serve", "--port", "0", "--data-dir", str(tmp_path / "file"))
    assert (ran.returncode, ran.stdout) == (4, "")
    assert ran.stderr == f"error: {tmp_path / 'file'} must be a directory, not a file\n"


def test_a_host_of_elsewhere_is_named(tmp_path: Path) -> None:
    ran = kemem(tmp_path, "serve", "--host", "192.0.2.1", KEMEM_API_KEY="k" * 20)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "error: host '192.0.2.1' is not an address of this machine\n"


@pytest.mark.parametrize("shape", [[], ["--json"]])
def test_a_reader_that_has_enough_is_no_error(tmp_path: Path, shape: list[str]) -> None:
    """As `kemem messages | head -1`: what was written is shown, and nothing is said about it."""
    lines = (json.dumps({"content": f"{n} {'茶 tea ' * 40}"}) for n in range(600))
    kemem(tmp_path, "import", "-", "--user", "u", typed="\n".join(lines))
    call = command("messages", "--user", "u", "--limit", "600", *shape)
    with subprocess.Popen(
        call,
        env=environment(tmp_path),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as ran:
        assert ran.stdout and ran.stderr
        assert ran.stdout.readline()
        ran.stdout.close()
        assert ran.stderr.read() == b""
        assert ran.wait(SECONDS) == 1


def test_a_question_that_is_answered_with_no_ends_in_one_line(tmp_path: Path) -> None:
    kemem(tmp_path, "backup", "--path", "all.json")
    for typed in ("n\n", ""):
        ran = kemem(tmp_path, "restore", "all.json", typed=typed)
        assert (ran.returncode, ran.stdout.strip()) == (1, "")
        assert ran.stderr.endswith("Aborted.\n")
