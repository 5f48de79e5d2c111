"""Calling the listeners of channels, and taking in the messages that they receive."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct
from msgspec.structs import replace

from retinue.channels.channel import Arrival, Listener, Receipt
from retinue.core.errors import RetinueError
from retinue.runtime.agents.chats import AccountSettings, find_account, list_accounts
from retinue.runtime.channels.receive import receive

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskGroup

    from retinue.runtime.channels.open_channels import AccountName, OpenChannels
    from retinue.runtime.dispatcher.dispatcher import Dispatcher

log = logging.getLogger(__name__)

RESTART_DELAYS = (1.0, 5.0, 30.0, 120.0, 300.0)
"""How long a listener that failed waits before it is called again; the last one is repeated."""
STEADY_SECONDS = 300.0
"""A listener that ran for this long starts again with the first delay."""


class ChannelListeners:
    """Keeps the listeners of all accounts running; `received` is called after each message."""

    def __init__(self, dispatcher: Dispatcher, channels: OpenChannels, received: Callable[[], None]) -> None:
        self._dispatcher = dispatcher
        self._channels = channels
        self._received = received
        self._listening: dict[AccountName, tuple[AccountSettings, anyio.CancelScope]] = {}

    async def run(self) -> None:
        """Listen on all accounts until cancelled, following changes of the configuration."""
        async with anyio.create_task_group() as tasks:
            while True:
                replaced = self._dispatcher.sessions.next_reload()
                self._follow(tasks)
                await replaced.wait()

    def _follow(self, tasks: TaskGroup) -> None:
        """Start listeners of accounts that are new or changed, and stop those whose accounts changed or ended."""
        home = self._dispatcher.sessions.home
        found = {name: find_account(home, *name) for name in list_accounts(home)}
        for name, (settings, scope) in tuple(self._listening.items()):
            if found.get(name) != settings:
                scope.cancel()
                del self._listening[name]
        for name, wanted in found.items():
            if wanted is not None and wanted.extension is not None and name not in self._listening:
                scope = anyio.CancelScope()
                self._listening[name] = wanted, scope
                tasks.start_soon(self._listen, name, scope)

    async def _listen(self, name: AccountName, scope: anyio.CancelScope) -> None:
        """Call the listener of an account; call it again after a pause if it fails or ends."""
        clock, failures = self._dispatcher.sessions.home.clock, 0
        with scope:
            while True:
                began = clock.monotonic()
                try:
                    channel = await self._channels.find(*name)
                    if not isinstance(channel, Listener):
                        return
                    log.info("%s/%s is listening", *name)
                    await channel.listen(_Inbox(self._dispatcher, self._received, *name))
                    log.warning("the listener of %s/%s ended", *name)
                except RetinueError as error:
                    log.warning("%s/%s cannot receive messages: %s", *name, error)
                except (Exception, SystemExit):  # border: a channel is foreign code, and may also exit
                    log.exception("the listener of %s/%s failed", *name)
                if clock.monotonic() - began >= STEADY_SECONDS:
                    failures = 0
                await anyio.sleep(RESTART_DELAYS[min(failures, len(RESTART_DELAYS) - 1)])
                failures += 1


class _Inbox(Struct, frozen=True, eq=False):
    """The inbox of one account: messages count as its own, whatever they say."""

    dispatcher: Dispatcher
    received: Callable[[], None]
    channel: str
    account: str

    async def receive(self, arrival: Arrival) -> Receipt:
        own = replace(arrival.origin, channel=self.channel, account=self.account)
        taken = await receive(self.dispatcher.sessions, self.dispatcher, replace(arrival, origin=own))
        self.received()
        return Receipt(taken.accepted.run if taken.accepted else None, taken.reason)
