"""The protocol over a WebSocket, frame by frame."""

from __future__ import annotations

import socket as sockets
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import structs
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from retinue.gateway import connection
from retinue.testing.replies import Fault, Reply, says
from retinue.wire import codec
from retinue.wire.methods import METHODS
from tests.gateway.conftest import PATIENCE, Hall, RawSocket, open_hall, raw_socket

pytestmark = pytest.mark.anyio


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["payload"]["event"]["type"] for event in events if event["event"] == "turn"]


async def test_a_message_is_acknowledged_at_once_and_its_turn_is_streamed(hall: Hall) -> None:
    async with raw_socket(hall) as raw:
        accepted = await raw.result("chat.send", message="hi", idempotencyKey="a")
        assert accepted["sessionKey"] == "agent:main:main"
        assert not accepted["duplicate"]
        events = await raw.until("turn_finished")
        assert kinds(events)[0] == "turn_started"
        assert {"spoken", "answered"} < set(kinds(events))
        assert events[-1]["payload"]["runs"] == [accepted["runId"]]
        waited = await raw.result("agent.wait", runId=accepted["runId"])
        assert waited["outbound"]["text"] == "Hello."


async def test_numbers_of_events_grow(hall: Hall) -> None:
    async with raw_socket(hall) as raw:
        await raw.result("chat.send", message="hi", idempotencyKey="a")
        numbers = [event["seq"] for event in await raw.until("turn_finished")]
    assert numbers == sorted(set(numbers))


async def test_the_same_key_again_says_nothing_twice(hall: Hall) -> None:
    async with raw_socket(hall) as raw, raw_socket(hall) as other:
        first = await raw.result("agent", message="hi", idempotencyKey="once")
        again = await other.result("agent", message="hi", idempotencyKey="once")
        assert again["runId"] == first["runId"]
        assert again["duplicate"]
        await raw.result("agent.wait", runId=first["runId"])
    assert len(hall.model.model_requests) == 1


async def test_a_command_is_answered_without_a_model_and_only_once(hall: Hall) -> None:
    async with raw_socket(hall) as raw:
        first = await raw.result("agent", message="/new", idempotencyKey="new")
        again = await raw.result("agent", message="/new", idempotencyKey="new")
        assert (again["runId"], again["duplicate"]) == (first["runId"], True)
        waited = await raw.result("agent.wait", runId=first["runId"])
        assert waited["outbound"]["status"] == "ok"
    assert hall.model.model_requests == []


async def test_an_answer_that_is_not_there_yet_is_not_waited_for_longer_than_asked(hall: Hall) -> None:
    hall.model.push(Reply(text="One moment ", fault=Fault.HANG))
    async with raw_socket(hall) as raw:
        accepted = await raw.result("chat.send", message="hi", idempotencyKey="a")
        await raw.until("spoken")
        assert (await raw.result("agent.wait", runId=accepted["runId"], timeoutMs=1))["outbound"] is None
        assert (await raw.result("chat.abort"))["stopped"]
        waited = await raw.result("agent.wait", runId=accepted["runId"])
        assert waited["outbound"]["status"] == "aborted"


async def test_what_was_missed_is_told_again(hall: Hall) -> None:
    async with raw_socket(hall) as raw:
        joined = await raw.result("sessions.subscribe")
        accepted = await raw.result("agent", message="hi", idempotencyKey="a")
        seen = await raw.until("turn_started")
    async with raw_socket(hall) as raw:
        await raw.result("agent.wait", runId=accepted["runId"])
        again = await raw.result("sessions.subscribe", after=seen[-1]["seq"], epoch=joined["epoch"])
        assert not again["gap"]
        assert again["replayed"] == len(raw.events)
        assert kinds(raw.events)[-1] == "turn_finished"
        assert raw.events[0]["seq"] > seen[-1]["seq"]


async def test_events_of_another_run_of_the_gateway_are_known_to_be_gone(hall: Hall) -> None:
    async with raw_socket(hall) as raw:
        assert (await raw.result("sessions.subscribe", after=3, epoch="of-yesterday"))["gap"]


async def test_history_says_up_to_where_it_goes(hall: Hall) -> None:
    async with raw_socket(hall) as raw:
        accepted = await raw.result("agent", message="hi", idempotencyKey="a")
        await raw.result("agent.wait", runId=accepted["runId"])
        history = await raw.result("chat.history")
        assert [entry["message"]["role"] for entry in history["entries"]] == ["user", "assistant"]
        assert history["total"] == 2
        joined = await raw.result("sessions.subscribe", after=history["seq"], epoch=history["epoch"])
        assert (joined["gap"], joined["replayed"]) == (False, 0)


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("no json", "bad_request"),
        ('{"type": "req", "id": "7", "method": "nothing.like.it"}', "not_found"),
        ('{"type": "req", "id": "7", "method": "agent", "params": {}}', "bad_request"),
        ('{"type": "req", "id": "7", "method": "health", "params": {"extra": 1}}', "bad_request"),
        ('{"type": "res", "id": "7"}', "bad_request"),
        ('{"type": "req", "id": "7", "method": "agent.wait", "params": {"runId": "gone"}}', "not_found"),
        (
            '{"type": "req", "id": "7", "method": "sessions.get", "params": {"agent": "nobody"}}',
            "bad_request",
        ),
    ],
)
async def test_a_bad_request_is_explained_and_the_connection_goes_on(hall: Hall, frame: str, code: str) -> None:
    async with raw_socket(hall) as raw:
        await raw.send(frame)
        response = await raw.response("7" if '"id": "7"' in frame else "")
        assert (response["ok"], response["error"]["code"]) == (False, code)
        assert (await raw.result("health"))["ok"]


