"""The policy at work: a session's tools are what the configuration leaves, and rights depend on who writes."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from retinue.config.schema import Config
from retinue.core.approval import ApprovalDecision, ApprovalRequest, Verdict
from retinue.core.envelope import Inbound, Origin, PeerKind, Source
from retinue.core.keys import SessionKey
from retinue.core.model import ModelRef
from retinue.runtime.agents.policy import elevation_gates, elevation_of, is_sandboxed, session_layers
from retinue.runtime.open import Runtime
from retinue.structs.decode import DecodeError, decode
from retinue.testing.replies import calls, refuses, says
from retinue.tools.elevated import Elevation
from retinue.tools.policy import Layer, decide_tool
from tests.runtime.conftest import Stage

pytestmark = pytest.mark.anyio

MAIN = SessionKey.parse("agent:main:main")
GROUP = SessionKey.parse("agent:main:telegram:group:7")
MODEL = ModelRef("openai", "gpt-5")
TOOLS = ("read", "write", "apply_patch", "exec", "process", "web_fetch", "memory_get", "session_status", "cron")


def left(config: dict[str, Any], session: SessionKey = MAIN, model: ModelRef | None = MODEL) -> set[str]:
    """The tools of a session under a configuration."""
    read = decode(Config, config)
    layers = session_layers(read, read.agents.resolve(session.agent), session, model)
    return {tool for tool in TOOLS if not decide_tool(tool, layers).denied}


def without(*tools: str) -> set[str]:
    return set(TOOLS) - set(tools)


def agent(**tools: Any) -> dict[str, Any]:
    return {"list": [{"id": "main", "tools": tools}]}


@pytest.mark.parametrize(
    ("config", "tools"),
    [
        ({}, set(TOOLS)),
        ({"tools": {"profile": "minimal"}}, {"memory_get", "session_status"}),
        ({"tools": {"profile": "minimal", "alsoAllow": ["exec"]}}, {"memory_get", "session_status", "exec"}),
        (
            {"tools": {"profile": "minimal"}, "agents": agent(alsoAllow=["read"])},
            {"memory_get", "session_status", "read"},
        ),
        ({"tools": {"profile": "minimal"}, "agents": agent(profile="full")}, set(TOOLS)),
        ({"tools": {"deny": ["exec"]}, "agents": agent(profile="full", alsoAllow=["exec"])}, without("exec")),
        ({"tools": {"allow": ["read", "exec"]}, "agents": agent(allow=["exec", "cron"])}, {"exec"}),
        ({"tools": {"byProvider": {"openai": {"deny": ["exec"]}}}}, without("exec")),
        ({"tools": {"byProvider": {"OpenAI/GPT-5": {"allow": ["read"]}}}}, {"read"}),
        ({"tools": {"byProvider": {"openai/gpt-4": {"deny": ["*"]}, "anthropic": {"deny": ["*"]}}}}, set(TOOLS)),
        ({"agents": agent(byProvider={"openai": {"profile": "minimal"}})}, {"memory_get", "session_status"}),
        ({"tools": {"exec": {"applyPatch": {"enabled": False}}}}, without("apply_patch")),
        ({"tools": {"exec": {"applyPatch": {"allowModels": ["gpt-5"]}}}}, set(TOOLS)),
        ({"tools": {"exec": {"applyPatch": {"allowModels": ["openai/gpt-5"]}}}}, set(TOOLS)),
        ({"tools": {"exec": {"applyPatch": {"allowModels": ["gpt-4"]}}}}, without("apply_patch")),
        ({"agents": {"defaults": {"memorySearch": {"enabled": False}}}}, without("memory_get")),
    ],
)
def test_the_configuration_decides_which_tools_a_session_has(config: dict[str, Any], tools: set[str]) -> None:
    assert left(config) == tools


SANDBOXED = {"read", "write", "apply_patch", "exec", "process", "session_status"}


@pytest.mark.parametrize(
    ("mode", "session", "expected"),
    [("off", GROUP, False), ("all", MAIN, True), ("non-main", MAIN, False), ("non-main", GROUP, True)],
)
def test_which_sessions_are_sandboxed(mode: str, session: SessionKey, expected: bool) -> None:
    config = {"agents": {"defaults": {"sandbox": {"mode": mode}}}}
    read = decode(Config, config)
    assert is_sandboxed(read.agents.resolve("main"), session) is expected
    assert left(config, session) == (SANDBOXED if expected else set(TOOLS))


@pytest.mark.parametrize(
    ("shared", "own", "tools"),
    [
        ({"alsoAllow": ["web_fetch"]}, None, SANDBOXED | {"web_fetch"}),
        ({"deny": ["exec"]}, None, SANDBOXED - {"exec"}),
        ({"allow": ["web_fetch"]}, None, {"web_fetch"}),
        ({}, {"alsoAllow": ["cron"]}, SANDBOXED | {"cron"}),
        ({}, {"allow": ["cron"]}, {"cron"}),
        ({"deny": ["cron"]}, {"allow": ["cron"]}, set()),
    ],
)
def test_the_tools_of_sandboxed_sessions(shared: dict[str, Any], own: dict[str, Any] | None, tools: set[str]) -> None:
    config: dict[str, Any] = {
        "agents": {"defaults": {"sandbox": {"mode": "all"}}},
        "tools": {"sandbox": {"tools": shared}},
    }
    if own is not None:
        config["agents"] |= agent(sandbox={"tools": own})
    assert left(config) == tools


@pytest.mark.parametrize(
    ("rules", "session", "tool", "denied"),
    [
        ({}, "agent:main:subagent:x", "read", False),
        ({}, "agent:main:subagent:x", "session_status", True),
        ({}, "agent:main:subagent:x", "sessions_spawn", True),
        ({"alsoAllow": ["session_status"]}, "agent:main:subagent:x", "session_status", False),
        ({"alsoAllow": ["group:sessions"]}, "agent:main:subagent:x", "sessions_spawn", False),
        ({"allow": ["exec", "sessions_spawn"]}, "agent:main:subagent:x", "sessions_spawn", False),
        ({"allow": ["exec"]}, "agent:main:subagent:x", "read", True),
        ({"deny": ["read"]}, "agent:main:subagent:x", "read", True),
        ({}, "agent:main:main", "session_status", False),
    ],
)
def test_the_tools_of_sub_agents(rules: dict[str, Any], session: str, tool: str, denied: bool) -> None:
    read = decode(Config, {"tools": {"subagents": {"tools": rules}}})
    layers = session_layers(read, read.agents.resolve("main"), SessionKey.parse(session), None)
    assert decide_tool(tool, layers).denied is denied


def test_a_sub_agent_that_may_start_others_has_what_that_needs() -> None:
    config = {"agents": {"defaults": {"subagents": {"maxSpawnDepth": 2}}}}
    read = decode(Config, config)
    parent = session_layers(read, read.agents.resolve("main"), SessionKey.parse("agent:main:subagent:x"), None)
    leaf = session_layers(read, read.agents.resolve("main"), SessionKey.parse("agent:main:subagent:x:subagent:y"), None)
    assert not decide_tool("sessions_spawn", parent).denied
    assert decide_tool("sessions_spawn", leaf).layer is Layer.CONFINEMENT
    assert decide_tool("cron", parent).denied


BOTH = {"allow": ["read"], "alsoAllow": ["exec"]}


@pytest.mark.parametrize(
    "config",
    [
        {"tools": BOTH},
        {"tools": {"byProvider": {"openai": BOTH}}},
        {"tools": {"sandbox": {"tools": BOTH}}},
        {"tools": {"subagents": {"tools": BOTH}}},
        {"agents": agent(**BOTH)},
        {"agents": agent(byProvider={"openai": BOTH})},
    ],
)
def test_two_ways_to_allow_in_one_place_are_an_error(config: dict[str, Any]) -> None:
    with pytest.raises(DecodeError, match="not both"):
        decode(Config, config)


async def offered(stage: Stage, session: str = "main") -> tuple[set[str], str]:
    """The tools that a request brings, and its system prompt."""
    stage.server.push(says("ok"))
    await stage.ask("hi", session=session)
    sent = stage.server.model_requests[-1].json
    return {tool["function"]["name"] for tool in sent.get("tools", [])}, sent["messages"][0]["content"]


def listed(prompt: str) -> set[str]:
    """The tools that the prompt's own list names."""
    section = prompt.split("## Tooling\n", 1)[1].split("\n## ", 1)[0]
    return {line[2:].partition(":")[0] for line in section.splitlines() if line.startswith("- ")}


