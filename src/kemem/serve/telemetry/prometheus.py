"""The counters of a server in the text format of Prometheus."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client import metrics_core as core
from prometheus_client.registry import Collector

from kemem.errors import StoreMoved
from kemem.memory import AsyncMemory
from kemem.serve.telemetry.metrics import Metrics, Timing
from kemem.serve.telemetry.seldom import seldom

Sample = tuple[Sequence[str], float]  # the values of its labels, and its value

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


async def report(metrics: Metrics) -> bytes:
    """All metrics; a store that does not answer is one of them."""
    try:
        await check_store(metrics.memory)
        await metrics.health.get()
        store_up = True
    except StoreMoved as error:
        seldom.warn_moved(error)
        store_up = False
    except Exception as error:  # the other numbers matter most when the store is away
        seldom.warn("store does not answer", kind=type(error).__name__)
        store_up = False
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_Exposition(metrics, store_up))
    return generate_latest(registry)


async def check_store(memory: AsyncMemory) -> None:
    """Ask the store of a memory for little: it must answer, and take writes."""
    await memory.jobs(limit=1)
    info = await (await memory.runtime.deps()).store.info()
    if info.moved_to is not None:
        raise StoreMoved("the store was moved", place=info.moved_to)


@dataclass(frozen=True)
class _Exposition(Collector):
    metrics: Metrics
    store_up: bool

    def collect(self) -> Iterator[core.Metric]:
        """The families of our metrics."""
        requests: list[Sample] = []
        operations: Counter[tuple[str, str]] = Counter()
        times: defaultdict[tuple[str, str], Timing] = defaultdict(Timing)
        for (operation, route, method, status), timing in self.metrics.total().items():
            if route:
                requests.append(((route, method, str(status)), timing.n))
                outcome = "ok" if status < 400 else "refused" if status < 500 else "failed"
                operations[operation, outcome] += timing.n
                times[route, method].merge(timing)
        yield _counters("requests", "Requests answered.", "route method status", requests)
        text = "Operations by their outcome."
        yield _counters("operations", text, "operation outcome", operations.items())
        name, labels = "kemem_request_seconds", ("route", "method")
        seconds = core.HistogramMetricFamily(name, "Time to answer.", labels=labels)
        for each, timing in times.items():
            buckets = [(str(bound), float(timing.within(bound))) for bound in _BUCKETS]
            seconds.add_metric(each, [*buckets, ("+Inf", timing.n)], timing.seconds)
        yield seconds
        text = "1 if the store answers and was not moved."
        yield _gauges("store_up", text, "", [((), self.store_up)])
        if health := self.metrics.health.last:
            yield _gauges("messages", "Messages stored.", "", [((), health.messages)])
            yield _gauges("notes", "Notes stored.", "", [((), health.notes)])
            yield _gauges("vectors", "Rows with a vector.", "", [((), health.vectors)])
            jobs = {("pending",): health.pending_jobs, ("failed",): health.failed_jobs}
            yield _gauges("jobs", "Later work by state.", "state", jobs.items())
        caches = list(self.metrics.memory.caches)
        lookups = [((it.name, "hit"), it.hits) for it in caches]
        lookups += [((it.name, "miss"), it.misses) for it in caches]
        ratios = [((it.name,), it.hits / max(1, it.hits + it.misses)) for it in caches]
        sizes = [((it.name,), len(it)) for it in caches]
        yield _counters("cache_lookups", "Lookups by their outcome.", "cache outcome", lookups)
        yield _gauges("cache_hit_ratio", "Hits of all lookups.", "cache", ratios)
        yield _gauges("cache_entries", "What is kept.", "cache", sizes)
        text = "Tool calls that a model wrote into its text, by form and what became of them."
        yield _counters("leaks", text, "form outcome", self.metrics.leaks or ())


def _family(
    kind: type[core.CounterMetricFamily | core.GaugeMetricFamily],
    name: str,
    text: str,
    labels: str,
    samples: Iterable[Sample],
) -> core.Metric:
    family = kind(f"kemem_{name}", text, labels=labels.split())
    for values, value in samples:
        family.add_metric(values, value)
    return family


_counters = partial(_family, core.CounterMetricFamily)
_gauges = partial(_family, core.GaugeMetricFamily)
