"""Which tools may be used: seven layers, one decision, and the reason for it.

Every layer can only take away, so their order decides nothing but which reason is told: what one layer denies, none
gives back. The layers that are known before anybody calls (profile, allow, deny, provider, sandbox and sub-agent) make
a session's list of tools; owner-only and elevated are added when a tool is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum

from msgspec import Struct

from retinue.tools.elevated import Elevation
from retinue.tools.names import CALL, PROFILES, SEARCH, canonical, read_names

OWNER_TOOLS = frozenset({"cron", "gateway", "nodes"})
"""Tools that act beyond the conversation they are called in: only the owner's messages may set them off."""

ELEVATED_TOOLS = read_names(("group:runtime",))
"""Tools that a sandbox confines, and that elevated mode therefore concerns."""

_GATES = (SEARCH, CALL)


class Effect(StrEnum):
    """What a rule says of a tool, from mild to strict."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


_STRICTNESS = tuple(Effect)


class Layer(StrEnum):
    """Where a finding comes from, in the order in which they are told."""

    PROFILE = "profile"
    ALLOW = "allow"
    DENY = "deny"
    OWNER = "owner-only"
    PROVIDER = "provider"
    ELEVATED = "elevated"
    CONFINEMENT = "sandbox/sub-agent"


class Scope(Struct, frozen=True):
    """What one place of the configuration says about tools; `name` is where it stands.

    A list that is empty says nothing. `profile` takes the place of the profiles of scopes before it, `also_allow` adds
    to it; every `allow` must name the tool and no `deny` may. `why` is the reason for a `deny` that is no list of the
    configuration.
    """

    name: str
    profile: str | None = None
    allow: tuple[str, ...] = ()
    also_allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    why: str = ""


Scopes = tuple[Scope, ...]
"""Scopes that speak about the same thing, the broadest first."""


class Caller(Struct, frozen=True):
    """For whom a tool is called: whether the owner's message set it off, and what was lifted for it."""

    owner: bool
    elevated: Elevation = Elevation.OFF


class Layers(Struct, frozen=True):
    """Everything that a decision depends on; without a `caller` only what is known beforehand is judged."""

    general: Scopes = ()
    provider: Scopes = ()
    sandbox: Scopes = ()
    subagent: Scopes = ()
    caller: Caller | None = None


class Finding(Struct, frozen=True):
    """What one layer says."""

    layer: Layer
    effect: Effect
    because: str


class Decision(Struct, frozen=True):
    """Whether a tool may be used, why, by which layer, and what every layer said."""

    effect: Effect
    because: str
    layer: Layer
    findings: tuple[Finding, ...]

    @property
    def denied(self) -> bool:
        return self.effect is Effect.DENY


def decide(tool: str, layers: Layers, *, owner_only: bool = False) -> Decision:
    """Judge one tool; the strictest layer decides, and of equally strict ones the first gives the reason."""
    name = canonical(tool)
    findings = tuple(_judge_layers(name, layers, owner_only=owner_only or name in OWNER_TOOLS))
    strictest = max(findings, key=lambda finding: _STRICTNESS.index(finding.effect))
    return Decision(strictest.effect, strictest.because, strictest.layer, findings)


_Said = tuple[Effect, str]


def _judge_layers(tool: str, layers: Layers, *, owner_only: bool) -> Iterator[Finding]:
    yield Finding(Layer.PROFILE, *_judge_profile(tool, layers.general))
    yield Finding(Layer.ALLOW, *_judge_allow(tool, layers.general))
    yield Finding(Layer.DENY, *_judge_deny(tool, layers.general))
    yield Finding(Layer.OWNER, *_judge_owner(layers.caller, owner_only=owner_only))
    yield Finding(Layer.PROVIDER, *_judge_provider(tool, layers.provider))
    yield Finding(Layer.ELEVATED, *_judge_elevated(tool, layers.caller))
    yield Finding(Layer.CONFINEMENT, *_judge_confinement(tool, layers))


