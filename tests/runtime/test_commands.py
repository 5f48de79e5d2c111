"""Slash commands in a conversation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from retinue.core.envelope import Inbound, Origin, PeerKind
from retinue.core.events import TurnStatus
from retinue.core.keys import DEFAULT_AGENT, AgentId, SessionKey
from retinue.providers.auth_profiles import Profile, ProfileFile
from retinue.providers.model_choice import LocalServers
from retinue.runtime.home import load_home
from retinue.runtime.open import open_runtime
from retinue.testing.replies import says
from tests.runtime.conftest import Stage

pytestmark = pytest.mark.anyio


async def test_help_lists_commands_and_skills(stage: Stage) -> None:
    (reply,) = await stage.ask("/help")
    assert "/status" in reply.text
    assert "/todo" in reply.text
    assert stage.server.requests == []


async def test_new_archives_and_the_model_starts_afresh(stage: Stage) -> None:
    stage.server.push(says("one"), says("two"))
    first, reset, second = await stage.ask("remember the word pear", "/new", "hello")
    assert "archived" in reset.text
    assert first.session_id != second.session_id
    assert "pear" not in json.dumps(stage.server.model_requests[1].json)
    archived = list(stage.home.sessions(AgentId("main")).glob("*.jsonl.reset.*"))
    assert len(archived) == 1


async def test_new_with_words_asks_them_at_once(stage: Stage) -> None:
    stage.server.push(says("Hi."))
    (reply,) = await stage.ask("/new what is up?")
    assert reply.text == "Hi."
    assert stage.server.model_requests[0].json["messages"][-1]["content"].endswith("what is up?")


@pytest.mark.slow
async def test_a_bare_new_brings_the_daily_notes_once(stage: Stage) -> None:
    stage.server.push(says("one"), says("two"), says("three"))
    (stage.workspace / "memory").mkdir(parents=True)
    (stage.workspace / "memory" / "2026-03-14.md").write_text("Bought the red bicycle.")
    await stage.ask("hi", "/new", "hello", "again")
    bodies = [request.json["messages"][-1]["content"] for request in stage.server.model_requests]
    assert "red bicycle" not in bodies[0]
    assert "red bicycle" in bodies[1]
    assert bodies[1].endswith("hello")
    assert "red bicycle" not in bodies[2]


async def test_model_changes_this_conversation_and_default_changes_it_back(stage: Stage) -> None:
    stage.server.push(says("a"), says("b"))
    _, first, _, second = await stage.ask("/model test/other-model", "hi", "/model default", "hi")
    assert (first.model, second.model) == ("test/other-model", "test/test-model")


async def test_default_looks_again_for_a_model_where_none_is_configured(stage: Stage) -> None:
    async def serve_tiny(_url: str) -> tuple[str, ...]:
        return ("tiny",)

    key = SessionKey.main(DEFAULT_AGENT)
    environment = {"HOME": str(stage.home.path.parent), "PATH": "/usr/bin:/bin"}
    async with open_runtime(load_home(stage.home, environment=environment, clock=stage.clock)) as runtime:
        runtime.agent(DEFAULT_AGENT).access.servers = LocalServers(ask_ollama=serve_tiny, ask_llamacpp=serve_tiny)
        before = await runtime.say(Inbound("/model default", key), stage.emit)
        credentials = ProfileFile(stage.home.agent_dir(DEFAULT_AGENT))
        credentials.add(Profile("anthropic:default", "anthropic", "api_key", "sk-ant-0123456789abcdef"))
        after = await runtime.say(Inbound("/model default", key), stage.emit)
    assert "ollama/tiny" in before.text
    assert "anthropic/" in after.text


async def test_an_unknown_model_is_refused_with_a_hint(stage: Stage) -> None:
    (reply,) = await stage.ask("/model nonsense")
    assert "provider/model" in reply.text
    assert reply.status is TurnStatus.OK


async def test_status_usage_and_context_tell_the_truth(stage: Stage) -> None:
    stage.server.push(says("hi"))
    _, status, usage, context = await stage.ask("hello", "/status", "/usage", "/context json")
    assert "test/test-model" in status.text
    assert "2 messages" in status.text
    assert "100 tokens in" in usage.text
    report = json.loads(context.text)
    sent = stage.server.model_requests[0].json
    assert report["total"]["chars"] == len(sent["messages"][0]["content"])
    assert [tool["name"] for tool in report["tools"]] == [tool["function"]["name"] for tool in sent["tools"]]


async def test_think_is_kept_for_the_session(stage: Stage) -> None:
    low, wrong, now = await stage.ask("/think high", "/think very", "/think")
    assert low.text == "Thinking is high."
    assert "not one of" in wrong.text
    assert "Thinking is high" in now.text


async def test_export_writes_a_file_without_secrets(stage: Stage) -> None:
    stage.server.push(says("Your key is secret-key-0123456789."))
    _, exported = await stage.ask("what is my key?", "/export")
    text = Path(exported.text.removeprefix("Written to ")).read_text()
    assert "what is my key?" in text
    assert "secret-key-0123456789" not in text


async def test_a_skill_command_tells_the_model_to_use_the_skill(stage: Stage) -> None:
    stage.server.push(says("Added."))
    (reply,) = await stage.ask("/todo buy milk")
    sent = stage.server.model_requests[0].json["messages"][-1]["content"]
    assert reply.text == "Added."
    assert "skill `todo`" in sent
    assert "buy milk" in sent


def add_skill(stage: Stage, name: str, facts: str) -> None:
    folder = stage.workspace / "skills" / name
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: It does {name}.\n{facts}\n---\nDo it.\n")


@pytest.mark.parametrize(
    ("tool", "written", "expected"),
    [
        ("session_status", "", "Model: test/test-model"),
        ("read", "notes.md", "buy milk"),
        ("read", '{"path": "notes.md", "offset": 2}', "buy eggs"),
        ("file_read", "notes.md", "buy milk"),
        ("grep", "milk", "notes.md"),
        ("sessions_list", "", "agent:main:main"),
        ("exec", "ls", "notes.md"),
        ("read", "", "wrong arguments"),
        ("read", "{nonsense", "not valid JSON"),
        ("agents_list", "of mine", "takes no text"),
        ("no_such_tool", "", "There is no tool `no_such_tool`"),
    ],
)
async def test_a_skill_can_dispatch_to_a_built_in_tool_past_the_model(
    stage: Stage, tool: str, written: str, expected: str
) -> None:
    (stage.workspace / "notes.md").write_text("buy milk\nbuy eggs\n")
    add_skill(stage, "listing", f"command-dispatch: tool\ncommand-tool: {tool}")
    (reply,) = await stage.ask(f"/listing {written}".strip())
    assert stage.server.requests == []
    assert expected in reply.text


@pytest.mark.slow
@pytest.mark.parametrize("remote", [True, False])
async def test_a_skill_that_refuses_remote_messages_is_not_available_to_them(stage: Stage, remote: bool) -> None:
    add_skill(stage, "vault", "metadata: {retinue: {invocation: {allowRemote: false}}}")
    stage.server.push(says("Hello."), says("Done."))
    chat = Origin("http", "default", PeerKind.DIRECT, "ada") if remote else None
    key = SessionKey.main(DEFAULT_AGENT)
    async with stage.open() as runtime:
        await runtime.say(Inbound("Hi.", key, origin=chat), stage.emit)
        used = await runtime.say(Inbound("/skill vault", key, origin=chat), stage.emit)
    prompt = json.dumps(stage.server.model_requests[0].json["messages"][0])
    assert ("It does vault." in prompt) is not remote
    assert ("There is no skill 'vault'" in used.text) is remote


async def test_text_that_is_no_command_goes_to_the_model(stage: Stage) -> None:
    stage.server.push(says("A path."))
    (reply,) = await stage.ask("/etc/hosts is what?")
    assert reply.text == "A path."


async def test_config_shows_a_setting_to_the_owner(stage: Stage) -> None:
    (reply,) = await stage.ask("/config agents.defaults.bootstrapMaxChars")
    assert "20000" in reply.text


async def test_plugins_are_listed_and_switched_where_that_is_allowed(stage: Stage) -> None:
    plugin = stage.home.path / "chat_desk.py"
    plugin.parent.mkdir(parents=True, exist_ok=True)
    plugin.write_text(
        "from retinue.plugins.hookspecs import hookimpl\n\n@hookimpl\ndef retinue_register(register):\n    pass\n"
    )
    stage.config = {"plugins": {"load": {"paths": ["chat_desk.py"]}}}
    listed, refused, unclear = await stage.ask("/plugins", "/plugins disable chat_desk", "/plugins what")
    assert listed.text == "chat_desk: on"
    assert "commands.plugins true" in refused.text
    assert unclear.text.startswith("Usage: /plugins")
    stage.config = stage.config | {"commands": {"plugins": True}}
    off, unknown = await stage.ask("/plugins disable chat_desk", "/plugins enable nothing")
    assert off.text == "chat_desk is off; a running gateway applies this at once."
    assert "There is no plugin 'nothing'" in unknown.text
    written = json.loads(stage.home.config_file.read_text())
    assert written["plugins"]["entries"]["chat_desk"] == {"enabled": False}
    stage.environment = {"RETINUE_SHELL": "exec"}
    (inside,) = await stage.ask("/plugins disable chat_desk")
    assert "A command that an agent runs cannot do this" in inside.text
