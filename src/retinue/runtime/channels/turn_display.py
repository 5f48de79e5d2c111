"""What a chat shows while a turn runs: a typing indicator, and the answer as it is written.

The answer is shown in a message that is edited as the text grows. It is sent through the outbox like any other, so that
a process that ends in between leaves nothing behind: the answer replaces its text in the end (`delivery.use_previews`).
Edits in between are not repeated.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal

import anyio
from msgspec.structs import replace

from retinue.channels.channel import DeliveryFailed
from retinue.core.envelope import Origin
from retinue.core.errors import RetinueError
from retinue.core.events import (
    MessageFinished,
    ReasoningDelta,
    TextDelta,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    TurnStarted,
)
from retinue.core.keys import RunId, SessionKey
from retinue.dispatch.hook_points import MESSAGE_SENDING
from retinue.dispatch.outbox import preview_key
from retinue.dispatch.router import may_send
from retinue.runtime.agents.chats import AccountSettings, find_account, list_accounts, place_of, replies_by_tool
from retinue.runtime.channels.delivery import DeliveryService, first_reply_target, make_outgoing
from retinue.runtime.channels.open_channels import OpenChannels

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from retinue.runtime.home import Home
    from retinue.runtime.turns.sessions import Sessions

log = logging.getLogger(__name__)

TypingMode = Literal["never", "instant", "thinking", "message"]
MAX_TYPING_SECONDS = 1_800.0
"""The maximum time that an indicator is shown, in case the end of a turn is missed."""
TYPING_EVENTS: dict[TypingMode, tuple[type[TurnEvent], ...]] = {
    "never": (),
    "instant": (TurnStarted, TextDelta, ReasoningDelta, ToolStarted),
    "thinking": (TextDelta, ReasoningDelta, ToolStarted),
    "message": (TextDelta,),
}
"""The indicator starts with the first of these events of a turn."""
START_SECONDS = 1.0
"""How long the text of an answer grows before it is shown: a short answer is sent at once and never edited."""
EDIT_SECONDS = 1.2
"""The time between two edits, within the limits of the services."""
SENT_SECONDS = 0.3
"""How long to wait for a message to be sent before it can be changed."""
EDIT_TIMEOUT_SECONDS = 8.0
MIN_CHARS = 16
MAX_TOOLS = 8


class TypingIndicator:
    """Follows the events of turns and shows typing indicators in their chats; failures are ignored."""

    def __init__(self, sessions: Sessions, channels: OpenChannels, tasks: TaskGroup) -> None:
        self._sessions = sessions
        self._channels = channels
        self._tasks = tasks
        self._asked: Home | None = None
        self._shows_typing = False
        self._expected: dict[RunId, tuple[Origin, TypingMode]] = {}
        self._shown: dict[RunId, anyio.CancelScope] = {}

    def on_event(self, session: SessionKey, runs: tuple[RunId, ...], event: TurnEvent) -> None:
        """Process an event of the turn that answers these messages."""
        if not runs:
            return
        turn = runs[-1]
        if isinstance(event, TurnFinished):
            self._expected.pop(turn, None)
            scope = self._shown.pop(turn, None)
            if scope is not None:
                scope.cancel()
            return
        if isinstance(event, TurnStarted):
            self._expect(session, turn)
        expected = self._expected.get(turn)
        if expected is not None and isinstance(event, TYPING_EVENTS[expected[1]]):
            del self._expected[turn]
            self._shown[turn] = anyio.CancelScope()
            self._tasks.start_soon(self._show, expected[0], self._shown[turn])

    def _expect(self, session: SessionKey, turn: RunId) -> None:
        home = self._sessions.home
        if self._asked is not home:  # once for a configuration, because every turn asks
            self._asked, self._shows_typing = home, self._is_shown_anywhere()
        if not self._shows_typing:
            return
        config, inbound = home.config, self._sessions.services.outbox.message_for(turn)
        origin = inbound.origin if inbound is not None else None
        found = find_account(home, origin.channel, origin.account) if origin else None
        if origin is not None and found is not None and found.capabilities.typing:
            mode = config.agents.resolve(session.agent).typing_mode or config.session.typing_mode
            self._expected[turn] = (origin, mode)

    def _is_shown_anywhere(self) -> bool:
        found = (find_account(self._sessions.home, *each) for each in list_accounts(self._sessions.home))
        return any(each.capabilities.typing for each in found if each is not None)

    async def _show(self, chat: Origin, scope: anyio.CancelScope) -> None:
        with scope, anyio.move_on_after(MAX_TYPING_SECONDS):
            while True:
                try:
                    channel = await self._channels.find(chat.channel, chat.account)
                    await channel.show_typing(chat)
                except RetinueError as error:
                    log.debug("the typing indicator of %s failed: %s", chat.peer, error)
                except (
                    Exception,
                    SystemExit,
                ):  # boundary: a channel may raise anything; the answer does not depend on it
                    log.exception("the channel %s crashed", chat.channel)
                    return
                await anyio.sleep(self._sessions.home.config.session.typing_interval_seconds)


class GrowingAnswer:
    """The texts of a turn that a chat shows: each one that the model wrote before or after its tool calls."""

    def __init__(self, run: RunId, to: Origin, account: AccountSettings, prefix: str) -> None:
        self.run = run
        self.to = to
        self.account = account
        self.mode = account.channel.streaming.mode
        self.over = anyio.Event()
        self._prefix = prefix
        self._texts = [""]
        self._tools: list[str] = []
        self._changed = anyio.Event()

    def add(self, event: TurnEvent) -> None:
        """Take what the turn wrote or began."""
        match event:
            case TextDelta(text):
                self._texts[-1] += text
            case MessageFinished() if self._texts[-1].strip():
                self._texts.append("")
            case ToolStarted(call):
                self._tools.append(call.name)
            case _:
                return
        self._changed.set()

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until something changes, or for some seconds; in both cases not beyond the end of the turn."""
        if seconds is None:
            self._changed = anyio.Event()
        waited_for = self._changed if seconds is None else self.over
        with anyio.move_on_after(seconds if seconds is not None else MAX_TYPING_SECONDS):
            await waited_for.wait()

    def end(self) -> None:
        """Show nothing any more."""
        self.over.set()
        self._changed.set()

    @property
    def shown(self) -> tuple[int, str] | None:
        """The number of the text that is to be shown, and as much of it as the mode shows; None if there is none."""
        if self.mode == "progress":
            tools = ", ".join(dict.fromkeys(self._tools[-MAX_TOOLS:]))
            return (0, f"Working: {tools} …") if tools else None
        at = len(self._texts) - 1
        if not self._texts[at].strip() and at > 0:
            at -= 1
        text, is_whole = self._texts[at], at < len(self._texts) - 1
        if not is_whole and self.mode == "block":
            text = text[: max(text.rfind("\n\n"), 0)]
        if not text.strip() or (not is_whole and len(text) < MIN_CHARS):
            return None
        return at, f"{self._prefix}{text}"