@pytest.mark.parametrize(
    "tools",
    [
        {},
        {"profile": "minimal"},
        {"profile": "coding", "deny": ["web_*", "group:memory"]},
        {"allow": ["read", "image"]},
        {"byProvider": {"test/test-model": {"deny": ["group:runtime"]}}},
    ],
)
async def test_the_prompt_lists_exactly_the_tools_of_the_request(stage: Stage, tools: dict[str, Any]) -> None:
    stage.config = {"tools": tools}
    sent, prompt = await offered(stage)
    assert listed(prompt) == sent - {"tool_search", "tool_call"}
    async with stage.open() as runtime:
        plan = await runtime.runner(MAIN).planner.plan(None)
    assert plan is not None
    assert sent == {tool.name for tool in plan.tools if not tool.deferred}


async def test_a_tool_that_the_policy_took_cannot_be_called(stage: Stage) -> None:
    stage.config = {"tools": {"deny": ["write"]}}
    stage.server.push(calls("write", path="a", content="x"), says("no"))
    (reply,) = await stage.ask("write")
    assert reply.calls[0].is_error
    assert not (stage.workspace / "a").exists()


async def test_a_model_that_steps_in_is_held_by_its_own_rules_and_the_denial_is_kept(stage: Stage) -> None:
    stage.config = {
        "agents": {"defaults": {"model": {"primary": "test/test-model", "fallbacks": ["test/other-model"]}}},
        "tools": {"byProvider": {"test/other-model": {"deny": ["write"]}}},
    }
    stage.server.push(refuses(404, "no such model"), calls("write", path="a", content="x"), says("no"))
    (reply,) = await stage.ask("write")
    assert not (stage.workspace / "a").exists()
    assert reply.calls[0].is_error
    assert "byProvider" in json.dumps(stage.server.model_requests[-1].json["messages"][-1])
    (line,) = audited(stage, "tool_denied")
    assert (line["details"]["tool"], line["details"]["layer"]) == ("write", Layer.PROVIDER)


