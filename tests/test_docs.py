"""Every code block of the documentation runs, so that no page promises what is not there.

A fence says what happens to its block:

    ```python          runs; the blocks of one page run in order and share their names
    ```text            after a python block: what that block prints; … stands for any text
    ```bash            its `kemem` and `curl` lines run, its `export` lines hold for the page
    ```console         the same for lines after "$ "; the rest is output
    ```bash no-run     only its `make` targets are checked; so for console, never for python
    ```typescript      runs with those of the client (tests/frameworks/)

`curl` may address 127.0.0.1:8420 only: it meets a server started for the page on a free port.
A model at 127.0.0.1:11434 is a scripted one. The README runs in a new interpreter, as for its
readers; the other pages run in processes that have imported the package before (tests/warm.py),
but for the Python of the page on frameworks, which tests/frameworks/ runs with their packages.
"""

import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from kemem.testing.openai_server import running_openai_server
from tests import warm

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
FRAMEWORKS_PAGE = ROOT / "docs/frameworks.md"
PAGES = [
    README,
    ROOT / "README.zh.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("docs/*.md")),  # those of docs/zh have the same blocks (tests/test_site.py)
]


def each(pages: Sequence[Path]) -> pytest.MarkDecorator:
    """A case for each page."""
    return pytest.mark.parametrize("page", pages, ids=lambda page: str(page.relative_to(ROOT)))


EACH_PAGE = each(PAGES)

SHELLS = {"bash", "console"}
DODGES = {"py", "python3", "pycon", "sh", "shell", "zsh", "ts", "js"}  # would render, but not run
DOCUMENTED_PORT = "8420"
MODEL_PORT = "11434"
SECONDS = 120

FENCE = re.compile(r"(?P<indent> *)(?P<mark>`{3,}|~{3,}) *(?P<info>[^`]*)")
ASSIGNMENTS = re.compile(r"(?:[A-Za-z_]\w*=\S* +)*")
OUTPUT = re.compile(r"([^\0]*)\0(\d+)\n")  # of a block, and the line where the block begins
TARGET = re.compile(r"^([a-z][\w-]*):", re.MULTILINE)

RUN_BLOCKS = """
import json, sys, types

page, blocks = json.load(sys.stdin)
main = sys.modules["__main__"] = types.ModuleType("__main__")
for line, code in blocks:
    try:
        exec(compile("\\n" * (line - 1) + code, page, "exec"), vars(main))
    except BaseException:
        print(f"{page}:{line}: the block that begins here failed", file=sys.stderr)
        raise
    print(f"\\0{line}", flush=True)
"""

# A refused request has to fail its line, and a stream that never ends has to end.
CURL_SETTINGS = f"fail\nsilent\nshow-error\nmax-time = {SECONDS}\n"


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its info string, the line of its first line of code, and the code."""

    info: tuple[str, ...]
    line: int
    code: str

    @property
    def language(self) -> str:
        return self.info[0] if self.info else ""

    @property
    def runs(self) -> bool:
        return "no-run" not in self.info


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order; fences inside lists and inside longer fences too."""
    opened: re.Match[str] | None = None
    code: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        fence = FENCE.fullmatch(line.rstrip())
        if opened is None:
            if fence:
                opened, code = fence, []
        elif fence and not fence["info"] and fence["mark"].startswith(opened["mark"]):
            yield Block(tuple(opened["info"].split()), number - len(code), "\n".join(code))
            opened = None
        else:
            code.append(line.removeprefix(opened["indent"]))
    assert opened is None, f"a fence is never closed: {opened!r}"


def statements(block: Block) -> Iterator[tuple[int, str]]:
    """The commands of a shell block with their lines; a command ends when its quotes do."""
    started, command = 0, ""
    for number, line in enumerate(block.code.splitlines(), start=block.line):
        if command:
            command += "\n" + line.removeprefix("> ")
        elif block.language == "bash" or line.startswith("$ "):
            started, command = number, line.removeprefix("$ ")
        if command and complete(command):
            yield started, command.strip().removeprefix(".venv/bin/")
            command = ""
    assert not command, f"line {started}: the command never ends: {command!r}"


def complete(command: str) -> bool:
    try:
        shlex.split(command, comments=True)
    except ValueError:  # an open quote, or a backslash at the end
        return False
    return True


def commands(page: Path) -> Iterator[tuple[int, str]]:
    """The shell commands of a page that are meant to run."""
    for block in blocks(page.read_text("utf-8")):
        if block.language in SHELLS and block.runs:
            yield from statements(block)


def warm_commands(home: Path) -> None:
    """Let `kemem` start at once: found first on the path of a clean environment."""
    (home / "bin").mkdir(exist_ok=True)
    warm.write_command(home / "bin")


def clean_environment(home: Path) -> dict[str, str]:
    """A user's first day: an empty home, nothing configured, `kemem` on the path."""
    folders = [str(home / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    return {
        "PATH": os.pathsep.join(folders),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "KEMEM_DATA_DIR": str(home / "data"),
    }


def run_python(page: Path, home: Path, *, cold: bool = False) -> str:
    """Run the python blocks of a page in order in one process; returns what it prints."""
    if cold:
        return run_blocks(page, home, [sys.executable, "-W", "error"], clean_environment(home))
    warm_commands(home)
    return run_blocks(page, home, [*warm.python(), "-W", "error"], clean_environment(home))


def run_blocks(
    page: Path, home: Path, python: Sequence[str], environment: Mapping[str, str]
) -> str:
    """Run the python blocks of a page with an interpreter; returns what it prints."""
    every = [*blocks(page.read_text("utf-8"))]
    found = [it for it in every if it.language == "python"]
    if not found:
        return ""
    ran = subprocess.run(
        [*python, "-c", RUN_BLOCKS],
        input=json.dumps([str(page), [(it.line, it.code) for it in found]]),
        env=environment,
        cwd=home,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert ran.returncode == 0, ran.stderr
    printed = {line: output for output, line in OUTPUT.findall(ran.stdout)}
    for block, following in pairwise(every):
        if block.language == "python" and following.language == "text":
            said = printed[str(block.line)]
            shown = re.escape(following.code.rstrip()).replace("…", ".*?")
            assert re.fullmatch(shown, said.rstrip()), (
                f"{page}:{following.line}: the block above prints something else:\n{said}"
            )
    return "".join(printed.values())


@dataclass(slots=True)
class Shell:
    """The terminal of somebody who types a page's commands one after the other."""

    home: Path
    port: str
    model_port: str
    exports: list[str] = field(default_factory=list)
    server: subprocess.Popen[bytes] | None = None

    def type(self, command: str) -> None:
        """Do what the reader would do: export, start a server, run, or pass over."""
        here = command.replace(DOCUMENTED_PORT, self.port).replace(MODEL_PORT, self.model_port)
        match shlex.split(ASSIGNMENTS.sub("", command, count=1), comments=True):
            case ["export", *_]:
                self.exports.append(here)
            case ["kemem", "serve", *_]:
                self.serve(here)
            case ["kemem", *_]:
                self.run(here)
            case ["curl", *_]:
                assert f"127.0.0.1:{DOCUMENTED_PORT}" in command, (
                    "curl may address 127.0.0.1:8420 only"
                )
                if self.server is None:
                    self.serve("kemem serve")
                self.run(here)

    def run(self, command: str) -> None:
        ran = subprocess.run(
            ["bash", "-c", self.script(command)],
            env=clean_environment(self.home),
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert ran.returncode == 0, f"exit {ran.returncode}\n{ran.stdout}{ran.stderr}"

    def serve(self, command: str) -> None:
        """Start the server that the page speaks of, in place of an earlier one."""
        self.close()
        command = command.rstrip("& ")
        if self.port not in command:
            command += f" --port {self.port}"
        log = self.home / "server.log"
        with log.open("wb") as output:
            self.server = subprocess.Popen(
                ["bash", "-c", self.script(f"exec env {command}")],
                env=clean_environment(self.home),
                cwd=self.home,
                stdout=output,
                stderr=output,
            )
        deadline = time.monotonic() + SECONDS
        while not listens(self.port):
            alive = self.server.poll() is None and time.monotonic() < deadline
            assert alive, f"the server did not start\n{log.read_text('utf-8')}"
            time.sleep(0.05)

    def script(self, command: str) -> str:
        return "\n".join(["set -eo pipefail", *self.exports, command])

    def close(self) -> None:
        if self.server is not None:
            self.server.terminate()
            self.server.wait(timeout=30)
            self.server = None


def listens(port: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(port))) == 0


@contextmanager
def terminal(home: Path) -> Iterator[Shell]:
    """A shell with an empty home and a free port; its server ends with it."""
    (home / ".curlrc").write_text(CURL_SETTINGS)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    nothing: dict[str, list[str]] = {"facts": [], "entities": []}
    with running_openai_server(["好的。 All right."], repeat_last=True, formatted=nothing) as model:
        model_port = model.base_url.rpartition(":")[2].partition("/")[0]
        shell = Shell(home, port, model_port)
        try:
            yield shell
        finally:
            shell.close()


def run_shell(page: Path, home: Path) -> None:
    """Type the commands of a page in order; the first that fails is named with its line."""
    if not [*commands(page)]:
        return
    if page != README:
        warm_commands(home)
    with terminal(home) as shell:
        for line, command in commands(page):
            try:
                shell.type(command)
            except (AssertionError, subprocess.TimeoutExpired) as failure:
                pytest.fail(f"{page}:{line}: {command}\n{failure}", pytrace=False)


def unknown_targets(page: Path, makefile: str) -> list[str]:
    """`page:line: make target` for every target that the Makefile lacks."""
    targets = set(TARGET.findall(makefile))
    unknown = []
    for block in blocks(page.read_text("utf-8")):
        for line, command in statements(block) if block.language in SHELLS else ():
            for part in command.split("&&"):
                _, *words = shlex.split(part, comments=True) or [""]
                named = {word for word in words if "=" not in word and not word.startswith("-")}
                if part.split()[:1] == ["make"]:
                    unknown += [f"{page}:{line}: make {word}" for word in named - targets]
    return unknown


@each([page for page in PAGES if page not in (README, FRAMEWORKS_PAGE)])
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    """Copied from top to bottom into a file, the page's Python works."""
    run_python(page, tmp_path)


def test_the_example_of_the_readme_prints_the_same_each_time(tmp_path: Path) -> None:
    """What the page says, also in a directory where it has run before."""
    (text,) = [it.code for it in blocks(README.read_text("utf-8")) if it.language == "text"]
    printed = [run_python(README, tmp_path, cold=is_first) for is_first in (True, False)]
    assert printed == [f"{text}\n"] * 2


@EACH_PAGE
def test_the_commands_of_a_page_run(page: Path, tmp_path: Path) -> None:
    """Typed from top to bottom, the page's commands succeed."""
    run_shell(page, tmp_path)


@EACH_PAGE
def test_a_page_names_only_real_make_targets(page: Path) -> None:
    """`make` lines are too slow to run here, but none of them may be invented."""
    assert unknown_targets(page, (ROOT / "Makefile").read_text("utf-8")) == []


@EACH_PAGE
def test_no_block_dodges_the_test(page: Path) -> None:
    """Only shell blocks may say no-run, and languages carry the names that this test knows."""
    for block in blocks(page.read_text("utf-8")):
        flags = block.info[1:]
        assert block.language not in DODGES, f"{page}:{block.line}: call it by its full name"
        always = block.language in ("python", "typescript")
        assert not (always and flags), f"{page}:{block.line}: {block.language} always runs"
        assert block.language not in SHELLS or flags in {(), ("no-run",)}, f"{page}:{block.line}"
        if block.language == "console":
            assert list(statements(block)), f"{page}:{block.line}: no line begins with '$ '"


def test_the_readme_shows_code() -> None:
    """The first page proves itself."""
    assert "python" in {block.language for block in blocks(README.read_text("utf-8"))}


def write(folder: Path, *lines: str) -> Path:
    page = folder / "page.md"
    page.write_text("\n".join(lines), "utf-8")
    return page


def test_blocks_share_names_and_a_failing_one_is_named(tmp_path: Path) -> None:
    """The message gives the page and the lines of the block and of the fault."""
    good = [
        "```python",
        "said = '我不吃辣'",
        "```",
        "",
        "1. next:",
        "   ```python",
        "   assert said",
    ]
    run_python(write(tmp_path, *good, "   ```"), tmp_path)
    page = write(tmp_path, *good, "   assert not said", "   ```")
    with pytest.raises(AssertionError) as failure:
        run_python(page, tmp_path)
    assert f"{page}:7: the block that begins here failed" in str(failure.value)
    assert f'{page}", line 8' in str(failure.value)


def test_a_failing_command_is_named(tmp_path: Path) -> None:
    """A wrong option, and a foreign address, fail the page at their line."""
    for wrong in ("kemem --no-such-option", "curl http://192.0.2.1/v1"):
        page = write(tmp_path, "```console", "$ export USER=李明", f"$ {wrong}", "```")
        with pytest.raises(pytest.fail.Exception, match=re.escape(f"{page}:3: {wrong}")):
            run_shell(page, tmp_path)


def test_make_reads_its_file() -> None:
    """A target in the wrong place would break all of them."""
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert re.search("^docs +Build", listed.stdout, re.MULTILINE)


def test_an_invented_make_target_is_found(tmp_path: Path) -> None:
    """In chains, beside variables, and in blocks that do not run."""
    page = write(tmp_path, "```bash no-run", "make run ARGS='-v' && make fly", "```")
    assert unknown_targets(page, "run: x\n\techo\n") == [f"{page}:2: make fly"]


def test_commands_are_told_from_output() -> None:
    """Output and comments are passed over; quotes and backslashes carry a command on."""
    console = Block(("console",), 4, "$ kemem add '我\n> 不吃辣' # it's said\nkemem 0.1.0\n$ ls")
    assert list(statements(console)) == [(4, "kemem add '我\n不吃辣' # it's said"), (7, "ls")]
    bash = Block(("bash",), 2, "# it's easy\nkemem add \\\n  hello\n.venv/bin/kemem status")
    assert [command for _, command in statements(bash)][1:] == [
        "kemem add \\\n  hello",
        "kemem status",
    ]
