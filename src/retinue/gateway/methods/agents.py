"""The agents of the home and their skills."""

from __future__ import annotations

from retinue.core.errors import WorkspaceError
from retinue.core.keys import AgentId
from retinue.gateway.gateway import Call
from retinue.gateway.methods.registry import MethodRegistry
from retinue.runtime.agents.agent import locate_workspace
from retinue.wire import agents as wire
from retinue.wire.frames import Nothing

registry = MethodRegistry()


@registry.implements(wire.AGENTS_LIST)
async def list_agents(call: Call, params: Nothing) -> wire.AgentList:
    return wire.AgentList(agents=[_row(call, agent) for agent in call.runtime.home.config.agents.ids])


def _row(call: Call, agent: AgentId) -> wire.AgentRow:
    home = call.runtime.home
    settings = home.config.agents.resolve(agent)
    try:
        identity = call.runtime.agent(agent, seed=False).workspace.identity()
        name, emoji = identity.name, identity.emoji
    except WorkspaceError:
        name, emoji = settings.name, None
    return wire.AgentRow(
        id=agent,
        name=name or agent,
        emoji=emoji or "",
        is_default=settings.is_default,
        workspace=str(locate_workspace(home, agent)),
        model=settings.model.primary,
    )


@registry.implements(wire.SKILLS_LIST)
async def list_skills(call: Call, params: wire.OfAgent) -> wire.SkillList:
    room = call.runtime.agent(call.runtime.home.agent_id(params.agent)).workspace
    return wire.SkillList(
        skills=[
            wire.SkillRow(
                name=judged.skill.name,
                description=judged.skill.description,
                location=str(judged.skill.location),
                tier=judged.skill.tier,
                eligible=judged.gate.eligible,
                reasons=list(judged.gate.reasons),
            )
            for judged in room.skills()
        ]
    )
