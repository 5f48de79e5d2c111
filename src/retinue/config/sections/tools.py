"""Settings of the tool policy, on top of what the tools themselves can be told."""

from __future__ import annotations

from typing import Any, Literal

from retinue.dispatch.settings import SenderId
from retinue.settings import Settings, key
from retinue.toolkit.settings import ExecPolicy, ExecSettings, Profile, ToolsSettings


class AllowRules(Settings):
    """Which tools there are, as one layer of the policy."""

    allow: list[str] = key([])
    """Only these tools, by name, `*` pattern or `group:…`; empty means all."""
    also_allow: list[str] = key([])
    """These tools on top of the profile's; not together with `allow`."""
    deny: list[str] = key([])
    """Never these tools; wins over everything else."""

    def _check(self) -> None:
        refuse_both(self.allow, self.also_allow)


def refuse_both(allow: list[str], also_allow: list[str]) -> None:
    """Refuse `allow` together with `alsoAllow`: one replaces the profile, the other adds to it."""
    if allow and also_allow:
        raise ValueError("set either allow (only these tools) or alsoAllow (these on top of the profile), not both")


class ProviderRules(AllowRules):
    """Other rules for one provider or model."""

    profile: Profile | None = key(None)
    """The set of tools to start from."""


class ExecSection(ExecSettings):
    """How commands run, and which may."""

    host: Literal["auto", "sandbox", "gateway", "node"] = key("auto", pending=True)
    """Where commands run."""
    node: str | None = key(None, pending=True)
    """The node that runs them."""
    ask_fallback: Literal["deny", "allowlist", "full"] = key("deny")
    """What applies if nobody answers an approval request."""
    approval_timeout_ms: int = key(1_800_000, ge=1)
    """How long to wait for an approval, in milliseconds."""


class FilesPolicy(Settings):
    """Where file tools may go."""

    workspace_only: bool = key(True)
    """Whether they stay inside the workspace and the folders of skills; `false` opens the rest of the machine."""


class LoopDetectors(Settings):
    """Kinds of repetition to look for."""

    generic_repeat: bool = key(True)
    """The same call with the same result, again and again."""
    known_poll_no_progress: bool = key(True)
    """The same where a call only asks how something is going, as of a command in the background."""
    ping_pong: bool = key(True)
    """Two calls in turns, both with the same results as before."""


class LoopDetection(Settings):
    """Loop detection."""

    enabled: bool = key(True)
    """Whether an agent that makes the same call with the same result is warned, then stopped."""
    history_size: int = key(30, ge=1)
    """How many calls are looked at."""
    warning_threshold: int = key(10, ge=1)
    """Repetitions after which the agent is warned."""
    critical_threshold: int = key(20, ge=1)
    """Repetitions after which the turn ends."""
    global_circuit_breaker_threshold: int = key(30, ge=1)
    """Calls in a row, of any kind, after which the turn ends where none brought anything new."""
    detectors: LoopDetectors = key(LoopDetectors)
    """Kinds of repetition to look for."""


class ElevatedSettings(Settings):
    """Elevated mode: who may let a sandboxed agent run commands outside the sandbox."""

    enabled: bool = key(True)
    """Whether anybody may."""
    allow_from: dict[str, list[SenderId]] = key({})
    """Who may besides the owner, per channel; `*` is every channel, or everybody on it."""


class LayerTools(Settings):
    """The tools of one kind of session."""

    tools: AllowRules = key(AllowRules)
    """Which tools there are."""


class AgentToAgentTools(Settings):
    """Whether agents may talk to each other."""

    enabled: bool = key(False)
    """Whether they may."""
    allow: list[str] = key([])
    """Which agents may."""


class SessionTools(Settings):
    """Which sessions the session tools see."""

    visibility: Literal["self", "tree", "agent", "all"] = key("tree")
    """Its own, its own and its sub-agents', all of the agent, or all."""


class ToolsSection(ToolsSettings):
    """Which tools agents have and how far each may go."""

    also_allow: list[str] = key([])
    """These tools on top of the profile's; not together with `allow`."""
    by_provider: dict[str, ProviderRules] = key({})
    """Other rules per provider or model, as in `openai` or `openai/gpt-5`."""
    exec: ExecSection = key(ExecSection)
    """How commands run, and which may."""
    fs: FilesPolicy = key(FilesPolicy)
    """Where file tools may go."""
    ask_when_tainted: bool = key(True)
    """Whether approval is needed to send, run, or write outside the workspace after untrusted text was read."""
    loop_detection: LoopDetection = key(LoopDetection)
    """Loop detection."""
    elevated: ElevatedSettings = key(ElevatedSettings)
    """Elevated mode: who may let a sandboxed agent run commands outside the sandbox."""
    sandbox: LayerTools = key(LayerTools)
    """The tools of sandboxed sessions."""
    subagents: LayerTools = key(LayerTools)
    """The tools of sub-agents."""
    agent_to_agent: AgentToAgentTools = key(AgentToAgentTools)
    """Whether agents may talk to each other."""
    sessions: SessionTools = key(SessionTools)
    """Which sessions the session tools see."""
    media: dict[str, Any] = key({}, pending=True)
    """How pictures and sound are understood."""

    def _check(self) -> None:
        refuse_both(self.allow, self.also_allow)


class AgentExec(ExecPolicy):
    """Which commands one agent may run; where nothing is set, `tools.exec` holds."""


class AgentTools(AllowRules):
    """The tools of one agent."""

    profile: Profile | None = key(None)
    """The set of tools to start from, in the place of `tools.profile`."""
    by_provider: dict[str, ProviderRules] = key({})
    """Other rules per provider or model."""
    exec: AgentExec = key(AgentExec)
    """Which commands the agent may run."""
    fs: FilesPolicy | None = key(None)
    """Where the agent's file tools may go."""
    elevated: ElevatedSettings | None = key(None)
    """Who may let the agent run commands outside the sandbox."""
    loop_detection: LoopDetection | None = key(None)
    """Whether the agent is stopped when it repeats itself."""
    sandbox: LayerTools | None = key(None)
    """The tools of the agent's sandboxed sessions."""
