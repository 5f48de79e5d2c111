"""Agents: their skills, notes, models, usage and prompts."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import convert

from retinue.context.prompt.inputs import PromptMode
from retinue.context.prompt.report import report_prompt
from retinue.core.codec import to_plain
from retinue.core.errors import UsageError
from retinue.core.keys import SessionKey
from retinue.gateway.gateway import Call
from retinue.gateway.methods.registry import MethodRegistry
from retinue.runtime.agents.prompting import time_zone
from retinue.runtime.agents.workspace import identity_of, locate_workspace
from retinue.sessions.usage import group_of, group_usage, sum_usage
from retinue.wire import agents as wire
from retinue.wire.frames import Nothing

if TYPE_CHECKING:
    from retinue.runtime.memory.session_memory import SessionMemory

registry = MethodRegistry()


@registry.implements(wire.AGENTS_LIST)
async def list_agents(call: Call, params: Nothing) -> wire.AgentList:
    home = call.runtime.home
    rows = []
    for agent in home.config.agents.ids:
        settings = home.config.agents.resolve(agent)
        identity = identity_of(home, agent)
        rows.append(
            wire.AgentRow(
                id=agent,
                name=identity.name or agent,
                emoji=identity.emoji or "",
                is_default=settings.is_default,
                workspace=str(locate_workspace(home, agent)),
                model=settings.model.primary,
                creature=identity.creature,
                vibe=identity.vibe,
                theme=identity.theme,
                avatar=identity.avatar,
            )
        )
    return wire.AgentList(rows)


@registry.implements(wire.SKILLS_LIST)
async def list_skills(call: Call, params: wire.OfAgent) -> wire.SkillList:
    workspace = call.runtime.agent(call.runtime.home.agent_id(params.agent)).workspace
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
            for judged in workspace.skills()
        ]
    )


async def _session_memory(call: Call, agent: str | None) -> SessionMemory | None:
    found = call.runtime.home.agent_id(agent)
    return await call.runtime.shared.memories.session_memory(
        call.runtime.agent(found).workspace, SessionKey.main(found)
    )


@registry.implements(wire.MEMORY_SEARCH)
async def search_memory(call: Call, params: wire.SearchMemory) -> wire.MemoryHits:
    session_memory = await _session_memory(call, params.agent)
    if session_memory is None:
        raise UsageError("The agent has no memory search. Set agents.defaults.memorySearch.enabled.")
    found = await session_memory.search(params.query, max_results=params.max_results, min_score=params.min_score)
    return convert(found, wire.MemoryHits, from_attributes=True)


@registry.implements(wire.MEMORY_STATUS)
async def memory_status(call: Call, params: wire.OfAgent) -> wire.MemoryStatus:
    session_memory = await _session_memory(call, params.agent)
    if session_memory is None:
        return wire.MemoryStatus(enabled=False)
    from retinue.memory.index import MemoryIndex

    if not isinstance(session_memory.index, MemoryIndex):
        return wire.MemoryStatus(enabled=True, provider="qmd")
    found = await session_memory.index.status()
    return wire.MemoryStatus(
        enabled=True,
        files=found.totals.files,
        chunks=found.totals.chunks,
        embedded=found.totals.embedded,
        provider=found.provider,
        model=found.model,
        last_sync=found.synced_at,
    )


@registry.implements(wire.MODELS_LIST)
async def list_models(call: Call, params: wire.OfAgent) -> wire.ModelList:
    access = call.runtime.model_access(call.runtime.home.agent_id(params.agent))
    chosen = await access.choose()
    known = {ref: access.info(ref) for ref in access.known()}
    return wire.ModelList(
        models=[
            wire.ModelRow(
                ref=str(ref),
                window=info.window,
                tools=info.tools,
                reasoning=info.reasoning,
                is_chosen=chosen is not None and chosen.ref == ref,
            )
            for ref, info in known.items()
        ],
        aliases=dict(access.aliases),
    )


@registry.implements(wire.USAGE)
async def usage(call: Call, params: wire.AskUsage) -> wire.UsageSums:
    home = call.runtime.home
    agents = (home.agent_id(params.agent),) if params.agent else home.config.agents.ids
    since = home.clock.now() - timedelta(days=params.days)
    records = [record for agent in agents for record in call.runtime.agent(agent).store.usage(since)]
    zone = time_zone(home)
    groups = group_usage(records, lambda record: group_of(record, params.by, zone))
    return wire.UsageSums(sum_usage(records), groups)


@registry.implements(wire.PROMPT_SHOW)
async def show_prompt(call: Call, params: wire.ShowPrompt) -> wire.Prompt:
    key = call.session(params.session_key, params.agent)
    prompt, tools = await call.runtime.runner(key).planner.preview(PromptMode(params.mode))
    report = report_prompt(prompt.system, turn=prompt.turn, tools=tools)
    records = (*prompt.system.records, *prompt.turn.records)
    return wire.Prompt(convert(records, list[wire.PromptSection], from_attributes=True), to_plain(report))
