"""Sending through the HTTP channel: which answers confirm a message, and which addresses are refused."""

from __future__ import annotations

import random

import pytest

from retinue.channels.channel import DeliveryFailed
from retinue.channels.http import HttpChannel, encode_outgoing
from retinue.core.clock import SystemClock
from retinue.core.envelope import Capabilities, Origin, OutgoingMessage, PeerKind
from retinue.dispatch.outbox import MAX_PAUSE, pause_after
from retinue.dispatch.settings import HumanDelay
from retinue.runtime.channels.delivery import human_pauses
from tests.webserver import web_server

pytestmark = pytest.mark.anyio

CHAT = Origin("http", "chat", PeerKind.GROUP, "room", thread="7")
OUTGOING = OutgoingMessage("run:0", CHAT, text="hello", reply_to="m1")


def channel(url: str) -> HttpChannel:
    return HttpChannel(url, None, SystemClock(), Capabilities())


async def refusal(url: str) -> DeliveryFailed:
    with pytest.raises(DeliveryFailed) as caught:
        await channel(url).send(OUTGOING)
    return caught.value


async def test_only_the_configured_address_can_confirm() -> None:
    async with web_server() as web:
        web.on("/elsewhere", "thanks")
        web.redirect("/hook", "/elsewhere")
        assert "final address" in str(await refusal(f"{web.url}/hook"))
        web.redirect("/hook", "http://example.org/")
        assert (await refusal(f"{web.url}/hook")).final


@pytest.mark.parametrize(("status", "final"), [(500, False), (429, False), (404, False), (422, True), (410, True)])
async def test_what_the_receiver_says_decides_whether_to_try_again(status: int, final: bool) -> None:
    async with web_server() as web:
        web.on("/hook", status=status)
        assert (await refusal(f"{web.url}/hook")).final is final


async def test_a_metadata_service_is_never_contacted() -> None:
    assert (await refusal("http://169.254.169.254/hook")).final


async def test_without_a_secret_nothing_is_signed() -> None:
    async with web_server() as web:
        web.on("/hook", status=200)
        await channel(f"{web.url}/hook").send(OUTGOING)
        assert "x-retinue-signature" not in web.requests[0].headers


def test_an_outgoing_message_says_only_what_applies() -> None:
    assert encode_outgoing(OUTGOING) == {
        "key": "run:0",
        "type": "message",
        "account": "chat",
        "peer": {"kind": "group", "id": "room"},
        "thread": "7",
        "text": "hello",
        "replyTo": "m1",
    }


def test_failed_tries_wait_longer_each_time_up_to_a_limit() -> None:
    pauses = [pause_after(attempts) for attempts in range(40)]
    assert pauses == sorted(pauses)
    assert pauses[0].total_seconds() == 0.5
    assert pauses[-1] == MAX_PAUSE


@pytest.mark.parametrize(
    ("delay", "least", "most"),
    [
        (HumanDelay(), 0.0, 0.0),
        (HumanDelay(mode="natural"), 0.8, 2.5),
        (HumanDelay(mode="custom", min_ms=100, max_ms=50), 0.1, 0.1),
    ],
)
def test_parts_of_an_answer_come_with_the_pauses_of_a_person(delay: HumanDelay, least: float, most: float) -> None:
    first, *others = human_pauses(delay, 50, random.Random("pauses"))
    assert first == 0.0
    assert all(least <= pause <= most for pause in others)
