"""Debouncing: messages that a person writes in quick succession are joined to one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct, field

from retinue.core.envelope import Inbound, Source
from retinue.dispatch.commands.command import parse_command
from retinue.dispatch.inbox import Waiting
from retinue.dispatch.settings import InboundSettings

MAX_WAITS = 10
"""A sender who keeps writing is answered after this many waits at the latest."""
NO_WAIT = timedelta(0)
_LABEL = "[From "


class DebounceRules(Struct, frozen=True):
    """How long a message of a channel waits for the next one; messages from elsewhere do not wait."""

    wait: timedelta = NO_WAIT
    by_channel: Mapping[str, timedelta] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: InboundSettings) -> DebounceRules:
        by_channel = {name: _milliseconds(each) for name, each in settings.by_channel.items()}
        return cls(_milliseconds(settings.debounce_ms), by_channel)

    def wait_after(self, message: Waiting) -> timedelta:
        """Return how long to wait for the next message; a picture or a message that stands alone ends the wait."""
        inbound = message.inbound
        if not _may_be_piece(inbound) or inbound.images or inbound.origin is None:
            return NO_WAIT
        return self.by_channel.get(inbound.origin.channel, self.wait)


EACH_BY_ITSELF = DebounceRules()
"""Rules under which no message waits."""


def find_pieces(messages: Sequence[Waiting], rules: DebounceRules) -> tuple[Waiting, ...]:
    """Return the first message and those that follow it as further pieces."""
    pieces = [messages[0]]
    for message in messages[1:]:
        wait = rules.wait_after(pieces[-1])
        if not wait or not _belong_together(pieces[-1].inbound, message.inbound):
            break
        if message.accepted_at - pieces[-1].accepted_at > wait:
            break
        pieces.append(message)
    return tuple(pieces)


def complete_at(pieces: Sequence[Waiting], rules: DebounceRules, now: datetime) -> datetime:
    """Return when a message counts as complete."""
    return quiet_until(pieces, rules.wait_after(pieces[-1]), now)


def quiet_until(messages: Sequence[Waiting], wait: timedelta, now: datetime) -> datetime:
    """Return when no message has arrived for `wait`; a clock that was set back does not extend the wait."""
    at_most = messages[0].accepted_at + wait * MAX_WAITS
    return min(messages[-1].accepted_at + wait, at_most, now + wait)


def join_pieces(pieces: Sequence[Waiting]) -> str:
    """Join the texts of the pieces; the sender is named once."""
    texts = [pieces[0].inbound.text]
    for piece in pieces[1:]:
        label, _, rest = piece.inbound.text.partition("\n")
        is_known = label.startswith(_LABEL) and label in texts[0].splitlines()
        texts.append(rest if is_known else piece.inbound.text)
    return "\n".join(texts)


def _belong_together(before: Inbound, after: Inbound) -> bool:
    one, other = before.origin, after.origin
    if one is None or other is None or not _may_be_piece(after):
        return False
    return (one.chat, one.writer, before.owner) == (other.chat, other.writer, after.owner)


def _may_be_piece(inbound: Inbound) -> bool:
    return inbound.source is Source.CHAT and not inbound.stands_alone and parse_command(inbound.text) is None


def _milliseconds(count: int) -> timedelta:
    return timedelta(milliseconds=max(0, count))
