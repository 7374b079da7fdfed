"""How fast is this checkout beside an older one, in one run on one machine?

python -m bench.compare --before PATH/TO/OLDER/CHECKOUT [--quick]

Each version builds its own stores from the same made-up messages and runs in a process of its own,
which only uses the public API. The versions take turns, so that other work on the machine hits both
alike; the table has the medians and their ratio beside the ratio that is aimed at.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

HERE = Path(__file__).parents[1]
ROUNDS = 5
AIMS = {  # scenario -> the ratio that is aimed at
    "search, user of 10k": 0.6,
    "search, user of 100k": 0.6,
    "first search, cold user of 100k": 0.3,
    "add by rules, local embedder": 0.6,
    "recall by rules, user of 10k": 0.4,
    "delete in a store of 40k": 0.1,
    "context of a session of 10k": 0.05,
}
SIZES = {"10k": 10_000, "40k": 40_000, "100k": 100_000}
QUICK = {"10k": 1_000, "40k": 4_000, "100k": 10_000}


def run(source: Path, command: str, directory: Path, sizes: dict[str, int]) -> dict[str, float]:
    """One command of the worker with one version of the package; milliseconds by scenario."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("KEMEM_")},
        "PYTHONPATH": os.pathsep.join([str(source / "src"), str(HERE)]),
    }
    worker = [sys.executable, "-m", "bench.compare_worker", command, str(directory)]
    done = subprocess.run(
        [*worker, json.dumps(sizes)], env=environment, capture_output=True, text=True, cwd=HERE
    )
    if done.returncode:
        sys.exit(f"{source}: {command} failed\n{done.stderr[-2_000:]}")
    return {str(name): float(ms) for name, ms in json.loads(done.stdout.splitlines()[-1]).items()}


def main() -> None:
    """Build, measure in turns, print the table."""
    parser = argparse.ArgumentParser(description="Compare the speed of two checkouts.")
    parser.add_argument("--before", type=Path, required=True, help="the older checkout")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, for a try")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    chosen = parser.parse_args()
    sizes = QUICK if chosen.quick else SIZES
    versions = {"before": chosen.before.resolve(), "now": HERE}
    times: dict[str, dict[str, list[float]]] = {name: {} for name in versions}
    with tempfile.TemporaryDirectory() as home:
        for name, source in versions.items():
            run(source, "build", Path(home, name), sizes)
        for _ in range(chosen.rounds):
            for name, source in versions.items():
                for scenario, ms in run(source, "measure", Path(home, name), sizes).items():
                    times[name].setdefault(scenario, []).append(ms)
    print("| | before, ms | now, ms | ratio | aim |\n|---|--:|--:|--:|--:|")
    for scenario, aim in AIMS.items():
        before, now = (median(times[name][scenario]) for name in versions)
        print(f"| {scenario} | {before:.2f} | {now:.2f} | {now / before:.2f} | {aim} |")


if __name__ == "__main__":
    main()
