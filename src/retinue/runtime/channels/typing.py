"""Typing indicators in chats."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal

import anyio

from retinue.core.errors import RetinueError
from retinue.core.events import ReasoningDelta, TextDelta, ToolStarted, TurnEvent, TurnFinished, TurnStarted
from retinue.core.keys import RunId, SessionKey
from retinue.core.origin import Origin
from retinue.runtime.channels.delivery import find_account, open_channel

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from retinue.runtime.turns.sessions import Sessions

log = logging.getLogger(__name__)

TypingMode = Literal["never", "instant", "thinking", "message"]
MAX_SECONDS = 1_800.0
"""The maximum time that an indicator is shown, in case the end of a turn is missed."""

_SIGNS: dict[TypingMode, tuple[type[TurnEvent], ...]] = {
    "never": (),
    "instant": (TurnStarted, TextDelta, ReasoningDelta, ToolStarted),
    "thinking": (TextDelta, ReasoningDelta, ToolStarted),
    "message": (TextDelta,),
}
"""The indicator starts with the first of these events of a turn."""


class TypingIndicator:
    """Follows the events of turns and shows typing indicators in their chats; failures are ignored."""

    def __init__(self, sessions: Sessions, tasks: TaskGroup) -> None:
        self._sessions = sessions
        self._tasks = tasks
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
        if expected is not None and isinstance(event, _SIGNS[expected[1]]):
            del self._expected[turn]
            self._shown[turn] = anyio.CancelScope()
            self._tasks.start_soon(self._show, expected[0], self._shown[turn])

    def _expect(self, session: SessionKey, turn: RunId) -> None:
        config = self._sessions.home.config
        if not any(account.typing for channel in config.channels.values() for account in channel.accounts.values()):
            return
        origin = self._sessions.services.outbox.chat_of(turn)
        found = find_account(self._sessions, origin.channel, origin.account) if origin else None
        if origin is not None and found is not None and found[1].typing:
            mode = config.agents.resolve(session.agent).typing_mode or config.session.typing_mode
            self._expected[turn] = (origin, mode)

    async def _show(self, chat: Origin, scope: anyio.CancelScope) -> None:
        with scope, anyio.move_on_after(MAX_SECONDS):
            while True:
                channel = open_channel(self._sessions, chat.channel, chat.account)
                if channel is None:
                    return
                try:
                    await channel.show_typing(chat)
                except RetinueError as error:
                    log.debug("the typing indicator of %s failed: %s", chat.peer, error)
                except Exception:  # boundary: a channel may raise anything; the answer does not depend on it
                    log.exception("the channel %s crashed", chat.channel)
                    return
                await anyio.sleep(self._sessions.home.config.session.typing_interval_seconds)
