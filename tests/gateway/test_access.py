"""Access control: every route and method, with credentials that do not suffice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import Response
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin

from retinue.config.sections.gateway import GatewaySettings
from retinue.core.clock import derived_uuid
from retinue.core.errors import ConfigError
from retinue.gateway.app import list_endpoints
from retinue.gateway.auth.request_source import is_allowed_host, is_allowed_origin
from retinue.gateway.endpoint import RouteEndpoint
from retinue.gateway.gateway import Gateway
from retinue.gateway.schema_docs import PUBLIC
from retinue.gateway.server import WATCH_SECONDS
from retinue.gateway.transport import choose_host
from retinue.structs.decode import decode
from retinue.wire.methods import METHODS
from retinue.wire.protocol import IMPLIED, Scope
from tests.gateway.conftest import PATIENCE, Hall, RawSocket, open_hall, raw_socket

pytestmark = pytest.mark.anyio

LESS: dict[Scope, Scope | None] = {
    Scope.READ: None,
    Scope.WRITE: Scope.READ,
    Scope.APPROVE: Scope.WRITE,
    Scope.PAIR: Scope.WRITE,
    Scope.ADMIN: Scope.APPROVE,
}
"""A scope that is not enough for another."""


def routes() -> list[tuple[str, str, str]]:
    """Every route as method, path and what it needs; one of the paths for each method of the wire."""
    found = []
    for endpoint in list_endpoints():
        needs = PUBLIC if endpoint.scope is None else endpoint.scope.value
        if endpoint.path == "/rpc/{method}":
            found += [("POST", f"/rpc/{name}", method.scope.value) for name, method in METHODS.items()]
        else:
            found.append((endpoint.verb, endpoint.path, needs))
    return found


async def send(hall: Hall, verb: str, path: str, token: str | None, **headers: str) -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=hall.url, timeout=PATIENCE, verify=False) as client:
        return await send_by(client, verb, path, token, **headers)


async def send_by(
    client: httpx2.AsyncClient, verb: str, path: str, token: str | None, **headers: str
) -> httpx2.Response:
    given = {"content-type": "application/json"} if verb != "GET" else {}
    if token is not None:
        given["authorization"] = f"Bearer {token}"
    return await client.request(verb, path, headers=given | headers, content=b"{}" if verb != "GET" else None)


async def calls_carried_out(hall: Hall) -> float:
    """How many calls reached what carries them out, as the gateway counts."""
    answer = await send(hall, "GET", "/metrics", hall.local_token)
    assert answer.status_code == 200
    return sum(float(line.rsplit(" ", 1)[1]) for line in answer.text.splitlines() if line.startswith("retinue_calls_"))


@pytest.mark.slow
async def test_nobody_gets_through_to_a_handler_without_the_right_token_origin_and_host(hall: Hall) -> None:
    tokens = {scope: hall.token(scope, name=scope.value) for scope in Scope}
    with hall.book() as book:
        _, revoked = book.create("revoked", [Scope.ADMIN])
        book.revoke("revoked")
    reached = []
    async with httpx2.AsyncClient(base_url=hall.url, timeout=PATIENCE, verify=False) as client:
        for verb, path, needed in routes():
            for name, (where, token, headers) in bad_requests(hall, path, needed, tokens, revoked).items():
                answer = await send_by(client, verb, where, token, **headers)
                if answer.status_code not in (401, 403):
                    reached.append((verb, path, name, answer.status_code))
    assert reached == []
    assert await calls_carried_out(hall) == 0


def bad_requests(
    hall: Hall, path: str, needed: str, tokens: dict[Scope, str], revoked: str
) -> dict[str, tuple[str, str | None, dict[str, str]]]:
    """Requests that must not get through: where to, with which token, with which headers."""
    good = hall.local_token
    cases: dict[str, tuple[str, str | None, dict[str, str]]] = {
        "foreign origin": (path, good, {"origin": "https://evil.example"}),
        "null origin": (path, good, {"origin": "null"}),
        "origin of another port": (path, good, {"origin": "http://127.0.0.1:1"}),
        "foreign host": (path, good, {"host": "evil.example"}),
        "host with a user": (path, good, {"host": f"x@{hall.host}"}),
    }
    if needed == PUBLIC:
        return cases
    cases |= {
        "no token": (path, None, {}),
        "wrong": (path, tokens[Scope.ADMIN][:-1] + "_", {}),
        "nonsense": (path, "nonsense", {}),
        "revoked": (path, revoked, {}),
        "basic": (path, None, {"authorization": "Basic YTpi"}),
        "token in the url": (f"{path}?token={good}&access_token={good}", None, {}),
    }
    less = LESS[Scope(needed)]
    if less is not None:
        assert Scope(needed) not in IMPLIED[less]
        cases["lower scope"] = (path, tokens[less], {})
    return cases


async def test_every_method_is_closed_to_a_lower_scope_on_the_socket(hall: Hall) -> None:
    for scope, less in LESS.items():
        if less is None:
            continue
        async with raw_socket(hall, hall.token(less, name=f"less than {scope}")) as raw:
            for name, method in METHODS.items():
                if method.scope is scope:
                    response = await raw.call(name)
                    assert response["error"]["code"] == "forbidden", name


@pytest.mark.slow
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "file://"},
        {"origin": "http://localhost.evil.example"},
        {"host": "evil.example"},
        {"host": "evil.example:18790"},
    ],
)
async def test_a_page_from_elsewhere_cannot_open_a_socket(hall: Hall, headers: dict[str, str]) -> None:
    address, port = hall.host.split(":")
    opening = connect(
        f"ws://{headers.get('host', hall.host)}/ws",
        proxy=None,
        host=address,
        port=int(port),
        origin=Origin(headers["origin"]) if "origin" in headers else None,
    )
    with pytest.raises(InvalidStatus) as refused:
        await opening
    assert refused.value.response.status_code == 403


async def test_a_page_of_ours_can(hall: Hall) -> None:
    async with raw_socket(hall, origin=f"http://{hall.host}") as raw:
        assert (await raw.result("health"))["ok"]


@pytest.mark.parametrize("auth", [{}, {"token": "nonsense"}, {"password": "x"}, {"pairingCode": "ABCDEFGH"}])
async def test_a_socket_without_a_valid_token_is_closed(hall: Hall, auth: dict[str, str]) -> None:
    async with connect(f"{hall.socket_url}?token={hall.local_token}", proxy=None) as socket:
        raw = RawSocket(socket)
        await raw.send({"type": "req", "id": "1", "method": "connect", "params": {"auth": auth}})
        assert (await raw.receive())["error"]["code"] == "unauthenticated"
        with pytest.raises(ConnectionClosed) as closed:
            await raw.receive()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008


async def test_the_token_may_stand_in_the_header(hall: Hall) -> None:
    headers = {"Authorization": f"Bearer {hall.local_token}"}
    async with connect(hall.socket_url, proxy=None, additional_headers=headers) as socket:
        raw = RawSocket(socket)
        await raw.send({"type": "req", "id": "1", "method": "connect"})
        assert (await raw.response("1"))["ok"]


async def test_revoking_a_token_from_another_process_closes_its_sockets(hall: Hall) -> None:
    token = hall.token(Scope.READ, name="phone")
    async with raw_socket(hall, token) as raw, raw_socket(hall) as other:
        assert (await raw.result("health"))["ok"]
        with hall.book() as book:
            book.revoke("phone")
        with pytest.raises(ConnectionClosed) as closed:
            await raw.receive()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4001
        assert (await other.result("health"))["ok"]


async def test_a_configuration_that_is_being_changed_does_not_hold_up_revoking(tmp_path: Path) -> None:
    settings = {"reload": {"debounceMs": 3_600_000}}
    async with (
        open_hall(tmp_path, gateway=settings) as hall,
        hall.serving(),
        raw_socket(hall, hall.token(Scope.READ, name="phone")) as raw,
    ):
        hall.write_config(messages={"messagePrefix": "changed"})
        await anyio.sleep(2 * WATCH_SECONDS)  # so that the change was seen
        with hall.book() as book:
            book.revoke("phone")
        with pytest.raises(ConnectionClosed):
            await raw.receive()
        assert raw.socket.close_code == 4001


async def test_a_pairing_code_gives_one_device_a_token_of_its_own(hall: Hall) -> None:
    with hall.book() as book:
        code = book.create_code([Scope.READ])
    answer = await send_json(hall, "/pair", {"code": f"{code[:4]}-{code[4:]}".lower(), "name": "my phone"})
    assert answer.status_code == 200
    token = answer.json()["token"]
    async with raw_socket(hall, token) as raw:
        assert (await raw.result("health"))["ok"]
        assert (await raw.call("agent", message="x", idempotencyKey="k"))["error"]["code"] == "forbidden"
    assert (await send_json(hall, "/pair", {"code": code})).status_code == 401
    with hall.book() as book:
        assert [record.name for record in book.list() if record.kind == "device"] == ["my phone"]


async def test_guessing_at_codes_locks_out_even_on_this_machine(hall: Hall) -> None:
    statuses = [(await send_json(hall, "/pair", {"code": f"AAAA{n:04}"})).status_code for n in range(11)]
    assert statuses == [401] * 10 + [429]
    with hall.book() as book:
        code = book.create_code([Scope.READ])
    assert (await send_json(hall, "/pair", {"code": code})).status_code == 429


async def test_wrong_tokens_lock_an_address_out(tmp_path: Path) -> None:
    gateway = {"auth": {"rateLimit": {"maxAttempts": 3, "exemptLoopback": False}}}
    async with open_hall(tmp_path, gateway=gateway) as hall, hall.serving():
        statuses = [(await send(hall, "POST", "/rpc/health", "wrong")).status_code for _ in range(4)]
        assert statuses == [401, 401, 401, 429]
        assert (await send(hall, "POST", "/rpc/health", hall.local_token)).status_code == 429
        assert (await send(hall, "GET", "/healthz", None)).status_code == 200


async def test_what_changes_something_needs_json(hall: Hall) -> None:
    async with hall.http() as client:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            answer = await client.post("/rpc/health", content=b"{}", headers={"content-type": kind})
            assert answer.status_code == 400
        assert (await client.post("/rpc/health", json={})).status_code == 200


@pytest.mark.slow
async def test_a_body_without_an_end_is_refused(hall: Hall) -> None:
    async def endless() -> Any:
        for _ in range(100_000):
            yield b" " * 65_536
        raise AssertionError("six gigabytes were taken")

    async with hall.http() as client:
        headers = {"content-type": "application/json"}
        try:
            answer = await client.post("/rpc/health", content=endless(), headers=headers)
        except (httpx2.WriteError, httpx2.ReadError):
            pass  # it was cut off while it still sent
        else:
            assert answer.status_code == 413
        assert (await client.post("/rpc/health", json={})).status_code == 200


async def test_guests_are_not_owners_and_cannot_approve_by_a_command(hall: Hall) -> None:
    async with raw_socket(hall, hall.token(Scope.WRITE)) as raw:
        sent = await raw.call("agent", message="/approve abcd", idempotencyKey="1")
        assert sent["error"]["code"] == "forbidden"
        sent = await raw.result("agent", message="/config gateway.port", idempotencyKey="2")
        waited = await raw.result("agent.wait", runId=sent["runId"])
        assert "only for the owner" in waited["outbound"]["text"]


@pytest.mark.parametrize("path", ["/pair", "/rpc/health", "/v1/chat/completions", "/channels/http/none"])
async def test_what_is_no_json_is_told_so(hall: Hall, path: str) -> None:
    async with hall.http() as client:
        answer = await client.post(path, content=b'{"a": ', headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("This is not JSON")


async def test_half_of_a_character_pair_is_refused_wherever_it_stands(hall: Hall) -> None:
    body = b'{"fields": {"every": "2h", "message": "\\ud800"}}'
    async with hall.http() as client:
        answer = await client.post("/rpc/cron.add", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 400
        assert "surrogate pair" in answer.json()["error"]["message"]


async def say_command(raw: RawSocket, text: str, **more: str) -> str:
    sent = await raw.result("agent", message=text, idempotencyKey=text + str(more), **more)
    answer: str = (await raw.result("agent.wait", runId=sent["runId"]))["outbound"]["text"]
    return answer


async def test_the_right_to_approve_does_not_make_an_owner(hall: Hall) -> None:
    async with raw_socket(hall, hall.token(Scope.WRITE, Scope.APPROVE)) as raw:
        assert (await raw.result("approvals.list"))["approvals"] == []
        sent = await raw.call("agent", message="/approve abcd", idempotencyKey="1")
        assert "'admin'" in sent["error"]["message"]


async def test_nobody_becomes_somebody_else_by_the_name_or_the_place_they_give(hall: Hall) -> None:
    """Rights by sender, such as `tools.elevated.allowFrom`, name people as a channel vouches for them."""
    with hall.book() as book:
        code = book.create_code([Scope.WRITE])
    paired = (await send_json(hall, "/pair", {"code": code, "name": "ada"})).json()
    async with raw_socket(hall, paired["token"]) as device, raw_socket(hall) as owner:
        assert f"You are ada ({paired['tokenId']}), a guest" in await say_command(device, "/whoami")
        assert "a guest" in await say_command(device, "/whoami", channel="terminal")
        for channel in ("http", "telegram", "openai"):
            refused = await device.call("agent", message="hi", idempotencyKey=channel, channel=channel)
            assert refused["error"]["code"] == "forbidden"
        assert "the owner" in await say_command(owner, "/whoami", channel="telegram")


async def test_keys_of_different_tokens_do_not_meet(hall: Hall) -> None:
    async with raw_socket(hall, hall.token(Scope.WRITE, name="a")) as a, raw_socket(hall) as b:
        first = await a.result("agent", message="hi", idempotencyKey="same")
        second = await b.result("agent", message="hi", idempotencyKey="same")
        assert first["runId"] != second["runId"]
        await b.result("agent.wait", runId=second["runId"])


async def test_run_ids_cannot_be_computed_from_keys(hall: Hall) -> None:
    token = hall.token(Scope.WRITE, name="a")
    async with raw_socket(hall, token) as raw:
        sent = await raw.result("agent", message="hi", idempotencyKey="same")
        again = await raw.result("agent", message="hi", idempotencyKey="same")
    assert sent["runId"] == again["runId"]
    with hall.book() as book:
        keys = [f"{record.id}:same" for record in book.list()]
    assert keys
    assert sent["runId"] not in map(derived_uuid, keys)


async def test_a_run_is_read_as_its_session_and_confirmed_by_its_sender_or_the_owner(hall: Hall) -> None:
    """The scope `read` reads every session, so also every run."""
    reader, other = hall.token(Scope.READ, name="r"), hall.token(Scope.WRITE, name="o")
    async with (
        raw_socket(hall, hall.token(Scope.WRITE, name="a")) as sender,
        raw_socket(hall, reader) as reads,
        raw_socket(hall, other) as writes,
        raw_socket(hall) as owner,
    ):
        for asker in (sender, owner):
            run = (await asker.result("agent", message="hi", idempotencyKey="k", sessionKey="shared"))["runId"]
            await asker.result("agent.wait", runId=run)
            assert (await reads.result("sessions.history", sessionKey="shared"))["total"]
            assert (await reads.result("agent.wait", runId=run))["outbound"]["status"] == "ok"
            for wrong in (reads, writes):
                refused = await wrong.call("agent.confirm", runId=run)
                assert refused["error"]["code"] == "forbidden"
            assert run in str(await owner.result("agent.missed", sessionKey="shared"))
            await asker.result("agent.confirm", runId=run)
            assert run not in str(await owner.result("agent.missed", sessionKey="shared"))


async def test_changing_the_configured_token_closes_its_sockets(tmp_path: Path) -> None:
    before = {"auth": {"token": "the-first-token-0123456789"}}
    after = {"auth": {"token": "the-second-token-0123456789"}}
    async with open_hall(tmp_path, gateway=before) as hall, hall.serving(), raw_socket(hall) as owner:
        async with raw_socket(hall, "the-first-token-0123456789") as raw:
            hall.write_config(gateway=after)
            assert "gateway.auth.token" in (await owner.result("config.apply"))["changed"]
            with anyio.fail_after(PATIENCE), pytest.raises(ConnectionClosed):
                await raw.response("never sent")
            assert raw.socket.close_code == 4001
        async with raw_socket(hall, "the-second-token-0123456789") as raw:
            assert (await raw.result("health"))["ok"]
        assert (await owner.result("health"))["ok"]


@pytest.mark.parametrize(
    ("verb", "path", "status", "told"),
    [
        ("GET", "/nowhere", 404, "There is nothing at /nowhere"),
        ("POST", "/v1/edits", 404, "There is nothing at /v1/edits"),
        ("GET", "/rpc/status", 405, "/rpc/status does not support GET. Use: POST"),
        ("DELETE", "/healthz", 405, "/healthz does not support DELETE. Use: GET"),
    ],
)
async def test_a_wrong_address_is_explained(hall: Hall, verb: str, path: str, status: int, told: str) -> None:
    answer = await send(hall, verb, path, hall.local_token)
    assert answer.status_code == status
    assert told in answer.json()["error"]["message"]


def test_an_endpoint_without_a_scope_cannot_be_declared() -> None:
    async def act(gateway: Gateway, request: Request) -> Response:
        return Response()

    with pytest.raises(TypeError, match="scope"):
        RouteEndpoint(verb="GET", path="/open", act=act)  # type: ignore[call-arg]  # that is the test


@pytest.mark.parametrize(
    "settings",
    [
        {"bind": "lan", "auth": {"mode": "none"}},
        {"bind": "custom", "customBindHost": "192.168.1.5", "auth": {"mode": "none"}},
        {"bind": "custom"},
        {"auth": {"mode": "password"}},
    ],
)
def test_what_would_let_anybody_in_from_outside_does_not_start(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        choose_host(decode(GatewaySettings, settings))


@pytest.mark.parametrize(
    ("host", "good"),
    [
        ("127.0.0.1:18790", True),
        ("localhost", True),
        ("[::1]:18790", True),
        ("192.168.1.5:18790", True),
        ("chat.example", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1@evil.example", False),
        ("127.0.0.1:18790/x", False),
        ("127.0.0.1:port", False),
        ("", False),
    ],
)
def test_hosts(host: str, good: bool) -> None:
    assert is_allowed_host([host], ["https://chat.example"]) is good


def test_headers_that_come_twice_are_nobody() -> None:
    assert not is_allowed_host(["localhost", "localhost"], [])
    assert not is_allowed_host([], [])
    assert not is_allowed_origin(["http://localhost", "http://localhost"], ["localhost"], [])


async def send_json(hall: Hall, path: str, body: dict[str, Any]) -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=hall.url, timeout=PATIENCE, verify=False) as client:
        return await client.post(path, content=json.dumps(body), headers={"content-type": "application/json"})


async def test_the_local_token_is_readable_by_the_owner_alone(hall: Hall) -> None:
    path = hall.home.credentials / "gateway.token"
    assert path.stat().st_mode & 0o777 == 0o600
    assert hall.local_token not in (hall.home.path / "state.sqlite").read_bytes().decode("latin-1")
    await anyio.lowlevel.checkpoint()
