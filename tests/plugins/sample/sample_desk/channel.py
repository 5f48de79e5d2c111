"""A chat service whose messages are in memory."""

from __future__ import annotations

import asyncio

from retinue.channels.channel import Arrival, ChannelInbox, ChannelParts, Receipt
from retinue.core.envelope import Capabilities, Origin, OutgoingMessage, PeerKind


class DeskChat:
    """One account: the test puts messages into `arrived`, and reads `sent` and `receipts`."""

    def __init__(self, parts: ChannelParts) -> None:
        self.parts = parts
        self.capabilities: Capabilities = parts.capabilities
        self.sent: list[OutgoingMessage] = []
        self.receipts: list[Receipt] = []
        self.arrived: asyncio.Queue[str] = asyncio.Queue()
        OPEN.append(self)

    async def listen(self, inbox: ChannelInbox) -> None:
        while True:
            sender, _, text = (await self.arrived.get()).partition(": ")
            if text == "crash":
                raise SystemExit(3)
            origin = Origin("another-channel", "other", PeerKind.DIRECT, sender)
            self.receipts.append(await inbox.receive(Arrival(origin, text, verified=True)))

    async def send(self, outgoing: OutgoingMessage) -> None:
        self.sent.append(outgoing)

    async def show_typing(self, to: Origin) -> None:
        raise NotImplementedError


OPEN: list[DeskChat] = []


def make_channel(parts: ChannelParts) -> DeskChat:
    return DeskChat(parts)
