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
from retinue.gateway.auth.member_access import scopes_for
from retinue.gateway.errors import RequestRefused
from retinue.gateway.gateway import Call
from retinue.gateway.methods.registry import MethodRegistry
from retinue.runtime.agents.prompting import time_zone
from retinue.runtime.agents.workspace import identity_of, locate_workspace
from retinue.runtime.turns.loop_setup import find_budgets
from retinue.sessions.usage import UsageRecord, group_of, group_usage, sum_usage
from retinue.storage.files import NotThere
from retinue.wire import agents as wire
from retinue.wire.frames import Nothing
from retinue.wire.protocol import ErrorCode, Scope

if TYPE_CHECKING:
    from retinue.runtime.memory.session_memory import SessionMemory
    from retinue.skills.library import CheckedSkill

registry = MethodRegistry()


@registry.implements(wire.AGENTS_LIST)
async def list_agents(call: Call, params: Nothing) -> wire.AgentList:
    home = call.runtime.home
    rows = []
    for agent in home.config.agents.ids:
        if Scope.READ not in scopes_for(call.principal, agent):
            continue
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


def describe_skill(judged: CheckedSkill) -> wire.SkillRow:
    skill = judged.skill
    return wire.SkillRow(
        name=skill.name,
        description=skill.description,
        location=str(skill.location),
        tier=skill.tier,
        eligible=judged.gate.eligible,
        reasons=list(judged.gate.reasons),
        emoji=skill.emoji or "",
        key=skill.key,
    )


@registry.implements(wire.SKILLS_LIST)
async def list_skills(call: Call, params: wire.OfAgent) -> wire.SkillList:
    workspace = call.runtime.agent(call.runtime.home.agent_id(params.agent)).workspace
    return wire.SkillList(skills=[describe_skill(judged) for judged in workspace.skills()])


async def _session_memory(call: Call, agent: str | None) -> SessionMemory | None:
    found = call.runtime.home.agent_id(agent)
    return await call.runtime.shared.memories.session_memory(
        call.runtime.agent(found).workspace, SessionKey.main(found)
    )


async def _require_memory(call: Call, agent: str | None) -> SessionMemory:
    found = await _session_memory(call, agent)
    if found is None:
        raise UsageError("The agent has no memory search. Set agents.defaults.memorySearch.enabled.")
    return found


@registry.implements(wire.MEMORY_SEARCH)
async def search_memory(call: Call, params: wire.SearchMemory) -> wire.MemoryHits:
    session_memory = await _require_memory(call, params.agent)
    found = await session_memory.search(params.query, max_results=params.max_results, min_score=params.min_score)
    hide = call.runtime.shared.tools.hide
    hits = [
        wire.MemoryHit(
            path=hit.path,
            start_line=hit.start_line,
            end_line=hit.end_line,
            score=hit.score,
            snippet=hide(hit.snippet),
            source=hit.source,
            origin=hit.origin.origin,
            parts=wire.ScoreShares(hit.parts.text, hit.parts.vector, hit.parts.exact, hit.parts.decay),
            matched=hit.matched,
        )
        for hit in found.hits
    ]
    return wire.MemoryHits(hits, found.reason)


@registry.implements(wire.MEMORY_GET)
async def get_memory(call: Call, params: wire.GetMemory) -> wire.MemoryExcerpt:
    session_memory = await _require_memory(call, params.agent)
    try:
        found = await session_memory.read(params.path, params.start, params.lines)
    except NotThere:
        raise RequestRefused(ErrorCode.NOT_FOUND, f"There is no note '{params.path[:200]}'.") from None
    text = call.runtime.shared.tools.hide(found.text)
    return wire.MemoryExcerpt(found.path, text, found.start_line, found.lines, found.origin.origin, found.next_line)


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
    access = call.runtime.sessions.model_access(call.runtime.home.agent_id(params.agent))
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
    then_by = params.then_by
    if then_by is None:
        return wire.UsageSums(sum_usage(records), groups)
    members: dict[str, list[UsageRecord]] = {}
    for record in records:
        members.setdefault(group_of(record, params.by, zone), []).append(record)
    parts = {name: group_usage(own, lambda record: group_of(record, then_by, zone)) for name, own in members.items()}
    return wire.UsageSums(sum_usage(records), groups, parts)


@registry.implements(wire.USAGE_BUDGETS)
async def list_budgets(call: Call, params: wire.OfAgent) -> wire.BudgetList:
    home = call.runtime.home
    agents = (home.agent_id(params.agent),) if params.agent else home.config.agents.ids
    rows = [
        wire.BudgetRow(
            agent=agent,
            name=each.name,
            usd=each.used.cost,
            tokens=each.used.total,
            usd_limit=each.limit.usd,
            token_limit=each.limit.tokens,
            session_key=each.session,
        )
        for agent in agents
        for each in find_budgets(call.runtime.agent(agent))
    ]
    return wire.BudgetList(rows)


@registry.implements(wire.PROMPT_SHOW)
async def show_prompt(call: Call, params: wire.ShowPrompt) -> wire.Prompt:
    key = call.session(params.session_key, params.agent)
    planner = call.runtime.runner(key).planner
    prompt, tools = await planner.preview(PromptMode(params.mode))
    report = report_prompt(prompt.system, turn=prompt.turn, tools=tools)
    records = (*prompt.system.records, *prompt.turn.records)
    sections = convert(records, list[wire.PromptSection], from_attributes=True)
    diff = planner.diff_to_sent(report) if params.mode == "full" else None
    if diff is None:
        return wire.Prompt(sections, to_plain(report))
    moved = (diff.moved.name, diff.moved.because) if diff.moved else ("", "")
    changes = wire.PromptChanges(list(diff.added), list(diff.removed), list(diff.changed), *moved)
    return wire.Prompt(sections, to_plain(report), changes)
