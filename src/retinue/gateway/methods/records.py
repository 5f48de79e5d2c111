"""Models, usage, prompts and the audit log."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import timedelta

import anyio

from retinue.context.prompt.inputs import PromptMode
from retinue.context.prompt.report import report_prompt
from retinue.gateway.gateway import Call
from retinue.gateway.methods.registry import MethodRegistry
from retinue.sessions.usage import UsageRecord, group_usage, sum_usage
from retinue.wire import records as wire
from retinue.wire.agents import OfAgent

registry = MethodRegistry()

_GROUPS: dict[str, Callable[[UsageRecord], str]] = {
    "day": lambda record: f"{record.at:%Y-%m-%d}",
    "model": lambda record: record.model,
    "source": lambda record: record.source.value,
    "session": lambda record: record.session,
    "agent": lambda record: record.session.split(":")[1] if record.session.startswith("agent:") else record.session,
}


@registry.implements(wire.MODELS_LIST)
async def list_models(call: Call, params: OfAgent) -> wire.ModelList:
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
    return wire.UsageSums(sum_usage(records), dict(group_usage(records, _GROUPS[params.by])))


@registry.implements(wire.PROMPT_SHOW)
async def show_prompt(call: Call, params: wire.ShowPrompt) -> wire.Prompt:
    key = call.session(params.session_key, params.agent)
    prompt, tools = await call.runtime.runner(key).planner.preview(PromptMode(params.mode))
    report = report_prompt(prompt.system, turn=prompt.turn, tools=tools)
    return wire.Prompt(
        sections=[
            wire.PromptSection(
                name=record.name,
                part=record.part,
                source=record.source,
                hash=record.hash,
                chars=record.chars,
                tokens=record.tokens,
                text=record.text,
            )
            for record in (*prompt.system.records, *prompt.turn.records)
        ],
        report=report.to_json(),
    )


@registry.implements(wire.AUDIT_LOG)
async def read_audit(call: Call, params: wire.ReadAudit) -> wire.AuditLines:
    log = call.runtime.home.audit

    def read() -> wire.AuditLines:
        wanted = (entry for entry in log.entries() if params.kind in (None, entry.get("kind")))
        damage = [str(each) for each in log.verify()]
        return wire.AuditLines(entries=list(deque(wanted, maxlen=params.limit)), damage=damage)

    return await anyio.to_thread.run_sync(read)
