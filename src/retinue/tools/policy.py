"""Tool policy: whether a tool may be used, decided from eight layers, with the reason.

A layer can only restrict: no layer allows what another one denies, so their order only decides which reason is given.
The layers that are known before a call (profile, allow, deny, provider, sandbox and sub-agent) determine a session's
list of tools. The owner-only, elevated and person layers are added when a tool is called.

Rules name tools by name, alias, pattern or group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache

from msgspec import Struct

from retinue.tools.elevated import Elevation

GROUPS: dict[str, tuple[str, ...]] = {
    "group:fs": ("read", "write", "edit", "apply_patch", "grep", "find", "ls"),
    "group:runtime": ("exec", "process"),
    "group:web": ("web_search", "web_fetch"),
    "group:memory": ("memory_*",),
    "group:sessions": ("sessions_*", "subagents", "agents_list", "session_status"),
    "group:automation": ("cron", "webhook_create", "skill_propose"),
    "group:messaging": ("message",),
    "group:ui": ("browser", "canvas", "ui_*"),
    "group:nodes": ("nodes",),
}
"""Groups of tools; members may be patterns, so that new tools join their group."""

ALIASES = {
    "bash": "exec",
    "shell": "exec",
    "code_run": "exec",
    "apply-patch": "apply_patch",
    "file_read": "read",
    "file_write": "write",
    "file_delete": "apply_patch",
    "web_browse": "browser",
    "cron_create": "cron",
    "channel_send": "message",
    "dm_send": "message",
    "node_list": "nodes",
    "node_command": "nodes",
}
"""Other names for our tools, as used in configurations written for OpenClaw."""

SANDBOXED = "sandboxed"
PROFILES: dict[str, tuple[str, ...]] = {
    "minimal": ("group:memory", "session_status"),
    "coding": (
        *("group:fs", "group:runtime", "group:web", "group:memory", "group:sessions", "group:automation"),
        *("image", "update_plan", "ui_*"),
    ),
    "messaging": ("group:memory", "group:messaging", "group:sessions", "ui_*"),
    "full": ("*",),
    SANDBOXED: ("group:fs", "group:runtime", "sessions_*", "subagents", "session_status", "image", "update_plan"),
}
"""Sets of tools to start from; `sandboxed` is the default of a sandboxed session."""

TOOL_SEARCH, TOOL_CALL = "tool_search", "tool_call"
"""The two tools that give access to deferred tools; the policy judges the deferred tool instead."""


def canonical_name(name: str) -> str:
    """Return the canonical name of a tool for a name in any case or an alias."""
    lowered = name.strip().lower()
    return ALIASES.get(lowered, lowered)


def expand_names(names: Iterable[str]) -> tuple[str, ...]:
    """Expand groups and replace aliases; the result is patterns over tool names in lower case."""
    out: list[str] = []
    for name in names:
        out += GROUPS.get(name.strip().lower()) or (canonical_name(name),)
    return tuple(dict.fromkeys(out))


class ToolNameSet(Struct, frozen=True):
    """A set of tool names and patterns that supports `in`."""

    exact: frozenset[str]
    patterns: tuple[str, ...]

    def __contains__(self, tool: str) -> bool:
        return tool in self.exact or any(fnmatchcase(tool, pattern) for pattern in self.patterns)


@lru_cache(maxsize=1024)
def parse_tool_names(names: tuple[str, ...]) -> ToolNameSet:
    """Parse a list of names from the configuration."""
    expanded = expand_names(names)
    exact = frozenset(name for name in expanded if not _is_pattern(name))
    return ToolNameSet(exact, tuple(name for name in expanded if _is_pattern(name)))


def _is_pattern(name: str) -> bool:
    return any(mark in name for mark in "*?[")


CONFIGURES = "gateway"
"""The tool that changes the configuration and restarts the gateway."""
OWNER_TOOLS = frozenset(
    {"cron", "gateway", "nodes", "skill_propose", "ui_confirm", "ui_notify", "ui_prompt", "webhook_create"}
)
"""Tools that act beyond the conversation they are called in, reserved for turns of the owner."""

ELEVATED_TOOLS = parse_tool_names(("group:runtime",))
"""Tools that the sandbox confines, to which elevated mode applies."""

_DEFERRED_ACCESS = (TOOL_SEARCH, TOOL_CALL)


class Effect(StrEnum):
    """The effect of a rule on a tool, from permissive to strict."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


