"""Which sessions may search memory and are searched, and whether recalled text names its source."""

from __future__ import annotations

from typing import Literal

from retinue.core.keys import SessionKey
from retinue.memory.settings import MemorySearchSettings, ScopeMatch, ScopeSettings


def may_search(scope: ScopeSettings, session: SessionKey) -> bool:
    """Whether a session may: the first rule that fits decides."""
    for rule in scope.rules:
        if _fits(rule.match, session):
            return rule.action == "allow"
    return scope.default == "allow"


def should_cite(mode: Literal["auto", "on", "off"], session: SessionKey) -> bool:
    """Whether to name sources; `auto` does where nobody but the owner reads."""
    return mode == "on" or (mode == "auto" and not session.kind.is_shared)


def _fits(match: ScopeMatch, session: SessionKey) -> bool:
    chat_type = session.kind.value if session.kind.is_shared else "direct"
    bare = session.text.removeprefix(f"agent:{session.agent}:")
    return (
        match.channel in (None, session.channel)
        and match.chat_type in (None, chat_type)
        and (match.key_prefix is None or bare.startswith(match.key_prefix.lower()))
        and (match.raw_key_prefix is None or session.text.startswith(match.raw_key_prefix.lower()))
    )


def remembers_sessions(settings: MemorySearchSettings) -> bool:
    """Whether past sessions are indexed beside the notes."""
    return "sessions" in settings.sources or settings.experimental.session_memory
