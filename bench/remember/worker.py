"""The process in which one system is measured: `python -m bench.remember.worker job findings`."""

import sys
from pathlib import Path

from bench.remember.figures import Job
from bench.remember.material import read
from bench.remember.parts import measure_system
from bench.remember.systems import SYSTEMS, System
from bench.vectors import VectorTable


def main(job_file: str, findings_file: str) -> None:
    job = Job.read(Path(job_file))
    material = read(Path(job.material))
    measured = system(job.system, material.table, job.base_url)
    measure_system(job, material, measured).write(Path(findings_file))


def system(name: str, table: VectorTable, base_url: str) -> System:
    """The named system."""
    # The imports wait because each process has only its own system installed.
    match name:
        case "kemem":
            from bench.remember.kemem import kemem_system

            return kemem_system(table, base_url)
        case "mem0":
            from bench.remember.mem0 import mem0_system

            return mem0_system(table, base_url)
        case _:
            raise ValueError(f"a system is one of {SYSTEMS}, not {name!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])