_STRICTNESS = tuple(Effect)


class Layer(StrEnum):
    """The layers of the policy, in the order in which they are reported."""

    PROFILE = "profile"
    ALLOW = "allow"
    DENY = "deny"
    OWNER = "owner-only"
    PROVIDER = "provider"
    ELEVATED = "elevated"
    CONFINEMENT = "sandbox/sub-agent"
    PERSON = "person"


class Scope(Struct, frozen=True):
    """The tool rules of one section of the configuration; `name` is the path of the section.

    An empty list has no effect. `profile` replaces the profiles of earlier scopes and `also_allow` adds to it. Every
    `allow` must include the tool and no `deny` may. `why` is the reason for a denial that does not come from a list in
    the configuration.
    """

    name: str
    profile: str | None = None
    allow: tuple[str, ...] = ()
    also_allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    why: str = ""


Scopes = tuple[Scope, ...]
"""Scopes for the same layer, the broadest first."""


class Caller(Struct, frozen=True):
    """Who a tool is called for: whether it is a turn of the owner, and its level of elevated mode.

    `unattended` means that a schedule or a hook caused the turn, so that the owner did not ask for what it does.
    """

    owner: bool
    elevated: Elevation = Elevation.OFF
    unattended: bool = False


class Layers(Struct, frozen=True):
    """All inputs of a decision; without a `caller` only the layers that are known before a call are judged."""

    general: Scopes = ()
    provider: Scopes = ()
    sandbox: Scopes = ()
    subagent: Scopes = ()
    person: Scopes = ()
    caller: Caller | None = None


class LayerFinding(Struct, frozen=True):
    """The result of one layer."""

    layer: Layer
    effect: Effect
    because: str


class ToolDecision(Struct, frozen=True):
    """Whether a tool may be used, the reason, the deciding layer, and the results of all layers."""

    effect: Effect
    because: str
    layer: Layer
    findings: tuple[LayerFinding, ...]

    @property
    def denied(self) -> bool:
        return self.effect is Effect.DENY


def decide_tool(tool: str, layers: Layers, *, owner_only: bool = False) -> ToolDecision:
    """Decide whether a tool may be used. The strictest layer decides, and the first of equally strict ones."""
    name = canonical_name(tool)
    findings = (
        LayerFinding(Layer.PROFILE, *_judge_profile(name, layers.general)),
        LayerFinding(Layer.ALLOW, *_judge_allow(name, layers.general)),
        LayerFinding(Layer.DENY, *_judge_deny(name, layers.general)),
        LayerFinding(Layer.OWNER, *_judge_owner(name, layers.caller, owner_only=owner_only or name in OWNER_TOOLS)),
        LayerFinding(Layer.PROVIDER, *_judge_scopes(name, layers.provider, "nothing is set for the provider or model")),
        LayerFinding(Layer.ELEVATED, *_judge_elevated(name, layers.caller)),
        LayerFinding(Layer.CONFINEMENT, *_judge_confinement(name, layers)),
        LayerFinding(Layer.PERSON, *_judge_scopes(name, layers.person, "it is not for another person than the owner")),
    )
    strictest = max(findings, key=lambda finding: _STRICTNESS.index(finding.effect))
    return ToolDecision(strictest.effect, strictest.because, strictest.layer, findings)


_Verdict = tuple[Effect, str]


