"""What operators watch, in the text format of Prometheus."""

from collections.abc import Iterator

import structlog
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kemem.chat import LeakCounts
from kemem.memory import AsyncMemory
from kemem.recall import Caches

log = structlog.get_logger("kemem")

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_METHODS = frozenset(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE"])


class Metrics:
    """Counts of one server; labels come from the routes, never from what callers send."""

    def __init__(self, caches: Caches, leaks: LeakCounts) -> None:
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        registry.register(CacheCollector(caches))
        registry.register(LeakCollector(leaks))
        self._registry = registry
        self._requests = Counter(
            "kemem_requests",
            "Requests answered.",
            ["route", "method", "status"],
            registry=registry,
        )
        self._seconds = Histogram(
            "kemem_request_seconds",
            "Time to answer.",
            ["route", "method"],
            registry=registry,
            buckets=_BUCKETS,
        )
        self._operations = Counter(
            "kemem_operations",
            "Operations by their outcome.",
            ["operation", "outcome"],
            registry=registry,
        )
        self._store_up = Gauge("kemem_store_up", "1 if the store answers.", registry=registry)
        self._messages = Gauge("kemem_messages", "Messages stored.", registry=registry)
        self._notes = Gauge("kemem_notes", "Notes stored.", registry=registry)
        self._vectors = Gauge("kemem_vectors", "Rows with a vector.", registry=registry)
        self._jobs = Gauge("kemem_jobs", "Later work by state.", ["state"], registry=registry)

    def count(self, path: str, operation: str, method: str, status: int, seconds: float) -> None:
        """Note one answered request."""
        known = method if method in _METHODS else "other"
        outcome = "ok" if status < 400 else "refused" if status < 500 else "failed"
        self._requests.labels(path, known, str(status)).inc()
        self._seconds.labels(path, known).observe(seconds)
        self._operations.labels(operation, outcome).inc()

    async def report(self, memory: AsyncMemory) -> bytes:
        """All metrics as text; a store that does not answer is one of them."""
        try:
            health = await memory.health()
        except Exception as error:  # the other numbers matter most when the store is away
            log.warning("store does not answer", kind=type(error).__name__)
            self._store_up.set(0)
        else:
            self._store_up.set(1)
            self._messages.set(health.messages)
            self._notes.set(health.notes)
            self._vectors.set(health.vectors)
            self._jobs.labels("pending").set(health.pending_jobs)
            self._jobs.labels("failed").set(health.failed_jobs)
        return generate_latest(self._registry)


class CacheCollector(Collector):
    """How well caches serve, counted by themselves and read when somebody looks."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches

    def collect(self) -> Iterator[Metric]:
        """One sample of each cache."""
        lookups = CounterMetricFamily(
            "kemem_cache_lookups", "Lookups by their outcome.", labels=["cache", "outcome"]
        )
        ratio = GaugeMetricFamily("kemem_cache_hit_ratio", "Hits of all lookups.", labels=["cache"])
        entries = GaugeMetricFamily("kemem_cache_entries", "What is kept.", labels=["cache"])
        for cache in self._caches:
            hits, misses = cache.hits, cache.misses
            lookups.add_metric([cache.name, "hit"], hits)
            lookups.add_metric([cache.name, "miss"], misses)
            ratio.add_metric([cache.name], hits / max(1, hits + misses))
            entries.add_metric([cache.name], len(cache))
        yield from (lookups, ratio, entries)


class LeakCollector(Collector):
    """Tool calls that models wrote into their text, counted where they are caught."""

    def __init__(self, leaks: LeakCounts) -> None:
        self._leaks = leaks

    def collect(self) -> Iterator[Metric]:
        """One sample of each form and outcome that has occurred."""
        caught = CounterMetricFamily(
            "kemem_leaks",
            "Tool calls that a model wrote into its text, by form and what became of them.",
            labels=["form", "outcome"],
        )
        for (form, outcome), number in self._leaks:
            caught.add_metric([form, outcome], number)
        yield caught
