"""The agents of a home, and the skills they find."""

from __future__ import annotations

from retinue.wire.frames import Name, Nothing, Params, Wire
from retinue.wire.method import Method
from retinue.wire.protocol import Scope


class AgentRow(Wire):
    """An agent."""

    id: str
    name: str
    emoji: str
    is_default: bool
    workspace: str
    model: str | None


class AgentList(Wire):
    """In the order of the configuration."""

    agents: list[AgentRow]


class OfAgent(Params):
    """Which agent; without one the default agent."""

    agent: Name | None = None


class SkillRow(Wire):
    """A skill; `reasons` say why it is off."""

    name: str
    description: str
    location: str
    tier: str
    eligible: bool
    reasons: list[str]


class SkillList(Wire):
    """All that were found, usable or not."""

    skills: list[SkillRow]


AGENTS_LIST = Method("agents.list", Scope.READ, Nothing, AgentList, "List the agents.")
SKILLS_LIST = Method("skills.list", Scope.READ, OfAgent, SkillList, "List an agent's skills.")

METHODS = (AGENTS_LIST, SKILLS_LIST)
