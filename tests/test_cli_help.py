"""The help: complete, grouped, one screen for each command, with examples that are right."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import kemem as package
from kemem.serve.cli.app import app
from kemem.serve.cli.help import described
from tests.cases import each
from tests.command import kemem

SCREEN = 40  # lines
WIDTH = 80  # columns
PAGE = (Path(__file__).parents[1] / "docs" / "cli.md").read_text("utf-8")


def commands(command: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command below one, with the words that call it."""
    for name, inner in getattr(command, "commands", {}).items():
        yield (*path, name), inner
        yield from commands(inner, *path, name)


ROOT = typer.main.get_command(app)
ALL = dict(commands(ROOT))


def helped(home: Path, *path: str) -> str:
    ran = kemem(home, *path, "--help")
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


def test_the_overview_lists_every_command_under_a_heading(tmp_path: Path) -> None:
    """None is hidden; without a command it is shown as well."""
    shown = helped(tmp_path)
    lines = shown.splitlines()
    assert len(lines) <= SCREEN + 10 and max(map(len, lines)) <= WIDTH
    headings = [line.split()[0] for line in lines[4:] if line[0] != " "]
    assert headings == ["Remember", "Look", "Manage", "Run", "Operate", "Options"]
    listed = [line[10:].split()[0] for line in lines[4:]]
    assert set(listed) == {path[0] for path in ALL} | {"--version"}
    assert kemem(tmp_path).stdout == shown
    assert not any(command.hidden for command in ALL.values())


def test_the_version_is_known(tmp_path: Path) -> None:
    assert kemem(tmp_path, "--version").stdout == f"kemem {package.__version__}\n"


@each("path", ALL)
def test_a_command_is_explained_on_one_screen(path: tuple[str, ...]) -> None:
    """What it does in one line, every option with its meaning, and an example."""
    shown = ALL[path].get_help(context(path))
    lines = shown.splitlines()
    assert len(lines) <= SCREEN and max(map(len, lines)) <= WIDTH, shown
    what, examples = described(ALL[path].help)
    assert what[0].endswith(".") and len(what[0]) <= 58, what[0]
    if hasattr(ALL[path], "commands") and not ALL[path].invoke_without_command:
        assert all(name in shown for name in ALL[path].commands)
        return
    assert lines[0].startswith(f"Usage: kemem {' '.join(path)}")
    for option in ALL[path].params:
        assert option.help, (path, option.name)
        if option.param_type_name == "option":
            assert option.opts[0] in shown
    assert examples and examples[0] in shown


@each("path", ALL)
def test_an_example_is_a_right_call(
    path: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of this very command; the page of the documentation shows the same."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs.json").touch()
    _, examples = described(ALL[path].help)
    for example in examples:
        program, *words = shlex.split(example)
        assert program == "kemem" and tuple(words[: len(path)]) == path
        assert f"`{example}`" in PAGE
        ALL[path].make_context(path[-1], words[len(path) :], parent=context(path[:-1]))


def context(path: tuple[str, ...]) -> Any:
    """The context of a command, in which its help is shown."""
    made = ROOT.context_class(ROOT, info_name="kemem", help_option_names=["-h", "--help"])
    for at, name in enumerate(path, start=1):
        made = ROOT.context_class(ALL[path[:at]], info_name=name, parent=made)
    return made


@pytest.mark.parametrize("group", ["session", "admin"])
def test_a_group_without_a_command_shows_its_help(tmp_path: Path, group: str) -> None:
    assert kemem(tmp_path, group).stdout == helped(tmp_path, group)
