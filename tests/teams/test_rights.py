"""What members may do at the gateway: by role, by agent, and only in their own conversations."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from retinue.core.clock import SystemClock
from retinue.core.people import Person
from retinue.gateway.app import list_endpoints
from retinue.gateway.auth.member_access import MEMBER_METHODS, MemberRule
from retinue.teams.access import AccessStore, NewAccess
from retinue.teams.audit import AuditSearch
from retinue.teams.database import TeamDatabase
from retinue.teams.members import MemberStore, NewMember
from retinue.teams.roles import TeamRole
from retinue.wire import team as team_wire
from retinue.wire.methods import METHODS
from retinue.wire.protocol import Scope
from tests.gateway.conftest import raw_socket, wait_until
from tests.teams.support import TeamHall, open_team_hall

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ALL_METHODS = METHODS | {method.name: method for method in team_wire.METHODS}


@pytest.fixture
async def team(tmp_path: Path) -> AsyncIterator[TeamHall]:
    async with open_team_hall(tmp_path) as made:
        made.hall.write_config(
            agents={
                "defaults": {"model": "test/test-model", "sandbox": {"mode": "off"}},
                "list": [{"id": "main", "default": True}, {"id": "finance"}],
            }
        )
        async with made.hall.http() as client:
            (await client.post("/rpc/config.apply", json={})).raise_for_status()
        yield made


async def call(client: httpx2.AsyncClient, method: str, **params: Any) -> httpx2.Response:
    return await client.post(f"/rpc/{method}", json=params)


async def say(client: httpx2.AsyncClient, text: str, **params: Any) -> dict[str, Any]:
    """Send a message and wait for its answer."""
    accepted = await call(client, "agent", message=text, idempotencyKey=text, **params)
    assert accepted.status_code == 200, accepted.text
    found: dict[str, Any] = accepted.json()
    waited = await call(client, "agent.wait", runId=found["runId"], timeoutMs=60_000)
    assert waited.json()["outbound"]["status"] == "ok", waited.text
    return found


async def test_a_viewer_tries_every_write_and_none_succeeds(team: TeamHall) -> None:
    team.add("vic@example.org", TeamRole.VIEWER)
    async with team.hall.http(await team.token_of("vic@example.org")) as client:
        writes = [method.name for method in ALL_METHODS.values() if method.changes]
        assert len(writes) > 40
        answers = {name: (await call(client, name)).status_code for name in writes}
        assert answers == dict.fromkeys(writes, 403)
        for endpoint in list_endpoints(has_team=True):
            if endpoint.scope in (None, Scope.READ) or endpoint.verb == "GET":
                continue
            path = re.sub(r"{[^}]*}", "x", endpoint.path)
            assert (await client.request(endpoint.verb, path, json={})).status_code == 403, endpoint.path


@pytest.mark.parametrize("role", [TeamRole.VIEWER, TeamRole.MEMBER, TeamRole.OPERATOR])
async def test_members_reach_only_the_methods_and_paths_that_are_listed(team: TeamHall, role: TeamRole) -> None:
    team.add("bob@example.org", role)
    token = await team.token_of("bob@example.org")
    async with team.hall.http(token) as client:
        closed = [name for name in ALL_METHODS if name not in MEMBER_METHODS]
        answers = {name: (await call(client, name)).status_code for name in closed}
        assert answers == dict.fromkeys(closed, 403)
        for path in ("/metrics", "/tools/invoke", "/plugins/some/path"):
            verb = "GET" if path == "/metrics" else "POST"
            assert (await client.request(verb, path, json={})).status_code == 403, path
    async with raw_socket(team.hall, token) as socket:
        response = await socket.call("members.list")
        assert response["error"]["code"] == "forbidden"


async def test_no_method_reaches_the_conversation_of_another_member(team: TeamHall) -> None:
    ada, _ = team.add("ada@example.org"), team.add("bob@example.org", TeamRole.OPERATOR)
    async with (
        team.hall.http(await team.token_of("ada@example.org")) as hers,
        team.hall.http(await team.token_of("bob@example.org")) as his,
    ):
        asked = await say(hers, "My secret is PLUM.")
        key, run = asked["sessionKey"], asked["runId"]
        assert key == f"agent:main:direct:member.{ada.id}"
        fill = {"message": "x", "idempotencyKey": "x", "path": "x", "runId": run, "query": "PLUM"}
        for name, rule in MEMBER_METHODS.items():
            fields = set(ALL_METHODS[name].params.__struct_encode_fields__)
            params = {field: value for field, value in fill.items() if field in fields}
            if "sessionKey" in fields:
                params["sessionKey"] = key
            response = await call(his, name, **params)
            assert "PLUM" not in response.text, name
            if rule in (MemberRule.SESSION, MemberRule.RUN):
                assert response.status_code == 404, (name, response.text)
        answer = await his.get(f"/v1/responses/resp_{run}")
        assert answer.status_code == 404
        chat = {"model": "retinue", "messages": [{"role": "user", "content": "hi"}]}
        taken = await his.post("/v1/chat/completions", json=chat, headers={"x-retinue-session-key": key})
        assert taken.status_code == 404


async def test_names_of_sessions_are_within_the_own_conversations(team: TeamHall) -> None:
    bob = team.add("bob@example.org")
    async with team.hall.http() as owner, team.hall.http(await team.token_of("bob@example.org")) as client:
        await say(owner, "The owner's secret is PEAR.")
        await say(owner, "Of the owner.", sessionKey="ideas")
        own = f"agent:main:direct:member.{bob.id}"
        keys = {name: (await call(client, "sessions.get", sessionKey=name)).json()["key"] for name in ("main", "ideas")}
        assert keys == {"main": own, "ideas": f"{own}:thread:ideas"}
        assert (await call(client, "sessions.list")).json()["sessions"] == []
        assert (await call(client, "sessions.search", query="PEAR")).json()["hits"] == []
        for foreign in ("agent:main:cron:daily", "agent:main:direct:other", "agent:main:slack:channel:c1"):
            assert (await call(client, "sessions.history", sessionKey=foreign)).status_code == 404
        forked = await say(client, "Hello.")
        copy = await call(client, "sessions.fork", sessionKey=forked["sessionKey"])
        assert copy.json()["sessionKey"].startswith(f"{own}:thread:")


async def test_members_have_their_own_notes_and_not_those_of_the_owner(team: TeamHall) -> None:
    ada, bob = team.add("ada@example.org"), team.add("bob@example.org", TeamRole.ADMIN)
    workspace = team.hall.home.path / "workspace"
    async with (
        team.hall.http(await team.token_of("ada@example.org")) as hers,
        team.hall.http(await team.token_of("bob@example.org")) as his,
    ):
        for member, word in ((ada, "APRICOT"), (bob, "BANANA")):
            folder = workspace / Person.of_member(member.id).folder
            folder.mkdir(parents=True)
            (folder / "USER.md").write_text(f"They like {word}.")
        (workspace / "MEMORY.md").write_text("The owner likes CHERRY.")
        (workspace / "USER.md").write_text("The owner is called OLIVE.")
        await say(hers, "What do I like?")
        prompt = str(team.hall.model.requests[-1])
        assert "APRICOT" in prompt
        assert not [word for word in ("BANANA", "CHERRY", "OLIVE") if word in prompt]
        await say(his, "And what do I like?")
        prompt = str(team.hall.model.requests[-1])
        assert "BANANA" in prompt
        assert not [word for word in ("APRICOT", "CHERRY", "OLIVE") if word in prompt]


async def test_a_role_for_one_agent_counts_for_that_agent_only(team: TeamHall) -> None:
    team.add("bob@example.org", TeamRole.VIEWER)
    team.members.set_agent_role("bob@example.org", "finance", TeamRole.MEMBER, TeamRole.OWNER)
    async with team.hall.http(await team.token_of("bob@example.org")) as client:
        refused = await call(client, "agent", message="Hi.", idempotencyKey="1")
        assert refused.status_code == 403
        accepted = await say(client, "Hello.", agent="finance")
        assert accepted["sessionKey"].startswith("agent:finance:direct:")
        chat = {"model": "retinue/main", "messages": [{"role": "user", "content": "hi"}]}
        assert (await client.post("/v1/chat/completions", json=chat)).status_code == 403
        chat["model"] = "retinue/finance"
        answer = await client.post("/v1/chat/completions", json=chat)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-retinue-session-key"].startswith(accepted["sessionKey"])


async def test_a_token_of_a_service_account_has_its_own_scopes_and_conversations(team: TeamHall) -> None:
    service = team.members.add(NewMember("builds", "Builds", TeamRole.SERVICE), TeamRole.OWNER)
    _, reading = team.access.create_token(service, "reads", [Scope.READ])
    _, writing = team.access.create_token(service, "writes", [Scope.WRITE])
    async with team.hall.http(reading) as client:
        assert (await call(client, "agent", message="Hi.", idempotencyKey="1")).status_code == 403
        assert (await client.post("/auth/device/approve", json={"code": "BCDF-GHJK"})).status_code == 403
    async with team.hall.http(writing) as client:
        assert (await say(client, "Hi."))["sessionKey"] == f"agent:main:direct:member.{service.id}"


async def test_events_of_the_gateway_about_others_are_not_sent(team: TeamHall) -> None:
    bob = team.add("bob@example.org")
    token = await team.token_of("bob@example.org")
    async with raw_socket(team.hall, token) as socket, team.hall.http() as owner, team.hall.http(token) as own:
        await socket.result("sessions.subscribe", gateway=True)
        await say(owner, "Of the owner.")
        await say(own, "Of Bob.")
        event = await socket.next_event()
        assert event["payload"]["sessionKey"] == f"agent:main:direct:member.{bob.id}"


async def test_sign_ins_and_changes_are_in_the_log_of_the_team(team: TeamHall) -> None:
    team.add("ada@example.org", TeamRole.ADMIN)
    team.add("bob@example.org")
    async with team.hall.http(await team.token_of("ada@example.org")) as client:
        assert (await call(client, "members.role", member="bob@example.org", role="viewer")).status_code == 200
        await wait_until(lambda: bool(team.audit.search(AuditSearch("member_role_set"))))
        (row,) = (await call(client, "team.audit", kind="member_role_set")).json()["entries"]
        assert (row["who"], row["details"]["member"]) == ("ada@example.org", "bob@example.org")
        assert [each["who"] for each in (await call(client, "team.audit", text="signed_in")).json()["entries"]] == []
        signed_in = (await call(client, "team.audit", kind="signed_in")).json()["entries"]
        assert [each["who"] for each in signed_in] == ["ada@example.org"]
        assert (await call(client, "team.audit.verify")).json()["ok"]


async def test_an_owner_of_another_team_in_the_same_database_is_nobody_here(team: TeamHall) -> None:
    blue = TeamDatabase(team.server, "blue", SystemClock())
    owner = MemberStore(blue).add(NewMember("eve@example.org", "Eve", TeamRole.OWNER), TeamRole.OWNER)
    _, token = AccessStore(blue).create(NewAccess(owner.id, "password", "a browser"))
    async with team.hall.http(token) as client:
        answers = {name: (await call(client, name)).status_code for name in ALL_METHODS}
        assert answers == dict.fromkeys(ALL_METHODS, 401)
        assert (await client.post("/auth/sign-out", json={})).status_code == 401


async def test_an_admin_opens_any_session_by_its_key_and_writes_there_as_the_owner(team: TeamHall) -> None:
    ada = team.add("ada@example.org", TeamRole.ADMIN)
    async with team.hall.http(await team.token_of("ada@example.org")) as client:
        assert (await say(client, "Hello."))["sessionKey"] == f"agent:main:direct:member.{ada.id}"
        assert (await say(client, "To main.", sessionKey="agent:main:main"))["sessionKey"] == "agent:main:main"
        found = (await call(client, "sessions.list")).json()["sessions"]
        assert {row["key"] for row in found} == {f"agent:main:direct:member.{ada.id}", "agent:main:main"}