def _judge_profile(tool: str, scopes: Scopes) -> _Said:
    """The last profile that is set holds; `alsoAllow` beside it or after it adds to it."""
    at = max((index for index, scope in enumerate(scopes) if scope.profile), default=None)
    if at is None:
        return Effect.ALLOW, "no profile is set"
    profile = scopes[at].profile or ""
    if tool in _GATES:
        return Effect.ALLOW, "it only leads to other tools"
    if _includes(PROFILES[profile], tool):
        return Effect.ALLOW, f"the profile `{profile}` has it"
    for scope in scopes[at:]:
        if _includes(scope.also_allow, tool):
            return Effect.ALLOW, f"`{scope.name}.alsoAllow` adds it to the profile `{profile}`"
    return Effect.DENY, f"the profile `{profile}` of `{scopes[at].name}` does not have it"


def _judge_allow(tool: str, scopes: Scopes) -> _Said:
    naming = [scope for scope in scopes if scope.allow]
    for scope in naming:
        if tool not in _GATES and not _includes(scope.allow, tool):
            return Effect.DENY, f"`{scope.name}.allow` does not name it"
    return Effect.ALLOW, "every list of allowed tools names it" if naming else "no list of allowed tools is set"


def _judge_deny(tool: str, scopes: Scopes) -> _Said:
    for scope in scopes:
        if tool in read_names(scope.deny):
            return Effect.DENY, scope.why or f"`{scope.name}.deny` names it"
    return Effect.ALLOW, "no list of denied tools names it"


def _judge_scopes(tool: str, scopes: Scopes) -> _Said:
    """All that scopes say at once, for a layer that has a profile and lists of its own."""
    judges: tuple[Callable[[str, Scopes], _Said], ...] = (_judge_deny, _judge_allow, _judge_profile)
    for judge in judges:
        effect, because = judge(tool, scopes)
        if effect is Effect.DENY:
            return effect, because
    return Effect.ALLOW, f"nothing in {' and '.join(f'`{scope.name}`' for scope in scopes)} forbids it"


def _judge_owner(caller: Caller | None, *, owner_only: bool) -> _Said:
    if not owner_only:
        return Effect.ALLOW, "it is not reserved for the owner"
    if caller is None:
        return Effect.ALLOW, "it is only for the owner, which is looked at when it is called"
    if caller.owner:
        return Effect.ALLOW, "it is only for the owner, who asked"
    return Effect.DENY, "it is only for the owner of this assistant"


def _judge_provider(tool: str, scopes: Scopes) -> _Said:
    return _judge_scopes(tool, scopes) if scopes else (Effect.ALLOW, "nothing is set for the provider or model")


_ELEVATED: dict[Elevation, _Said] = {
    Elevation.OFF: (Effect.ALLOW, "elevated mode is off: the sandbox settings hold"),
    Elevation.ON: (Effect.ALLOW, "elevated mode is on: it runs outside the sandbox"),
    Elevation.ASK: (Effect.ASK, "elevated mode is `ask`: it runs outside the sandbox after a person agreed"),
    Elevation.FULL: (Effect.ALLOW, "elevated mode is `full`: it runs outside the sandbox and nobody is asked"),
}


def _judge_elevated(tool: str, caller: Caller | None) -> _Said:
    if tool not in ELEVATED_TOOLS:
        return Effect.ALLOW, "elevated mode does not concern it"
    if caller is None:
        return Effect.ALLOW, "elevated mode is looked at when it is called"
    return _ELEVATED[caller.elevated]


def _judge_confinement(tool: str, layers: Layers) -> _Said:
    found = [_judge_scopes(tool, scopes) for scopes in (layers.sandbox, layers.subagent) if scopes]
    if not found:
        return Effect.ALLOW, "the session is neither sandboxed nor a sub-agent's"
    return max(found, key=lambda said: _STRICTNESS.index(said[0]))


def _includes(names: tuple[str, ...], tool: str) -> bool:
    """Whether a list lets a tool in; whoever may write files may also patch them."""
    listed = read_names(names)
    return tool in listed or (tool == "apply_patch" and "write" in listed)
