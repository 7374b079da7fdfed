"""The process in which one system is measured: `python -m bench.worker job.json findings.json`."""

import sys
from pathlib import Path

from bench.figures import Job
from bench.material import read
from bench.speed import measure_system
from bench.systems import system


def main(job_file: str, findings_file: str) -> None:
    job = Job.read(Path(job_file))
    material = read(Path(job.material))
    with system(job.system, Path(job.workspace), material.table) as stores:
        measure_system(job, material, stores).write(Path(findings_file))


if __name__ == "__main__":
    main(*sys.argv[1:])
