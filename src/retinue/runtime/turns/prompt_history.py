"""The prompts that were sent in a session, so that changes of the provider's cache can be explained."""

from __future__ import annotations

import logging

from retinue.context.prompt.report import PromptReport, diff_reports
from retinue.core.codec import from_plain, to_plain
from retinue.core.keys import SessionKey
from retinue.runtime.agents.workspace import PROMPT_SENT
from retinue.runtime.turns.plan import TurnPlan
from retinue.sessions.entries import Noted
from retinue.sessions.transcript import Transcript

log = logging.getLogger(__name__)


class PromptHistory:
    """Remembers the last prompt of a session, and records a new one in the transcript when it changes."""

    def __init__(self) -> None:
        self._sent: tuple[int, PromptReport] | None = None

    def record(self, key: SessionKey, transcript: Transcript, plan: TurnPlan) -> None:
        """Record the inputs of the prompt when it changes, and log which section invalidated the cache."""
        if self._sent is not None and self._sent[0] == _mark(plan):
            return
        report = plan.report
        before = self._sent[1] if self._sent else _last_report(transcript)
        self._sent = (_mark(plan), report)
        moved = diff_reports(before, report).moved if before else None
        if before is not None and moved is None:
            return
        transcript.append(Noted(PROMPT_SENT, to_plain(report)))
        if moved is not None:
            log.info("prompt cache invalidated: session=%s section=%s because %s", key, moved.name, moved.because)

    def report(self, plan: TurnPlan) -> PromptReport:
        """Return the sizes of a plan's prompt, computed once while it stays the same."""
        return self._sent[1] if self._sent is not None and self._sent[0] == _mark(plan) else plan.report


def _mark(plan: TurnPlan) -> int:
    """Return a value that differs when the cached part of the prompt differs."""
    return hash((plan.prompt.system.stable, plan.prompt.system.session, tuple(tool.name for tool in plan.tools)))


def _last_report(transcript: Transcript) -> PromptReport | None:
    for entry in reversed(transcript.tree.path):
        match entry.body:
            case Noted(kind, data) if kind == PROMPT_SENT:
                try:
                    return from_plain(data, PromptReport)
                except ValueError:
                    return None
    return None
