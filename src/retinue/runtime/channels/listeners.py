"""Calling the listeners of channels, and taking in the messages that they receive."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter, defaultdict, deque
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from msgspec.structs import replace

from retinue.channels.channel import (
    AccountRefused,
    Arrival,
    ButtonPress,
    ChatReaction,
    Listener,
    Receipt,
    ServiceAnswer,
    ServiceChannel,
    ServiceRequest,
)
from retinue.core.envelope import Origin
from retinue.core.errors import RetinueError, StorageError
from retinue.dispatch.admission import MAX_CHATS, is_owner
from retinue.dispatch.channel_accounts import ChannelAccountStore, ListenerState
from retinue.runtime.agents.chats import AccountSettings, find_account, list_accounts
from retinue.runtime.channels.approval_prompts import PRESS as APPROVE
from retinue.runtime.channels.pairing import PRESS as PAIR
from retinue.runtime.channels.pairing import decide_by_press
from retinue.runtime.channels.receive import ReceiveResult, receive
from retinue.security.untrusted_text import literal, sanitise_line
from retinue.storage.process_locks import holding

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskGroup

    from retinue.runtime.channels.approval_prompts import ApprovalPrompts
    from retinue.runtime.channels.open_channels import AccountName, OpenChannels
    from retinue.runtime.dispatcher.dispatcher import Dispatcher
    from retinue.runtime.home import Home

log = logging.getLogger(__name__)

MAX_REACTIONS = 10
MAX_CRASHES = 3
RESTART_DELAYS = (1.0, 5.0, 30.0, 120.0, 300.0)
"""How long a listener that failed waits before it is called again; the last one is repeated."""
STEADY_SECONDS = 300.0
"""A listener that ran for this long starts again with the first delay."""


class ChannelListeners:
    """Keeps the listeners of all accounts running; `received` is called after each message."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        channels: OpenChannels,
        prompts: ApprovalPrompts,
        received: Callable[[], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._channels = channels
        self._prompts = prompts
        self._received = received
        self._inboxes: dict[AccountName, AccountInbox] = {}
        self._states: dict[AccountName, tuple[ListenerState, str | None]] = {}
        self.crashes: defaultdict[AccountName, Counter[str]] = defaultdict(Counter)
        """How often a message of an account made its processing crash."""
        self._reactions: dict[tuple[str | None, ...], deque[tuple[str, str]]] = {}
        self._listening: dict[AccountName, tuple[AccountSettings, anyio.CancelScope]] = {}

    async def run(self) -> None:
        """Listen on all accounts until cancelled, following changes of the configuration."""
        async with anyio.create_task_group() as tasks:
            while True:
                replaced = self._dispatcher.sessions.next_reload()
                self._follow(tasks)
                await replaced.wait()

    def is_listening(self, name: AccountName) -> bool:
        """Return whether a listener of this account was started."""
        return name in self._listening

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
                    inbox = self._inboxes[name] = AccountInbox(self, channel, *name)
                    log.info("%s/%s is listening", *name)
                    await self._hold_and_listen(channel, inbox)
                    log.warning("the listener of %s/%s ended", *name)
                except RetinueError as error:
                    log.warning("%s/%s cannot receive messages: %s", *name, error)
                    self.set_state(name, ListenerState.FAILED, str(error))
                except (Exception, SystemExit) as error:  # border: a channel is foreign code, and may also exit
                    log.exception("the listener of %s/%s failed", *name)
                    self.set_state(name, ListenerState.FAILED, f"it crashed: {type(error).__name__}")
                if clock.monotonic() - began >= STEADY_SECONDS:
                    failures = 0
                await anyio.sleep(RESTART_DELAYS[min(failures, len(RESTART_DELAYS) - 1)])
                failures += 1

    async def _hold_and_listen(self, channel: Listener, inbox: AccountInbox) -> None:
        """Listen while holding the lease of the account, so that no two listeners share its messages."""
        if not isinstance(channel, ServiceChannel):
            await channel.listen(inbox)
            return
        identity = await channel.identify()
        sessions = self._dispatcher.sessions
        digest = hashlib.sha256(f"{inbox.channel}:{identity.id}".encode()).hexdigest()[:32]
        with holding(_lease_folder(sessions.home) / f"{digest}.lease") as held:
            if not held:
                raise AccountRefused(
                    f"Another account or gateway of this user receives the messages of {identity.name}. Stop it, or "
                    "remove one of them."
                )
            await channel.listen(inbox)

    def set_state(self, name: AccountName, state: ListenerState, error: str | None = None) -> None:
        """Store the state of a listener if it changed."""
        if self._states.get(name) == (state, error):
            return
        self._states[name] = state, error
        try:
            self.store.set_state(*name, state, error)
        except StorageError as failure:
            log.warning("the state of %s/%s was not stored: %s", *name, failure)

    @property
    def store(self) -> ChannelAccountStore:
        sessions = self._dispatcher.sessions
        return ChannelAccountStore(sessions.services.database, sessions.home.clock)

    async def take(self, channel: Listener, arrival: Arrival) -> ReceiveResult:
        """Accept a message of an account."""
        sessions = self._dispatcher.sessions
        attach = None
        if arrival.files and isinstance(channel, ServiceChannel):
            from retinue.runtime.channels.incoming_files import FileReader  # few messages have files

            attach = FileReader(sessions, channel, arrival).attach
        taken = await receive(sessions, self._dispatcher, arrival, attach, self._take_reactions(arrival.origin))
        self._received()
        return taken

    async def press(self, channel: Listener, press: ButtonPress) -> str:
        """Take a press of a button: a decision of the owner, or else a message with the button's value."""
        sessions, origin = self._dispatcher.sessions, press.origin
        if press.value.startswith(APPROVE):
            return self._prompts.press(press)
        if press.value.startswith(PAIR):
            if not is_owner(origin, sessions.home.config.commands.owner_allow_from):
                return "Only the owner of this assistant may decide."
            self._received()
            return decide_by_press(sessions, press.value, f"{origin.channel}:{origin.writer}")
        own = replace(origin, message_id=f"press-{press.id}")
        await self.take(channel, Arrival(own, press.value, mentioned=True, verified=True))
        return ""

    def record_reaction(self, reaction: ChatReaction) -> None:
        """Keep a reaction until the next message of its chat."""
        kept = self._reactions.setdefault(reaction.origin.chat, deque(maxlen=MAX_REACTIONS))
        emoji = sanitise_line(literal(reaction.emoji, 40))
        kept.append((reaction.origin.writer, f"{emoji} on message {reaction.origin.message_id}"))
        while len(self._reactions) > MAX_CHATS:
            del self._reactions[next(iter(self._reactions))]

    def _take_reactions(self, origin: Origin) -> str:
        """Return the reactions of the sender of a message since the last one, as a line."""
        kept = self._reactions.pop(origin.chat, ())
        own = ", ".join(text for writer, text in kept if writer == origin.writer)
        return f"[Reactions: {own}]" if own else ""

    async def answer_request(self, name: AccountName, request: ServiceRequest) -> ServiceAnswer:
        """Pass a request of a service to the account whose listener runs."""
        inbox = self._inboxes.get(name)
        if inbox is None or not isinstance(inbox.listener, ServiceChannel) or name not in self._listening:
            return ServiceAnswer(404)
        return await inbox.listener.answer_request(request, inbox)


class AccountInbox:
    """The inbox of one account: messages count as its own, whatever they say."""

    def __init__(self, listeners: ChannelListeners, listener: Listener, channel: str, account: str) -> None:
        self._listeners = listeners
        self.listener = listener
        self.channel = channel
        self.account = account
        self._crashes = listeners.crashes[channel, account]

    @property
    def position(self) -> str | None:
        found = self._listeners.store.find(self.channel, self.account)
        return found.position if found is not None else None

    def advance(self, position: str) -> None:
        self._listeners.store.advance(self.channel, self.account, position)

    def connected(self) -> None:
        self._listeners.set_state((self.channel, self.account), ListenerState.CONNECTED)

    def failed(self, why: str) -> None:
        log.info("%s/%s cannot be reached, trying again: %s", self.channel, self.account, why)
        self._listeners.set_state((self.channel, self.account), ListenerState.RETRYING, why)

    async def receive(self, arrival: Arrival) -> Receipt:
        """Accept a message; one that made this crash several times is skipped, so that it does not block the others."""
        try:
            taken = await self._listeners.take(self.listener, replace(arrival, origin=self._own(arrival.origin)))
        except RetinueError:
            raise
        except Exception:
            name = arrival.origin.message_id or ""
            self._crashes[name] += 1
            if self._crashes[name] < MAX_CRASHES:
                raise
            log.exception("%s/%s: the message %s is skipped", self.channel, self.account, name)
            return Receipt(reason="the message could not be processed")
        if arrival.sent_at is not None:
            lag = max(0.0, self._listeners.store.clock.now().timestamp() - arrival.sent_at)
            self._listeners.store.record_heard(self.channel, self.account, lag)
        return Receipt(taken.accepted.run if taken.accepted else None, taken.reason)

    async def press(self, press: ButtonPress) -> str:
        return await self._listeners.press(self.listener, replace(press, origin=self._own(press.origin)))

    async def react(self, reaction: ChatReaction) -> None:
        self._listeners.record_reaction(replace(reaction, origin=self._own(reaction.origin)))

    def _own(self, origin: Origin) -> Origin:
        return replace(origin, channel=self.channel, account=self.account)


def _lease_folder(home: Home) -> Path:
    """Return the folder of the leases of all homes of the user."""
    return Path(home.environment.get("HOME") or str(home.paths.path)) / ".cache" / "retinue" / "channels"
