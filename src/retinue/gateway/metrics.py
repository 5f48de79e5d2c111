"""Metrics of the gateway, and their Prometheus text."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinue.core.events import TurnFinished, TurnStarted, TurnStatus
from retinue.core.keys import RunId

if TYPE_CHECKING:
    from prometheus_client.core import Metric

TURN_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0)
MAX_STARTED = 10_000
CONTENT_TYPE = "text/plain; version=0.0.4"

_STATM = Path("/proc/self/statm")


class Histogram:
    """Counts how often a value was at most each of some limits."""

    def __init__(self, limits: tuple[float, ...]) -> None:
        self.limits = limits
        self.counts = [0] * len(limits)
        self.count = 0
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.count += 1
        self.sum += value
        for at, limit in enumerate(self.limits):
            self.counts[at] += value <= limit


class Metrics:
    """The counters of one gateway process."""

    def __init__(self) -> None:
        self.turns_started = 0
        self.turns_finished: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self.cost = 0.0
        self.calls: Counter[tuple[str, str]] = Counter()
        self.refusals: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.turn_seconds = Histogram(TURN_SECONDS)
        self._started: dict[RunId, float] = {}

    def count_turn(self, event: TurnStarted | TurnFinished, now: float) -> None:
        """Count the start or the end of a turn at a monotonic time."""
        if isinstance(event, TurnStarted):
            self.turns_started += 1
            self._started[event.run] = now
            if len(self._started) > MAX_STARTED:
                del self._started[next(iter(self._started))]
            return
        started = self._started.pop(event.run, None)
        if started is not None:
            self.turn_seconds.observe(now - started)
        if event.status is TurnStatus.FAILED:
            self.errors[event.failure or "other"] += 1
        self.turns_finished[event.status] += 1
        usage = event.usage
        for kind, count in (("input", usage.input), ("output", usage.output), ("cache_read", usage.cache_read)):
            self.tokens[kind] += count
        self.cost += usage.cost

    def families(self) -> Iterator[Metric]:
        """The counters as Prometheus metric families."""
        yield counter("retinue_turns_started", "Turns started.", {(): self.turns_started})
        yield counter("retinue_turns_finished", "Turns finished, by status.", self.turns_finished, "status")
        yield counter("retinue_tokens", "Tokens of models.", self.tokens, "kind")
        yield counter("retinue_cost_dollars", "Cost of models in dollars.", {(): self.cost})
        yield counter("retinue_calls", "Method calls, by outcome.", self.calls, "method", "outcome")
        yield counter("retinue_refusals", "Refused requests and connections.", self.refusals, "code")
        yield counter("retinue_turn_errors", "Failed turns, by the kind of failure.", self.errors, "kind")
        yield histogram("retinue_turn_seconds", "Duration of turns in seconds.", self.turn_seconds)


def counter(name: str, text: str, values: Mapping[Any, float], *labels: str) -> Metric:
    """A counter family; the keys of `values` are the label values of a sample, a tuple if there are several."""
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric([key] if isinstance(key, str) else list(key), value)
    return family


def gauge(name: str, text: str, value: float) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    return GaugeMetricFamily(name, text, value=value)


def histogram(name: str, text: str, values: Histogram) -> Metric:
    from prometheus_client.core import HistogramMetricFamily

    limits = [f"{limit:g}" for limit in values.limits]
    buckets = [*zip(limits, values.counts, strict=True), ("+Inf", values.count)]
    return HistogramMetricFamily(name, text, buckets=buckets, sum_value=values.sum)


def render_metrics(families: Iterable[Metric]) -> str:
    """The families in Prometheus's text format 0.0.4.

    The library is imported at the first use: a gateway without a scraper saves its memory and start-up time.
    """
    from prometheus_client import CollectorRegistry, generate_latest

    collected = tuple(families)

    class Collected:
        def collect(self) -> Iterable[Metric]:
            return collected

    registry = CollectorRegistry()
    registry.register(Collected())
    return generate_latest(registry).decode()


def memory_megabytes() -> float:
    """The resident memory of the process; 0 if the system does not report it."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1_048_576
    except (OSError, ValueError, IndexError):
        return 0.0
