"""`kemem chat`: a conversation in a process of its own, piped and on a terminal."""

import os
import pty
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kemem import Memory
from kemem.records import Message
from kemem.serve.cli.chat import Conversation
from kemem.settings import load
from kemem.testing import calling
from kemem.testing.openai_server import Streamed, running_openai_server
from tests.chats import BOTH, ONE, SAID, Model, leaked
from tests.command import SECONDS, command, environment, kemem, kemem_cold

ZH, EN = (message for _, _, message, _ in SAID)
HAO, FINE = (reply for _, _, _, reply in SAID)


@pytest.fixture(scope="module")
def model() -> Model:
    """What the command asks."""
    return Model()


@pytest.fixture(scope="module")
def address(model: Model) -> Iterator[str]:
    """Where the model is; it draws no facts, so that every request but these is a chat."""
    with running_openai_server(model, formatted={"facts": [], "entities": []}) as there:
        yield there.base_url


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with notes for a user of each language and for one of both; some are sensitive."""
    folder = tmp_path_factory.mktemp("home")
    with opened(folder) as memory:
        for user, note, _, _ in SAID:
            for owner in (user, "both"):
                memory.add(note, owner, infer=False, timestamp="2026-01-26T10:47:00Z")
            memory.add(f"PIN 4711 {note}", f"private_{user}", infer=False, sensitive=True)
    return folder


def opened(home: Path) -> Memory:
    """The memory that the command writes to."""
    return Memory(settings=load(data_dir=home / "data", embedder="none", llm="none"))


def stored(home: Path, user: str, session: str) -> list[Message]:
    """What was said in a session, in its order."""
    with opened(home) as memory:
        return [*memory.context(session, user).messages]


def of(address: str) -> dict[str, str]:
    """The settings of somebody with a model."""
    model = {"KEMEM_LLM_BASE_URL": address, "KEMEM_LLM_API_KEY": "any"}
    return {**model, "KEMEM_CHAT_RECALL": "call"}


def talk(home: Path, address: str, *messages: str, **whose: Any) -> bool:
    """Say something in this process; whether all went well."""
    model: dict[str, Any] = {"llm_base_url": address, "llm_api_key": "any"}
    model["chat_recall"] = "call"
    settings = load(data_dir=home / "data", embedder="none", **model)
    talking = Conversation(settings, **{"session_id": "s", **whose})
    try:
        for message in messages:
            talking.send(message)
    finally:
        talking.close()
    return not talking.failed


# In a process of its own


def test_a_chat_shows_replies_and_what_was_recalled_for_them(
    home: Path, address: str, model: Model
) -> None:
    """Replies alone stand on standard output; recalls, calls and the new session beside them."""
    asked = calling("recall_memory", query="火锅 hotpot")
    model.says(HAO, asked, Streamed(f"{FINE}\n\n{HAO}", piece=3))
    typed = f"{ZH}\n\n/help\n{EN}\n /quit \nno"
    ran = kemem(home, "chat", "--user", "both", typed=typed, **of(address))
    assert (ran.returncode, ran.stdout) == (0, f"{HAO}\n{FINE}\n\n{HAO}\n")
    named, first, help_line, second, call = ran.stderr.splitlines()
    session = named.split()[1]
    assert named == f"session {session} (go on later with --session)"
    assert session.startswith("cli-2")
    assert first.startswith("  recalled 1: 2026-01-26 用户不吃辣")
    assert "/quit" in help_line
    assert second.startswith("  recalled 1: 2026-01-26 User orders")
    assert call.startswith("  recall_memory 火锅 hotpot: ") and call.endswith(" found")
    said = [(it.role, it.content) for it in stored(home, "both", session)]
    assert said == [
        *(("user", ZH), ("assistant", HAO)),
        *(("user", EN), ("assistant", f"{FINE}\n\n{HAO}")),
    ]


def test_on_a_terminal_each_line_is_asked_for_and_ctrl_c_ends_cleanly(
    home: Path, address: str, model: Model
) -> None:
    """In the middle of a reply, too: its part is stored, and nothing else is said."""
    model.says(HAO, Streamed(FINE, piece=3, pause=2 * SECONDS))
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command("chat", "--user", "typist", "--session", "typed"),
        env=environment(home, **of(address), TERM="dumb"),
        cwd=home,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as chatting:
        os.close(theirs)
        try:
            until(ours, "you> ")
            os.write(ours, f"{ZH}\n".encode())
            assert HAO in until(ours, "you> ")
            os.write(ours, f"{EN}\n".encode())
            until(ours, FINE[:3])
            chatting.send_signal(signal.SIGINT)
            assert until(ours, None).strip() == ""
            assert chatting.wait(timeout=SECONDS) == 130
        finally:
            chatting.kill()  # or the end of the block would wait for it
    os.close(ours)
    *_, said, last = stored(home, "typist", "typed")
    assert (said.content, last.content) == (EN, FINE[:3])
    assert last.metadata == {"partial": True}


def until(terminal: int, mark: str | None) -> str:
    """What a terminal shows until a mark, or until nobody writes to it any more."""
    shown = b""
    while mark is None or mark.encode() not in shown:
        assert select.select([terminal], [], [], SECONDS)[0], shown
        try:
            shown += os.read(terminal, 4096)
        except OSError:  # the other end is closed
            assert mark is None, shown
            return shown.decode()
    return shown.decode()


def test_without_a_model_it_says_how_to_get_one(tmp_path: Path) -> None:
    """In one line, before it reads anything, and without making a store."""
    ran = kemem(tmp_path, "chat", "--user", "u", typed="你好 hello", KEMEM_LLM="none")
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (1, "", 1)
    assert ran.stderr.startswith("error: no chat model is configured")
    for word in ("KEMEM_LLM_API_KEY", "KEMEM_LLM_BASE_URL", "KEMEM_LLM_MODEL", "Ollama"):
        assert word in ran.stderr
    assert not (tmp_path / "data").exists()


def test_the_extra_that_is_missing_is_named(tmp_path: Path) -> None:
    """The rest of the command works without it."""
    missing = "raise ModuleNotFoundError(\"No module named 'jsonschema'\", name='jsonschema')"
    (tmp_path / "jsonschema.py").write_text(missing)
    ran = kemem_cold(tmp_path, "chat", "--user", "u", typed="你好 hello", KEMEM_LLM_API_KEY="any")
    assert ran.returncode == 1
    assert (
        "error: jsonschema is missing; in the checkout, run: pip install '.[agents]'" in ran.stderr
    )


# What is shown


@BOTH
def test_what_is_sensitive_needs_a_word(
    home: Path,
    address: str,
    model: Model,
    capsys: pytest.CaptureFixture[str],
    user: str,
    note: str,
    message: str,
    reply: str,
) -> None:
    """It is recalled only where that is asked for."""
    for granted in (False, True):
        model.says(reply)
        assert talk(home, address, message, user_id=f"private_{user}", sensitive=granted)
        assert ("4711" in capsys.readouterr().err) == granted


@ONE
def test_a_turn_that_fails_is_one_line_and_the_chat_goes_on(
    home: Path,
    address: str,
    model: Model,
    capsys: pytest.CaptureFixture[str],
    user: str,
    note: str,
    message: str,
    reply: str,
) -> None:
    """What came of it is shown and stored; a message that is refused is such a turn, too."""
    model.says(Streamed(reply, piece=4, breaks_after=2), reply)
    messages = (message, f"{message}\ud800", message)
    assert not talk(home, address, *messages, user_id=user, session_id="broken")
    shown = capsys.readouterr()
    assert shown.out == f"{reply[:8]}\n{reply}\n"
    told = [line for line in shown.err.splitlines() if line.startswith("error: ")]
    assert len(told) == 2 and "the LLM" in told[0]
    parts = [it.metadata.get("partial", False) for it in stored(home, user, "broken")]
    assert parts == [False, True, False, False]


@ONE
def test_a_leak_is_not_shown_but_counted(
    home: Path,
    address: str,
    model: Model,
    capsys: pytest.CaptureFixture[str],
    user: str,
    note: str,
    message: str,
    reply: str,
) -> None:
    """Where it stood a call was made; the reply goes on in a line of its own."""
    model.says(Streamed(f"{reply}{leaked(note)}", piece=2), reply)
    assert talk(home, address, message, user_id=user, session_id="leak")
    shown = capsys.readouterr()
    assert shown.out.split() == [*reply.split(), *reply.split()]
    assert f"  recall_memory {note}: " in shown.err
    assert "  tool calls in the text, caught: 1\n" in shown.err
    assert "DSML" not in shown.out + shown.err


def test_nobody_can_steer_the_terminal(
    home: Path, address: str, model: Model, capsys: pytest.CaptureFixture[str]
) -> None:
    """Control characters become blanks, half a character too; lines stay lines, and few."""
    text = "火锅\x1b[2J\x1b]0;owned\x07\r\nhotpot [red]x[/red]"
    with opened(home) as memory:
        for number in range(9):
            memory.add(f"{text} {number}", "mallory", infer=False)
    model.says(calling("recall_memory", query=text), text, "\ud800半 half")
    assert not talk(home, address, "火锅 hotpot", "你好 hello", user_id="mallory")
    shown = capsys.readouterr()
    assert shown.out == "火锅 [2J ]0;owned  \nhotpot [red]x[/red]\n 半 half\n"
    assert not set(shown.err) & {"\x1b", "\x07", "\r"}
    lines = shown.err.splitlines()
    assert len(lines) == 4 and all(len(it) <= 80 for it in lines)  # two recalls, call, error
    assert lines[0].endswith("…")


def test_a_wrong_user_is_told(home: Path, address: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As a turn that fails."""
    assert not talk(home, address, "你好 hello", user_id="长" * 256)
    assert capsys.readouterr().err.startswith("error: user_id")
