"""The agents of a home and their skills."""

from __future__ import annotations

from retinue.wire.frames import Name, Nothing, Params, Wire
from retinue.wire.method import Method
from retinue.wire.protocol import Scope


class AgentRow(Wire, frozen=True):
    """An agent."""

    id: str
    name: str
    emoji: str
    is_default: bool
    workspace: str
    model: str | None


class AgentList(Wire, frozen=True):
    """The agents in the order of the configuration."""

    agents: list[AgentRow]


class OfAgent(Params, frozen=True):
    """An agent; without one the default agent."""

    agent: Name | None = None


class SkillRow(Wire, frozen=True):
    """A skill; `reasons` explain why it is not eligible."""

    name: str
    description: str
    location: str
    tier: str
    eligible: bool
    reasons: list[str]


class SkillList(Wire, frozen=True):
    """All skills that were found, eligible or not."""

    skills: list[SkillRow]


AGENTS_LIST = Method("agents.list", Scope.READ, Nothing, AgentList, "List the agents.")
SKILLS_LIST = Method("skills.list", Scope.READ, OfAgent, SkillList, "List an agent's skills.")

METHODS = (AGENTS_LIST, SKILLS_LIST)
