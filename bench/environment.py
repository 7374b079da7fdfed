"""The surroundings of a run: the peers' own interpreter, the workers, and facts of the machine."""

import os
import platform
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from subprocess import CalledProcessError, TimeoutExpired

from bench.figures import Failure, Findings, Job
from bench.systems import PEERS

BENCH = Path(__file__).parent
PEERS_FOLDER = BENCH / ".venv-peers"
REQUIREMENTS = BENCH / "requirements-peers.txt"
PATIENCE = 1_200  # seconds for one system; its own budgets end far earlier


def peers_python() -> Path:
    """The interpreter that has the peers; made on first use and when their versions change."""
    python = PEERS_FOLDER / "bin" / "python"
    installed = PEERS_FOLDER / "installed.txt"
    wanted = REQUIREMENTS.read_text()
    if installed.exists() and installed.read_text() == wanted:
        return python
    venv.create(PEERS_FOLDER, with_pip=True, clear=True, symlinks=os.name == "posix")
    (PEERS_FOLDER / ".gitignore").write_text("*\n")
    install = [str(python), "-m", "pip", "install", "--quiet", "-r", str(REQUIREMENTS)]
    subprocess.run(install, check=True, stdout=sys.stderr)
    installed.write_text(wanted)
    return python


def without_models() -> dict[str, str]:
    """The environment without keys and addresses of models: none but a local one is to be asked."""
    models = ("OPENAI_", "OPENROUTER_")
    return {name: value for name, value in os.environ.items() if not name.startswith(models)}


def peers_environment(workspace: Path) -> dict[str, str]:
    """Nothing is reported to anyone, nothing is downloaded, nothing is left in the home folder."""
    kept = {name: value for name, value in without_models().items() if name != "PYTHONPATH"}
    return kept | {
        "ANONYMIZED_TELEMETRY": "False",
        "MEM0_TELEMETRY": "False",
        "MEM0_DIR": str(workspace),
        "HOME": str(workspace),
        "HF_HUB_OFFLINE": "1",
    }


def kemem_environment() -> dict[str, str]:
    """The checkout's own code is measured with its default settings, whatever else is set up."""
    kept = {name: value for name, value in without_models().items() if name[:6] != "KEMEM_"}
    path = [str(BENCH.parent / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return kept | {"PYTHONPATH": os.pathsep.join(path)}


def run_worker(job: Job) -> Findings | Failure:
    """Measures one system in a process of its own."""
    workspace = Path(job.workspace)
    job_file, findings_file = workspace / "job.json", workspace / "findings.json"
    job.write(job_file)
    try:
        run_module("bench.worker", job.system, workspace, (job_file, findings_file))
    except WorkerFailed as failure:
        return Failure(job.system, str(failure))
    return Findings.read(findings_file)


class WorkerFailed(Exception):
    """A system could not be measured; says why."""


def run_module(module: str, system: str, workspace: Path, files: Sequence[Path]) -> None:
    """Runs a worker with the interpreter and the environment of its system."""
    try:
        if system in PEERS:
            python, environment = str(peers_python()), peers_environment(workspace)
        else:
            python, environment = sys.executable, kemem_environment()
        subprocess.run(
            [python, "-m", module, *map(str, files)],
            cwd=BENCH.parent,
            env=environment,
            check=True,
            timeout=PATIENCE,
            stderr=subprocess.PIPE,
            text=True,
        )
    except CalledProcessError as error:
        print(error.stderr or "", file=sys.stderr)
        raise WorkerFailed(last_line(error.stderr)) from None
    except TimeoutExpired:
        raise WorkerFailed(f"not finished after {PATIENCE} s") from None


def last_line(text: str | None) -> str:
    lines = (text or "").strip().splitlines()
    return lines[-1] if lines else "see the messages on the terminal"


def machine(folder: Path) -> dict[str, str]:
    """What the figures depend on besides the code."""
    return {
        "processor": f"{platform.machine()}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "one fsync": f"{fsync_ms(folder):.1f} ms",
    }


def fsync_ms(folder: Path) -> float:
    """The median time until 4 KiB are safely on the disk that the stores use."""
    times = []
    with open(folder / "fsync", "wb") as file:
        for _ in range(50):
            file.write(bytes(4096))
            file.flush()
            before = time.perf_counter()
            os.fsync(file.fileno())
            times.append((time.perf_counter() - before) * 1e3)
    return median(times)