async def say(runtime: Runtime, stage: Stage, text: str, session: SessionKey = GROUP, **who: Any) -> str:
    outbound = await runtime.say(Inbound(text, session, channel="telegram", **who), stage.emit)
    return outbound.text


OWNER: dict[str, Any] = {"owner": True, "sender": "1"}
ANNA: dict[str, Any] = {"owner": False, "sender": "42"}
GUEST: dict[str, Any] = {"owner": False, "sender": "99"}


def audited(stage: Stage, kind: str) -> list[dict[str, Any]]:
    file = stage.home.path / "audit.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [line for line in lines if line["kind"] == kind]


async def test_elevated_mode_is_changed_by_those_who_may_and_shown(stage: Stage) -> None:
    stage.config = {"tools": {"elevated": {"allowFrom": {"telegram": ["42"]}}}}
    async with stage.open() as runtime:
        assert (await say(runtime, stage, "/elevated", **GUEST)).startswith("Elevated mode is off")
        assert "may not" in await say(runtime, stage, "/elevated full", **GUEST)
        assert "not one of" in await say(runtime, stage, "/elevated maybe", **ANNA)
        assert (await say(runtime, stage, "/elevated ask", **ANNA)).startswith("Elevated mode is ask")
        assert "elevated ask" in await say(runtime, stage, "/status", **GUEST)
        assert (await say(runtime, stage, "/elevated off", **OWNER)).startswith("Elevated mode is off")
    levels = [
        (line["who"], line["details"]["level"], bool(line["details"]["refused"])) for line in audited(stage, "elevated")
    ]
    assert levels == [("telegram:99", "full", True), ("telegram:42", "ask", False), ("telegram:1", "off", False)]


async def test_only_a_persons_own_message_elevates(stage: Stage) -> None:
    async with stage.open() as runtime:
        told = await say(runtime, stage, "/elevated full", **OWNER, source=Source.HOOK)
    assert "may not" in told


@pytest.mark.slow
async def test_elevated_mode_holds_for_the_sender_and_not_for_the_next(stage: Stage) -> None:
    async with stage.open() as runtime:
        await say(runtime, stage, "/elevated full", **OWNER)
        stage.server.push(calls("exec", command="touch by-owner"), says("ok"))
        await say(runtime, stage, "do it", **OWNER)
        stage.server.push(calls("exec", command="touch by-guest"), says("no"))
        await say(runtime, stage, "me too", **GUEST)
    assert (stage.workspace / "by-owner").exists()
    assert not (stage.workspace / "by-guest").exists()
    uses = [line for line in audited(stage, "elevated") if "tool" in line["details"]]
    assert [(line["who"], line["details"]["level"], line["details"]["tool"]) for line in uses] == [
        ("telegram:1", "full", "exec")
    ]


async def test_a_new_conversation_begins_without_elevation(stage: Stage) -> None:
    async with stage.open() as runtime:
        await say(runtime, stage, "/elevated full", **OWNER)
        await say(runtime, stage, "/new", **OWNER)
        assert (await say(runtime, stage, "/elevated", **OWNER)).startswith("Elevated mode is off")


async def test_asking_is_done_even_for_what_is_harmless_and_for_process(stage: Stage) -> None:
    asked: list[ApprovalRequest] = []

    async def refuse(request: ApprovalRequest) -> ApprovalDecision:
        asked.append(request)
        return ApprovalDecision(Verdict.DENY, "not now", "owner")

    async with stage.open() as runtime:
        await say(runtime, stage, "/elevated ask", **OWNER)
        stage.server.push(calls("exec", command="ls"), calls("process", action="list"), says("ok"))
        await runtime.say(Inbound("look", GROUP, channel="telegram", owner=True), stage.emit, refuse)
    assert [request.tool for request in asked] == ["exec", "process"]
    assert "elevated" in asked[1].explanation[0]


