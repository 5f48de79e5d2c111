"""The queue of a session: pure decisions about messages that arrive during a turn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import takewhile
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.envelope import Inbound, Source
from retinue.core.keys import RunId
from retinue.dispatch.commands.command import parse_command
from retinue.dispatch.debounce import EACH_BY_ITSELF, DebounceRules, complete_at, find_pieces, join_pieces, quiet_until
from retinue.dispatch.inbox import Waiting
from retinue.dispatch.settings import QueueSettings
from retinue.security.untrusted_text import label, literal
from retinue.settings import format_duration, parse_duration

MAX_CAP = 500
MAX_DEBOUNCE = timedelta(minutes=10)

USAGE = (
    "Usage: /queue [steer|followup|collect|interrupt] [debounce:2s] [cap:25] [drop:summarize|old|new], or /queue reset."
)

_SUMMARY_CHARS, _MIN_LINE_CHARS, _MAX_LINE_CHARS = 8_000, 24, 160
_LOOKS_LIKE_HEADING = re.compile(r"^(?=--- message \d+ of \d+)", re.MULTILINE | re.IGNORECASE)


class QueueMode(StrEnum):
    """How a message that arrives during a turn is passed to the agent."""

    STEER = "steer"
    FOLLOWUP = "followup"
    COLLECT = "collect"
    INTERRUPT = "interrupt"


class Drop(StrEnum):
    """Which messages are dropped above the cap."""

    SUMMARIZE = "summarize"
    OLD = "old"
    NEW = "new"


_MODES = {mode.value: mode for mode in QueueMode} | {"queue": QueueMode.FOLLOWUP, "steer-backlog": QueueMode.STEER}
_DROPS = {drop.value: drop for drop in Drop} | {"summarise": Drop.SUMMARIZE}


class QueueRules(Struct, frozen=True):
    """The rules of one session's queue."""

    mode: QueueMode = QueueMode.STEER
    debounce: timedelta = timedelta(milliseconds=500)
    cap: int = 20
    drop: Drop = Drop.SUMMARIZE
    pieces: DebounceRules = EACH_BY_ITSELF


class QueueOverrides(Struct, frozen=True):
    """The settings that a person chose for one session with `/queue`; None means as configured."""

    mode: QueueMode | None = None
    debounce: timedelta | None = None
    cap: int | None = None
    drop: Drop | None = None

    def __str__(self) -> str:
        """Return the settings as `parse_queue_command` parses them; empty if there are none."""
        words = [
            self.mode.value if self.mode is not None else "",
            f"debounce:{format_duration(self.debounce)}" if self.debounce is not None else "",
            f"cap:{self.cap}" if self.cap is not None else "",
            f"drop:{self.drop}" if self.drop is not None else "",
        ]
        return " ".join(filter(None, words))


AS_CONFIGURED = QueueOverrides()


class Wait(Struct, frozen=True):
    """No turn yet: more messages may arrive until then."""

    until: datetime


class Capped(Struct, frozen=True):
    """The messages within and above the cap; `summary` lists the latter if the turn must mention them."""

    kept: tuple[Waiting, ...]
    dropped: tuple[Waiting, ...] = ()
    summary: str = ""


class Batch(Struct, frozen=True):
    """The messages that the next turn answers.

    Of the `summarised` messages only one line is kept; they end with this turn. `refused` messages are not answered,
    and their senders must be notified.
    """

    messages: tuple[Waiting, ...]
    summarised: tuple[Waiting, ...] = ()
    refused: tuple[Waiting, ...] = ()
    in_pieces: bool = False
    """Whether the messages are pieces of one message."""

    @property
    def answered(self) -> tuple[Waiting, ...]:
        """Return all messages that end with the turn, in the order of arrival."""
        return self.summarised + self.messages

    @property
    def runs(self) -> tuple[RunId, ...]:
        """Return the runs to claim."""
        return tuple(message.run for message in self.answered)

    @property
    def into(self) -> RunId:
        """Return the run of the turn: that of its newest message."""
        return self.answered[-1].run


def queue_rules(settings: QueueSettings, channel: str, overrides: QueueOverrides = AS_CONFIGURED) -> QueueRules:
    """Return the rules of a session: those chosen in it, else those of its channel, else the default."""
    milliseconds = settings.debounce_ms_by_channel.get(channel, settings.debounce_ms)
    configured = timedelta(milliseconds=max(0, milliseconds))
    return QueueRules(
        mode=overrides.mode or _MODES[settings.by_channel.get(channel, settings.mode)],
        debounce=overrides.debounce if overrides.debounce is not None else configured,
        cap=overrides.cap or settings.cap,
        drop=overrides.drop or Drop(settings.drop),
    )


