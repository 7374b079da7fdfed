"""Measures add and search beside mem0's and prints tables: `python -m bench.remember`."""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from bench.environment import WorkerFailed, machine, run_module
from bench.figures import Failure
from bench.remember.figures import FULL, INFER, QUICK, VERBATIM, Findings, Job, Plan
from bench.remember.material import prepare
from bench.remember.model import Reader, asked
from bench.remember.report import Outcome, report
from bench.remember.systems import SYSTEMS
from bench.remember.talk import Told
from kemem.testing import running_openai_server


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.remember", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke check of one to two minutes")
    parser.add_argument("--memories", type=int, help="memories of the user who searches")
    parser.add_argument("--work-dir", help="where the stores are written; not a RAM disk")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    return parser.parse_args(arguments)


def measure_one(system: str, plan: Plan, told: Sequence[Told], folder: Path) -> Outcome:
    """Measures one system in a process of its own; the model runs in this one."""
    workspace = folder / system
    workspace.mkdir()
    job_file, findings_file = workspace / "job.json", workspace / "findings.json"
    with running_openai_server(Reader(told, plan)) as server:
        job = Job(system, plan, str(folder / "material"), str(workspace), server.base_url)
        job.write(job_file)
        run_module("bench.remember.worker", system, workspace, (job_file, findings_file))
        seen = list(server.requests)
        by_part = {
            part: asked([it for it in seen if it["model"] == part], server.base_url)
            for part in (VERBATIM, INFER, FULL)
        }
    return Outcome(Findings.read(findings_file), by_part)


def load_average() -> str:
    return ", ".join(f"{load:.1f}" for load in os.getloadavg())


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = options(arguments)
    plan = QUICK if chosen.quick else Plan()
    plan = replace(plan, memories=chosen.memories or plan.memories)
    outcomes: dict[str, Outcome] = {}
    failures: list[Failure] = []
    with tempfile.TemporaryDirectory(prefix="bench-", dir=chosen.work_dir) as name:
        folder = Path(name)
        facts = machine(folder) | {"load before": load_average()}
        (folder / "material").mkdir()
        told = prepare(folder / "material", plan)
        for system in SYSTEMS:
            print(f"measuring {system}", file=sys.stderr)
            try:
                outcomes[system] = measure_one(system, plan, told, folder)
            except WorkerFailed as failure:
                failures.append(Failure(system, str(failure)))
    facts["load after"] = load_average()
    print(report(plan, facts, outcomes, failures, quick=chosen.quick))
    if chosen.json:
        kept = {system: asdict(outcome) for system, outcome in outcomes.items()}
        chosen.json.write_text(json.dumps(kept, indent=2))
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
