"""A message that is too large gets the same readable error at every entry point."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosedError

from retinue.core.envelope import MAX_MESSAGE_CHARS, Inbound
from retinue.core.errors import MessageTooLarge
from retinue.core.events import TurnEvent
from retinue.core.keys import SessionKey
from retinue.wire.protocol import MAX_FRAME_BYTES, MAX_READ_FRAME_BYTES, CloseCode
from tests.gateway.conftest import Hall, raw_socket

pytestmark = pytest.mark.anyio

LARGE = "x" * 10_000_000
LONG = "x" * (MAX_MESSAGE_CHARS + 1)
CONFIG: dict[str, Any] = {
    "hooks": {"enabled": True, "token": "hook-token-0123456789", "maxBodyBytes": 50_000_000},
    "channels": {"http": {"accounts": {"desk": {"enabled": True}}}},
    "gateway": {"http": {"endpoints": {"chatCompletions": {"enabled": True}, "responses": {"enabled": True}}}},
}


def bodies(text: str) -> dict[str, dict[str, Any]]:
    """A message with this text for every path."""
    return {
        "/rpc/agent": {"message": text, "idempotencyKey": "1"},
        "/v1/chat/completions": {"model": "retinue", "messages": [{"role": "user", "content": text}]},
        "/v1/responses": {"model": "retinue", "input": text},
        "/channels/http/desk": {"peer": {"kind": "dm", "id": "ada"}, "text": text},
        "/hooks/agent": {"message": text},
    }


@pytest.fixture
async def open_gateway(quiet_hall: Hall) -> AsyncIterator[Hall]:
    quiet_hall.config.update(CONFIG)
    async with quiet_hall.serving():
        yield quiet_hall


@pytest.mark.parametrize("path", bodies(""))
@pytest.mark.parametrize("chunked", [False, True])
async def test_ten_megabytes_get_a_413_with_a_reason(open_gateway: Hall, path: str, *, chunked: bool) -> None:
    body = json.dumps(bodies(LARGE)[path]).encode()

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 100_000):
            yield body[start : start + 100_000]

    headers = {"content-type": "application/json"}
    if path.startswith("/hooks/"):
        headers["authorization"] = f"Bearer {CONFIG['hooks']['token']}"
    async with open_gateway.http() as client:
        answer = await client.post(path, content=pieces() if chunked else body, headers=headers)
    assert answer.status_code == 413
    assert f"{MAX_FRAME_BYTES:,} bytes" in answer.json()["error"]["message"]
    assert answer.json()["error"]["code"] == "too_large"


@pytest.mark.parametrize("path", bodies(""))
async def test_a_text_over_the_limit_gets_a_413_with_a_reason(open_gateway: Hall, path: str) -> None:
    headers = {"authorization": f"Bearer {CONFIG['hooks']['token']}"} if path.startswith("/hooks/") else {}
    async with open_gateway.http() as client:
        answer = await client.post(path, json=bodies(LONG)[path], headers=headers)
    assert answer.status_code == 413
    assert f"{MAX_MESSAGE_CHARS:,} characters are allowed" in answer.json()["error"]["message"]


async def test_a_large_frame_gets_an_error_response_and_the_connection_continues(open_gateway: Hall) -> None:
    async with raw_socket(open_gateway) as raw:
        for text, limit in ((LARGE, f"{MAX_FRAME_BYTES:,} bytes"), (LONG, f"{MAX_MESSAGE_CHARS:,} characters")):
            refused = await raw.call("agent", message=text, idempotencyKey="1")
            assert refused["error"]["code"] == "too_large"
            assert f"{limit} are allowed" in refused["error"]["message"]
        assert await raw.result("status")


@pytest.mark.slow
async def test_a_frame_that_cannot_be_read_gets_a_close_frame_with_a_reason(open_gateway: Hall) -> None:
    async with raw_socket(open_gateway) as raw:
        with suppress(ConnectionClosedError):
            await raw.send("x" * (3 * MAX_READ_FRAME_BYTES))
        with pytest.raises(ConnectionClosedError) as closed:
            await raw.receive()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == CloseCode.TOO_BIG
    assert f"{MAX_READ_FRAME_BYTES}" in closed.value.rcvd.reason


async def test_the_client_refuses_a_large_message_before_it_sends_it(open_gateway: Hall) -> None:
    async def unseen(event: TurnEvent) -> None:
        """Show nothing."""

    key = SessionKey.parse("agent:main:main")
    async with open_gateway.client() as client:
        with pytest.raises(MessageTooLarge, match="1,000,000 characters are allowed"):
            await client.say(Inbound(LONG, key), unseen)
        assert (await client.say(Inbound("hi", key), unseen)).text
