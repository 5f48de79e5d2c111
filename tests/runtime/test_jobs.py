"""Jobs through the whole runtime: the tool plans them, a run answers, the answer reaches a chat or an address."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from retinue.automation.jobs import Delivery, Job, JobRun, Mode
from retinue.automation.schedule import At
from retinue.core.keys import DEFAULT_AGENT, SessionKey
from retinue.runtime.jobs import open_job_runner
from retinue.runtime.runtime import Runtime
from retinue.testing.clock import START
from retinue.testing.replies import calls, says
from tests.runtime.conftest import staged
from tests.webserver import web_server

pytestmark = pytest.mark.anyio

MAIN = SessionKey.main(DEFAULT_AGENT)


async def run_job(runtime: Runtime, job: Job) -> JobRun:
    async with open_job_runner(runtime) as runner:
        return await runner.run_now(runner.book.add(job))


def job(**other: object) -> Job:
    plain = Job("", "news", DEFAULT_AGENT, At(START + timedelta(hours=1)), "What is new?")
    return replace(plain, **other)  # type: ignore[arg-type]


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
        run = await run_job(runtime, job(delivery=Delivery(Mode.WEBHOOK, url=f"{web.url}/in")))
        assert run.outcome == "ok"
        (request,) = web.requests
        assert json.loads(request.body)["text"] == "Nothing is new."
        assert request.headers["authorization"] == "Bearer hook-token-123"
        assert await runtime.missed(MAIN) == ()