def parse_queue_command(text: str, current: QueueOverrides = AS_CONFIGURED) -> QueueOverrides | str:
    """Return the settings after `/queue <text>`, added to the earlier ones; or an error text if it is invalid."""
    words = text.lower().split()
    if words == ["reset"]:
        return AS_CONFIGURED
    if not words:
        return USAGE
    for word in words:
        chosen = _choose(current, word)
        if isinstance(chosen, str):
            return f"{chosen} {USAGE}"
        current = chosen
    return current


def apply_cap(waiting: Sequence[Waiting], rules: QueueRules) -> Capped:
    """Decide which messages are above the cap, by the drop policy.

    Results of sub-agents are never dropped, and neither are messages whose senders wait for an answer of their own. If
    every message has a turn of its own, a message of a client is not summarised either: the client waits for its run.
    """
    messages = tuple(waiting)
    summarises = rules.drop is Drop.SUMMARIZE and rules.mode in (QueueMode.STEER, QueueMode.FOLLOWUP)
    people = tuple(
        message
        for message in messages
        if not is_result(message)
        and not message.inbound.own_turn
        and not (summarises and message.inbound.is_from_client)
    )
    over = len(people) - rules.cap
    if over <= 0:
        return Capped(messages)
    match rules.drop:
        case Drop.SUMMARIZE:
            return Capped(_without(messages, people[:over]), people[:over], summarise(people[:over]))
        case Drop.OLD:
            return Capped(_without(messages, people[:over]), people[:over])
        case Drop.NEW:
            return Capped(_without(messages, people[-over:]), people[-over:])
    assert_never(rules.drop)


def is_result(message: Waiting) -> bool:
    """Return whether a message is the result of a sub-agent; it would not be sent again, so it is never dropped."""
    return message.inbound.source is Source.SUBAGENT


def interrupts(message: Waiting) -> bool:
    """Return whether a message stops the running turn in the mode `interrupt`."""
    return not is_result(message) and not message.inbound.own_turn


def _without(messages: tuple[Waiting, ...], dropped: tuple[Waiting, ...]) -> tuple[Waiting, ...]:
    runs = {message.run for message in dropped}
    return tuple(message for message in messages if message.run not in runs)


def next_batch(
    waiting: Sequence[Waiting], rules: QueueRules, now: datetime, *, idle: bool = False
) -> Batch | Wait | None:
    """Return the messages for the next turn, or how long to wait for more; None if none wait.

    `idle` means that no turn was running; then the messages are answered without waiting for more. Messages are
    answered in order, except that `interrupt` takes the newest first.
    """
    if not waiting:
        return None
    capped = apply_cap(waiting, rules)
    summarised, refused = (capped.dropped, ()) if capped.summary else ((), capped.dropped)
    messages = _take(capped.kept, rules.mode)
    if summarised and any(_route(message) != _route(messages[0]) for message in summarised):
        # A line about another sender's message must not enter a turn with more rights than that sender has.
        return Batch((), _same_route(summarised), refused)
    closed = idle or len(messages) < len(capped.kept) or len(waiting) >= rules.cap
    if rules.mode is QueueMode.COLLECT and not closed:
        until = quiet_until(messages, rules.debounce, now)
        if until > now:
            return Wait(until)
    pieces = find_pieces(messages if len(messages) > 1 else capped.kept[capped.kept.index(messages[0]) :], rules.pieces)
    until = complete_at(pieces, rules.pieces, now)
    if until > now and len(waiting) < rules.cap:
        return Wait(until)
    in_pieces = len(pieces) > 1 and len(pieces) >= len(messages)
    return Batch(pieces if in_pieces else messages, summarised, refused, in_pieces)


def merge(batch: Batch) -> Inbound:
    """Merge a batch into one message: unchanged if it is a single one, else each under a heading."""
    newest = batch.answered[-1].inbound
    if len(batch.messages) == 1 and not batch.summarised:
        return newest
    parts = [summarise(batch.summarised)] if batch.summarised else []
    if batch.in_pieces or len(batch.messages) == 1:
        parts.append(join_pieces(batch.messages))
    elif batch.messages:
        total = len(batch.messages)
        parts.append(f"[{total} messages arrived while you were working. Answer them together.]")
        parts += [_under_heading(message, number, total) for number, message in enumerate(batch.messages, start=1)]
    senders = {message.inbound.sender for message in batch.answered}
    return replace(
        newest,
        text="\n\n".join(parts),
        images=tuple(image for message in batch.messages for image in message.inbound.images),
        sender=newest.sender if len(senders) == 1 else None,
        foreign=any(message.inbound.foreign for message in batch.answered),
        exchange=max(message.inbound.exchange for message in batch.answered),
    )


