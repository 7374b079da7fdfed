"""Runs the speed benchmark and prints its tables: `python -m bench`."""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from bench.environment import machine, run_worker
from bench.figures import QUICK, Failure, Findings, Job, Plan
from bench.material import prepare
from bench.report import report
from bench.systems import KEMEM, PEERS

SIZES = {
    "messages": "messages in KeMem's corpus",
    "mem0_messages": "messages in mem0's corpus",
    "ingest_messages": "messages to add in batches of 10 and of 1,000",
    "single_adds": "messages to add one by one",
    "queries": "questions for each kind of search",
}
BUDGETS = {
    "ingest_seconds": "time for each size of batch",
    "load_seconds": "time to fill the store that is searched",
    "search_seconds": "time for each kind of search by each user",
}


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def names(text: str) -> tuple[str, ...]:
    unknown = set(text.split(",")) - {*KEMEM, *PEERS}
    if unknown:
        raise argparse.ArgumentTypeError(f"choose from {(*KEMEM, *PEERS)}, not {unknown}")
    return tuple(text.split(","))


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke check of about two minutes")
    parser.add_argument("--systems", type=names, default=(*KEMEM, *PEERS), help="e.g. chroma,mem0")
    parser.add_argument("--users", type=numbers, help="sizes of the users who search")
    for name, meaning in SIZES.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help=meaning)
    for name, meaning in BUDGETS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, help=meaning)
    parser.add_argument("--work-dir", help="where the stores are written; not a RAM disk")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    return parser.parse_args(arguments)


def plan_of(chosen: argparse.Namespace) -> Plan:
    """The full or the quick plan, with what was asked for on the command line."""
    given = {name: getattr(chosen, name) for name in ("users", *SIZES, *BUDGETS)}
    base = QUICK if chosen.quick else Plan()
    return replace(base, **{name: value for name, value in given.items() if value is not None})


def measure_all(plan: Plan, systems: Sequence[str], folder: Path) -> list[Findings | Failure]:
    """Measures the systems one after another, so that none takes another's processor."""
    material = folder / "material"
    material.mkdir()
    print(f"preparing {plan.messages:,} messages and their vectors", file=sys.stderr)
    prepare(material, plan.messages, plan.queries)
    outcomes = []
    for system in systems:
        print(f"measuring {system}", file=sys.stderr)
        workspace = folder / system
        workspace.mkdir()
        corpus = plan.mem0_messages if system == "mem0" else plan.messages
        outcomes.append(run_worker(Job(system, corpus, plan, str(material), str(workspace))))
    return outcomes


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = options(arguments)
    plan = plan_of(chosen)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=chosen.work_dir) as name:
        facts = machine(Path(name))
        outcomes = measure_all(plan, chosen.systems, Path(name))
    found = [outcome for outcome in outcomes if isinstance(outcome, Findings)]
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    print(report(plan, facts, found, failures, quick=chosen.quick))
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=2))
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
