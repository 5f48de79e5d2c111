"""The rules of a search: limits, weights and sources, and which sessions may search memory."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.keys import SessionKey
from retinue.core.labels import Distance, Label
from retinue.memory.search.signals import LineWeights, SignalWeights
from retinue.memory.settings import MemorySearchSettings, ScopeMatch, ScopeSettings
from retinue.memory.store.protocol import Source


def may_search(scope: ScopeSettings, session: SessionKey) -> bool:
    """Return whether a session may search memory; the first matching rule decides."""
    for rule in scope.rules:
        if _matches(rule.match, session):
            return rule.action == "allow"
    return scope.default == "allow"


def should_cite(mode: Literal["auto", "on", "off"], session: SessionKey) -> bool:
    """Return whether results name their source; `auto` means in chats that only the owner reads."""
    return mode == "on" or (mode == "auto" and not session.kind.is_shared)


def _matches(match: ScopeMatch, session: SessionKey) -> bool:
    chat_type = session.kind.value if session.kind.is_shared else "direct"
    bare = session.text.removeprefix(f"agent:{session.agent}:")
    return (
        match.channel in (None, session.channel)
        and match.chat_type in (None, chat_type)
        and (match.key_prefix is None or bare.startswith(match.key_prefix.lower()))
        and (match.raw_key_prefix is None or session.text.startswith(match.raw_key_prefix.lower()))
    )


def remembers_sessions(settings: MemorySearchSettings) -> bool:
    """Return whether past sessions are indexed in addition to the notes."""
    return "sessions" in settings.sources or settings.experimental.session_memory


class SearchLimits(Struct, frozen=True):
    """The maximum size of a search result."""

    max_results: int = 6
    min_score: float = 0.35
    snippet_chars: int = 700
    total_chars: int = 4_000


class SearchWeights(Struct, frozen=True):
    """The weights of vector and text scores; they add up to 1."""

    vector: float
    text: float

    @classmethod
    def of(cls, vector: float, text: float) -> SearchWeights:
        total = vector + text
        return cls(vector / total, text / total) if total > 0 else cls(0.5, 0.5)


EVERY_SOURCE: frozenset[Source] = frozenset({"memory", "sessions"})


class SearchRules(Struct, frozen=True):
    """How candidates are found and scored."""

    limits: SearchLimits = field(default_factory=SearchLimits)
    weights: SearchWeights = field(default_factory=lambda: SearchWeights.of(0.7, 0.3))
    signals: SignalWeights = field(default_factory=SignalWeights)
    lines: LineWeights = field(default_factory=LineWeights)
    fusion: Literal["weighted", "rrf"] = "weighted"
    candidate_multiplier: int = 4
    diversity: float | None = None
    half_life_days: float | None = None
    farthest: Distance = Distance.UNTRUSTED
    """The greatest distance of the notes that are found from the owner."""
    sources: frozenset[Source] = EVERY_SOURCE

    def admits(self, origin: Label, source: Source) -> bool:
        """Return whether notes of this origin and source are found."""
        return origin.distance <= self.farthest and source in self.sources


def with_limits(rules: SearchRules, *, max_results: int | None = None, min_score: float | None = None) -> SearchRules:
    """Return the rules with the limits that one search asks for."""
    limits = rules.limits
    if max_results is not None:
        limits = replace(limits, max_results=max_results)
    if min_score is not None:
        limits = replace(limits, min_score=min_score)
    return replace(rules, limits=limits)