class AnswerPreviews:
    """Shows answers in their chats while they are written, on services that can change a message."""

    def __init__(self, sessions: Sessions, channels: OpenChannels, delivery: DeliveryService, tasks: TaskGroup) -> None:
        self._sessions = sessions
        self._channels = channels
        self._delivery = delivery
        self._tasks = tasks
        self._growing: dict[RunId, GrowingAnswer] = {}
        self._asked: Home | None = None
        self._is_used = False

    def on_event(self, session: SessionKey, runs: tuple[RunId, ...], event: TurnEvent) -> None:
        """Process an event of the turn that answers these messages."""
        if not runs:
            return
        turn = runs[-1]
        if isinstance(event, TurnStarted):
            self._begin(session, turn)
        growing = self._growing.get(turn)
        if growing is None:
            return
        growing.add(event)
        if isinstance(event, TurnFinished):
            growing.end()
            del self._growing[turn]

    def _begin(self, session: SessionKey, turn: RunId) -> None:
        sessions = self._sessions
        home = sessions.home
        if self._asked is not home:  # once for a configuration, because every turn asks
            found = (find_account(home, *each) for each in list_accounts(home))
            self._asked, self._is_used = home, any(_can_show(each) for each in found if each is not None)
        inbound = sessions.services.outbox.message_for(turn) if self._is_used else None
        origin = inbound.origin if inbound is not None else None
        account = find_account(home, origin.channel, origin.account) if origin is not None else None
        if inbound is None or origin is None or account is None or not _can_show(account):
            return
        config = home.config
        place = place_of(session, inbound)
        if (
            not may_send(config.session.send_policy, session, origin.channel, origin.kind)
            or sessions.shared.bus.has_subscribers(MESSAGE_SENDING)  # a hook sees an answer before people do
            or (place is not None and replies_by_tool(home, session.agent, place))
        ):
            return
        prefix = f"{config.messages.response_prefix} " if config.messages.response_prefix else ""
        growing = self._growing[turn] = GrowingAnswer(turn, origin, account, prefix)
        self._delivery.editing[turn] = anyio.Event()
        self._tasks.start_soon(self._follow, growing)

    async def _follow(self, growing: GrowingAnswer) -> None:
        try:
            await self._show(growing)
        except RetinueError as error:
            log.debug("an answer is not shown while it is written: %s", error)
        except (Exception, SystemExit):  # boundary: a channel may raise anything; the answer does not depend on it
            log.exception("the channel %s crashed", growing.to.channel)
        finally:
            self._delivery.editing.pop(growing.run).set()

    async def _show(self, growing: GrowingAnswer) -> None:
        last: tuple[int, str] | None = None
        while not growing.over.is_set():
            if growing.shown in (None, last):
                await growing.wait()
                continue
            if last is None:
                await growing.wait(START_SECONDS)
                if growing.over.is_set():
                    return
            shown = growing.shown
            assert shown is not None
            pause = EDIT_SECONDS
            try:
                if await self._update(growing, *shown, is_new=last is None or last[0] != shown[0]):
                    last = shown
                else:
                    pause = SENT_SECONDS
            except DeliveryFailed as error:
                if error.final:
                    raise
                pause = max(pause, error.retry_after or 0.0)
            await growing.wait(pause)

    async def _update(self, growing: GrowingAnswer, number: int, text: str, *, is_new: bool) -> bool:
        """Show a text in its message; return false if that message was not sent yet."""
        sessions, key = self._sessions, preview_key(growing.run, number)
        outbox = sessions.services.outbox
        (message, *_) = make_outgoing(key, growing.to, text, growing.account.capabilities)
        message = replace(message, key=key, loads_links=False)
        shown = outbox.message_of(key)
        if shown is None:
            if is_new and number not in outbox.previews_of(growing.run):
                outbox.put([replace(message, reply_to=first_reply_target(growing.account, growing.to))])
                self._delivery.wake()
                return True
            return False
        channel = await self._channels.find(growing.to.channel, growing.to.account)
        with anyio.move_on_after(EDIT_TIMEOUT_SECONDS):
            await channel.send(replace(message, edits=shown))
        return True


def _can_show(account: AccountSettings) -> bool:
    return account.can_send and account.capabilities.edits and account.channel.streaming.mode != "off"
