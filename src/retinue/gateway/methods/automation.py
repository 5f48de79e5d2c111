"""Jobs, heartbeats and sub-agents."""

from __future__ import annotations

from msgspec.structs import replace

from retinue.automation.heartbeat import WakeReason
from retinue.automation.job_codec import describe_job, describe_run
from retinue.automation.job_fields import draft_job, read_job_fields, revise_job
from retinue.automation.wake_log import describe_wake
from retinue.core.background import run_logged
from retinue.dispatch.subagent_store import describe_child
from retinue.gateway.gateway import Call
from retinue.gateway.methods.registry import MethodRegistry
from retinue.runtime.automation.agent_jobs import zone_of
from retinue.wire import automation as wire
from retinue.wire.agents import OfAgent
from retinue.wire.frames import Done, Nothing

MAX_BEATS = 100
registry = MethodRegistry()


@registry.implements(wire.CRON_LIST)
async def list_jobs(call: Call, params: OfAgent) -> wire.Jobs:
    agent = call.runtime.home.agent_id(params.agent) if params.agent else None
    jobs = [job for job in call.gateway.background.jobs.book.all() if agent in (None, job.agent)]
    return wire.Jobs(jobs=[describe_job(job) for job in jobs])


@registry.implements(wire.CRON_ADD)
async def add_job(call: Call, params: wire.AddJob) -> wire.Job:
    home = call.runtime.home
    agent = home.agent_id(params.agent)
    draft = draft_job(read_job_fields(params.fields), agent, home.clock.now(), zone_of(home))
    added = call.gateway.background.jobs.book.add(draft)
    call.gateway.background.jobs.poke()
    return wire.Job(job=describe_job(added))


@registry.implements(wire.CRON_EDIT)
async def edit_job(call: Call, params: wire.EditJob) -> wire.Job:
    home, book = call.runtime.home, call.gateway.background.jobs.book
    job = revise_job(book.get(params.job), read_job_fields(params.fields), home.clock.now(), zone_of(home))
    changed = book.change(job if params.enabled is None else replace(job, enabled=params.enabled))
    call.gateway.background.jobs.poke()
    return wire.Job(job=describe_job(changed))


@registry.implements(wire.CRON_REMOVE)
async def remove_job(call: Call, params: wire.OfJob) -> Done:
    book = call.gateway.background.jobs.book
    book.remove(book.get(params.job).id)
    return Done()


@registry.implements(wire.CRON_RUN)
async def run_job(call: Call, params: wire.OfJob) -> Done:
    runner = call.gateway.background.jobs
    job = runner.book.get(params.job)
    call.gateway.background.spawner.tasks.start_soon(run_logged, f"the job {job.id}", runner.run_now, job)
    return Done()


@registry.implements(wire.CRON_RUNS)
async def list_runs(call: Call, params: wire.OfJob) -> wire.JobRuns:
    book = call.gateway.background.jobs.book
    return wire.JobRuns(runs=[describe_run(run) for run in book.runs(book.get(params.job).id)])


@registry.implements(wire.HEARTBEAT_LOG)
async def list_beats(call: Call, params: OfAgent) -> wire.Beats:
    agent = call.runtime.home.agent_id(params.agent) if params.agent else None
    return wire.Beats(beats=[describe_wake(beat) for beat in call.gateway.background.heart.book.log(agent, MAX_BEATS)])


@registry.implements(wire.HEARTBEAT_RUN)
async def run_heartbeat(call: Call, params: OfAgent) -> wire.Beat:
    agent = call.runtime.home.agent_id(params.agent)
    return wire.Beat(beat=describe_wake(await call.gateway.background.heart.beat(agent, WakeReason.MANUAL)))


@registry.implements(wire.SUBAGENTS_LIST)
async def list_subagents(call: Call, params: Nothing) -> wire.Children:
    return wire.Children(subagents=[describe_child(child) for child in call.gateway.background.spawner.book.all()])


@registry.implements(wire.SUBAGENTS_GET)
async def get_subagent(call: Call, params: wire.OfChild) -> wire.Child:
    return wire.Child(subagent=describe_child(call.gateway.background.spawner.book.get(params.run_id)))


@registry.implements(wire.SUBAGENTS_CANCEL)
async def cancel_subagent(call: Call, params: wire.OfChild) -> wire.Child:
    spawner = call.gateway.background.spawner
    spawner.cancel(spawner.book.get(params.run_id))
    return wire.Child(subagent=describe_child(spawner.book.get(params.run_id)))
