"""Plugins step into a turn only as far as they are allowed to, and the audit log tells what they did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from retinue.agent.calls import ToolCallDone, ToolCallPending
from retinue.context.points import ModelQuestion, ModelWish, PromptChange, PromptDraft
from retinue.core.clock import SystemClock
from retinue.core.envelope import Outbound
from retinue.core.extension import HookSpec, Lazy
from retinue.core.keys import DEFAULT_AGENT
from retinue.core.messages import Text
from retinue.hooks import Vetoed
from retinue.sessions.entries import UNANSWERED
from retinue.storage.auditlog import AuditLog
from retinue.testing.replies import calls, says
from retinue.workspace.bootstrap import BootstrapFiles
from tests.runtime.conftest import Stage, staged

pytestmark = pytest.mark.anyio

SEEN: list[Any] = []


async def add_context(draft: PromptDraft) -> PromptChange:
    return PromptChange(after_system="The moon is full.", before_message="[It rains.]")


async def add_more(draft: PromptDraft) -> PromptChange:
    return PromptChange(after_system="The tide is high.")


async def replace_low(draft: PromptDraft) -> PromptChange:
    return PromptChange(system="I am the low one.")


async def replace_high(draft: PromptDraft) -> PromptChange:
    return PromptChange(system="I am the high one.")


async def wish_other_model(question: ModelQuestion) -> ModelWish:
    return ModelWish("test/other-model")


async def veto_write(ahead: ToolCallPending) -> ToolCallPending | None:
    if ahead.call.name == "write":
        raise Vetoed("No writing on Sundays.")
    return None


async def break_down(ahead: ToolCallPending) -> None:
    raise ZeroDivisionError


async def censor(done: ToolCallDone) -> ToolCallDone:
    return replace(done, result=replace(done.result, content=(Text("(censored)"),)))


async def sign(outbound: Outbound) -> Outbound:
    return replace(outbound, text=f"{outbound.text} — sent with care")


async def watch(event: Any) -> None:
    SEEN.append(event)


def hook(name: str, handler: str, priority: int = 0, plugin: str = "p") -> HookSpec:
    return HookSpec(name, plugin, Lazy(f"{__name__}:{handler}"), priority)


def allowing(**rules: bool) -> dict[str, Any]:
    return {"plugins": {"entries": {"p": {"hooks": rules}}}}


def audit_of(stage: Stage) -> AuditLog:
    return AuditLog(stage.home.path / "audit.jsonl", SystemClock())


async def test_additions_stand_together_below_the_stable_block(tmp_path: Path) -> None:
    hooks = [hook("before_prompt_build", "add_more"), hook("before_prompt_build", "add_context", priority=5)]
    config = allowing(allowPromptInjection=True)
    async with staged(tmp_path, says("hi"), config=config, hooks=hooks) as stage:
        await stage.ask("hello")
        system, user = (message["content"] for message in stage.server.model_requests[0].json["messages"])
        assert system.endswith("The moon is full.\n\nThe tide is high.")
        assert user.startswith("[Added by a plugin, not written by the sender]\n[It rains.]\n[End of the addition]\n")
        (entry,) = audit_of(stage).entries()
        assert entry["kind"] == "prompt_change"
        assert "+The moon is full." in entry["details"]["diff"]
        assert audit_of(stage).verify() == ()


async def test_of_replacements_the_highest_priority_wins(tmp_path: Path) -> None:
    hooks = [hook("before_prompt_build", "replace_low"), hook("before_prompt_build", "replace_high", priority=9)]
    config = allowing(allowPromptInjection=True)
    async with staged(tmp_path, says("hi"), config=config, hooks=hooks) as stage:
        await stage.ask("hello")
        assert stage.server.model_requests[0].json["messages"][0]["content"].startswith("I am the high one.")


async def test_without_permission_nothing_changes(tmp_path: Path) -> None:
    hooks = [hook("before_prompt_build", "replace_high"), hook("before_model_resolve", "wish_other_model")]
    async with staged(tmp_path, says("hi"), hooks=hooks) as stage:
        (reply,) = await stage.ask("hello")
        assert reply.model == "test/test-model"
        assert "high one" not in json.dumps(stage.server.model_requests[0].json)
        assert list(audit_of(stage).entries()) == []


async def test_a_model_wish_is_granted_and_audited(tmp_path: Path) -> None:
    hooks = [hook("before_model_resolve", "wish_other_model")]
    config = allowing(allowModelOverride=True)
    async with staged(tmp_path, says("hi"), config=config, hooks=hooks) as stage:
        (reply,) = await stage.ask("hello")
        assert reply.model == "test/other-model"
        (entry,) = audit_of(stage).entries()
        assert entry["details"]["after"] == "test/other-model"


async def replace_soul(event: BootstrapFiles) -> BootstrapFiles:
    return replace(
        event, files=tuple(replace(f, text="Be a pirate.") if f.name == "SOUL.md" else f for f in event.files)
    )


async def test_replaced_files_need_permission_and_are_audited_once(tmp_path: Path) -> None:
    hooks = [hook("agent:bootstrap", "replace_soul")]
    config = allowing(allowPromptInjection=True)
    async with staged(tmp_path, says("hi"), says("ho"), config=config, hooks=hooks) as stage:
        await stage.ask("hello", "again")
        assert "Be a pirate." in stage.server.model_requests[1].json["messages"][0]["content"]
        (entry,) = audit_of(stage).entries()
        assert (entry["kind"], entry["who"]) == ("prompt_change", "plugin:p")
        assert "+Be a pirate." in entry["details"]["diff"]


async def test_without_permission_a_plugin_cannot_replace_files(tmp_path: Path) -> None:
    hooks = [hook("agent:bootstrap", "replace_soul")]
    async with staged(tmp_path, says("hi"), hooks=hooks) as stage:
        await stage.ask("hello")
        assert "pirate" not in stage.server.model_requests[0].body.decode()
        assert list(audit_of(stage).entries()) == []


POINTS_OF_A_TURN = (
    "agent:bootstrap",
    "before_model_resolve",
    "before_prompt_build",
    "message_received",
    "before_tool_call",
    "after_tool_call",
    "turn_end",
    "message_sending",
)


async def test_every_hook_event_has_the_session_its_id_and_the_workspace(tmp_path: Path) -> None:
    SEEN.clear()
    config = allowing(allowPromptInjection=True, allowModelOverride=True)
    hooks = [hook(name, "watch") for name in (*POINTS_OF_A_TURN, "command", "session_start", "session_end")]
    replies = (calls("ls"), says("hi"))
    async with staged(tmp_path, *replies, config=config, hooks=hooks) as stage:
        answer, _ = await stage.ask("hello", "/new")
        told = [(type(event).__name__, str(event.session), event.workspace) for event in SEEN]
        assert {(session, folder) for _, session, folder in told} == {("agent:main:main", str(stage.workspace))}
        assert len({name for name, *_ in told}) == 10  # session_start and session_end have one type
        # The prompt of the first turn is built when the session is new and has no id yet, or with its id.
        first = [event.session_id for event in SEEN if type(event).__name__ in ("ToolCallPending", "TurnEnded")]
        assert set(first) == {answer.session_id}
        assert all(event.session_id for event in SEEN)


async def test_a_vetoed_call_is_told_to_the_model(tmp_path: Path) -> None:
    replies = (calls("write", path="a.txt", content="x"), says("I may not."))
    async with staged(tmp_path, *replies, hooks=[hook("before_tool_call", "veto_write")]) as stage:
        await stage.ask("write")
        assert not (stage.workspace / "a.txt").exists()
        assert "No writing on Sundays." in json.dumps(stage.server.model_requests[1].json["messages"][-1])


async def test_a_broken_guard_stops_the_call(tmp_path: Path) -> None:
    replies = (calls("write", path="a.txt", content="x"), says("I see."))
    async with staged(tmp_path, *replies, hooks=[hook("before_tool_call", "break_down")]) as stage:
        await stage.ask("write")
        assert not (stage.workspace / "a.txt").exists()


async def test_a_result_can_be_changed_before_anybody_sees_it(tmp_path: Path) -> None:
    replies = (calls("ls", path="."), says("ok"))
    async with staged(tmp_path, *replies, hooks=[hook("after_tool_call", "censor")]) as stage:
        await stage.ask("list")
        assert stage.server.model_requests[1].json["messages"][-1]["content"] == "(censored)"


async def test_messages_sessions_and_turns_are_told(tmp_path: Path) -> None:
    SEEN.clear()
    names = ("message_received", "turn_end", "session_end", "session_start")
    hooks = [*(hook(name, "watch") for name in names), hook("message_sending", "sign")]
    async with staged(tmp_path, says("hi"), hooks=hooks) as stage:
        reply, _ = await stage.ask("hello", "/new")
        assert reply.text == "hi — sent with care"
        assert [type(event).__name__ for event in SEEN] == [
            "MessageArrived",
            "TurnEnded",
            "SessionChange",
            "SessionChange",
        ]


async def test_a_changed_audit_log_shows(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl", SystemClock())
    for number in range(3):
        log.record("test", "me", {"number": number})
    assert log.verify() == ()
    lines = log.path.read_text().splitlines(keepends=True)
    log.path.write_text(lines[0] + lines[1].replace('"number": 1', '"number": 7') + lines[2])
    assert [damage.line for damage in log.verify()] == [2]
    log.path.write_text(lines[0] + lines[2])
    assert [damage.line for damage in log.verify()] == [2]


@pytest.mark.slow
async def test_a_budget_refuses_turns_until_the_next_day(tmp_path: Path) -> None:
    config = {"agents": {"defaults": {"budget": {"perDay": {"tokens": 150}}}}, "session": {"reset": {"mode": "none"}}}
    from datetime import timedelta

    async with staged(tmp_path, says("one"), says("two"), says("three"), config=config) as stage:
        first, second, third = await stage.ask("a", "b", "c")
        assert [reply.text for reply in (first, second)] == ["one", "two"]
        assert "budget for today is used up" in (third.error or "")
        (transcript,) = stage.home.sessions(DEFAULT_AGENT).glob("*.jsonl")
        [note] = [
            line
            for line in map(json.loads, transcript.read_text().splitlines())
            if line.get("customType") == UNANSWERED
        ]
        assert (note["data"]["text"], note["data"]["why"]) == ("c", third.error)
        stage.clock.advance(timedelta(days=1))
        (fourth,) = await stage.ask("d")
        assert fourth.text == "three"