def summarise(messages: Sequence[Waiting]) -> str:
    """Return a line for each message above the cap; the more messages, the shorter the lines."""
    width = max(_MIN_LINE_CHARS, min(_MAX_LINE_CHARS, _SUMMARY_CHARS // max(1, len(messages))))
    count = "1 earlier message was" if len(messages) == 1 else f"{len(messages)} earlier messages were"
    lines = [f"[{count} too many for the queue; only the beginning of each is kept:]"]
    for inbound in (message.inbound for message in messages):
        signed = f"{label(inbound.sender, 40)}: " if inbound.sender else ""
        images = len(inbound.images)
        pictures = f" (with {images} picture{'s' if images > 1 else ''}, not kept)" if images else ""
        lines.append(f"- {signed}{literal(inbound.text, width)}{pictures}")
    return "\n".join(lines)


def refusal(rules: QueueRules) -> str:
    """Return the notice for the sender of a dropped message."""
    which = "oldest" if rules.drop is Drop.OLD else "newest"
    return (
        f"Not answered: more than {rules.cap} messages were waiting, and the queue is set to drop the {which}. "
        "Send it again if it still matters."
    )


def _choose(before: QueueOverrides, word: str) -> QueueOverrides | str:
    name, colon, value = word.partition(":")
    match name if colon else "mode":
        case "mode":
            mode = _MODES.get(value if colon else name)
            return replace(before, mode=mode) if mode else f"'{literal(word, 40)}' is not a valid queue mode."
        case "debounce":
            debounce = _parse_debounce(value)
            return (
                replace(before, debounce=debounce)
                if debounce is not None
                else "The debounce must be between 0 and 10 minutes."
            )
        case "cap":
            cap = int(value) if re.fullmatch(r"[0-9]{1,4}", value) else 0
            return replace(before, cap=cap) if 1 <= cap <= MAX_CAP else f"The cap must be a number from 1 to {MAX_CAP}."
        case "drop":
            drop = _DROPS.get(value)
            return replace(before, drop=drop) if drop else f"'{literal(value, 40)}' is not a valid drop policy."
    return f"The queue has no setting '{literal(name, 40)}'."


def _parse_debounce(text: str) -> timedelta | None:
    """Parse a duration; a bare number is milliseconds, as in the configuration."""
    try:
        debounce = parse_duration(f"{text}ms" if re.fullmatch(r"[0-9.]+", text) else text)
    except (ValueError, OverflowError):
        return None
    return debounce if debounce <= MAX_DEBOUNCE else None


def _take(kept: tuple[Waiting, ...], mode: QueueMode) -> tuple[Waiting, ...]:
    match mode:
        case QueueMode.STEER | QueueMode.FOLLOWUP:
            return kept[:1]
        case QueueMode.COLLECT:
            return _mergeable(kept)
        case QueueMode.INTERRUPT:
            chat = tuple(message for message in kept if not message.inbound.own_turn)
            return _mergeable(chat[::-1])[::-1] if chat else kept[:1]
    assert_never(mode)


def _mergeable(messages: tuple[Waiting, ...]) -> tuple[Waiting, ...]:
    """Return the first message and those that follow on the same route; a command is never merged."""
    if _stands_alone(messages[0]):
        return messages[:1]
    return tuple(takewhile(lambda message: not _stands_alone(message), _same_route(messages)))


def _same_route(messages: tuple[Waiting, ...]) -> tuple[Waiting, ...]:
    route = _route(messages[0])
    return tuple(takewhile(lambda message: _route(message) == route, messages))


def _route(message: Waiting) -> tuple[object, ...]:
    """Return what the messages of one turn must have in common: the delivery target and the rights of the turn."""
    inbound = message.inbound
    return inbound.channel, inbound.chat, inbound.owner, inbound.source, inbound.model, inbound.instructions


def _stands_alone(message: Waiting) -> bool:
    return message.inbound.stands_alone or parse_command(message.inbound.text) is not None


def _under_heading(message: Waiting, number: int, total: int) -> str:
    sender = message.inbound.sender
    who = f", from {label(sender, 80)}" if sender else ""
    heading = f"--- message {number} of {total}{who}, {message.accepted_at.astimezone(UTC):%H:%M:%S} UTC ---"
    # A message that contains such a heading must not look like another sender's message.
    return f"{heading}\n{_LOOKS_LIKE_HEADING.sub('> ', message.inbound.text)}"
