"""Jobs, heartbeats and sub-agents."""

from __future__ import annotations

from msgspec.structs import replace

from retinue.automation.heartbeat import WakeReason, describe_wake
from retinue.automation.job_fields import draft_job, read_job_fields, revise_job
from retinue.automation.jobs import describe_job, describe_run
from retinue.core.errors import run_logged
from retinue.gateway.gateway import Call
from retinue.gateway.methods.registry import MethodRegistry
from retinue.runtime.agents.prompting import default_timezone
from retinue.wire import automation as wire
from retinue.wire.agents import OfAgent
from retinue.wire.frames import Done

MAX_BEATS = 100
registry = MethodRegistry()


@registry.implements(wire.CRON_LIST)
async def list_jobs(call: Call, params: OfAgent) -> wire.Jobs:
    agent = call.runtime.home.agent_id(params.agent) if params.agent else None
    jobs = [job for job in call.gateway.background.jobs.store.all() if agent in (None, job.agent)]
    return wire.Jobs(jobs=[describe_job(job) for job in jobs])


@registry.implements(wire.CRON_ADD)
async def add_job(call: Call, params: wire.AddJob) -> wire.Job:
    home = call.runtime.home
    agent = home.agent_id(params.agent)
    draft = draft_job(read_job_fields(params.fields), agent, home.clock.now(), default_timezone(home))
    added = call.gateway.background.jobs.store.add(draft)
    call.gateway.background.jobs.poke()
    return wire.Job(job=describe_job(added))


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
