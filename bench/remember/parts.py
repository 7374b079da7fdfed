"""Measures one system, part by part: single adds, loading, search, and adds when it is full."""

from collections.abc import Sequence
from pathlib import Path
from shutil import copytree
from statistics import fmean
from tempfile import TemporaryDirectory

from bench.corpus import Share, batches
from bench.material import WARM_UP as WARM_UP_QUESTIONS
from bench.measure import measure, percentile
from bench.remember.figures import (
    FULL,
    INFER,
    LOAD,
    VERBATIM,
    WARM_UP,
    Adds,
    Findings,
    Job,
    Searches,
)
from bench.remember.material import Material
from bench.remember.systems import USER, Memories, Search, System

BATCH = 100  # messages of one call while loading
RAM_DISK = Path("/dev/shm")


def measure_system(job: Job, material: Material, system: System) -> Findings:
    """Runs the whole plan on one system."""
    plan, said, folder = job.plan, material.messages, Path(job.workspace)
    middle = WARM_UP + plan.inferred_adds
    new = []
    for part, wanted in ((VERBATIM, plan.verbatim_adds), (INFER, plan.inferred_adds)):
        store = system.open(folder / part, part)
        new.append(add_all(store, part, said[: WARM_UP + wanted], plan.seconds))
        store.close()
    memories, load_seconds = load(system, folder / LOAD, material.texts, plan.load_seconds)
    store = system.open(folder / LOAD, FULL)  # opened anew: the first search finds cold caches
    searches = tuple(
        search(ask, kind, material.questions, plan.seconds) for kind, ask in store.searches.items()
    )
    rest = said[middle : middle + WARM_UP + plan.adds_when_full]
    full = add_all(store, FULL, rest, plan.seconds)
    store.close()
    return Findings(
        system=job.system,
        versions=system.versions,
        adds=(*new, full),
        memories=memories,
        load_seconds=load_seconds,
        searches=searches,
        computed_vectors=material.table.misses,
    )


def add_all(store: Memories, part: str, said: Sequence[str], budget_seconds: float) -> Adds:
    """Adds messages one by one, after a few to warm up."""
    infer = part != VERBATIM
    for message in said[:WARM_UP]:
        store.add(message, infer=infer)
    rest = said[WARM_UP:]
    made: list[int] = []
    timing = measure(
        lambda number: made.append(store.add(rest[number], infer=infer)), len(rest), budget_seconds
    )
    return Adds(
        part=part,
        adds=timing.calls,
        wall_p50_ms=percentile(timing.wall_ms, 50),
        wall_mean_ms=fmean(timing.wall_ms),
        cpu_mean_ms=fmean(timing.cpu_ms),
        made=fmean(made),
    )


def load(
    system: System, folder: Path, texts: Sequence[str], budget_seconds: float
) -> tuple[int, float]:
    """Fills a store and brings it to its folder; returns how many messages it took, and how long.

    It is filled on a RAM disk where there is one: this part is not compared, and mem0 would wait
    for the disk some eighty thousand times.
    """
    calls = list(batches(Share(USER, 0, len(texts), measured=True), BATCH, texts))
    with TemporaryDirectory(prefix="bench-", dir=RAM_DISK if RAM_DISK.is_dir() else None) as name:
        store = system.open(Path(name) / LOAD, LOAD)
        timing = measure(lambda number: store.load(calls[number]), len(calls), budget_seconds)
        store.close()
        copytree(Path(name) / LOAD, folder)
    return sum(len(call.messages) for call in calls[: timing.calls]), timing.seconds


def search(ask: Search, kind: str, questions: Sequence[str], budget_seconds: float) -> Searches:
    """Asks each question once, after a few to warm up."""
    first = measure(lambda number: ask(questions[number]), WARM_UP_QUESTIONS)
    rest = questions[WARM_UP_QUESTIONS:]
    found: list[int] = []
    timing = measure(lambda number: found.append(ask(rest[number])), len(rest), budget_seconds)
    return Searches(
        kind=kind,
        queries=timing.calls,
        first_ms=first.wall_ms[0],
        wall_p50_ms=percentile(timing.wall_ms, 50),
        wall_p95_ms=percentile(timing.wall_ms, 95),
        cpu_p50_ms=percentile(timing.cpu_ms, 50),
        found=fmean(found),
    )
