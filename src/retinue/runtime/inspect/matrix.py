"""The capability matrix: what each kind of principal may do with each agent, as the functions that decide see it."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from retinue.config.schema import Config
from retinue.core.envelope import UNATTENDED, Source
from retinue.core.keys import AgentId, SessionKey
from retinue.core.people import Person, Role
from retinue.runtime.agents.policy import is_sandboxed, session_layers
from retinue.tools.approvals.broker import Approver
from retinue.tools.policy import Caller, Effect, decide_tool

TOOLS = {
    "read": "read",
    "write": "write",
    "run": "exec",
    "send": "message",
    "fetch": "web_fetch",
    "configure": "gateway",
}
"""The tool by which each capability is used; approval is no tool."""
APPROVE = "approve"


class _Principal(Struct, frozen=True):
    """One kind of principal: the end of its session's key, whether it acts as the owner, and what causes its turns."""

    name: str
    session: str
    owner: bool = False
    source: Source = Source.CHAT
    role: Role | None = None


PRINCIPALS = (
    _Principal("owner", "main", owner=True),
    _Principal("contact", "chat:direct:person", role=Role.CONTACT),
    _Principal("guest", "chat:direct:person", role=Role.GUEST),
    _Principal("group member", "chat:group:some", role=Role.MEMBER),
    _Principal("sub-agent", "subagent:some", owner=True, source=Source.SUBAGENT),
    _Principal("cron", "cron:some", owner=True, source=Source.CRON),
    _Principal("heartbeat", "heartbeat", owner=True, source=Source.HEARTBEAT),
    _Principal("webhook", "hook:some", source=Source.HOOK),
    _Principal("program", "some"),
    _Principal("device", "main"),
)


class Capability(Struct, frozen=True):
    """A row of the matrix: whether a principal may do something with an agent, and what decides it."""

    principal: str
    agent: AgentId
    capability: str
    decision: Effect
    by: str


def capability_matrix(config: Config) -> Iterator[Capability]:
    """Return the rows for every agent, principal and capability under a configuration."""
    for agent in config.agents.ids:
        for principal in PRINCIPALS:
            for capability, tool in TOOLS.items():
                yield Capability(principal.name, agent, capability, *_judge_tool(config, agent, principal, tool))
            yield Capability(principal.name, agent, APPROVE, *_judge_approval(principal))


def _judge_tool(config: Config, agent: AgentId, principal: _Principal, tool: str) -> tuple[Effect, str]:
    settings = config.agents.resolve(agent)
    session = SessionKey.parse(f"agent:{agent}:{principal.session}")
    person = Person(principal.role, "chat:person") if principal.role else None
    layers = session_layers(config, settings, session, None, person)
    decision = decide_tool(
        tool, replace(layers, caller=Caller(principal.owner, unattended=principal.source in UNATTENDED))
    )
    if decision.denied:
        return decision.effect, decision.because
    limits = [*([f"only in {person.folder}"] if person and tool in ("read", "write") else [])]
    if tool == "message" and not principal.owner:
        limits.append("only to the own chat")
    elif tool == "message" and principal.source in UNATTENDED:
        limits.append("to the owner; other chats need approval")
    if tool == "exec":
        if not is_sandboxed(settings, session):
            return Effect.ASK, "commands of this session are not sandboxed; `tools.exec` decides"
        limits.append("in the sandbox; what needs more asks")
    return decision.effect, "; ".join((decision.because, *limits))


def _judge_approval(principal: _Principal) -> tuple[Effect, str]:
    objection = Approver(principal.name, principal.owner, principal.source).objection
    return (Effect.DENY, objection) if objection else (Effect.ALLOW, "the owner decides")
