"""Jobs, heartbeats, webhooks and hook folders."""

from __future__ import annotations

from datetime import datetime

import anyio.to_thread
from msgspec.structs import replace

from retinue.automation.heartbeat import WakeReason, describe_wake
from retinue.automation.job_fields import draft_job, read_job_fields, revise_job
from retinue.automation.jobs import describe_job, describe_run
from retinue.automation.schedule import next_slot
from retinue.automation.webhooks import CreatedWebhookStore
from retinue.core.errors import run_logged
from retinue.gateway.gateway import Call
from retinue.gateway.methods.registry import MethodRegistry
from retinue.runtime.agents.prompting import default_timezone
from retinue.runtime.automation.hooks import list_hooks
from retinue.runtime.automation.webhooks import hook_rules
from retinue.wire import automation as wire
from retinue.wire.agents import OfAgent
from retinue.wire.frames import Done, Nothing

MAX_BEATS = 100
MAX_PREVIEWED = 3
NOT_SERVED = "Webhooks are off: set hooks.enabled and hooks.token."
REFUSES_ALL = "It has no token yet, so it refuses every request."
registry = MethodRegistry()


@registry.implements(wire.CRON_LIST)
async def list_jobs(call: Call, params: OfAgent) -> wire.Jobs:
    agent = call.runtime.home.agent_id(params.agent) if params.agent else None
    store = call.gateway.background.jobs.store
    rows = []
    for job in store.all():
        if agent in (None, job.agent):
            last = next(iter(store.runs(job.id, limit=1)), None)
            rows.append(describe_job(job) | {"lastRun": describe_run(last) if last else None})
    return wire.Jobs(jobs=rows)


@registry.implements(wire.CRON_ADD)
async def add_job(call: Call, params: wire.AddJob) -> wire.Job:
    home = call.runtime.home
    agent = home.agent_id(params.agent)
    draft = draft_job(read_job_fields(params.fields), agent, home.clock.now(), default_timezone(home))
    added = call.gateway.background.jobs.store.add(draft)
    call.gateway.background.jobs.poke()
    return wire.Job(job=describe_job(added))


@registry.implements(wire.CRON_PREVIEW)
async def preview_schedule(call: Call, params: wire.PreviewSchedule) -> wire.ScheduleTimes:
    home = call.runtime.home
    fields = read_job_fields({**params.fields, "message": "A message."})
    now = home.clock.now()
    schedule = draft_job(fields, home.agent_id(params.agent), now, default_timezone(home)).schedule
    times: list[datetime] = []
    while len(times) < MAX_PREVIEWED and (slot := next_slot(schedule, times[-1] if times else now)):
        times.append(slot)
    return wire.ScheduleTimes(times)


@registry.implements(wire.CRON_EDIT)
async def edit_job(call: Call, params: wire.EditJob) -> wire.Job:
    home, store = call.runtime.home, call.gateway.background.jobs.store
    job = revise_job(store.get(params.job), read_job_fields(params.fields), home.clock.now(), default_timezone(home))
    changed = store.change(job if params.enabled is None else replace(job, enabled=params.enabled))
    call.gateway.background.jobs.poke()
    return wire.Job(job=describe_job(changed))


@registry.implements(wire.CRON_REMOVE)
async def remove_job(call: Call, params: wire.OfJob) -> Done:
    store = call.gateway.background.jobs.store
    store.remove(store.get(params.job).id)
    return Done()


@registry.implements(wire.CRON_RUN)
async def run_job(call: Call, params: wire.OfJob) -> Done:
    runner = call.gateway.background.jobs
    job = runner.store.get(params.job)
    call.gateway.background.subagents.tasks.start_soon(run_logged, f"the job {job.id}", runner.run_now, job)
    return Done()


@registry.implements(wire.CRON_RUNS)
async def list_runs(call: Call, params: wire.OfJob) -> wire.JobRuns:
    store = call.gateway.background.jobs.store
    return wire.JobRuns(runs=[describe_run(run) for run in store.runs(store.get(params.job).id)])


@registry.implements(wire.HEARTBEAT_LOG)
async def list_beats(call: Call, params: OfAgent) -> wire.Beats:
    agent = call.runtime.home.agent_id(params.agent) if params.agent else None
    return wire.Beats(
        beats=[describe_wake(beat) for beat in call.gateway.background.heartbeats.wake_log.log(agent, MAX_BEATS)]
    )


@registry.implements(wire.HEARTBEAT_RUN)
async def run_heartbeat(call: Call, params: OfAgent) -> wire.Beat:
    agent = call.runtime.home.agent_id(params.agent)
    return wire.Beat(beat=describe_wake(await call.gateway.background.heartbeats.run_now(agent, WakeReason.MANUAL)))


@registry.implements(wire.WEBHOOKS_LIST)
async def list_webhooks(call: Call, params: Nothing) -> wire.WebhookList:
    home = call.runtime.home
    settings = home.config.hooks
    prefix = settings.path.rstrip("/")
    rules, own = hook_rules(settings).mappings, len(settings.mappings)
    missing = "" if settings.enabled and settings.token else NOT_SERVED
    rows = [
        wire.WebhookRow(
            name=mapping.name or mapping.path or "all other paths",
            path=f"{prefix}/{mapping.path or '…'}",
            origin="configuration" if place < own else "preset",
            agent=mapping.agent,
            template=mapping.message_template or mapping.text_template or "",
            ready=not missing,
            reason=missing,
        )
        for place, mapping in enumerate(rules)
    ]
    rows += [
        wire.WebhookRow(
            name=hook.name,
            path=f"{prefix}/{hook.name}",
            origin="agent",
            agent=hook.agent,
            template=hook.template,
            ready=settings.enabled and hook.token_hash is not None,
            reason="" if hook.token_hash is not None else REFUSES_ALL,
            created_at=hook.created_at,
            used_at=hook.used_at,
        )
        for hook in _created(call).list()
    ]
    return wire.WebhookList(settings.enabled, prefix, rows)


@registry.implements(wire.WEBHOOKS_TOKEN)
async def renew_webhook_token(call: Call, params: wire.OfWebhook) -> wire.WebhookToken:
    token = _created(call).renew_token(params.name)
    call.runtime.home.audit.record("webhook_token_created", call.principal.audited_as, {"name": params.name})
    return wire.WebhookToken(params.name, token)


@registry.implements(wire.WEBHOOKS_REVOKE)
async def revoke_webhook(call: Call, params: wire.OfWebhook) -> Done:
    revoked = _created(call).revoke(params.name)
    details = {"name": revoked.name, "agent": revoked.agent}
    call.runtime.home.audit.record("webhook_revoked", call.principal.audited_as, details)
    return Done()


def _created(call: Call) -> CreatedWebhookStore:
    return CreatedWebhookStore(call.runtime.services.database, call.runtime.home.clock)


@registry.implements(wire.HOOKS_LIST)
async def list_hook_folders(call: Call, params: Nothing) -> wire.HookList:
    found = await anyio.to_thread.run_sync(lambda: list(list_hooks(call.runtime.home)))
    rows = [
        wire.HookRow(
            name=each.name,
            description=each.hook.description if each.hook else "",
            origin=each.source,
            folder=str(each.folder),
            events=list(each.hook.events) if each.hook else [],
            enabled=each.enabled,
            problems=list(each.problems),
        )
        for each in found
    ]
    return wire.HookList(rows)
