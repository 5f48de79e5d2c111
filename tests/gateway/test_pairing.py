"""Pairing requests of devices."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from retinue.cli.main import run
from retinue.client.link import ClientError, request_token
from retinue.core.errors import UsageError
from retinue.gateway.auth.pairing import MAX_PER_ADDRESS, MAX_REQUESTS, REQUEST_MINUTES, PairingStore, TooManyRequests
from retinue.gateway.auth.tokens import TokenStore
from retinue.storage.database import DATABASE_NAME, SqliteDatabase
from retinue.testing.clock import FrozenClock
from retinue.wire.frames import PairingRequested
from retinue.wire.protocol import Scope
from tests.databases import DATABASES, open_database
from tests.gateway.conftest import PATIENCE, Hall, RawSocket, gateway_process, open_hall, raw_socket

pytestmark = pytest.mark.anyio

ASKING = {"client": {"name": "my phone", "platform": "Android"}, "auth": {"requestPairing": True}}


@asynccontextmanager
async def asking(hall: Hall, params: dict[str, Any] = ASKING) -> AsyncIterator[tuple[RawSocket, str]]:
    """A device that waits for the owner, and the code on its screen."""
    async with connect(hall.socket_url, proxy=None, compression=None) as socket:
        raw = RawSocket(socket)
        await raw.send({"type": "req", "id": "hello", "method": "connect", "params": params})
        event = await raw.receive()
        assert event.get("event") == "pairing.requested", event
        yield raw, event["payload"]["code"]


@contextmanager
def owner(hall: Hall) -> Iterator[PairingStore]:
    """The owner at a terminal, which is another process."""
    from retinue.core.clock import SystemClock

    database = SqliteDatabase(hall.home.path / DATABASE_NAME)
    try:
        yield PairingStore(database, TokenStore(database, SystemClock()), SystemClock())
    finally:
        database.close()


async def until_nobody_waits(hall: Hall) -> None:
    with anyio.fail_after(PATIENCE):
        while True:
            with owner(hall) as book:
                if not book.waiting():
                    return
            await anyio.sleep(0.01)


async def refusal(raw: RawSocket) -> str:
    answer = await raw.response("hello")
    assert not answer["ok"]
    with pytest.raises(ConnectionClosed):
        await raw.receive()
    code: str = answer["error"]["code"]
    return code


async def test_an_approved_device_gets_its_token_on_the_connection_that_asked(hall: Hall) -> None:
    async with asking(hall) as (raw, code):
        assert re.fullmatch(r"[A-Z2-9]{3}-[A-Z2-9]{3}", code)
        with owner(hall) as book:
            waiting = book.waiting()
            assert [(each.name, each.platform, each.address) for each in waiting] == [
                ("my phone", "Android", "127.0.0.1")
            ]
            book.approve(code.lower(), [Scope.READ])
        hello = (await raw.response("hello"))["payload"]
        assert hello["scopes"] == ["read"]
        assert (await raw.result("health"))["ok"]
        assert (await raw.call("agent", message="x", idempotencyKey="k"))["error"]["code"] == "forbidden"
    async with raw_socket(hall, hello["token"]) as again:
        assert (await again.result("health"))["ok"]
    with hall.book() as tokens:
        assert [(record.name, record.scopes) for record in tokens.devices()] == [("my phone", (Scope.READ,))]


async def test_a_device_cannot_ask_for_scopes(hall: Hall) -> None:
    wanting = {"auth": {"requestPairing": True, "scopes": ["admin"]}}
    async with connect(hall.socket_url, proxy=None) as socket:
        raw = RawSocket(socket)
        await raw.send({"type": "req", "id": "hello", "method": "connect", "params": wanting})
        assert await refusal(raw) == "bad_request"


async def test_a_device_that_is_sent_away_gets_nothing(hall: Hall) -> None:
    async with asking(hall) as (raw, code):
        with owner(hall) as book:
            book.reject(code)
        assert await refusal(raw) == "forbidden"
    await until_nobody_waits(hall)
    with hall.book() as tokens:
        assert tokens.devices() == ()


async def test_a_request_expires(hall: Hall) -> None:
    async with asking(hall) as (raw, code):
        with owner(hall) as book, book._database.change() as base:  # the clock of the gateway cannot be moved
            base.execute("UPDATE pairing_requests SET expires_at = '2020-01-01T00:00:00.000000+00:00'")
        assert await refusal(raw) == "unauthenticated"
        with owner(hall) as book, pytest.raises(UsageError):
            book.approve(code, [Scope.READ])


async def test_a_device_that_leaves_is_not_waited_for(hall: Hall) -> None:
    async with asking(hall) as (_, code):
        pass
    await until_nobody_waits(hall)
    with owner(hall) as book, pytest.raises(UsageError):
        book.approve(code, [Scope.READ])


async def test_a_device_that_talks_while_it_waits_is_sent_away(hall: Hall) -> None:
    async with asking(hall) as (raw, _):
        await raw.send({"type": "req", "id": "1", "method": "health"})
        assert await refusal(raw) == "bad_request"


async def test_a_code_says_nothing_to_anybody_else(hall: Hall) -> None:
    async with asking(hall) as (raw, code), asking(hall) as (other, _):
        with owner(hall) as book:
            book.approve(code, [Scope.WRITE])
        assert (await raw.response("hello"))["ok"]
        with pytest.raises(UsageError), owner(hall) as book:
            book.approve(code, [Scope.WRITE])
        async with connect(hall.socket_url, proxy=None) as socket:
            thief = RawSocket(socket)
            await thief.send(
                {"type": "req", "id": "hello", "method": "connect", "params": {"auth": {"pairingCode": code}}}
            )
            assert await refusal(thief) == "unauthenticated"
        assert not other.events
    with hall.book() as tokens:
        assert len(tokens.devices()) == 1


async def test_one_address_can_neither_fill_the_list_nor_ask_without_end(hall: Hall) -> None:
    codes = []
    async with asking(hall), asking(hall), asking(hall):
        for _ in range(12):
            async with connect(hall.socket_url, proxy=None) as socket:
                raw = RawSocket(socket)
                await raw.send({"type": "req", "id": "hello", "method": "connect", "params": ASKING})
                codes.append(await refusal(raw))
        with owner(hall) as book:
            assert len(book.waiting()) == MAX_PER_ADDRESS
    assert codes == ["busy"] * 7 + ["rate_limited"] * 5
    async with raw_socket(hall) as raw:
        assert (await raw.result("health"))["ok"], "who has a token is not locked out by those who ask"


@pytest.mark.slow
@pytest.mark.slow
async def test_what_a_gateway_left_when_it_was_killed_lets_nobody_in(quiet_hall: Hall) -> None:
    async with gateway_process(quiet_hall) as process, asking(quiet_hall) as (_, code):
        with owner(quiet_hall) as book:
            assert book.waiting()
        await process.kill()
    async with gateway_process(quiet_hall):
        with owner(quiet_hall) as book, pytest.raises(UsageError):
            book.approve(code, [Scope.ADMIN])


@pytest.mark.slow
async def test_where_anybody_may_come_in_nobody_waits(tmp_path: Path) -> None:
    async with (
        open_hall(tmp_path, gateway={"auth": {"mode": "none"}}) as hall,
        hall.serving(),
        connect(hall.socket_url, proxy=None) as socket,
    ):
        raw = RawSocket(socket)
        await raw.send({"type": "req", "id": "hello", "method": "connect", "params": ASKING})
        assert (await raw.response("hello"))["payload"]["token"] is None


async def test_owners_decide_over_the_socket_too(hall: Hall) -> None:
    async with raw_socket(hall) as raw, asking(hall) as (device, code):
        await raw.result("sessions.subscribe", gateway=True)
        (waiting,) = (await raw.result("devices.list"))["waiting"]
        assert (waiting["code"], waiting["name"]) == (code, "my phone")
        assert (await raw.call("devices.approve", code="AAA-AAA"))["error"]["code"] == "bad_request"
        assert (await raw.result("devices.approve", code=code, scopes=["read"]))["ok"]
        token_id = (await device.response("hello"))["payload"]["tokenId"]
        listed = await raw.result("devices.list")
        assert listed["waiting"] == []
        assert [each["id"] for each in listed["paired"]] == [token_id]
        told = [event for event in raw.events if event["event"] == "devices.changed"]
        assert told[-1]["payload"] == {"waiting": 0}
        await raw.result("devices.revoke", id=token_id)
        with pytest.raises(ConnectionClosed):
            await device.receive()
    assert '"gateway_device_approved"' in (hall.home.path / "audit.jsonl").read_text()


async def test_nobody_gives_away_more_than_they_have(hall: Hall) -> None:
    async with raw_socket(hall, hall.token(Scope.PAIR)) as raw, asking(hall) as (device, code):
        for scopes in (["admin"], ["read", "approve"]):
            given = await raw.call("devices.approve", code=code, scopes=scopes)
            assert given["error"]["code"] == "forbidden"
        assert (await raw.call("devices.revoke", id="x"))["error"]["code"] == "forbidden"
        await raw.result("devices.approve", code=code, scopes=["read"])
        assert (await device.response("hello"))["payload"]["scopes"] == ["read"]


async def test_only_devices_are_revoked_as_devices(hall: Hall) -> None:
    async with raw_socket(hall) as raw:
        assert (await raw.call("devices.revoke", id="this machine"))["error"]["code"] == "bad_request"


async def test_the_command_line_lets_in_and_sends_away(hall: Hall, capsys: pytest.CaptureFixture[str]) -> None:
    home = ["--home", str(hall.home.path)]

    async def retinue(*arguments: str) -> tuple[int, str]:
        code = await anyio.to_thread.run_sync(run, ["gateway", "devices", *arguments, *home])
        return code, capsys.readouterr().out

    tickets: list[PairingRequested] = []
    tokens: list[str] = []
    refused: list[str] = []

    async def ask() -> None:
        try:
            tokens.append(await request_token(hall.url, "my\x1b[31m laptop", tickets.append))
        except ClientError as error:
            refused.append(error.failure.code.value)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        with anyio.fail_after(PATIENCE):
            while not tickets:
                await anyio.sleep(0.01)
        code, out = await retinue("list")
        assert (code, tickets[0].code in out, "\x1b" in out) == (0, True, False)
        assert (await retinue("approve", "AAA-AAA"))[0] == 2
        assert (await retinue("approve", tickets[0].code, "--scope", "read"))[0] == 0
    assert tokens[0].startswith("rtn_")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        with anyio.fail_after(PATIENCE):
            while len(tickets) < 2:
                await anyio.sleep(0.01)
        assert (await retinue("reject", tickets[1].code))[0] == 0
    assert refused == ["forbidden"]
    async with raw_socket(hall, tokens[0]) as raw:
        assert (await raw.result("health"))["ok"]
        code, out = await retinue("list")
        assert "laptop" in out
        assert (await retinue("revoke", tokens[0].split("_")[1]))[0] == 0
        with pytest.raises(ConnectionClosed):
            await raw.receive()


@pytest.fixture(params=DATABASES)
def book(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[PairingStore, FrozenClock]]:
    clock = FrozenClock()
    with open_database(request.param, tmp_path / DATABASE_NAME) as database:
        yield PairingStore(database, TokenStore(database, clock), clock), clock


def test_the_list_is_bounded_and_empties_by_itself(book: tuple[PairingStore, FrozenClock]) -> None:
    requests, clock = book
    for number in range(MAX_REQUESTS):
        requests.request("a device", "", f"10.0.0.{number}")
    with pytest.raises(TooManyRequests):
        requests.request("a device", "", "10.0.1.1")
    clock.advance(timedelta(minutes=REQUEST_MINUTES))
    assert requests.waiting() == ()
    assert requests.request("a device", "", "10.0.1.1").state == "pending"


def test_an_approval_that_came_too_late_is_none(book: tuple[PairingStore, FrozenClock]) -> None:
    requests, clock = book
    asked = requests.request("a device", "", "10.0.0.1")
    requests.approve(asked.code, [Scope.READ])
    clock.advance(timedelta(minutes=REQUEST_MINUTES))
    assert requests.claim(asked) is None
    assert requests.state_of(asked.id) is None


def test_a_token_is_claimed_once(book: tuple[PairingStore, FrozenClock]) -> None:
    requests, _ = book
    asked = requests.request("a device", "", "10.0.0.1")
    assert requests.claim(asked) is None
    requests.approve(asked.id, [Scope.READ])
    assert requests.claim(asked) is not None
    assert requests.claim(asked) is None
    with pytest.raises(UsageError):
        requests.approve(asked.id, [])
