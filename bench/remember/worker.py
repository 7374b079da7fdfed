"""The process in which one system is measured: `python -m bench.remember.worker job findings`."""

import sys
from pathlib import Path

from bench.remember.figures import Job
from bench.remember.material import read
from bench.remember.parts import measure_system
from bench.remember.systems import system


def main(job_file: str, findings_file: str) -> None:
    job = Job.read(Path(job_file))
    material = read(Path(job.material))
    measured = system(job.system, material.table, job.base_url)
    measure_system(job, material, measured).write(Path(findings_file))


if __name__ == "__main__":
    main(*sys.argv[1:])
