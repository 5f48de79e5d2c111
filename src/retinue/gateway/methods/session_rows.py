"""Sessions as lists show them, with titles for those that no person named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from retinue.core.keys import SessionKind
from retinue.gateway.gateway import Call
from retinue.security.untrusted_text import literal
from retinue.sessions.session import FORKED_FROM, SPAWNED_BY, Session
from retinue.wire import sessions as wire

MAX_TITLE_CHARS = 80
MAX_CHILDREN = 1_000


def describe_sessions(call: Call, sessions: Sequence[Session]) -> list[wire.SessionRow]:
    titles = _read_titles(call, {session.key.kind for session in sessions})
    return [_describe(call, session, titles) for session in sessions]


def _describe(call: Call, session: Session, titles: Mapping[str, str]) -> wire.SessionRow:
    return wire.SessionRow(
        key=session.key.text,
        session_id=session.id,
        agent=session.key.agent,
        kind=session.key.kind,
        label=session.label,
        model=str(session.model) if session.model else None,
        messages=session.messages,
        compactions=session.compactions,
        context_tokens=session.context_tokens,
        usage=session.usage,
        started_at=session.started_at,
        updated_at=session.updated_at,
        running=call.gateway.runtime.dispatcher.is_active(session.key),
        spawned_by=session.setting(SPAWNED_BY),
        forked_from=session.setting(FORKED_FROM),
        title=titles.get(_family(session), ""),
        archived=session.is_archived,
    )


def _family(session: Session) -> str:
    """The key of a sub-agent's session, or what the runs of one job have in common."""
    if session.key.kind is SessionKind.CRON:
        return ":".join(session.key.text.split(":")[:4])
    return session.key.text


def _read_titles(call: Call, kinds: set[SessionKind]) -> dict[str, str]:
    """Read the names of jobs and sub-agents, each only if there are sessions of that kind."""
    titles: dict[str, str] = {}
    background, hide = call.gateway.background, call.runtime.shared.tools.hide
    if SessionKind.CRON in kinds:
        titles |= {f"agent:{job.agent}:cron:{job.id}": job.name for job in background.jobs.store.all()}
    if SessionKind.SUBAGENT in kinds:
        titles |= {child.session.text: child.name for child in background.subagents.store.all(MAX_CHILDREN)}
    return {family: literal(hide(title), MAX_TITLE_CHARS) for family, title in titles.items()}
