"""ApprovalBroker in conversations: asked by a turn, answered from wherever the owner is."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from retinue.core.approval import ApprovalDecision, ApprovalRequest, Ask, Verdict
from retinue.core.envelope import Inbound, Outbound, Source
from retinue.core.events import ApprovalAsked, ApprovalGiven, TurnEvent
from retinue.core.keys import SessionKey
from retinue.runtime.open import Runtime
from retinue.testing.replies import calls, says
from retinue.tools.approvals.store import Approval
from tests.runtime.conftest import Stage

pytestmark = pytest.mark.anyio

KEY = SessionKey.parse("agent:main:main")
IDEAS = SessionKey.parse("agent:main:ideas")

Act = Callable[[Runtime, Approval], Awaitable[None]]


async def never(request: ApprovalRequest) -> ApprovalDecision:
    await anyio.sleep_forever()
    raise AssertionError


async def question_in(runtime: Runtime) -> Approval:
    with anyio.fail_after(60):
        while not (found := runtime.shared.permissions.approvals.pending()):
            await anyio.sleep(0.01)
    return found[0]


async def while_it_waits(stage: Stage, act: Act, *, same_process: bool = False, ask: Ask = never) -> Outbound:
    """Run a turn that asks, act in this or another process meanwhile, and return its answer."""
    answers: list[Outbound] = []
    async with stage.open() as runtime, stage.open() as other:

        async def talk() -> None:
            answers.append(await runtime.say(Inbound("make a file", KEY), stage.emit, ask))

        with anyio.fail_after(120):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(talk)
                await act(runtime if same_process else other, await question_in(other))
    return answers[0]


@pytest.fixture
def asking(stage: Stage) -> Stage:
    """A model that wants to run a command that needs approval."""
    stage.server.push(calls("exec", command="touch made.txt"), says("Done."))
    return stage


@pytest.mark.parametrize("same_process", [True, False])
@pytest.mark.parametrize("session", [KEY, IDEAS])
async def test_approve_is_carried_out_while_the_turn_that_waits_holds_the_session(
    asking: Stage, same_process: bool, session: SessionKey
) -> None:
    async def approve(runtime: Runtime, approval: Approval) -> None:
        reply = await runtime.say(Inbound(f"/approve {approval.id} allow-once", session))
        assert reply.text == f"{approval.id} is allowed once by the owner on terminal."

    reply = await while_it_waits(asking, approve, same_process=same_process)
    assert reply.text == "Done."
    assert (asking.workspace / "made.txt").exists()
    assert [type(event) for event in asking.events if isinstance(event, ApprovalAsked | ApprovalGiven)] == [
        ApprovalAsked,
        ApprovalGiven,
    ]


async def test_deny_reaches_the_model_with_its_reason(asking: Stage) -> None:
    async def deny(runtime: Runtime, approval: Approval) -> None:
        await runtime.say(Inbound(f"/approve {approval.id} deny not on a Sunday", KEY))

    await while_it_waits(asking, deny)
    assert not (asking.workspace / "made.txt").exists()
    assert "not on a Sunday" in json.dumps(asking.server.model_requests[1].json["messages"][-1])


@pytest.mark.slow
async def test_without_an_id_the_only_one_of_this_conversation_is_meant(asking: Stage) -> None:
    async def approve(runtime: Runtime, approval: Approval) -> None:
        elsewhere = await runtime.say(Inbound("/approve allow-once", IDEAS))
        assert "No approvals are pending in this conversation" in elsewhere.text
        shown = await runtime.say(Inbound("/approve", KEY))
        assert "touch made.txt" in shown.text
        assert f"/approve {approval.id} deny" in shown.text
        assert runtime.shared.permissions.approvals.pending() == (approval,)
        await runtime.say(Inbound("/approve once", KEY))

    assert (await while_it_waits(asking, approve)).text == "Done."
    assert (asking.workspace / "made.txt").exists()


@pytest.mark.parametrize(
    ("inbound", "told"),
    [
        (Inbound("", KEY, owner=False, sender="eve", channel="telegram"), "Only the owner"),
        (Inbound("", KEY, source=Source.BACKGROUND), "Only a person can decide; this came from background"),
        (Inbound("", KEY, source=Source.CRON), "Only a person"),
        (Inbound("", KEY, source=Source.HEARTBEAT), "Only a person"),
        (Inbound("", KEY, source=Source.SUBAGENT), "Only a person"),
    ],
)
async def test_whoever_is_not_the_owner_in_person_decides_nothing(asking: Stage, inbound: Inbound, told: str) -> None:
    async def try_it(runtime: Runtime, approval: Approval) -> None:
        reply = await runtime.say(replace(inbound, text=f"/approve {approval.id} allow-once"))
        assert told in reply.text
        listed = await runtime.say(replace(inbound, text="/approve"))
        assert "touch" not in listed.text
        rules = await runtime.say(replace(inbound, text="/allowlist add touch *"))
        assert "only for the owner" in rules.text
        await runtime.say(Inbound(f"/approve {approval.id} deny", KEY))

    await while_it_waits(asking, try_it)
    assert not (asking.workspace / "made.txt").exists()


@pytest.mark.slow
async def test_allow_always_is_remembered_for_this_exact_command(stage: Stage) -> None:
    stage.server.push(
        calls("exec", command="touch made.txt"),
        says("Done."),
        calls("exec", command="touch made.txt"),
        says("Again."),
        calls("exec", command="touch other.txt"),
        says("No."),
    )

    async def approve(runtime: Runtime, approval: Approval) -> None:
        reply = await runtime.say(Inbound(f"/approve {approval.id} always", KEY))
        assert "allowed permanently" in reply.text

    await while_it_waits(stage, approve)
    again, other, listed = await stage.ask("and again", "another", "/allowlist")
    assert [call.is_error for call in (*again.calls, *other.calls)] == [False, True]
    assert "touch made.txt" in listed.text
    assert "used 1×" in listed.text
    kinds = [entry["kind"] for entry in _audit(stage)]
    assert {"approval_asked", "approval_allowed", "rule_added", "approval_denied"} <= set(kinds)


async def test_the_allowlist_is_added_to_and_taken_from_by_hand(stage: Stage) -> None:
    stage.server.push(calls("exec", command="touch made.txt"), says("Done."))
    added, answer, listed, removed, empty, wrong, missing = await stage.ask(
        "/allowlist add touch *",
        "make a file",
        "/allowlist list",
        "/allowlist remove touch *",
        "/allowlist",
        "/allowlist frobnicate",
        "/allowlist remove 2222",
    )
    assert "`touch *` need no approval" in added.text
    assert not answer.calls[0].is_error
    assert "by `touch made.txt`" in listed.text
    assert "no longer allowed" in removed.text
    assert "No command patterns" in empty.text
    assert wrong.text.startswith("Usage:")
    assert "There is no stored rule '2222'" in missing.text


async def test_a_question_that_nobody_answers_in_time_is_denied(asking: Stage) -> None:
    asking.config = {"tools": {"exec": {"approvalTimeoutMs": 60_000}}}

    async def let_time_pass(runtime: Runtime, approval: Approval) -> None:
        asking.clock.advance(timedelta(minutes=1))

    await while_it_waits(asking, let_time_pass)
    assert not (asking.workspace / "made.txt").exists()
    assert "no decision within 1m" in json.dumps(asking.server.model_requests[1].json["messages"][-1])


async def test_stopping_the_turn_withdraws_the_question(asking: Stage) -> None:
    async def stop(runtime: Runtime, approval: Approval) -> None:
        assert (await runtime.say(Inbound("/stop", KEY))).text == "Stopped."

    await while_it_waits(asking, stop)
    assert [entry["kind"] for entry in _audit(asking)] == ["approval_asked", "approval_withdrawn"]


@pytest.mark.slow
async def test_who_waits_for_a_turn_of_another_process_is_asked_what_it_asks(stage: Stage) -> None:
    stage.config = {"messages": {"queue": {"mode": "followup"}}}
    stage.server.push(calls("exec", command="touch made.txt"), says("One."), says("Two."))
    asked: list[str] = []
    shown: list[TurnEvent] = []

    async def yes(request: ApprovalRequest) -> ApprovalDecision:
        asked.append(request.detail)
        return ApprovalDecision(Verdict.ALLOW_ONCE, "allowed from the line", "the one who waits")

    async def show(event: TurnEvent) -> None:
        shown.append(event)

    async with stage.open() as holder, stage.open() as other:
        with anyio.fail_after(120):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(holder.say, Inbound("one", KEY), stage.emit, never)
                await question_in(other)
                reply = await other.say(Inbound("two", KEY), show, yes)
    assert (stage.workspace / "made.txt").exists()
    assert "touch made.txt" in asked[0]
    assert reply.text == "Two."
    assert [event.decision.by for event in shown if isinstance(event, ApprovalGiven)] == ["the one who waits"]


async def test_a_request_without_a_person_is_denied_at_once_and_written_down(asking: Stage) -> None:
    async with asking.open() as runtime:
        with anyio.fail_after(60):
            await runtime.say(Inbound("make a file", KEY), asking.emit, None)
    [asked, denied] = _audit(asking)
    assert (asked["who"], denied["who"]) == ("agent:main", "nobody")
    assert "touch made.txt" in asked["details"]["detail"]


def _audit(stage: Stage) -> list[dict[str, Any]]:
    lines = (stage.home.path / "audit.jsonl").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if entry["kind"].startswith(("approval", "rule"))]
