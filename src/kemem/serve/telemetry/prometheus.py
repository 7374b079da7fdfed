"""The counters of a server in the text format of Prometheus."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

import structlog
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from kemem.serve.telemetry.metrics import Metrics, Timing

Values = Iterable[tuple[Sequence[str], float]]  # the labels of each sample, and its value

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

log = structlog.get_logger("kemem")


async def report(metrics: Metrics) -> bytes:
    """All metrics; a store that does not answer is one of them."""
    try:
        await metrics.memory.jobs(limit=1)  # a small read: the rows are counted less often
        await metrics.health.get()
        store_up = True
    except Exception as error:  # the other numbers matter most when the store is away
        log.warning("store does not answer", kind=type(error).__name__)
        store_up = False
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_Exposition(metrics, store_up))
    return generate_latest(registry)


class _Exposition(Collector):
    def __init__(self, metrics: Metrics, store_up: bool) -> None:
        self._metrics = metrics
        self._store_up = store_up

    def collect(self) -> Iterator[Metric]:
        """The families of our metrics."""
        yield from self._requests()
        yield _gauge("kemem_store_up", "1 if the store answers.", self._store_up)
        if health := self._metrics.health.last:
            yield _gauge("kemem_messages", "Messages stored.", health.messages)
            yield _gauge("kemem_notes", "Notes stored.", health.notes)
            yield _gauge("kemem_vectors", "Rows with a vector.", health.vectors)
            jobs = {("pending",): health.pending_jobs, ("failed",): health.failed_jobs}
            yield _gauges("kemem_jobs", "Later work by state.", "state", jobs.items())
        yield from self._caches()
        text = "Tool calls that a model wrote into its text, by form and what became of them."
        yield _counters("kemem_leaks", text, "form outcome", self._metrics.leaks or ())

    def _requests(self) -> Iterator[Metric]:
        requests: list[tuple[Sequence[str], float]] = []
        operations: Counter[tuple[str, str]] = Counter()
        times: defaultdict[tuple[str, str], Timing] = defaultdict(Timing)
        for (operation, route, method, status), timing in self._metrics.total().items():
            if not route:
                continue
            requests.append(((route, method, str(status)), timing.n))
            outcome = "ok" if status < 400 else "refused" if status < 500 else "failed"
            operations[operation, outcome] += timing.n
            times[route, method].merge(timing)
        yield _counters("kemem_requests", "Requests answered.", "route method status", requests)
        text = "Operations by their outcome."
        yield _counters("kemem_operations", text, "operation outcome", operations.items())
        seconds = HistogramMetricFamily(
            "kemem_request_seconds", "Time to answer.", labels=["route", "method"]
        )
        for labels, timing in times.items():
            buckets = [(str(bound), float(timing.within(bound))) for bound in _BUCKETS]
            seconds.add_metric(labels, [*buckets, ("+Inf", timing.n)], timing.seconds)
        yield seconds

    def _caches(self) -> Iterator[Metric]:
        caches = list(self._metrics.memory.caches)
        lookups = [((it.name, "hit"), it.hits) for it in caches]
        lookups += [((it.name, "miss"), it.misses) for it in caches]
        ratios = [((it.name,), it.hits / max(1, it.hits + it.misses)) for it in caches]
        sizes = [((it.name,), len(it)) for it in caches]
        text = "Lookups by their outcome."
        yield _counters("kemem_cache_lookups", text, "cache outcome", lookups)
        yield _gauges("kemem_cache_hit_ratio", "Hits of all lookups.", "cache", ratios)
        yield _gauges("kemem_cache_entries", "What is kept.", "cache", sizes)


def _counters(name: str, text: str, labels: str, values: Values) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels.split())
    for each, value in values:
        family.add_metric(each, value)
    return family


def _gauges(name: str, text: str, labels: str, values: Values) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels.split())
    for each, value in values:
        family.add_metric(each, value)
    return family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value)