async def test_a_guests_message_does_not_join_the_owners_turn(stage: Stage) -> None:
    async with stage.open() as runtime, anyio.create_task_group() as tasks:
        stage.server.push(calls("exec", command="sleep 0.4"), says("first"), says("second"))
        await say(runtime, stage, "/elevated full", **OWNER)
        tasks.start_soon(partial(say, runtime, stage, "wait a bit", **OWNER))
        while not runtime.runner(GROUP).running:
            await anyio.sleep(0.01)
        await say(runtime, stage, "me too", **GUEST)
    _, *rest = [request.json["messages"] for request in stage.server.model_requests]
    assert "me too" not in json.dumps(rest[0])
    assert "me too" in json.dumps(rest[1])


@pytest.mark.parametrize(
    ("tools", "default", "inbound", "level"),
    [
        ({}, "off", {"owner": True}, "off"),
        ({}, "full", {"owner": True}, "full"),
        ({}, "full", {"owner": False, "sender": "42"}, "off"),
        ({"elevated": {"enabled": False}}, "full", {"owner": True}, "off"),
        ({"elevated": {"allowFrom": {"telegram": ["42"]}}}, "on", {"owner": False, "sender": "42"}, "on"),
        ({}, "full", {"owner": True, "source": Source.CRON}, "off"),
        ({}, "full", {"owner": True, "source": Source.BACKGROUND}, "full"),
    ],
)
def test_what_holds_without_a_command(tools: dict[str, Any], default: str, inbound: dict[str, Any], level: str) -> None:
    config = decode(Config, {"tools": tools, "agents": {"defaults": {"elevatedDefault": default}}})
    message = Inbound("", MAIN, channel="telegram", **inbound)
    assert elevation_of(config, config.agents.resolve("main"), None, message) is Elevation(level)


def test_an_agent_narrows_who_may_elevate() -> None:
    config = decode(
        Config,
        {
            "tools": {"elevated": {"allowFrom": {"telegram": ["42", "43"]}}},
            "agents": agent(elevated={"allowFrom": {"telegram": ["43", "44"]}}),
        },
    )
    settings = config.agents.resolve("main")
    levels = {
        sender: elevation_of(
            config,
            replace(settings, elevated_default="on"),
            None,
            Inbound("", MAIN, channel="telegram", sender=sender, owner=False),
        )
        for sender in ("42", "43", "44")
    }
    assert levels == {"42": Elevation.OFF, "43": Elevation.ON, "44": Elevation.OFF}
    assert [gate.name for gate in elevation_gates(config, settings)] == [
        "tools.elevated",
        "agents.list[main].tools.elevated",
    ]


@pytest.mark.parametrize(
    ("tool", "before", "told"),
    [
        ("process", [], "wrong arguments"),
        ("process", ["/elevated ask"], "`process` is not allowed: elevated mode is `ask`"),
        ("web_fetch", [], "There is no tool `web_fetch`"),
    ],
)
async def test_a_skills_command_gets_no_further_than_the_policy(
    stage: Stage, tool: str, before: list[str], told: str
) -> None:
    stage.config = {"tools": {"deny": ["web_fetch"]}}
    folder = stage.workspace / "skills" / "direct"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(
        f"---\nname: direct\ndescription: Runs.\ncommand-dispatch: tool\ncommand-tool: {tool}\n---\n"
    )
    *_, reply = await stage.ask(*before, "/direct")
    assert told in reply.text


EVERYONE_ELEVATED = {"elevated": {"allowFrom": {"*": ["*", "42"]}}}


@pytest.mark.parametrize("kind", [PeerKind.DIRECT, PeerKind.GROUP])
@pytest.mark.parametrize(("owner", "level"), [(True, "full"), (False, "off")])
def test_a_person_in_a_chat_is_elevated_only_as_the_owner(kind: PeerKind, owner: bool, level: str) -> None:
    config = decode(Config, {"tools": EVERYONE_ELEVATED, "agents": {"defaults": {"elevatedDefault": "full"}}})
    origin = Origin("telegram", "a", kind, "42" if kind is PeerKind.DIRECT else "7", sender="42")
    message = Inbound("", GROUP, channel="telegram", sender="42", owner=owner, contact=True, origin=origin)
    assert elevation_of(config, config.agents.resolve("main"), None, message) is Elevation(level)


async def test_a_listed_contact_cannot_change_elevated_mode(stage: Stage) -> None:
    stage.config = {"tools": EVERYONE_ELEVATED}
    origin = Origin("telegram", "a", PeerKind.GROUP, "7", sender="42")
    async with stage.open() as runtime:
        answer = await say(runtime, stage, "/elevated full", **ANNA, origin=origin)
    assert answer == "/elevated is only for the owner of this assistant."
