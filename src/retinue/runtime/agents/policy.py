"""The layers of the tool policy for one session, from the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from retinue.config.schema import Config
from retinue.config.sections.agents import AgentSettings
from retinue.config.sections.tools import AllowRules, ElevatedSettings, ProviderRules, ToolsSection
from retinue.core.envelope import Inbound, Source
from retinue.core.keys import SessionKey, SessionKind
from retinue.core.model import ModelRef
from retinue.core.people import Person, Role
from retinue.dispatch.settings import GroupTools
from retinue.providers.vendors import canonical_provider
from retinue.sandbox.confinement import decide_sandbox
from retinue.sessions.session import ELEVATED, Session, person_of
from retinue.tools.elevated import Elevation, ElevationRule, MessageSender, grant_elevation
from retinue.tools.policy import SANDBOXED, Layers, Scope, Scopes, parse_tool_names

NEVER_FOR_SUBAGENTS = (
    *("gateway", "agents_list", "session_status", "cron", "sessions_send", "message"),
    *("ui_confirm", "ui_notify", "ui_prompt", "webhook_create"),
)
"""Tools that act for the whole assistant are left to the parent of a sub-agent."""
NEVER_FOR_LEAVES = ("subagents", "sessions_list", "sessions_history", "sessions_spawn")
"""Tools that a sub-agent without the right to start others does not need."""


TOOLS_OF_OTHERS = ("group:fs", "image", "update_plan", "session_status", "message")
"""The tools of people other than the owner: files in their folder, and messages to their own chat."""
TOOLS_OF_CONTACTS = (*TOOLS_OF_OTHERS, "group:runtime", "group:web", "sessions_spawn", "subagents")


def person_scopes(person: Person | None, *, sandboxed: bool) -> Scopes:
    """Return the rules for a person other than the owner; none for the owner.

    Their commands run in a sandbox or not at all: only a sandbox restricts a command to a folder.
    """
    if person is None:
        return ()
    allowed = TOOLS_OF_CONTACTS if person.role is Role.CONTACT else TOOLS_OF_OTHERS
    scopes = [Scope(f"the rights of a {person.role}", allow=allowed, why=f"a {person.role} may not use it")]
    if not sandboxed:
        why = "commands for other people than the owner run only in a sandbox, and this session has none"
        scopes.append(Scope("the sandbox", deny=("group:runtime",), why=why))
    return tuple(scopes)


def session_layers(
    config: Config,
    settings: AgentSettings,
    session: SessionKey,
    model: ModelRef | None,
    person: Person | None = None,
    group: GroupTools | None = None,
) -> Layers:
    """Return the policy layers that are known before a tool is called; `person` is set if it is not for the owner.

    `group` are the rules of the group in which the message was written.
    """
    of_group = (_scope("the rules of this group", group, None),) if group is not None else ()
    return Layers(
        general=(*_general(config, settings), *of_group),
        provider=tuple(_provider(config, settings, model)),
        sandbox=_sandbox(config, settings) if must_be_sandboxed(settings, session) else (),
        person=person_scopes(person, sandboxed=is_sandboxed(settings, session)),
        subagent=_subagent(config, settings, session) if session.kind is SessionKind.SUBAGENT else (),
    )


def is_sandboxed(settings: AgentSettings, session: SessionKey) -> bool:
    """Return whether a session's commands are sandboxed, if the system can."""
    return decide_sandbox(settings.sandbox, session).confined


def must_be_sandboxed(settings: AgentSettings, session: SessionKey) -> bool:
    """Return whether a session is sandboxed as a whole: its tools are restricted, and no command runs without it."""
    return decide_sandbox(settings.sandbox, session).required


def elevation_gates(config: Config, settings: AgentSettings) -> tuple[ElevationRule, ...]:
    """Return who may elevate: the configured senders; an agent can only restrict them further."""
    own = settings.tools.elevated
    gates = [_gate("tools.elevated", config.tools.elevated, config.tools.elevated.allow_from)]
    if own is not None:
        gates.append(_gate(f"{_of_agent(settings)}.elevated", own, own.allow_from or None))
    return tuple(gates)


def elevation_of(config: Config, settings: AgentSettings, session: Session | None, inbound: Inbound) -> Elevation:
    """Return the elevation for the turn of a message: the session's mode, if the sender may use it.

    A message of a schedule, a hook or another agent has none; the end of the owner's background command is still
    theirs. People other than the owner never have it, even if they are listed.
    """
    if inbound.source not in (Source.CHAT, Source.BACKGROUND) or person_of(session, inbound) is not None:
        return Elevation.OFF
    sender = MessageSender(inbound.sender, inbound.channel, inbound.owner)
    return grant_elevation(wanted_elevation(settings, session), sender, elevation_gates(config, settings))


