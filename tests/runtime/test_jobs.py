"""Jobs through the whole runtime: the tool plans them, a run answers, the answer reaches a chat or an address."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Literal

import pytest
from msgspec.structs import replace

from retinue.automation.heartbeat import PendingNoteStore
from retinue.automation.jobs import Delivery, DeliveryMode, Job, JobRun, JobStore
from retinue.automation.schedule import At
from retinue.core.clock import random_id
from retinue.core.errors import UsageError
from retinue.core.keys import DEFAULT_AGENT, SessionKey
from retinue.dispatch.subagents import ChildState, SubagentStore
from retinue.runtime.automation.jobs import archive_runs, open_job_runner, open_job_store
from retinue.runtime.open import Runtime
from retinue.runtime.session_services import HomeSessionServices
from retinue.storage.database import DATABASE_NAME, SqliteDatabase
from retinue.storage.home_paths import HomePaths
from retinue.testing.clock import START
from retinue.testing.replies import Reply, calls, says
from retinue.toolkit.cron import JobService
from tests.runtime.conftest import Stage, staged
from tests.runtime.delegation import Follower, delegating
from tests.webserver import web_server

pytestmark = pytest.mark.anyio

MAIN = SessionKey.main(DEFAULT_AGENT)


async def run_job(runtime: Runtime, job: Job) -> JobRun:
    async with open_job_runner(runtime.dispatcher) as runner:
        return await runner.run_now(runner.store.add(job))


def job(**other: object) -> Job:
    plain = Job("", "news", DEFAULT_AGENT, At(START + timedelta(hours=1)), "What is new?")
    return replace(plain, **other)


async def test_an_agent_plans_a_job_for_itself(tmp_path: Path) -> None:
    fields = {"message": "Water the plants.", "every": "2d", "name": "plants"}
    planning = calls("tool_call", name="cron", arguments={"action": "add", "fields": fields})
    listing = calls("tool_call", name="cron", arguments={"action": "list"})
    async with staged(tmp_path, planning, listing, says("planned")) as stage:
        (reply,) = await stage.ask("Remind me of the plants every two days.")
        assert reply.text == "planned"
        told = stage.server.requests[2].body.decode()
        assert "Water the plants." in told
        assert "servedAt" in told


async def test_an_agent_plans_no_job_below_a_minute_unless_a_person_allows_it(tmp_path: Path) -> None:
    fields = {"message": "Look.", "every": "5s", "name": "watch"}
    planning = calls("tool_call", name="cron", arguments={"action": "add", "fields": fields})
    async with staged(tmp_path, planning, says("I may not.")) as stage:
        await stage.ask("Look every five seconds.")
        assert "the interval is below a minute" in stage.server.requests[1].body.decode()
        async with stage.open() as runtime:
            assert JobStore(runtime.services.job_database, stage.clock, random_id).all() == ()


async def test_an_agent_hastens_its_job_and_cannot_post_its_answer_elsewhere(tmp_path: Path) -> None:
    def cron(**arguments: object) -> Reply:
        return calls("tool_call", name="cron", arguments=arguments)

    fields = {"message": "Water the plants.", "every": "2d", "name": "plants"}
    leaking = {"deliver": "webhook", "url": "https://example.org/in"}
    script = (
        cron(action="add", fields=fields),
        cron(action="update", job="plants", fields=leaking),
        cron(action="run", job="plants"),
        says("It runs."),
    )
    async with staged(tmp_path, *script) as stage:
        await stage.ask("Do it now.")
        assert "Only the owner can deliver a job to a URL" in stage.server.requests[2].body.decode()
        async with stage.open() as runtime:
            (kept,) = JobStore(runtime.services.job_database, stage.clock, random_id).all()
    assert kept.next_at == stage.clock.now()
    assert kept.delivery.url is None


async def test_a_job_is_answered_in_a_session_of_its_own_and_announced_where_the_owner_spoke_last(
    tmp_path: Path,
) -> None:
    async with staged(tmp_path, says("hello"), says("Nothing is new.")) as stage:
        await stage.ask("hi")
        async with stage.open() as runtime:
            run = await run_job(runtime, job())
            assert (run.outcome, run.summary) == ("ok", "Nothing is new.")
            *_, missed = await runtime.missed(MAIN)
            assert missed.outbound.text == "Nothing is new."
            await runtime.confirm(missed.outbound.run)
            assert missed not in await runtime.missed(MAIN)
        asked = stage.server.requests[1].body.decode()
        assert "[Scheduled job" in asked
        assert "What is new?" in asked
        assert '"hi"' not in asked


async def test_a_job_with_a_webhook_reports_there(tmp_path: Path) -> None:
    config = {"cron": {"webhookToken": "hook-token-123"}}
    async with (
        web_server() as web,
        staged(tmp_path, says("Nothing is new."), config=config) as stage,
        stage.open() as runtime,
    ):
        web.on("/in", "ok")
        run = await run_job(runtime, job(delivery=Delivery(DeliveryMode.WEBHOOK, url=f"{web.url}/in")))
        assert run.outcome == "ok"
        (request,) = web.requests
        assert json.loads(request.body)["text"] == "Nothing is new."
        assert request.headers["authorization"] == "Bearer hook-token-123"
        assert await runtime.missed(MAIN) == ()


async def test_a_job_in_the_main_session_is_told_once(tmp_path: Path) -> None:
    async with staged(tmp_path, says("Nothing is new.")) as stage, stage.open() as runtime:
        await run_job(runtime, job(target="main"))
        assert [item.outbound.text for item in await runtime.missed(MAIN)] == ["Nothing is new."]


async def test_a_job_that_is_only_kept_leaves_nothing_unread(tmp_path: Path) -> None:
    async with staged(tmp_path, says("Nothing is new.")) as stage, stage.open() as runtime:
        run = await run_job(runtime, job(target="main", delivery=Delivery(DeliveryMode.NONE)))
        assert run.summary == "Nothing is new."
        assert await runtime.missed(MAIN) == ()


async def test_a_job_has_its_own_model_and_reasons_as_much_as_it_says(tmp_path: Path) -> None:
    async with staged(tmp_path, says("Nothing is new.")) as stage, stage.open() as runtime:
        await run_job(runtime, job(model="test/other-model", thinking="high"))
        (request,) = stage.server.requests
        assert request.json["model"] == "other-model"
        assert "thinking=high" in request.body.decode()


async def test_an_answer_that_cannot_be_delivered_is_kept_with_the_reason(tmp_path: Path) -> None:
    async with staged(tmp_path, says("Nothing is new.")) as stage, stage.open() as runtime:
        run = await run_job(runtime, job(delivery=Delivery(DeliveryMode.ANNOUNCE, "pigeon", "ada")))
        assert run.outcome == "ok"
        assert run.summary.startswith("Nothing is new.\nNot delivered: There is no such channel")


async def test_a_run_by_hand_waits_for_its_sub_agents_and_for_what_it_says_to_their_results(tmp_path: Path) -> None:
    async with Follower() as model, Stage(HomePaths(tmp_path / "home"), model).open() as runtime:
        model.answer = staticmethod(delegating)
        run = await run_job(runtime, job())
        assert run.summary == "I handed it on."
        (child,) = SubagentStore(runtime.services.database, runtime.home.clock).all()
        assert (child.state, child.text) == (ChildState.DONE, "The answer is 42.")
        said = runtime.agent(DEFAULT_AGENT).store.open(child.parent).messages[-1]
        assert said.text == "My sub-agent found 42."
        assert not runtime.services.inbox.is_unfinished(child.parent)


@pytest.mark.parametrize(
    ("retention", "hours", "kept"), [("24h", 23, True), ("24h", 25, False), ("1h", 2, False), (False, 999, True)]
)
async def test_the_session_of_a_run_is_put_away_after_its_time(
    tmp_path: Path, retention: str | bool, hours: int, kept: bool
) -> None:
    config = {"cron": {"sessionRetention": retention}}
    async with staged(tmp_path, says("hello"), says("one"), says("two"), config=config) as stage:
        await stage.ask("hi")
        async with stage.open() as runtime:
            await run_job(runtime, job())
            await run_job(runtime, job(target="agent:main:cron:diary"))
            stage.clock.advance(timedelta(hours=hours))
            async with open_job_runner(runtime.dispatcher) as runner:
                archive_runs(runtime.sessions, runner.store)
            folder = stage.home.sessions(DEFAULT_AGENT)
            live = {str(session.key) for session in runtime.agent(DEFAULT_AGENT).store.list()}
    assert {"agent:main:main", "agent:main:cron:diary"} <= live
    assert any(":run:" in key for key in live) is kept
    assert len(list(folder.glob("*.jsonl.deleted.*"))) == (0 if kept else 1)


@pytest.mark.parametrize(
    ("store", "file"),
    [("mine.sqlite", "home/mine.sqlite"), ("~/cron/jobs.json", "cron/jobs.sqlite")],
)
async def test_jobs_can_be_kept_in_another_place(tmp_path: Path, store: str, file: str) -> None:
    fields = {"message": "Water the plants.", "every": "2d", "name": "plants"}
    listing = calls("tool_call", name="cron", arguments={"action": "list"})
    planning = calls("tool_call", name="cron", arguments={"action": "add", "fields": fields})
    script = (listing, planning, says("planned"))
    async with staged(tmp_path, *script, config={"cron": {"store": store}}) as stage:
        async with stage.open() as runtime:
            with open_job_store(runtime.home) as jobs:
                jobs.add(job())
        await stage.ask("Which jobs are there? Remind me of the plants.")
        assert "What is new?" in stage.server.requests[1].body.decode()
        async with stage.open() as runtime, open_job_runner(runtime.dispatcher) as runner:
            assert {each.name for each in runner.store.all()} == {"news", "plants"}
        with closing(SqliteDatabase(tmp_path / file)) as database:
            assert {each.name for each in JobStore(database, stage.clock, random_id).all()} == {"news", "plants"}
        with closing(SqliteDatabase(stage.home.path / DATABASE_NAME)) as database:
            assert JobStore(database, stage.clock, random_id).all() == ()


@pytest.mark.parametrize(("by", "foreign"), [("owner", False), ("agent", True)])
async def test_a_job_can_wait_for_the_next_heartbeat_with_no_more_rights_than_it_has(
    tmp_path: Path, by: str, foreign: bool
) -> None:
    async with staged(tmp_path) as stage, stage.open() as runtime:
        run = await run_job(runtime, job(target="main", wake_mode="next-heartbeat", created_by=by))
        assert run.outcome == "ok"
        (note,) = PendingNoteStore(runtime.services.database, stage.clock).waiting(DEFAULT_AGENT)
        assert "What is new?" in note.text
        assert note.foreign is foreign
        assert not stage.server.requests


async def test_an_agent_without_a_heartbeat_has_nothing_to_wait_for(tmp_path: Path) -> None:
    config = {"agents": {"defaults": {"heartbeat": {"every": "0m"}}}}
    async with staged(tmp_path, config=config) as stage, stage.open() as runtime:
        run = await run_job(runtime, job(target="main", wake_mode="next-heartbeat"))
        assert run.outcome == "failed"
        assert "has no heartbeat" in run.summary
        with pytest.raises(UsageError, match="has no heartbeat"):
            agent_jobs(runtime).wake(DEFAULT_AGENT, "Look.", "next-heartbeat")


@pytest.mark.parametrize("mode", ["now", "next-heartbeat"])
async def test_an_agent_wakes_itself(tmp_path: Path, mode: Literal["now", "next-heartbeat"]) -> None:
    waking = calls("tool_call", name="cron", arguments={"action": "wake", "text": "The tea.", "mode": mode})
    async with staged(tmp_path, waking, says("planned")) as stage:
        await stage.ask("Do not forget the tea.")
        async with stage.open() as runtime:
            (kept,) = JobStore(runtime.services.job_database, stage.clock, random_id).all()
            assert (kept.message, kept.target, kept.wake_mode, kept.created_by) == ("The tea.", "main", mode, "agent")
            assert kept.delete_after_run
            assert kept.next_at == stage.clock.now() + timedelta(seconds=1)
            with pytest.raises(UsageError, match="needs `text`"):
                agent_jobs(runtime).wake(DEFAULT_AGENT, " ", mode)


async def test_only_the_main_session_waits_for_heartbeats(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage, stage.open() as runtime:
        fields = {"message": "Look.", "every": "1h", "wakeMode": "next-heartbeat"}
        with pytest.raises(UsageError, match="requires the session main"):
            agent_jobs(runtime).add(DEFAULT_AGENT, fields)
        assert agent_jobs(runtime).add(DEFAULT_AGENT, {**fields, "session": "main"})["wakeMode"] == "next-heartbeat"


def agent_jobs(runtime: Runtime) -> JobService:
    """The jobs as the cron tool gets them."""
    services = HomeSessionServices(lambda: runtime.dispatcher, reaches_channels=False, controls_gateway=False)
    return services.jobs()
