"""What the gateway counts about itself, and how Prometheus reads it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from retinue.core.events import TurnFinished, TurnStarted, TurnStatus
from retinue.core.keys import RunId

TURN_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0)
MOST_BEGUN = 10_000


@dataclass
class Histogram:
    """How often a value was at most each of some limits."""

    limits: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    count: int = 0
    sum: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * len(self.limits)

    def observe(self, value: float) -> None:
        self.count += 1
        self.sum += value
        for at, limit in enumerate(self.limits):
            self.counts[at] += value <= limit


@dataclass
class Meters:
    """Counters that only grow."""

    turns_started: int = 0
    turns_finished: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)
    cost: float = 0.0
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    turn_seconds: Histogram = field(default_factory=lambda: Histogram(TURN_SECONDS))
    _begun: dict[RunId, float] = field(default_factory=dict)

    def count_turn(self, event: TurnStarted | TurnFinished, now: float) -> None:
        """Count the beginning or the end of a turn at a moment in seconds."""
        if isinstance(event, TurnStarted):
            self.turns_started += 1
            self._begun[event.run] = now
            if len(self._begun) > MOST_BEGUN:
                del self._begun[next(iter(self._begun))]
            return
        began = self._begun.pop(event.run, None)
        if began is not None:
            self.turn_seconds.observe(now - began)
        if event.status is TurnStatus.FAILED:
            self.errors[event.failure or "other"] += 1
        self.turns_finished[event.status] += 1
        usage = event.usage
        for kind, count in (("input", usage.input), ("output", usage.output), ("cache_read", usage.cache_read)):
            self.tokens[kind] += count
        self.cost += usage.cost


@dataclass(frozen=True, slots=True)
class Sample:
    """One number, with what tells it from others of its name."""

    name: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Family:
    """The samples of one name."""

    name: str
    kind: str
    help: str
    samples: tuple[Sample, ...]


def render_metrics(families: Iterable[Family]) -> str:
    """The text that Prometheus reads, in its exposition format 0.0.4."""
    lines = []
    for family in families:
        lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
        for sample in family.samples:
            labels = ",".join(f'{name}="{_escape(value)}"' for name, value in sample.labels)
            name = f"{sample.name}{{{labels}}}" if labels else sample.name
            lines.append(f"{name} {_spell(sample.value)}")
    return "\n".join(lines) + "\n"


def counter(name: str, text: str, values: Iterable[tuple[float, dict[str, str]]]) -> Family:
    samples = tuple(Sample(f"{name}_total", value, tuple(labels.items())) for value, labels in values)
    return Family(f"{name}_total", "counter", text, samples)


def gauge(name: str, text: str, value: float) -> Family:
    return Family(name, "gauge", text, (Sample(name, value),))


def histogram(name: str, text: str, values: Histogram) -> Family:
    buckets = [
        Sample(f"{name}_bucket", count, (("le", _spell(limit)),))
        for limit, count in zip(values.limits, values.counts, strict=True)
    ]
    everything = Sample(f"{name}_bucket", values.count, (("le", "+Inf"),))
    ends = (Sample(f"{name}_sum", values.sum), Sample(f"{name}_count", values.count))
    return Family(name, "histogram", text, (*buckets, everything, *ends))


def _spell(value: float) -> str:
    """Every digit: a counter that is rounded seems to stand still."""
    return str(int(value)) if value == int(value) else repr(value)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
