"""The methods behind the views of work, agents and extensions: what runs, why a tool is there, labels, budgets."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from retinue.automation.webhooks import CreatedWebhookStore
from retinue.core.clock import SystemClock
from retinue.core.envelope import Origin, PeerKind
from retinue.core.keys import AgentId
from retinue.dispatch.contacts import ContactStore
from retinue.storage.database import DATABASE_NAME, SqliteDatabase
from retinue.testing.replies import calls, says
from retinue.wire.protocol import Scope
from tests.gateway.conftest import PATIENCE, Hall, RawSocket, open_hall, raw_socket

pytestmark = pytest.mark.anyio


@pytest.fixture
async def owner(hall: Hall) -> AsyncIterator[RawSocket]:
    async with raw_socket(hall) as raw:
        yield raw


async def ask(owner: RawSocket, text: str, **params: object) -> str:
    run: str = (await owner.result("agent", message=text, idempotencyKey=text, **params))["runId"]
    await owner.result("agent.wait", runId=run, timeoutMs=60_000)
    return run


async def until(read: Callable[[], Awaitable[list[dict[str, Any]]]]) -> list[dict[str, Any]]:
    with anyio.fail_after(PATIENCE):
        while not (found := await read()):
            await anyio.sleep(0.02)
    return found


@pytest.mark.slow
async def test_turns_and_commands_are_one_list_and_each_can_be_stopped(tmp_path: Path) -> None:
    exec_anything = {"exec": {"security": "full", "ask": "off"}}
    async with open_hall(tmp_path, tools=exec_anything) as hall, hall.serving(), raw_socket(hall) as owner:
        assert (await owner.result("running.list"))["work"] == []
        hall.model.push(calls("exec", command="sleep 300", background=True), says("It runs."))
        await ask(owner, "wait in the background")

        async def commands() -> list[dict[str, Any]]:
            work: list[dict[str, Any]] = (await owner.result("running.list"))["work"]
            return [each for each in work if each["kind"] == "command"]

        [command] = await until(commands)
        assert (command["title"], command["sessionKey"]) == ("sleep 300", "agent:main:main")
        hall.model.push(calls("exec", command="sleep 301", yieldMs=120_000))
        await owner.result("agent", message="wait for it", sessionKey="agent:main:chat-2", idempotencyKey="w")

        async def turns() -> list[dict[str, Any]]:
            work: list[dict[str, Any]] = (await owner.result("running.list"))["work"]
            return [each for each in work if each["kind"] == "turn" and each["state"] == "working"]

        [turn] = await until(turns)
        assert (turn["id"], turn["title"]) == ("agent:main:chat-2", "wait for it")
        assert (await owner.result("running.stop", kind="command", id=command["id"]))["stopped"] is True
        await until(lambda: stopped(owner, turn["id"]))
        gone = await owner.call("running.stop", kind="command", id="no-such-command")
    assert gone["error"]["code"] == "not_found"


async def stopped(owner: RawSocket, session: str) -> list[dict[str, Any]]:
    """Stop a turn until it is not listed any more: one that is being prepared cannot be stopped yet."""
    await owner.result("running.stop", kind="turn", id=session)
    work = (await owner.result("running.list"))["work"]
    return [] if any(each["id"] == session for each in work) else [{}]


async def test_every_tool_has_the_reason_why_the_agent_has_it_or_not(tmp_path: Path) -> None:
    async with open_hall(tmp_path, tools={"deny": ["web_search"]}) as hall, hall.serving(), raw_socket(hall) as owner:
        rows = {row["name"]: row for row in (await owner.result("tools.list"))["tools"]}
    assert rows["read"]["decision"] == "allow"
    assert rows["web_search"]["decision"] == "deny"
    assert "deny" in rows["web_search"]["layer"] or "deny" in rows["web_search"]["because"]
    assert all(row["because"] and row["summary"] for row in rows.values())


async def test_files_have_labels_and_the_owner_accepts_one(hall: Hall, owner: RawSocket) -> None:
    hall.model.push(calls("write", path="mine.md", content="mine"), says("Done."))
    await ask(owner, "write it")
    files = {row["path"]: row for row in (await owner.result("workspace.list"))["files"]}
    assert files["mine.md"]["origin"] in ("agent", "owner")
    accepted = await owner.result("workspace.vouch", path="mine.md")
    assert accepted == {"path": "mine.md", "origin": "owner", "private": False}
    files = {row["path"]: row for row in (await owner.result("workspace.list"))["files"]}
    assert files["mine.md"]["origin"] == "owner"
    kinds = [entry["kind"] for entry in (await owner.result("audit.log"))["entries"]]
    assert "file_vouched" in kinds
    assert (await owner.call("workspace.vouch", path="../retinue.json"))["ok"] is False


async def test_budgets_have_what_was_used_of_them(tmp_path: Path) -> None:
    budget = {"perDay": {"tokens": 5_000}, "perSession": {"usd": 1.0}, "perSource": {"cron": {"usd": 0.5}}}
    agents = {"defaults": {"model": "test/test-model", "budget": budget}}
    async with open_hall(tmp_path, agents=agents) as hall, hall.serving(), raw_socket(hall) as owner:
        hall.model.push(says("Hello."))
        await ask(owner, "hello")
        rows = {row["name"]: row for row in (await owner.result("usage.budgets"))["budgets"]}
    assert rows["perDay"]["tokenLimit"] == 5_000
    assert rows["perDay"]["tokens"] > 0
    assert rows["perSession"]["sessionKey"] == "agent:main:main"
    assert rows["perSource.cron"]["tokens"] == 0
    assert rows["background"]["usdLimit"] == 2.0  # the limit that every agent has


async def test_a_branch_has_what_was_said_before_a_message(hall: Hall, owner: RawSocket) -> None:
    hall.model.push(says("Four."), says("Six."))
    await ask(owner, "2 + 2?")
    run = await ask(owner, "3 + 3?")
    [first, *_] = (await owner.result("chat.history"))["entries"]
    branch = (await owner.result("sessions.fork", before=run))["sessionKey"]
    texts = [entry["message"]["role"] for entry in (await owner.result("chat.history", sessionKey=branch))["entries"]]
    assert texts == ["user", "assistant"]
    row = (await owner.result("sessions.get", sessionKey=branch))["session"]
    assert (row["forkedFrom"], row["label"]) == ("agent:main:main", "Branch of a conversation")
    empty = (await owner.result("sessions.fork", before=first["id"]))["sessionKey"]
    assert (await owner.result("chat.history", sessionKey=empty))["entries"] == []
    refused = await owner.call("sessions.fork", before="nothing-of-this-session")
    assert "last summary" in refused["error"]["message"]


async def test_a_file_of_an_answer_is_returned_and_no_other(hall: Hall, owner: RawSocket) -> None:
    hall.home.workspace.mkdir(parents=True, exist_ok=True)
    (hall.home.workspace / "plan.csv").write_text("a,b\n")
    (hall.home.workspace / "other.csv").write_text("secret\n")
    hall.model.push(says("Here it is.\nMEDIA:plan.csv"))
    await ask(owner, "the plan, please")
    sent = await owner.result("sessions.file", path="plan.csv")
    assert (sent["name"], sent["mediaType"], base64.b64decode(sent["data"])) == ("plan.csv", "text/csv", b"a,b\n")
    for path in ("other.csv", "../retinue.json", "/etc/passwd"):
        assert (await owner.call("sessions.file", path=path))["error"]["code"] == "not_found"


async def test_webhooks_and_hook_folders_are_listed_and_tokens_made(tmp_path: Path) -> None:
    hooks = {
        "enabled": True,
        "token": "a-long-token-of-webhooks-0123456789",
        "presets": ["gmail"],
        "mappings": [{"match": {"path": "build"}, "name": "build", "messageTemplate": "Build {{id}}."}],
    }
    async with open_hall(tmp_path, hooks=hooks) as hall, hall.serving(), raw_socket(hall) as owner:
        with closing(SqliteDatabase(hall.home.path / DATABASE_NAME)) as database:
            CreatedWebhookStore(database, SystemClock()).create(AgentId("main"), "door", "It rang.", "now")
        listed = await owner.result("webhooks.list")
        rows = {row["name"]: row for row in listed["webhooks"]}
        assert (listed["enabled"], listed["path"]) == (True, "/hooks")
        assert rows["build"]["origin"] == "configuration"
        assert rows["Gmail"]["path"] == "/hooks/gmail"
        assert (rows["door"]["ready"], rows["door"]["template"]) == (False, "It rang.")
        token = (await owner.result("webhooks.token", name="door"))["token"]
        rows = {row["name"]: row for row in (await owner.result("webhooks.list"))["webhooks"]}
        assert rows["door"]["ready"] is True
        assert token not in str(rows)
        await owner.result("webhooks.revoke", name="door")
        names = [row["name"] for row in (await owner.result("webhooks.list"))["webhooks"]]
        folders = {row["name"]: row for row in (await owner.result("hooks.list"))["hooks"]}
    assert "door" not in names
    assert all(row["origin"] == "bundled" and row["events"] for row in folders.values())


async def test_people_who_asked_for_access_are_decided_about(hall: Hall, owner: RawSocket) -> None:
    with closing(SqliteDatabase(hall.home.path / DATABASE_NAME)) as database:
        origin = Origin("telegram", "default", PeerKind.DIRECT, "4711", sender="4711", sender_name="Ada")
        contact = ContactStore(database, SystemClock()).ask(origin)
    assert contact is not None
    [row] = (await owner.result("channels.list"))["contacts"]
    assert (row["address"], row["name"], row["state"]) == ("telegram:4711", "Ada", "waiting")
    await owner.result("channels.decide", code=row["code"], approve=True)
    [row] = (await owner.result("channels.list"))["contacts"]
    assert row["state"] == "approved"


async def test_an_account_and_a_server_say_why_they_do_not_work(tmp_path: Path) -> None:
    servers = {"gone": {"command": "no-such-program-of-mcp"}}
    async with open_hall(tmp_path, mcp={"servers": servers}) as hall, hall.serving(), raw_socket(hall) as owner:
        trial = await owner.result("mcp.test", server="gone")
        assert trial["tools"] == []
        assert "no-such-program-of-mcp" in trial["problem"]
        assert (await owner.call("mcp.test", server="other"))["error"]["code"] == "not_found"
        missing = await owner.call("channels.check", channel="telegram")
    assert "There is no account telegram" in missing["error"]["message"]


async def test_a_code_for_a_device_has_at_most_the_rights_of_who_makes_it(hall: Hall, owner: RawSocket) -> None:
    made = await owner.result("devices.invite", scopes=["read"])
    assert len(made["code"]) == 9
    assert made["address"].startswith("http://127.0.0.1")
    assert (made["link"], made["qr"]) == ("", [])  # nothing but this machine reaches the gateway
    async with raw_socket(hall, hall.token(Scope.PAIR)) as helper:
        refused = await helper.call("devices.invite", scopes=["admin"])
    assert refused["error"]["code"] == "forbidden"


async def test_the_code_for_a_phone_is_in_a_link_with_a_qr_code(tmp_path: Path) -> None:
    async with (
        open_hall(tmp_path, gateway={"bind": "custom", "customBindHost": "127.0.0.1"}) as hall,
        hall.serving(),
        raw_socket(hall) as owner,
    ):
        made = await owner.result("devices.invite")
    assert made["link"] == f"{made['address']}#pair={made['code']}"
    assert len(made["qr"]) == len(made["qr"][0]) > 20


@pytest.mark.slow
async def test_hits_of_memory_say_what_their_score_consists_of(hall: Hall, owner: RawSocket) -> None:
    await owner.result("workspace.write", path="memory/ada.md", text="# Ada\n\nThe projector belongs to Ada.\n")
    found = await owner.result("memory.search", query="projector")
    [hit, *_] = found["hits"]
    assert hit["matched"] == ["projector"]
    assert set(hit["parts"]) == {"words", "meaning", "exact", "recency"}
    assert 0 < hit["parts"]["words"] <= 1


@pytest.mark.slow
async def test_archived_sessions_are_listed_apart_until_the_next_message(hall: Hall, owner: RawSocket) -> None:
    await ask(owner, "one", sessionKey="agent:main:chat-kept")
    await ask(owner, "two", sessionKey="agent:main:chat-old")
    await owner.result("sessions.patch", sessionKey="agent:main:chat-old", archived=True)

    async def keys(**params: object) -> list[str]:
        return [row["key"] for row in (await owner.result("sessions.list", **params))["sessions"]]

    assert await keys() == ["agent:main:chat-kept"]
    assert await keys(archived=True) == ["agent:main:chat-old"]
    assert (await owner.result("sessions.search", query="two"))["hits"]
    await ask(owner, "three", sessionKey="agent:main:chat-old")
    assert sorted(await keys()) == ["agent:main:chat-kept", "agent:main:chat-old"]
    await owner.result("sessions.patch", sessionKey="agent:main:chat-old", archived=True)
    await owner.result("sessions.patch", sessionKey="agent:main:chat-old", archived=False)
    assert await keys(archived=True) == []
    unknown = await owner.call("sessions.patch", sessionKey="agent:main:chat-none", archived=True)
    assert unknown["error"]["code"] == "not_found"


async def test_runs_of_jobs_and_sub_agents_have_a_title_and_costs_of_jobs_are_known(
    hall: Hall, owner: RawSocket
) -> None:
    fields = {"name": "Digest", "message": "Sum up.", "every": "12h"}
    job = (await owner.result("cron.add", fields=fields))["job"]
    assert (await owner.result("cron.list"))["jobs"][0]["lastRun"] is None
    await owner.result("cron.run", job=job["id"])

    async def runs() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await owner.result("cron.runs", job=job["id"]))["runs"]
        return [each for each in found if each["outcome"] == "ok"]

    await until(runs)
    assert (await owner.result("cron.list"))["jobs"][0]["lastRun"]["outcome"] == "ok"
    started = await owner.result("subagents.start", task="Compare three night trains.", sessionKey="agent:main:main")
    child = started["subagent"]["session"]

    async def titles() -> list[dict[str, Any]]:
        rows = (await owner.result("sessions.list"))["sessions"]
        found = {row["title"] for row in rows if ":cron:" in row["key"] or row["key"] == child}
        return [{}] if found == {"Digest", "Compare three night trains."} else []

    await until(titles)
    sums = await owner.result("usage", by="job", thenBy="model")
    assert sums["parts"][f"main:{job['id']}"].keys() == {"test/test-model"}


async def test_a_schedule_is_previewed_before_it_is_stored(hall: Hall, owner: RawSocket) -> None:
    found = await owner.result("cron.preview", fields={"cron": "30 7 * * 1", "tz": "UTC"})
    assert [each[11:16] for each in found["times"]] == ["07:30"] * 3
    once = await owner.result("cron.preview", fields={"at": "2999-01-01T09:00"})
    assert len(once["times"]) == 1
    wrong = await owner.call("cron.preview", fields={"cron": "every monday"})
    assert wrong["error"]["code"] == "bad_request"
    assert (await owner.result("cron.list"))["jobs"] == []


async def test_a_skill_and_a_key_of_the_configuration_are_found_with_their_text(hall: Hall, owner: RawSocket) -> None:
    folder = hall.home.workspace / "skills" / "tides"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: tides\ndescription: Tides.\n---\n\nRead `tables.csv`.\n")
    (folder / "tables.csv").write_text("day,high\n")
    shown = await owner.result("skills.show", name="tides")
    assert shown["files"] == ["SKILL.md", "tables.csv"]
    assert "Read `tables.csv`." in shown["text"]
    assert (await owner.call("skills.show", name="nothing"))["error"]["code"] == "not_found"
    keys = (await owner.result("config.find", query="gateway port"))["keys"]
    assert keys[0]["key"] == "gateway.port"
    assert (await owner.result("config.find", query="zebra crossing"))["keys"] == []


async def test_a_prompt_says_what_changed_since_the_last_turn(hall: Hall, owner: RawSocket) -> None:
    assert (await owner.result("prompt.show"))["since"] is None
    await ask(owner, "hello")
    assert (await owner.result("prompt.show"))["since"]["moved"] == ""
    (hall.home.workspace / "SOUL.md").write_text("Be brief.\n")
    since = (await owner.result("prompt.show"))["since"]
    assert since["moved"] == "file:SOUL.md"
    assert "changed" in since["because"]
    assert "file:SOUL.md" in since["changed"]
