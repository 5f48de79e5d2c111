"""What a person sees before agreeing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from retinue.core.approval import ApprovalDecision, ApprovalRequest, Verdict
from retinue.core.keys import DEFAULT_AGENT, SessionKey
from retinue.tools.approval_store import Approval, ApprovalState
from retinue.tools.approval_view import answer_lines, approval_json, question_lines, spell_approval, spell_decision

NOW = datetime(2026, 3, 14, 15, 0, tzinfo=UTC)
REQUEST = ApprovalRequest(
    id="7kqm",
    tool="exec",
    title="Run a command on this machine, unconfined",
    detail="Folder: /home/anna\nVariable: A=1\n\ngit push origin main",
    agent=DEFAULT_AGENT,
    session=SessionKey.parse("agent:main:main"),
    remember=(("git", "push", "origin", "main"),),
    binding="b",
    explanation=("git reaches the network",),
)
WAITING = Approval(REQUEST, "1-a", NOW - timedelta(minutes=1), NOW + timedelta(minutes=29))


def test_title_text_folder_variables_explanation_and_pattern_are_all_there() -> None:
    assert question_lines(REQUEST) == [
        "Run a command on this machine, unconfined",
        "  Folder: /home/anna",
        "  Variable: A=1",
        "  ",
        "  git push origin main",
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


def test_a_long_text_is_shown_whole() -> None:
    detail = "\n".join(f"{number} {'x' * 500}" for number in range(2_000))
    shown = question_lines(replace(REQUEST, detail=detail, explanation=(), remember=()))
    assert [line[2:] for line in shown[1:]] == detail.split("\n")


def test_always_is_offered_only_where_it_can_be_stored() -> None:
    assert answer_lines(REQUEST) == ["/approve 7kqm allow-once", "/approve 7kqm allow-always", "/approve 7kqm deny"]
    assert answer_lines(replace(REQUEST, remember=())) == ["/approve 7kqm allow-once", "/approve 7kqm deny"]


def test_a_waiting_question_says_whose_it_is_and_how_long_it_waits() -> None:
    text = spell_approval(WAITING, NOW)
    assert text.startswith("7kqm  Run a command on this machine, unconfined\n")
    assert "  exec, agent main, session agent:main:main\n  Waits for another 29m. Answer with:\n" in text
    assert "Waits for another moment" in spell_approval(WAITING, WAITING.expires_at)


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (ApprovalState.ALLOWED_ONCE, "allowed once by anna"),
        (ApprovalState.ALLOWED_ALWAYS, "allowed for good by anna"),
        (ApprovalState.DENIED, "denied by anna"),
        (ApprovalState.EXPIRED, "expired by anna"),
        (ApprovalState.WITHDRAWN, "withdrawn (gone)"),
    ],
)
def test_an_ended_question_says_how(state: ApprovalState, told: str) -> None:
    ended = replace(WAITING, state=state, decided_at=NOW, decided_by="anna", because="gone")
    assert spell_approval(ended, NOW).splitlines()[-1] == f"  {told}"
    assert approval_json(ended)["decidedBy"] == "anna"


def test_a_decision_fits_on_a_line() -> None:
    assert spell_decision(ApprovalDecision(Verdict.DENY, "denied by anna", "anna")) == "Not allowed: denied by anna"