def _judge_profile(tool: str, scopes: Scopes) -> _Verdict:
    """Apply the last profile that is set; an `alsoAllow` in the same or a later scope adds to it."""
    at = max((index for index, scope in enumerate(scopes) if scope.profile), default=None)
    if at is None:
        return Effect.ALLOW, "no profile is set"
    profile = scopes[at].profile or ""
    if tool in _DEFERRED_ACCESS:
        return Effect.ALLOW, "it only gives access to other tools"
    if _includes(PROFILES[profile], tool):
        return Effect.ALLOW, f"the profile `{profile}` includes it"
    for scope in scopes[at:]:
        if _includes(scope.also_allow, tool):
            return Effect.ALLOW, f"`{scope.name}.alsoAllow` adds it to the profile `{profile}`"
    return Effect.DENY, f"the profile `{profile}` of `{scopes[at].name}` does not include it"


def _judge_allow(tool: str, scopes: Scopes) -> _Verdict:
    naming = [scope for scope in scopes if scope.allow]
    for scope in naming:
        if tool not in _DEFERRED_ACCESS and not _includes(scope.allow, tool):
            return Effect.DENY, scope.why or f"`{scope.name}.allow` does not include it"
    return Effect.ALLOW, "every list of allowed tools includes it" if naming else "no list of allowed tools is set"


def _judge_deny(tool: str, scopes: Scopes) -> _Verdict:
    for scope in scopes:
        if tool in parse_tool_names(scope.deny):
            return Effect.DENY, scope.why or f"`{scope.name}.deny` includes it"
    return Effect.ALLOW, "no list of denied tools includes it"


def _judge_scopes(tool: str, scopes: Scopes, if_none: str) -> _Verdict:
    """Judge a layer that has its own profile and lists; `if_none` is the reason if it has no scopes."""
    if not scopes:
        return Effect.ALLOW, if_none
    judges: tuple[Callable[[str, Scopes], _Verdict], ...] = (_judge_deny, _judge_allow, _judge_profile)
    for judge in judges:
        effect, because = judge(tool, scopes)
        if effect is Effect.DENY:
            return effect, because
    return Effect.ALLOW, f"nothing in {' and '.join(f'`{scope.name}`' for scope in scopes)} forbids it"


def _judge_owner(tool: str, caller: Caller | None, *, owner_only: bool) -> _Verdict:
    if not owner_only:
        return Effect.ALLOW, "it is not reserved for the owner"
    if caller is None:
        return Effect.ALLOW, "it is reserved for the owner, which is checked when it is called"
    if caller.unattended and tool == CONFIGURES:
        return Effect.DENY, "jobs, heartbeats and hooks do not change the configuration"
    if caller.owner:
        return Effect.ALLOW, "it is reserved for the owner, who sent the message"
    return Effect.DENY, "it is reserved for the owner of this assistant"


_ELEVATED: dict[Elevation, _Verdict] = {
    Elevation.OFF: (Effect.ALLOW, "elevated mode is off: the sandbox settings apply"),
    Elevation.ON: (Effect.ALLOW, "elevated mode is on: it runs outside the sandbox"),
    Elevation.ASK: (Effect.ASK, "elevated mode is `ask`: it runs outside the sandbox after approval"),
    Elevation.FULL: (Effect.ALLOW, "elevated mode is `full`: it runs outside the sandbox without approval"),
}


def _judge_elevated(tool: str, caller: Caller | None) -> _Verdict:
    if tool not in ELEVATED_TOOLS:
        return Effect.ALLOW, "elevated mode does not apply to it"
    if caller is None:
        return Effect.ALLOW, "elevated mode is checked when it is called"
    return _ELEVATED[caller.elevated]


def _judge_confinement(tool: str, layers: Layers) -> _Verdict:
    neither = "the session is neither sandboxed nor a sub-agent's"
    found = [_judge_scopes(tool, scopes, neither) for scopes in (layers.sandbox, layers.subagent) if scopes]
    return max(found, key=lambda said: _STRICTNESS.index(said[0]), default=(Effect.ALLOW, neither))


def _includes(names: tuple[str, ...], tool: str) -> bool:
    """Return whether a list includes a tool. A list that includes `write` also includes `apply_patch`."""
    listed = parse_tool_names(names)
    return tool in listed or (tool == "apply_patch" and "write" in listed)