def wanted_elevation(settings: AgentSettings, session: Session | None) -> Elevation:
    """Return the elevated mode of the session, for any sender."""
    chosen = session.setting(ELEVATED) if session else None
    return Elevation(chosen or settings.elevated_default)


def _general(config: Config, settings: AgentSettings) -> Iterator[Scope]:
    tools, own = config.tools, settings.tools
    yield _scope("tools", tools, tools.profile)
    yield _scope(_of_agent(settings), own, own.profile)
    if not settings.memory_search.enabled:
        yield _switched_off("group:memory", "`memorySearch.enabled` is false")
    if not tools.exec.apply_patch.enabled:
        yield _switched_off("apply_patch", "`tools.exec.applyPatch.enabled` is false")


def _provider(config: Config, settings: AgentSettings, model: ModelRef | None) -> Iterator[Scope]:
    if model is None:
        return
    yield from _by_provider("tools.byProvider", config.tools.by_provider, model)
    yield from _by_provider(f"{_of_agent(settings)}.byProvider", settings.tools.by_provider, model)
    models = config.tools.exec.apply_patch.allow_models
    if models and not _names_model(models, model):
        yield _switched_off("apply_patch", f"`tools.exec.applyPatch.allowModels` does not name {model}")


def _by_provider(name: str, rules: Mapping[str, ProviderRules], model: ModelRef) -> Iterator[Scope]:
    """Return the rules of a provider and of the model; those of the model take precedence."""
    by_key = {_normalise_key(key): key for key in rules}
    for wanted in (canonical_provider(model.provider), _normalise_key(str(model))):
        if wanted in by_key:
            found = rules[by_key[wanted]]
            yield _scope(f"{name}.{by_key[wanted]}", found, found.profile)


def _names_model(models: list[str], model: ModelRef) -> bool:
    """Return whether a list of models contains this one, as `provider/model` or by the model's name alone."""
    return any(_normalise_key(name) in (_normalise_key(str(model)), model.model.lower()) for name in models)


def _normalise_key(text: str) -> str:
    """Normalise `provider` or `provider/model` for comparison."""
    provider, slash, model = text.strip().lower().partition("/")
    return f"{canonical_provider(provider)}{slash}{model}"


def _sandbox(config: Config, settings: AgentSettings) -> Scopes:
    """A list of allowed tools replaces the defaults of sandboxed sessions."""
    shared, own = config.tools.sandbox.tools, settings.tools.sandbox
    scopes = [_scope("tools.sandbox.tools", shared, "full" if shared.allow else SANDBOXED)]
    if own is not None:
        name = f"{_of_agent(settings)}.sandbox.tools"
        scopes.append(_scope(name, own.tools, "full" if own.tools.allow else None))
    return tuple(scopes)


def _subagent(config: Config, settings: AgentSettings, session: SessionKey) -> Scopes:
    """Return the tools that are denied to sub-agents unless the configuration allows them by name."""
    rules = config.tools.subagents.tools
    depth = str(session).split(":").count(SessionKind.SUBAGENT)
    is_leaf = depth >= settings.subagents.max_spawn_depth
    given = parse_tool_names((*rules.allow, *rules.also_allow))
    refused = [name for name in (*NEVER_FOR_SUBAGENTS, *(NEVER_FOR_LEAVES if is_leaf else ())) if name not in given]
    return (
        Scope("the defaults of sub-agents", deny=tuple(refused), why="sub-agents do not have it by default"),
        _scope("tools.subagents.tools", rules, None),
    )


def _scope(name: str, rules: AllowRules | ToolsSection | GroupTools, profile: str | None) -> Scope:
    return Scope(name, profile, tuple(rules.allow), tuple(rules.also_allow), tuple(rules.deny))


def _switched_off(tools: str, why: str) -> Scope:
    return Scope(tools, deny=(tools,), why=why)


def _gate(name: str, settings: ElevatedSettings, allow_from: Mapping[str, list[str]] | None) -> ElevationRule:
    listed = None if allow_from is None else {channel: tuple(ids) for channel, ids in allow_from.items()}
    return ElevationRule(name, settings.enabled, listed)


def _of_agent(settings: AgentSettings) -> str:
    return f"agents.list[{settings.id}].tools"
