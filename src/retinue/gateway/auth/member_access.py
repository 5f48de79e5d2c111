"""What a member of a team may use: their own conversations, and what the role allows for an agent.

Owners and admins of the team have the scope `admin` and may use everything. For everybody else a method or path that is
not listed here is refused, so that a new one is closed until someone has decided about it.
"""

from __future__ import annotations

import json
from enum import StrEnum

from retinue.core.keys import AgentId, SessionKey, SessionKind
from retinue.gateway.auth.authenticator import Principal
from retinue.gateway.errors import RequestRefused
from retinue.wire.protocol import GATEWAY_STREAM, ErrorCode, Scope


class MemberRule(StrEnum):
    """How far a method reaches for a member."""

    GENERAL = "general"
    """What is no conversation; lists leave out what the member may not see."""
    SESSION = "own sessions"
    """The member's own conversation that the parameters name."""
    RUN = "own runs"
    """A message that the member sent."""
    AGENT = "agents"
    """An agent for which the member has the scope."""


MEMBER_METHODS = {
    **dict.fromkeys(("health", "status", "config.schema"), MemberRule.GENERAL),
    **dict.fromkeys(("agents.list", "sessions.list", "sessions.search"), MemberRule.GENERAL),
    **dict.fromkeys(("approvals.list", "approvals.resolve", "approvals.history"), MemberRule.GENERAL),
    "team.get": MemberRule.GENERAL,
    **dict.fromkeys(("models.list", "skills.list", "tools.list"), MemberRule.AGENT),
    **dict.fromkeys(("skills.review.list", "skills.review.show", "skills.review.accept"), MemberRule.AGENT),
    **dict.fromkeys(("agent", "agent.missed", "chat.send", "chat.abort", "chat.history"), MemberRule.SESSION),
    **dict.fromkeys(("sessions.get", "sessions.history", "sessions.reset", "sessions.compact"), MemberRule.SESSION),
    **dict.fromkeys(("sessions.patch", "sessions.subscribe", "sessions.unsubscribe"), MemberRule.SESSION),
    **dict.fromkeys(("sessions.introduce", "sessions.fork", "sessions.file"), MemberRule.SESSION),
    **dict.fromkeys(("sessions.export", "sessions.archive"), MemberRule.SESSION),
    **dict.fromkeys(("agent.wait", "agent.confirm"), MemberRule.RUN),
}
MEMBER_PATHS = ("/rpc/", "/mcp", "/v1/", "/auth/")
"""The HTTP paths that members use; the methods behind `/rpc` and `/mcp` have rules of their own."""
MEMBER_EVENTS = frozenset({"turn", "sessions.changed", "approvals.changed", "shutdown"})
NOT_FOR_MEMBERS = "Only owners and admins of the team may use this."


def is_limited(principal: Principal) -> bool:
    """Whether a client is a member who is neither an owner nor an admin of the team."""
    return principal.member is not None and not principal.is_owner


def scopes_for(principal: Principal, agent: AgentId) -> frozenset[Scope]:
    """The scopes of a client for an agent."""
    own = principal.member.agents if principal.member is not None else {}
    return own.get(agent, principal.scopes)


def require_for(principal: Principal, agent: AgentId, scope: Scope) -> None:
    """Raise `RequestRefused` if a client does not have a scope for an agent."""
    if scope not in scopes_for(principal, agent):
        raise RequestRefused(
            ErrorCode.FORBIDDEN, f"This needs the scope '{scope}' for the agent '{agent}', which you do not have."
        )


def require_anywhere(principal: Principal, scope: Scope) -> None:
    """Raise `RequestRefused` if a client has a scope neither in general nor for any agent."""
    own = principal.member.agents.values() if principal.member is not None else ()
    if not any(scope in scopes for scopes in own):
        principal.require(scope)


def require_path(principal: Principal, path: str, base: str) -> None:
    """Raise `RequestRefused` if a path is not for members."""
    if is_limited(principal) and not path.removeprefix(base).startswith(MEMBER_PATHS):
        raise RequestRefused(ErrorCode.FORBIDDEN, NOT_FOR_MEMBERS)


def member_session(principal: Principal, key: SessionKey, *, is_named: bool) -> SessionKey:
    """The session that a client means.

    A member's own conversations are `agent:<agent>:direct:member.<member>` and its threads. A name is that of a thread.
    Raises `RequestRefused` for the conversation of anybody else.
    """
    if principal.member is None or owns_session(principal, key):
        return key
    own = own_session(key.agent, principal.member.id)
    if not is_named:
        return SessionKey.parse(own)
    if principal.is_owner:
        return key
    if key.kind is SessionKind.MAIN:
        return SessionKey.parse(own)
    if key.kind is SessionKind.EXPLICIT:
        name = "-".join(key.text.split(":")[2:])
        return SessionKey.parse(f"{own}:thread:{name}")
    raise RequestRefused(ErrorCode.NOT_FOUND, f"You have no session '{key.text[:200]}'.")


def own_session(agent: AgentId, member: str) -> str:
    """The key of a member's main conversation with an agent. The prefix keeps it apart from those of chat services."""
    return f"agent:{agent}:direct:member.{member}"


def owns_session(principal: Principal, key: SessionKey) -> bool:
    """Whether a session is a member's own conversation."""
    if principal.member is None:
        return False
    own = own_session(key.agent, principal.member.id)
    return key.text == own or key.text.startswith(f"{own}:thread:")


def require_own_run(principal: Principal, session: SessionKey) -> None:
    """Raise `RequestRefused` if a member names a message of another person's conversation."""
    if not may_see(principal, session):
        raise RequestRefused(ErrorCode.NOT_FOUND, "You have sent no message with this run.")


def may_see(principal: Principal, key: SessionKey) -> bool:
    """Whether a client may read a session, as far as that depends on the session."""
    return not is_limited(principal) or owns_session(principal, key)


def is_hidden(principal: Principal, frame: str) -> bool:
    """Whether an event is about something that a member may not see. Streams of sessions are checked when joined."""
    head = frame[:200]
    if not head.startswith('{"type":"event"') or f'"stream":"{GATEWAY_STREAM}"' not in head:
        return False
    event = json.loads(frame)
    if event["event"] not in MEMBER_EVENTS:
        return True
    named = event["payload"].get("sessionKey")
    if named is None:
        return False
    key = SessionKey.parse(named)
    if event["event"] == "approvals.changed" and Scope.APPROVE in scopes_for(principal, key.agent):
        return False
    return not owns_session(principal, key)
