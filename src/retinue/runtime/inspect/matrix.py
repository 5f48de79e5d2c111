"""The capability matrix: what each kind of principal may do with each agent, as the functions that decide see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from retinue.config.schema import Config
from retinue.core.envelope import UNATTENDED, Source
from retinue.core.keys import AgentId, SessionKey
from retinue.core.people import Person, Role
from retinue.runtime.agents.policy import is_sandboxed, session_layers
from retinue.tools.approvals.broker import Approver
from retinue.tools.policy import Caller, Effect, decide_tool
from retinue.wire.protocol import Scope

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
    person: Person | None = None

    @property
    def whose(self) -> Person | None:
        """The person other than the owner for whom it is."""
        return self.person or (Person(self.role, "chat:person") if self.role else None)


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


class MemberFacts(Struct, frozen=True):
    """A member of a team: the id, the name, the role, and the end of the key of the own conversations."""

    id: str
    name: str
    role: str
    session: str


def member_matrix(
    config: Config, member: MemberFacts, scopes_for: Callable[[AgentId], frozenset[Scope]]
) -> Iterator[Capability]:
    """Return the rows of one member: what their conversations with each agent may do, and what their role allows."""
    principal = _Principal(member.name, member.session, person=Person.of_member(member.id))
    for agent in config.agents.ids:
        scopes = scopes_for(agent)
        refused = Effect.DENY, f"the role {member.role} does not allow it for this agent"
        for capability, tool in TOOLS.items():
            found = _judge_tool(config, agent, principal, tool) if Scope.WRITE in scopes else refused
            yield Capability(member.name, agent, capability, *found)
        for capability, scope in ((APPROVE, Scope.APPROVE), ("administer", Scope.ADMIN)):
            allowed = Effect.ALLOW, f"the role {member.role}"
            yield Capability(member.name, agent, capability, *(allowed if scope in scopes else refused))


def _judge_tool(config: Config, agent: AgentId, principal: _Principal, tool: str) -> tuple[Effect, str]:
    settings = config.agents.resolve(agent)
    session = SessionKey.parse(f"agent:{agent}:{principal.session}")
    person = principal.whose
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
