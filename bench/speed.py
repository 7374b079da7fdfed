"""Measures one system: how fast it takes messages in, and how fast it finds them again."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from bench.corpus import Batch, Share, batches, layout, row_of, shuffled_batches, within
from bench.figures import Findings, Ingested, Job, Plan, Searched
from bench.material import WARM_UP, Material, Question
from bench.measure import Timing, measure, percentile
from bench.systems import LIMIT, Store, Stores

LARGE_BATCH = 1_000
NEAREST = ("semantic", "search")  # kinds of search whose aim is the nearest vectors
SAME = 1e-3  # similarities this close are a tie: half-precision vectors differ by less


@dataclass(frozen=True, slots=True)
class Loaded:
    """The store that is searched: how fast it began to fill, and how full it became."""

    beginning: Ingested
    stored: Counter[str]  # messages by user
    seconds: float


def measure_system(job: Job, material: Material, stores: Stores) -> Findings:
    """Runs the whole plan on one system."""
    shares = within(layout(job.plan.messages, job.plan.users), job.corpus_messages)
    small = [
        ingest(stores, material, job.plan, size=size, wanted=wanted)
        for size, wanted in ((1, job.plan.single_adds), (10, job.plan.ingest_messages))
    ]
    loaded = load(stores, material, job.plan, shares)
    complete = [
        share for share in shares if share.measured and loaded.stored[share.user_id] == share.size
    ]
    return Findings(
        system=job.system,
        versions=stores.versions,
        corpus=loaded.stored.total(),
        load_seconds=loaded.seconds,
        ingested=(*small, loaded.beginning),
        searched=tuple(search_all(stores, material, job.plan, complete)),
        look_up_us=look_up_us(material),
        computed_vectors=material.table.misses,
    )


def ingest(stores: Stores, material: Material, plan: Plan, *, size: int, wanted: int) -> Ingested:
    """Adds one user's messages to an empty store in batches of `size`."""
    writer = Share("writer", 0, wanted, measured=False)
    calls = list(batches(writer, size, material.texts))
    store = stores.open(f"ingest_{size}")
    timing = measure(lambda number: store.add(calls[number]), len(calls), plan.ingest_seconds)
    store.close()
    return ingested(size, calls, timing)


def load(stores: Stores, material: Material, plan: Plan, shares: Sequence[Share]) -> Loaded:
    """Fills the store that is searched; its beginning is the figure for large batches."""
    calls = shuffled_batches(shares, LARGE_BATCH, material.texts)
    beginning = list(islice(calls, max(1, plan.ingest_messages // LARGE_BATCH)))
    rest = calls[len(beginning) :]
    store = stores.open("corpus")
    first = measure(lambda n: store.add(beginning[n]), len(beginning), plan.load_seconds)
    second = measure(lambda n: store.add(rest[n]), len(rest), plan.load_seconds - first.seconds)
    store.close()
    stored: Counter[str] = Counter()
    for call in calls[: first.calls + second.calls]:
        stored[call.user_id] += len(call.messages)
    return Loaded(ingested(LARGE_BATCH, beginning, first), stored, first.seconds + second.seconds)


def ingested(size: int, calls: Sequence[Batch], timing: Timing) -> Ingested:
    stored = sum(len(call.messages) for call in calls[: timing.calls])
    return Ingested(
        batch=size,
        wanted=sum(len(call.messages) for call in calls),
        stored=stored,
        adds=timing.calls,
        seconds=timing.seconds,
        add_p50_ms=percentile(timing.wall_ms, 50),
        add_p95_ms=percentile(timing.wall_ms, 95),
        cpu_ms_per_message=sum(timing.cpu_ms) / stored,
    )


def search_all(
    stores: Stores, material: Material, plan: Plan, shares: Sequence[Share]
) -> list[Searched]:
    """Every kind of search by every user who is wholly stored."""
    store = stores.open("corpus")  # opened anew: the first search of a user finds cold caches
    found = [
        search(store, kind, share, material, plan.search_seconds)
        for share in shares
        for kind in store.searches
    ]
    store.close()
    return found


def search(
    store: Store, kind: str, share: Share, material: Material, budget_seconds: float
) -> Searched:
    """Asks each question once, after a few to warm up."""
    ask = store.searches[kind]
    warm_up, questions = material.questions[:WARM_UP], material.questions[WARM_UP:]
    first = measure(lambda number: ask(share.user_id, warm_up[number]), WARM_UP)
    answers: list[Sequence[str]] = []
    timing = measure(
        lambda number: answers.append(ask(share.user_id, questions[number])),
        len(questions),
        budget_seconds,
    )
    return Searched(
        kind=kind,
        user_messages=share.size,
        queries=timing.calls,
        first_ms=first.wall_ms[0],
        wall_p50_ms=percentile(timing.wall_ms, 50),
        wall_p95_ms=percentile(timing.wall_ms, 95),
        cpu_p50_ms=percentile(timing.cpu_ms, 50),
        cpu_p95_ms=percentile(timing.cpu_ms, 95),
        found=float(np.mean([len(answer) for answer in answers])),
        recall=recall(material, share, questions, answers) if kind in NEAREST else None,
    )


def recall(
    material: Material,
    share: Share,
    questions: Sequence[Question],
    answers: Sequence[Sequence[str]],
) -> float:
    """The part of the exact nearest messages that was found; equally near ones are as good.

    `answers` may be shorter than `questions` when the time was up.
    """
    own = material.vectors[share.start : share.stop]
    parts = []
    for question, answer in zip(questions, answers, strict=False):
        near = own @ np.asarray(question.vector, dtype=np.float32)
        enough = np.sort(near)[-LIMIT] - SAME
        parts.append(sum(near[row_of(name) - share.start] >= enough for name in answer) / LIMIT)
    return float(np.mean(parts))


def look_up_us(material: Material) -> float:
    """The price of one vector from the table, which every system pays."""
    texts = material.texts[:1_000]
    timing = measure(lambda number: material.table.look_up([texts[number]]), len(texts))
    return percentile(timing.cpu_ms, 50) * 1e3
