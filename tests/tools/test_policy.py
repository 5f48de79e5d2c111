"""Seven layers, one decision: deny wins, nothing gives back what a layer took, and every decision has its reason."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from retinue.tools.elevated import Elevation
from retinue.tools.policy import (
    GROUPS,
    OWNER_TOOLS,
    PROFILES,
    Caller,
    Effect,
    Layer,
    Layers,
    Scope,
    ToolDecision,
    canonical_name,
    decide_tool,
    expand_names,
    parse_tool_names,
)

OWNER, GUEST = Caller(owner=True), Caller(owner=False)


def judge(tool: str, *scopes: Scope, caller: Caller | None = None) -> ToolDecision:
    return decide_tool(tool, Layers(general=scopes, caller=caller))


def test_names_expand_to_patterns() -> None:
    assert expand_names(["group:runtime", " FILE_READ", "memory_*", "exec"]) == ("exec", "process", "read", "memory_*")
    assert canonical_name(" Bash ") == "exec"


@pytest.mark.parametrize(
    ("names", "tool", "found"),
    [
        (("group:memory",), "memory_search", True),
        (("Group:FS",), "grep", True),
        (("web_*",), "web_fetch", True),
        (("web_?etch",), "web_fetch", True),
        (("web_",), "web_fetch", False),
        (("shell",), "exec", True),
        (("*",), "anything", True),
        ((), "anything", False),
    ],
)
def test_a_list_stands_for_tools(names: tuple[str, ...], tool: str, found: bool) -> None:
    assert (tool in parse_tool_names(names)) is found


def test_every_layer_is_told_in_order() -> None:
    decision = decide_tool("read", Layers())
    assert [finding.layer for finding in decision.findings] == list(Layer)
    assert decision.effect is Effect.ALLOW
    assert all(finding.because for finding in decision.findings)


@pytest.mark.parametrize(
    ("scope", "tool", "layer", "because"),
    [
        (Scope("tools", "minimal"), "exec", Layer.PROFILE, "the profile `minimal` of `tools` does not include it"),
        (Scope("tools", "full", allow=("read",)), "exec", Layer.ALLOW, "`tools.allow` does not include it"),
        (Scope("tools", "full", deny=("group:runtime",)), "exec", Layer.DENY, "`tools.deny` includes it"),
        (Scope("tools", "full", deny=("exec",), why="it is off"), "exec", Layer.DENY, "it is off"),
        (Scope("tools", "minimal", deny=("*",)), "exec", Layer.PROFILE, "the profile `minimal` of `tools`"),
    ],
)
def test_the_first_strictest_layer_gives_the_reason(scope: Scope, tool: str, layer: Layer, because: str) -> None:
    decision = judge(tool, scope)
    assert (decision.effect, decision.layer) == (Effect.DENY, layer)
    assert decision.denied
    assert because in decision.because


@pytest.mark.parametrize(
    ("profile", "tools"),
    [
        ("minimal", {"memory_get", "session_status"}),
        ("messaging", {"memory_get", "session_status", "message", "sessions_send"}),
        ("coding", {"memory_get", "session_status", "sessions_send", "exec", "read", "web_fetch", "cron", "image"}),
        ("full", {"memory_get", "session_status", "sessions_send", "exec", "read", "web_fetch", "cron", "image"}),
        ("sandboxed", {"session_status", "sessions_send", "exec", "read", "image"}),
    ],
)
def test_profiles(profile: str, tools: set[str]) -> None:
    every = {"memory_get", "session_status", "message", "sessions_send", "exec", "read", "web_fetch", "cron", "image"}
    left = {tool for tool in every if not judge(tool, Scope("tools", profile)).denied}
    assert left == (every if profile == "full" else tools)


def test_also_allow_adds_to_the_profile_and_nothing_else() -> None:
    scope = Scope("tools", "minimal", also_allow=("exec",))
    decision = judge("bash", scope)
    assert decision.effect is Effect.ALLOW
    assert decision.findings[0].because == "`tools.alsoAllow` adds it to the profile `minimal`"
    assert judge("process", scope).denied
    assert judge("exec", replace(scope, deny=("exec",))).denied
    assert judge("exec", scope, Scope("agent", allow=("read",))).denied


def test_a_later_profile_takes_the_place_of_the_earlier_with_what_was_added_to_it() -> None:
    shared = Scope("tools", "coding", also_allow=("message",))
    assert not judge("message", shared, Scope("agent", also_allow=("browser",))).denied
    assert not judge("browser", shared, Scope("agent", also_allow=("browser",))).denied
    own = Scope("agent", "minimal", also_allow=("browser",))
    assert judge("exec", shared, own).denied
    assert judge("message", shared, own).denied
    assert not judge("browser", shared, own).denied
    assert not judge("exec", Scope("tools", "minimal"), Scope("agent", "coding")).denied


def test_every_list_of_allowed_tools_must_name_it() -> None:
    scopes = (Scope("tools", allow=("group:fs", "exec")), Scope("agent", allow=("read", "message")))
    assert not judge("read", *scopes).denied
    assert judge("exec", *scopes).because == "`agent.allow` does not include it"
    assert judge("message", *scopes).because == "`tools.allow` does not include it"


def test_who_may_write_may_patch() -> None:
    assert not judge("apply_patch", Scope("tools", allow=("write",))).denied
    assert judge("apply_patch", Scope("tools", allow=("edit",))).denied
    assert judge("apply_patch", Scope("tools", allow=("write",), deny=("apply_patch",))).denied


@pytest.mark.parametrize("gate", ["tool_search", "tool_call"])
def test_the_way_to_deferred_tools_needs_no_permission_but_can_be_denied(gate: str) -> None:
    assert not judge(gate, Scope("tools", "minimal", allow=("image",))).denied
    assert judge(gate, Scope("tools", deny=("tool_*",))).denied


@pytest.mark.parametrize("tool", sorted(OWNER_TOOLS))
def test_some_tools_are_for_the_owner_only(tool: str) -> None:
    assert not judge(tool).denied
    assert not judge(tool, caller=OWNER).denied
    refused = judge(tool, caller=GUEST)
    assert (refused.layer, refused.because) == (Layer.OWNER, "it is reserved for the owner of this assistant")


def test_a_turn_that_a_schedule_began_does_not_change_the_configuration() -> None:
    unattended = Caller(owner=True, unattended=True)
    refused = judge("gateway", caller=unattended)
    assert (refused.layer, refused.because) == (
        Layer.OWNER,
        "jobs, heartbeats and hooks do not change the configuration",
    )
    assert not judge("cron", caller=unattended).denied


def test_a_tool_can_say_that_it_is_for_the_owner_only() -> None:
    assert decide_tool("mine", Layers(caller=GUEST), owner_only=True).denied
    assert not decide_tool("mine", Layers(caller=GUEST)).denied
    assert not decide_tool("mine", Layers(caller=OWNER), owner_only=True).denied


def test_a_provider_has_lists_and_a_profile_of_its_own() -> None:
    def ask(tool: str, *scopes: Scope) -> ToolDecision:
        return decide_tool(tool, Layers(provider=scopes))

    assert ask("exec", Scope("p", deny=("exec",))).layer is Layer.PROVIDER
    assert ask("exec", Scope("p", allow=("read",))).because == "`p.allow` does not include it"
    assert ask("exec", Scope("p", "minimal")).because == "the profile `minimal` of `p` does not include it"
    assert not ask("exec", Scope("p", "minimal", also_allow=("exec",))).denied
    assert not ask("exec", Scope("p", "minimal"), Scope("p/m", "coding")).denied
    assert ask("exec", Scope("p", deny=("exec",)), Scope("p/m", "full")).denied
    assert ask("exec", Scope("p")).findings[4].because == "nothing in `p` forbids it"


@pytest.mark.parametrize(
    ("level", "effect", "word"),
    [
        (None, Effect.ALLOW, "when it is called"),
        (Elevation.OFF, Effect.ALLOW, "off"),
        (Elevation.ON, Effect.ALLOW, "outside"),
        (Elevation.ASK, Effect.ASK, "after approval"),
        (Elevation.FULL, Effect.ALLOW, "without approval"),
    ],
)
def test_elevated_mode_concerns_commands(level: Elevation | None, effect: Effect, word: str) -> None:
    layers = Layers(caller=None if level is None else Caller(owner=True, elevated=level))
    decision = decide_tool("exec", layers)
    elevated = decision.findings[5]
    assert (elevated.layer, decision.effect) == (Layer.ELEVATED, effect)
    assert word in elevated.because
    assert decide_tool("read", layers).effect is Effect.ALLOW


def test_elevated_mode_gives_nothing_that_another_layer_took() -> None:
    caller = Caller(owner=True, elevated=Elevation.FULL)
    for layers in (
        Layers(general=(Scope("tools", deny=("exec",)),), caller=caller),
        Layers(provider=(Scope("tools.byProvider.x", deny=("exec",)),), caller=caller),
        Layers(sandbox=(Scope("tools.sandbox.tools", deny=("exec",)),), caller=caller),
    ):
        assert decide_tool("exec", layers).denied


def test_asking_is_stricter_than_allowing_and_milder_than_denying() -> None:
    asked = Caller(owner=True, elevated=Elevation.ASK)
    assert judge("exec", caller=asked).effect is Effect.ASK
    assert judge("exec", Scope("tools", deny=("exec",)), caller=asked).effect is Effect.DENY


def test_a_sandbox_and_a_sub_agent_both_count() -> None:
    sandbox = (Scope("tools.sandbox.tools", "sandboxed"),)
    subagent = (Scope("tools.subagents.tools", deny=("sessions_spawn",)),)
    assert decide_tool("web_fetch", Layers(sandbox=sandbox)).layer is Layer.CONFINEMENT
    assert not decide_tool("web_fetch", Layers(subagent=subagent)).denied
    assert decide_tool("sessions_spawn", Layers(subagent=subagent)).denied
    assert decide_tool("sessions_spawn", Layers(sandbox=sandbox, subagent=subagent)).denied
    assert not decide_tool("exec", Layers(sandbox=sandbox, subagent=subagent)).denied
    assert not decide_tool("exec", Layers(sandbox=sandbox, subagent=(Scope("s", also_allow=("web_fetch",)),))).denied
    assert decide_tool("web_fetch", Layers(sandbox=sandbox, subagent=(Scope("s", also_allow=("web_fetch",)),))).denied


TOOLS = ("read", "write", "apply_patch", "exec", "process", "web_fetch", "memory_get", "cron", "message", "tool_search")
NAMES = st.lists(st.sampled_from([*TOOLS, *GROUPS, "*", "web_*", "bash", "FILE_READ", "nothing"]), max_size=4).map(
    tuple
)
SCOPES = st.lists(
    st.builds(
        Scope,
        st.sampled_from(["tools", "agent"]),
        st.sampled_from([None, *PROFILES]),
        allow=NAMES,
        also_allow=NAMES,
        deny=NAMES,
    ),
    max_size=3,
).map(tuple)
CALLERS = st.none() | st.builds(Caller, st.booleans(), st.sampled_from(Elevation))
LAYERS = st.builds(Layers, SCOPES, SCOPES, SCOPES, SCOPES, SCOPES, CALLERS)
TOOL = st.sampled_from(TOOLS)
PARTS = ("general", "provider", "sandbox", "subagent", "person")


def having(layers: Layers, part: str, at: int, scope: Scope) -> Layers:
    """The same layers with one more scope in one of them."""
    scopes: tuple[Scope, ...] = getattr(layers, part)
    changed: dict[str, Any] = {part: (*scopes[:at], scope, *scopes[at:])}
    return replace(layers, **changed)


def strictness(decision: ToolDecision) -> int:
    return list(Effect).index(decision.effect)


@given(TOOL, LAYERS, st.sampled_from(PARTS), st.integers(0, 3))
def test_deny_always_wins(tool: str, layers: Layers, part: str, at: int) -> None:
    assert decide_tool(tool, having(layers, part, at, Scope("here", deny=(tool,)))).denied


@pytest.mark.slow
@given(TOOL, LAYERS, st.sampled_from(PARTS), NAMES)
def test_one_more_deny_never_allows_more(tool: str, layers: Layers, part: str, names: tuple[str, ...]) -> None:
    stricter = having(layers, part, 3, Scope("more", deny=names))
    assert strictness(decide_tool(tool, stricter)) >= strictness(decide_tool(tool, layers))


@given(TOOL, LAYERS, st.sampled_from(PARTS), NAMES.filter(bool))
def test_one_more_list_of_allowed_tools_never_allows_more(
    tool: str, layers: Layers, part: str, names: tuple[str, ...]
) -> None:
    stricter = having(layers, part, 3, Scope("more", allow=names))
    assert strictness(decide_tool(tool, stricter)) >= strictness(decide_tool(tool, layers))


@given(TOOL, NAMES, NAMES, SCOPES)
def test_an_agent_never_gets_back_what_is_denied_or_not_listed_for_all(
    tool: str, deny: tuple[str, ...], allow: tuple[str, ...], own: tuple[Scope, ...]
) -> None:
    shared = Scope("tools", "full", allow=allow, deny=deny)
    if judge(tool, shared).denied:
        assert judge(tool, shared, *own).denied


@given(TOOL, LAYERS)
def test_the_decision_is_the_strictest_finding(tool: str, layers: Layers) -> None:
    decision = decide_tool(tool, layers)
    assert decision.effect == max((f.effect for f in decision.findings), key=list(Effect).index)
    assert any(
        (f.layer, f.effect, f.because) == (decision.layer, decision.effect, decision.because) for f in decision.findings
    )


@given(TOOL, LAYERS)
def test_the_caller_can_only_narrow_what_the_session_has(tool: str, layers: Layers) -> None:
    listed = decide_tool(tool, replace(layers, caller=None))
    assert listed.effect is not Effect.ASK
    assert strictness(decide_tool(tool, layers)) >= strictness(listed)


@given(TOOL, LAYERS)
def test_spelling_does_not_matter(tool: str, layers: Layers) -> None:
    assert decide_tool(f" {tool.upper()} ", layers) == decide_tool(tool, layers)
