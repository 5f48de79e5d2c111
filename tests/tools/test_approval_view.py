"""What a person sees before agreeing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from retinue.core.approval import ApprovalDecision, ApprovalRequest, Verdict
from retinue.core.keys import DEFAULT_AGENT, SessionKey
from retinue.tools.approvals.store import Approval, ApprovalState
from retinue.tools.approvals.view import answer_lines, approval_json, format_approval, format_decision, question_lines

NOW = datetime(2026, 3, 14, 15, 0, tzinfo=UTC)
REQUEST = ApprovalRequest(
    id="7kqm",
    tool="exec",
    title="Run a command on this machine, unconfined",
    detail="git push origin main",
    agent=DEFAULT_AGENT,
    session=SessionKey.parse("agent:main:main"),
    remember=(("git", "push", "origin", "main"),),
    binding="b",
    explanation=("Folder: /home/anna", "Variable: A=1", "git reaches the network"),
)
WAITING = Approval(REQUEST, "1-a", NOW - timedelta(minutes=1), NOW + timedelta(minutes=29))


def test_title_text_folder_variables_explanation_and_pattern_are_all_there() -> None:
    assert question_lines(REQUEST) == [
        "Run a command on this machine, unconfined",
        "    git push origin main",
        "  · Folder: /home/anna",
        "  · Variable: A=1",
        "  · git reaches the network",
        "  Always allowing it would store: git push origin main",
    ]


@pytest.mark.parametrize("hidden", ["\x1b[2K", "\x07", "\u202e", "\u200b", "\u2066", "\ufeff", "\x00", "\r", "\x85"])
def test_nothing_that_a_terminal_would_hide_stays_hidden(hidden: str) -> None:
    request = replace(
        REQUEST,
        title=f"a{hidden}b",
        detail=f"a{hidden}b",
        explanation=(f"a{hidden}b",),
        remember=((f"a{hidden}b",),),
    )
    text = "\n".join(question_lines(request))
    assert hidden[0] not in text
    assert text.count(f"a⟨U+{ord(hidden[0]):04X}⟩") == 4


@pytest.mark.slow
def test_a_long_text_is_shown_whole() -> None:
    detail = "\n".join(f"{number} {'x' * 500}" for number in range(2_000))
    shown = question_lines(replace(REQUEST, detail=detail, explanation=(), remember=()))
    assert [line[4:] for line in shown[1:]] == detail.split("\n")


def test_always_is_offered_only_where_it_can_be_stored() -> None:
    assert answer_lines(REQUEST) == ["/approve 7kqm allow-once", "/approve 7kqm allow-always", "/approve 7kqm deny"]
    assert answer_lines(replace(REQUEST, remember=())) == ["/approve 7kqm allow-once", "/approve 7kqm deny"]


def test_a_waiting_question_says_whose_it_is_and_how_long_it_waits() -> None:
    text = format_approval(WAITING, NOW)
    assert text.startswith("7kqm  Run a command on this machine, unconfined\n")
    assert "  exec, agent main, session agent:main:main\n  Expires in 29m. Decide with:\n" in text
    assert "Expires in a moment" in format_approval(WAITING, WAITING.expires_at)


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (ApprovalState.ALLOWED_ONCE, "allowed once by anna"),
        (ApprovalState.ALLOWED_ALWAYS, "allowed permanently by anna"),
        (ApprovalState.DENIED, "denied by anna"),
        (ApprovalState.EXPIRED, "expired by anna"),
        (ApprovalState.WITHDRAWN, "withdrawn (gone)"),
    ],
)
def test_an_ended_question_says_how(state: ApprovalState, told: str) -> None:
    ended = replace(WAITING, state=state, decided_at=NOW, decided_by="anna", because="gone")
    assert format_approval(ended, NOW).splitlines()[-1] == f"  {told}"
    assert approval_json(ended)["decidedBy"] == "anna"


def test_a_decision_fits_on_a_line() -> None:
    assert format_decision(ApprovalDecision(Verdict.DENY, "denied by anna", "anna")) == "Not allowed: denied by anna"
