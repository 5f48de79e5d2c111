"""Jobs, heartbeats and sub-agents."""

from __future__ import annotations

from msgspec.structs import replace

from retinue.automation.beatbook import describe_beat
from retinue.automation.drafting import draft_job, read_fields, revise_job
from retinue.automation.heartbeat import Wake
from retinue.automation.job_codec import describe_job, describe_run
from retinue.core.background import run_logged
from retinue.dispatch.childbook import describe_child
from retinue.gateway.gateway import Call
from retinue.gateway.methods.registry import MethodRegistry
from retinue.runtime.agent_jobs import zone_of
from retinue.wire import automation as wire
from retinue.wire.agents import OfAgent
from retinue.wire.frames import Done, Nothing

MAX_BEATS = 100
registry = MethodRegistry()


@registry.implements(wire.CRON_LIST)
async def list_jobs(call: Call, params: OfAgent) -> wire.Jobs:
    agent = call.runtime.foundation.agent_id(params.agent) if params.agent else None
    jobs = [job for job in call.gateway.background.jobs.book.all() if agent in (None, job.agent)]
    return wire.Jobs(jobs=[describe_job(job) for job in jobs])


@registry.implements(wire.CRON_ADD)
async def add_job(call: Call, params: wire.AddJob) -> wire.Job:
    foundation = call.runtime.foundation
    agent = foundation.agent_id(params.agent)
    draft = draft_job(read_fields(params.fields), agent, foundation.clock.now(), zone_of(foundation))
    added = call.gateway.background.jobs.book.add(draft)
    call.gateway.background.jobs.poke()
    return wire.Job(job=describe_job(added))


@registry.implements(wire.CRON_EDIT)
async def edit_job(call: Call, params: wire.EditJob) -> wire.Job:
    foundation, book = call.runtime.foundation, call.gateway.background.jobs.book
    job = revise_job(book.get(params.job), read_fields(params.fields), foundation.clock.now(), zone_of(foundation))
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
    agent = call.runtime.foundation.agent_id(params.agent) if params.agent else None
    return wire.Beats(beats=[describe_beat(beat) for beat in call.gateway.background.heart.book.log(agent, MAX_BEATS)])


@registry.implements(wire.HEARTBEAT_RUN)
async def run_heartbeat(call: Call, params: OfAgent) -> wire.Beat:
    agent = call.runtime.foundation.agent_id(params.agent)
    return wire.Beat(beat=describe_beat(await call.gateway.background.heart.beat(agent, Wake.MANUAL)))


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
