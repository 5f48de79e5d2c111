"""Foreign text that looks like prompt injection: logged, recorded in the transcript, counted for the status."""

from __future__ import annotations

import logging
from collections import Counter

from retinue.core.messages import Message, ToolResult, UserMessage, text_of
from retinue.sessions.entries import SUSPECTED, Noted
from retinue.sessions.protocol import StoredTranscript

log = logging.getLogger(__name__)

_SCANNED_CHARS = 20_000
_OUR_MARKERS = "forged-marker"
"""The rule that finds the markers around untrusted text; others were replaced before."""


def record_suspicions(transcript: StoredTranscript, message: Message) -> None:
    """Record and log that foreign text looks like prompt injection; the beginning of a long one is searched."""
    match message:
        case ToolResult(tool=source, content=content, label=label) if label.is_foreign:
            text = text_of(content)
        case UserMessage(text=text, label=label) if label.is_foreign:
            source = "message"
        case _:
            return
    from retinue.security.injection import find_injection_patterns

    rules = [rule for rule in find_injection_patterns(text[:_SCANNED_CHARS]) if rule != _OUR_MARKERS]
    if rules:
        log.warning("%s contains text that looks like prompt injection: %s", source, ", ".join(rules))
        transcript.append(Noted(SUSPECTED, {"source": source, "rules": rules}))


def count_suspicions(transcript: StoredTranscript) -> dict[str, int]:
    """Return how often each source of a conversation contained suspicious text."""
    sources = (
        entry.body.data.get("source")
        for entry in transcript.tree.path
        if isinstance(entry.body, Noted) and entry.body.kind == SUSPECTED
    )
    return dict(Counter(str(source) for source in sources))