@pytest.mark.slow
async def test_no_connection_follows_more_sessions_than_it_may(hall: Hall) -> None:
    async with raw_socket(hall) as raw:
        for number in range(connection.MAX_STREAMS):
            await raw.result("sessions.subscribe", sessionKey=f"room-{number}")
        for method, params in (
            ("sessions.subscribe", {"sessionKey": "one-more"}),
            ("chat.send", {"sessionKey": "one-more", "message": "/status", "idempotencyKey": "1"}),
        ):
            refused = await raw.call(method, **params)
            assert refused["error"]["code"] == "busy"
        await raw.result("chat.send", sessionKey="room-0", message="/status", idempotencyKey="2")


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        ({"verbose": "purple"}, "'full', 'off', 'on'"),
        ({"reasoning": "purple"}, "'off', 'on', 'stream'"),
        ({"thinking": "purple"}, "'minimal', 'off'"),
        ({"model": "purple"}, "is not a valid model name"),
    ],
)
async def test_a_choice_that_does_not_exist_is_refused_and_nothing_is_chosen(
    hall: Hall, choice: dict[str, str], told: str
) -> None:
    async with raw_socket(hall) as raw:
        before = await raw.result("sessions.introduce")
        refused = await raw.call("sessions.patch", **choice)
        assert refused["error"]["code"] == "bad_request"
        assert told in refused["error"]["message"]
        assert await raw.result("sessions.introduce") == before
        await raw.result("sessions.patch", verbose="full", reasoning="on")
        chosen = await raw.result("sessions.introduce")
        assert (chosen["verbose"], chosen["showsThinking"]) == ("full", True)


@pytest.mark.slow
async def test_too_many_open_requests_are_refused(hall: Hall) -> None:
    hall.model.push(Reply(text="Wait ", fault=Fault.HANG))
    async with raw_socket(hall) as raw:
        accepted = await raw.result("agent", message="hi", idempotencyKey="a")
        for number in range(65):
            params = {"runId": accepted["runId"], "timeoutMs": 60_000}
            await raw.send({"type": "req", "id": f"w{number}", "method": "agent.wait", "params": params})
        assert (await raw.response("w64"))["error"]["code"] == "busy"
        async with raw_socket(hall) as other:
            await other.result("chat.abort")
        assert (await raw.response("w0"))["payload"]["outbound"]["status"] == "aborted"


async def test_the_first_request_must_be_connect_and_small(hall: Hall) -> None:
    for frame, code in (
        ('{"type": "req", "id": "1", "method": "health"}', "unauthenticated"),
        ('{"type": "req", "id": "1", "method": "connect", "params": {"x": "%s"}}' % ("x" * 70_000), "too_large"),
        (
            '{"type": "req", "id": "1", "method": "connect", "params": {"minProtocol": 99, "maxProtocol": 99}}',
            "bad_request",
        ),
    ):
        async with connect(hall.socket_url, proxy=None) as socket:
            raw = RawSocket(socket)
            await raw.send(frame)
            assert (await raw.receive())["error"]["code"] == code
            with pytest.raises(ConnectionClosed):
                await raw.receive()


@pytest.mark.slow
async def test_a_client_that_does_not_read_is_cut_off_and_not_buffered_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_QUEUED_CHARS", 200_000)
    async with open_hall(tmp_path) as hall, hall.serving():
        host, port = hall.host.split(":")
        slow = sockets.socket()
        slow.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4_096)
        slow.connect((host, int(port)))
        slow.setblocking(False)
        async with raw_socket(hall) as quick, raw_socket(hall, sock=slow) as lazy:
            await lazy.result("sessions.subscribe")
            lazy.socket.transport.pause_reading()
            for number in range(60):
                hall.model.push(says("x" * 100_000))
                sent = await quick.result("agent", message=str(number), idempotencyKey=str(number))
                await quick.result("agent.wait", runId=sent["runId"], timeoutMs=600_000)
                if (await quick.result("status"))["connections"] == 1:
                    break
            assert (await quick.result("status"))["connections"] == 1
            lazy.socket.transport.resume_reading()
            with anyio.fail_after(PATIENCE):
                await lazy.socket.wait_closed()


@pytest.mark.slow
async def test_every_method_that_only_reads_answers_on_a_new_home(hall: Hall) -> None:
    given = {
        "memory.search": {"query": "anything"},
        "sessions.search": {"query": "anything"},
        "skills.review.show": {"name": "notes"},
        "config.schema": {"key": "gateway.port"},
    }
    async with raw_socket(hall) as raw:
        for name, method in METHODS.items():
            # What the others name, such as a job or a conversation, does not exist on a new home.
            names_something = name == "sessions.export" or any(each.required for each in structs.fields(method.params))
            if method.changes or (names_something and name not in given):
                continue
            response = await raw.call(name, **given.get(name, {}))
            assert response["ok"], (name, response)
            codec.convert(response["payload"], method.result)


async def test_a_search_returns_the_lines_of_a_note(hall: Hall) -> None:
    notes = hall.home.workspace / "memory"
    notes.mkdir(parents=True)
    (notes / "garden.md").write_text("# Garden\n\nThe fennel grows beside the shed.\n")
    async with raw_socket(hall) as raw:
        [hit] = (await raw.result("memory.search", query="fennel"))["hits"]
    assert (hit["path"], hit["startLine"], hit["source"]) == ("memory/garden.md", 1, "memory")
    assert "beside the shed" in hit["snippet"]
    assert 0 < hit["score"] <= 1
