"""A turn from end to end: a real home, real transcripts, a scripted model that speaks the real protocols."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from retinue.core.approval import ApprovalDecision, ApprovalRequest, Verdict
from retinue.core.envelope import Inbound
from retinue.core.events import Notice, TextDelta, TurnStatus
from retinue.core.keys import SessionKey
from retinue.providers.model_choice import LocalServers
from retinue.runtime.agents.workspace import docs_folder
from retinue.runtime.open import preview_prompt
from retinue.skills.library import BUNDLED
from retinue.testing.replies import Fault, Reply, calls, refuses, says
from tests.runtime.conftest import APIS, Stage, staged

pytestmark = pytest.mark.anyio


async def test_an_answer_reaches_the_person_and_the_transcript(stage: Stage) -> None:
    stage.server.push(says("Hello **there**."))
    (reply,) = await stage.ask("hi")
    assert (reply.status, reply.text, reply.model) == (TurnStatus.OK, "Hello **there**.", "test/test-model")
    assert stage.told()[:2] == ["Accepted", "TurnStarted"]
    assert stage.told()[-1] == "TurnFinished"
    (file,) = stage.home.sessions(reply.session.agent).glob("*.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    roles = [line["message"]["role"] for line in lines if line["type"] == "message"]
    assert roles == ["user", "assistant"]


async def test_the_next_process_goes_on_where_the_last_one_ended(stage: Stage) -> None:
    stage.server.push(says("Noted."), says("Blue."))
    await stage.ask("My colour is blue.")
    await stage.ask("Which colour?")
    sent = stage.server.model_requests[1].json["messages"]
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "user"]
    assert "My colour is blue." in json.dumps(sent)


async def test_tools_run_in_the_workspace_and_answer_the_model(stage: Stage) -> None:
    stage.server.push(calls("write", path="note.txt", content="remember"), calls("read", path="note.txt"), says("ok"))
    (reply,) = await stage.ask("keep a note")
    assert (stage.workspace / "note.txt").read_text() == "remember"
    assert [(call.name, call.is_error) for call in reply.calls] == [("write", False), ("read", False)]
    assert "remember" in json.dumps(stage.server.model_requests[2].json["messages"][-1])


async def test_a_command_that_may_change_things_is_refused_where_nobody_can_be_asked(stage: Stage) -> None:
    stage.server.push(calls("exec", command="touch made.txt"), says("I may not."))
    (reply,) = await stage.ask("make a file")
    assert reply.calls[0].is_error
    assert not (stage.workspace / "made.txt").exists()
    assert "no person is available" in json.dumps(stage.server.model_requests[1].json["messages"][-1])


async def test_an_approved_command_runs(stage: Stage) -> None:
    asked: list[ApprovalRequest] = []

    async def yes(request: ApprovalRequest) -> ApprovalDecision:
        asked.append(request)
        return ApprovalDecision(Verdict.ALLOW_ONCE, "said yes")

    stage.server.push(calls("exec", command="touch made.txt"), says("Done."))
    await stage.ask("make a file", ask=yes)
    assert (stage.workspace / "made.txt").exists()
    assert "touch made.txt" in asked[0].detail


async def test_a_deferred_tool_is_found_and_called(stage: Stage) -> None:
    stage.server.push(
        calls("tool_search", query="picture"),
        calls("tool_call", name="image", arguments={"path": "missing.png"}),
        says("There is none."),
    )
    (reply,) = await stage.ask("look at missing.png")
    offered = {tool["function"]["name"] for tool in stage.server.model_requests[0].json["tools"]}
    assert "image" not in offered
    assert {"tool_search", "tool_call"} <= offered
    assert '"path"' in stage.server.model_requests[1].json["messages"][-1]["content"]
    assert reply.calls[1].is_error


@pytest.mark.slow
@pytest.mark.parametrize("api", APIS)
async def test_two_turns_share_every_byte_up_to_the_last_user_message(tmp_path: Path, api: str) -> None:
    replies = (says("one"), calls("ls", path="."), says("two"), says("three"))
    async with staged(tmp_path, *replies, api=api) as stage:
        await stage.ask("first", "second", "third")
        bodies = [request.json for request in stage.server.model_requests]
        earlier, later = _conversation(bodies[2]), _conversation(bodies[3])
        assert later[: len(earlier)] == earlier
        for name in ("tools", "system", "instructions", "systemInstruction"):
            assert json.dumps(bodies[0].get(name)) == json.dumps(bodies[3].get(name))


def _conversation(body: dict[str, Any]) -> list[Any]:
    """The messages of a request without the cache marker, which moves with the last user message."""
    found = body.get("messages") or body.get("input") or body.get("contents")
    assert isinstance(found, list)
    stripped: list[Any] = json.loads(json.dumps(found).replace(', "cache_control": {"type": "ephemeral"}', ""))
    return stripped


async def test_what_prompt_show_prints_is_what_was_sent(stage: Stage) -> None:
    from retinue.context.prompt.inputs import PromptMode
    from retinue.runtime.home import load_home

    stage.server.push(says("hi"))
    await stage.ask("hello")
    sent = stage.server.model_requests[0].json
    environment = {"HOME": str(stage.home.path.parent), "PATH": "/usr/bin:/bin"}
    foundation = load_home(stage.home, environment=environment, clock=stage.clock)
    prompt, tools = await preview_prompt(foundation, SessionKey.parse("agent:main:main"), PromptMode.FULL)
    assert sent["messages"][0]["content"] == prompt.system.text
    assert [tool["function"]["name"] for tool in sent["tools"]] == [spec.name for spec in tools]
    assert [tool["function"]["parameters"] for tool in sent["tools"]] == [dict(spec.parameters) for spec in tools]


async def test_the_fixed_request_is_small(stage: Stage) -> None:
    from tests.core.tokenizer import count_tokens

    stage.server.push(says("hi"))
    await stage.ask("hello")
    sent = stage.server.model_requests[0].json
    # How long the paths of this machine are is not ours to count.
    prompt = sent["messages"][0]["content"]
    places = {
        BUNDLED: "~/retinue/skills",
        stage.home.path: "~/.retinue",
        docs_folder(): "~/docs",
        BUNDLED.parents[1]: "~/retinue",
    }
    for place, usual in places.items():
        prompt = prompt.replace(str(place), usual)
    assert count_tokens(prompt) < 2_500
    fixed = count_tokens(prompt) + count_tokens(json.dumps(sent["tools"], separators=(",", ":")))
    assert fixed < 4_500


async def test_a_failing_model_hands_over_to_the_next(tmp_path: Path) -> None:
    config = {"agents": {"defaults": {"model": {"primary": "test/test-model", "fallbacks": ["test/other-model"]}}}}
    async with staged(tmp_path, refuses(404, "no such model"), says("I step in."), config=config) as stage:
        (reply,) = await stage.ask("hello")
        assert (reply.text, reply.model) == ("I step in.", "test/other-model")
        notices = [event.text for event in stage.events if isinstance(event, Notice)]
        assert any("other-model answers instead" in notice for notice in notices)


async def test_when_everything_fails_one_message_tells_each_attempt(tmp_path: Path) -> None:
    config = {"agents": {"defaults": {"model": {"primary": "test/test-model", "fallbacks": ["test/other-model"]}}}}
    async with staged(tmp_path, refuses(404, "gone"), refuses(404, "gone too"), config=config) as stage:
        (reply,) = await stage.ask("hello")
        assert reply.status is TurnStatus.FAILED
        assert reply.error is not None
        assert "test/test-model" in reply.error
        assert "test/other-model" in reply.error


async def test_a_broken_answer_leaves_a_session_that_goes_on(stage: Stage) -> None:
    stage.server.push(Reply(text="half an ", fault=Fault.CUT), says("Whole."))
    first, second = await stage.ask("one", "two")
    assert first.status is TurnStatus.FAILED
    assert (second.status, second.text) == (TurnStatus.OK, "Whole.")


async def test_directives_and_silence_never_reach_the_person(stage: Stage) -> None:
    stage.server.push(says("[[reply_to:42]]Here.\nMEDIA:chart.png"), says("NO_REPLY"))
    spoken, silent = await stage.ask("one", "two")
    assert (spoken.text.strip(), spoken.reply_to, spoken.media) == ("Here.", "42", ("chart.png",))
    assert (silent.text, silent.silent) == ("", True)
    streamed = "".join(event.text for event in stage.events if isinstance(event, TextDelta))
    assert "NO_REPLY" not in streamed
    assert "MEDIA" not in streamed


async def test_no_model_at_all_is_explained(tmp_path: Path) -> None:
    async with staged(tmp_path, config={"agents": {"defaults": {"model": {}}}, "models": {"mode": "replace"}}) as stage:
        async with stage.open() as runtime:
            access = runtime.agent(SessionKey.parse("agent:main:main").agent).access

            async def nothing(url: str) -> tuple[str, ...]:
                return ()

            access.servers = LocalServers(ask_ollama=nothing, ask_llamacpp=nothing)
            access.settings = msgspec.structs.replace(access.settings, model=access.settings.image_model)
            access.home.config.models.providers.clear()
            reply = await runtime.say(Inbound("hi", SessionKey.parse("agent:main:main")))
        assert reply.status is TurnStatus.FAILED
        assert "retinue models auth add" in (reply.error or "")


async def test_prompt_diff_names_what_moved_the_cache_between_two_turns(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    from retinue.cli.main import run as retinue

    stage.server.push(says("one"), says("two"), says("three"))
    await stage.ask("first", "second")
    (stage.workspace / "SOUL.md").write_text("Speak like a pirate.")
    await stage.ask("third")
    home = str(stage.home.path)
    assert retinue(["prompt", "diff", "main#1", "main#-1", "--home", home, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["moved"]["name"] == "file:SOUL.md"
    assert retinue(["prompt", "diff", "main#1", "main#9", "--home", home]) == 2
    assert "2 are recorded" in capsys.readouterr().err


async def test_files_are_read_again_only_in_the_first_turn_when_configured(tmp_path: Path) -> None:
    config = {"agents": {"defaults": {"contextInjection": "continuation-skip"}}}
    async with staged(tmp_path, says("one"), says("two"), config=config) as stage:
        await stage.ask("first", "second")
        first, second = (request.json["messages"][0]["content"] for request in stage.server.model_requests)
        assert "## AGENTS.md" in first
        assert "## AGENTS.md" not in second
        assert "## SOUL.md" in second
