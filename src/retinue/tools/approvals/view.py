"""How an approval request is shown to a person: complete, with invisible characters escaped."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from retinue.core.approval import ApprovalDecision, ApprovalRequest, Verdict
from retinue.settings import format_duration
from retinue.tools.approvals.broker import format_outcome
from retinue.tools.approvals.store import Approval
from retinue.tools.shell.explanation import show_compactly, show_on_one_line

QUESTION, YES_OR_NO = "ui_prompt", "ui_confirm"
"""The tools whose requests are questions of the agent, not permissions."""

_VERDICT_TEXT = {
    Verdict.ALLOW_ONCE: "Allowed once",
    Verdict.ALLOW_ALWAYS: "Allowed permanently",
    Verdict.DENY: "Not allowed",
}


def question_lines(request: ApprovalRequest) -> list[str]:
    """Return the lines of a request: the title, the exact text, explanations, and what "always" would store.

    The text is indented further than everything else, so that none of its lines can pass for an explanation.
    """
    lines = [show_on_one_line(request.title)]
    lines += [f"    {line}" for line in show_compactly(request.detail).split("\n")]
    lines += [f"  · {show_on_one_line(line)}" for line in request.explanation]
    if request.remember:
        patterns = "; ".join(" ".join(map(show_on_one_line, words)) for words in request.remember)
        lines.append(f"  Always allowing it would store: {patterns}")
    return lines


def answer_text(decision: ApprovalDecision) -> str:
    """Return what the person wrote besides the decision; empty if nothing."""
    written = decision.because.partition(f"allowed by {decision.by}: ")
    return written[2] if not written[0] else ""


def answer_lines(request: ApprovalRequest) -> list[str]:
    """Return the commands that decide a request."""
    if request.tool == QUESTION:
        return [f"/approve {request.id} yes <your answer>", f"/approve {request.id} no"]
    if request.tool == YES_OR_NO:
        return [f"/approve {request.id} yes", f"/approve {request.id} no"]
    always = [f"/approve {request.id} allow-always"] if request.may_remember else []
    return [f"/approve {request.id} allow-once", *always, f"/approve {request.id} deny"]


def format_decision(decision: ApprovalDecision) -> str:
    """Format a decision on one line."""
    return f"{_VERDICT_TEXT[decision.verdict]}: {decision.because}"


def format_approval(approval: Approval, now: datetime) -> str:
    """Format a request with its id, its origin and its state."""
    request = approval.request
    head, *rest = question_lines(request)
    lines = [f"{request.id}  {head}", *rest, f"  {request.tool}, agent {request.agent}, session {request.session}"]
    if approval.is_pending:
        left = timedelta(seconds=max(0, round((approval.expires_at - now).total_seconds())))
        lines += [f"  Expires in {format_duration(left) if left else 'a moment'}. Decide with:"]
        lines += [f"    {line}" for line in answer_lines(request)]
    else:
        lines.append(f"  {format_outcome(approval)}")
    return "\n".join(lines)


def approval_json(approval: Approval) -> dict[str, Any]:
    """Return a request in the format of `--json`."""
    request = approval.request
    return {
        "id": request.id,
        "state": approval.state.value,
        "agent": request.agent,
        "session": request.session.text,
        "tool": request.tool,
        "title": request.title,
        "detail": request.detail,
        "explanation": list(request.explanation),
        "remember": [list(words) for words in request.remember],
        "binding": request.binding,
        "askedAt": approval.asked_at.isoformat(),
        "expiresAt": approval.expires_at.isoformat(),
        "decidedAt": approval.decided_at.isoformat() if approval.decided_at else None,
        "decidedBy": approval.decided_by or None,
        "because": approval.because or None,
    }
