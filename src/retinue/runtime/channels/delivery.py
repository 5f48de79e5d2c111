"""Delivery of answers to the chats of channels, with typing indicators while a turn runs."""

from __future__ import annotations

import base64
import logging
import mimetypes
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from msgspec.structs import replace

from retinue.channels.channel import Channel, DeliveryFailed, ServiceChannel
from retinue.channels.services import split_for
from retinue.core.envelope import Attachment, Capabilities, Inbound, Origin, Outbound, OutgoingMessage, Source
from retinue.core.errors import RetinueError
from retinue.core.events import TurnStatus
from retinue.core.keys import RunId
from retinue.core.styled_text import StyledText
from retinue.dispatch.outbox import SEEN, Head, preview_key
from retinue.dispatch.reply import split_paragraphs, split_text
from retinue.dispatch.router import may_send
from retinue.dispatch.settings import HumanDelay
from retinue.runtime.agents.chats import AccountSettings, find_account, max_media_bytes
from retinue.runtime.agents.confinement import enter_folder
from retinue.runtime.channels.open_channels import OpenChannels, own_keys
from retinue.runtime.channels.routing import reachable
from retinue.sessions.session import person_of

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from retinue.core.people import Person
    from retinue.runtime.agents.agent import Agent
    from retinue.runtime.home import Home
    from retinue.runtime.turns.sessions import Sessions
    from retinue.storage.files import Root

log = logging.getLogger(__name__)

QUIET_SECONDS = 1.0
LIVELY_SECONDS = 0.05
LIVELY_ROUNDS = 40
UNUSED_SECONDS = 5.0
MAX_AT_ONCE = 16
EDIT_SECONDS = 10.0
"""How long an answer waits for the end of an edit of the message that it completes."""
NATURAL = HumanDelay(mode="custom")

FAILED = "I could not answer that. The operator can find details in the log."


def outgoing_of(sessions: Sessions, inbound: Inbound, outbound: Outbound) -> tuple[OutgoingMessage, ...]:
    """Return an answer as messages for its chat; empty if it has no text or may not be sent."""
    origin, config = inbound.origin, sessions.home.config
    found = find_account(sessions.home, origin.channel, origin.account) if origin else None
    if origin is None or found is None or outbound.silent:
        return ()
    if not may_send(config.session.send_policy, outbound.session, origin.channel, origin.kind):
        return ()
    able = found.capabilities
    text, attachments = _format_text(inbound, outbound), list[Attachment]()
    if able.media:
        limit = max_media_bytes(found.channel, config.agents.defaults)
        agent = sessions.agent(outbound.session.agent)
        person = person_of(agent.store.peek(outbound.session), inbound)
        attachments, lost = attach_media(find_media_root(agent, person), outbound.media, limit)
        text = "\n".join(filter(None, (text, *lost)))
    prefix = f"{config.messages.response_prefix} " if config.messages.response_prefix else ""
    reply_to = _reply_target(found, origin, outbound)
    preceding = outbound.preceding if inbound.source is Source.CHAT else ()
    earlier = [
        message
        for number, said in enumerate(preceding)
        for message in make_outgoing(
            f"{outbound.run}:preceding:{number}", origin, f"{prefix}{said}", able, answer=outbound
        )
    ]
    text = f"{prefix}{text}" if text else ""
    last = make_outgoing(outbound.run, origin, text, able, media=tuple(attachments), reply_to=reply_to, answer=outbound)
    return (*earlier, *last)


def _reply_target(account: AccountSettings, origin: Origin, outbound: Outbound) -> str | None:
    """Return the message that an answer refers to: as the agent wrote, and as `replyToMode` of the channel says."""
    if own_keys(account).get("replyToMode") == "off":
        return None
    return outbound.reply_to or (origin.message_id if outbound.to_current else first_reply_target(account, origin))


def find_media_root(agent: Agent, person: Person | None) -> Root:
    """Return the folder whose files an answer may contain: of the person for whom it is, or the whole workspace."""
    root = agent.workspace.root
    if person is None:
        return root
    root.make_dir(person.folder)
    return enter_folder(agent.workspace, root, person.folder)


def acknowledge(inbound: Inbound, run: RunId, emoji: str) -> OutgoingMessage:
    """Return the acknowledgement reaction to a message."""
    assert inbound.origin is not None
    return OutgoingMessage(f"{run}{SEEN}", inbound.origin, reaction=emoji, reply_to=inbound.origin.message_id)


def take_back(seen: OutgoingMessage) -> OutgoingMessage:
    """Return the message that removes a reaction."""
    return replace(seen, key=f"{seen.key}:over", removes=True)


def withdraw_acks(sessions: Sessions, run: RunId) -> list[OutgoingMessage]:
    """Return the messages that remove the acknowledgement reactions of a turn, if the configuration asks for that."""
    messages = sessions.home.config.messages
    if not messages.remove_ack_after_reply or not messages.ack_reaction:
        return []
    return [
        take_back(acknowledge(inbound, own, messages.ack_reaction))
        for own, inbound in sessions.services.outbox.seen_in(run)
    ]


def make_outgoing(
    key: str,
    to: Origin,
    text: str,
    able: Capabilities,
    *,
    media: tuple[Attachment, ...] = (),
    reply_to: str | None = None,
    answer: Outbound | None = None,
    loads_links: bool = False,
) -> tuple[OutgoingMessage, ...]:
    """Split an answer into messages for the chat; the reply reference goes with the first.

    Files go with the last, or each in a message of its own if the service cannot send them together: a message that is
    one request is never sent in part.
    """
    pieces = [
        piece for part in (split_paragraphs(text) if able.by_paragraph else (text,)) for piece in _split(part, able)
    ]
    parts: list[tuple[StyledText, tuple[Attachment, ...]]] = [(piece, ()) for piece in pieces]
    if able.files_apart:
        parts += ((StyledText(), (file,)) for file in media)
    elif media:
        parts = [*parts[:-1], (parts[-1][0] if parts else StyledText(), media)]
    return tuple(
        OutgoingMessage(
            key=f"{key}:{number}",
            to=to,
            text=piece.text,
            spans=piece.spans,
            media=files,
            reply_to=reply_to if number == 0 else None,
            run=answer.run if answer else None,
            session=answer.session.text if answer else "",
            voice=answer.voice if answer else False,
            loads_links=answer.loads_links if answer else loads_links,
        )
        for number, (piece, files) in enumerate(parts)
    )


def _split(text: str, able: Capabilities) -> Sequence[StyledText]:
    return split_for(text, able) if able.fits else tuple(map(StyledText, split_text(text, able.max_text)))


def use_previews(
    sessions: Sessions, inbound: Inbound, outbound: Outbound, messages: tuple[OutgoingMessage, ...]
) -> tuple[OutgoingMessage, ...]:
    """Return the messages of an answer so that what its chat shows already is completed instead of repeated.

    A message that cannot become the answer, because it refers to no other message or has no file, is deleted.
    """
    outbox, origin, run = sessions.services.outbox, inbound.origin, outbound.run
    shown = outbox.previews_of(run) if origin is not None else ()
    found = find_account(sessions.home, origin.channel, origin.account) if shown and origin is not None else None
    if origin is None or found is None:
        return messages
    usual = first_reply_target(found, origin)
    by_key = {message.key: message for message in messages}
    ending = []
    for number in shown:
        key = preview_key(run, number)
        name = f"{run}:preceding:{number}:0" if number < len(outbound.preceding) else f"{run}:0"
        message = by_key.get(name) if number <= len(outbound.preceding) else None
        if outbox.withdraw(key):
            continue
        if message is not None and message.text and not message.media and message.reply_to in (None, usual):
            by_key[name] = replace(message, edits_key=key)
        else:
            ending.append(OutgoingMessage(f"{key}:end", origin, removes=True, edits_key=key))
    return (*by_key.values(), *ending)


def first_reply_target(account: AccountSettings, origin: Origin) -> str | None:
    """Return the message that the answers of a channel refer to if the agent does not say otherwise."""
    return origin.message_id if own_keys(account).get("replyToMode") in ("first", "all") else None


def _format_text(inbound: Inbound, outbound: Outbound) -> str:
    """Return the text of an answer. Internal errors are shown only to the owner in a direct chat."""
    if outbound.status is not TurnStatus.FAILED:
        return outbound.text
    private = inbound.owner and inbound.origin is not None and not inbound.origin.kind.is_shared
    reason = outbound.error if (private or outbound.refused) and outbound.error else FAILED
    return "\n\n".join(filter(None, (outbound.text, reason)))


def attach_media(root: Root, media: Sequence[str], limit: int) -> tuple[list[Attachment], list[str]]:
    """Read files of the workspace for sending; return them and a line for each that cannot be attached."""
    attached, lost = [], []
    for each in media:
        if each.startswith(("http://", "https://")):
            attached.append(Attachment(url=each))
            continue
        name = Path(each).name
        with suppress(ValueError):
            each = str(Path(each).relative_to(root.path))
        try:
            data = root.read(each, max_bytes=limit).data
        except RetinueError as error:
            log.warning("%s was not attached: %s", each, error)
            lost.append(f"(The file {name} could not be attached.)")
            continue
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        attached.append(Attachment(name=name, media_type=kind, data=base64.b64encode(data).decode()))
    return attached, lost


def human_pauses(delay: HumanDelay, count: int, chance: random.Random) -> Iterator[float]:
    """Return the pauses before each part, in seconds; none before the first."""
    shape = NATURAL if delay.mode == "natural" else delay
    for number in range(count):
        if number == 0 or shape.mode == "off":
            yield 0.0
        else:
            yield chance.uniform(shape.min_ms, max(shape.min_ms, shape.max_ms)) / 1000


class DeliveryService:
    """Delivers answers to their chats while it runs. Only one process of a home does this: the gateway."""

    def __init__(self, sessions: Sessions, channels: OpenChannels, chance: random.Random | None = None) -> None:
        self._sessions = sessions
        self._channels = channels
        self._chance = chance or random.Random()  # noqa: S311 - pauses, not secrets
        self._busy: set[tuple[str, str, str]] = set()
        self._news = anyio.Event()
        self._lively = 0
        self._accounts_of: Home | None = None
        self._accounts: list[tuple[str, str]] = []
        self.editing: dict[RunId, anyio.Event] = {}
        """The turns whose texts are shown while they are written; set when no more edits follow."""

    def wake(self) -> None:
        """Check the outbox soon, because a turn ended or a message was added."""
        if not self._reachable():
            return
        self._lively = LIVELY_ROUNDS
        self._news.set()

    async def run(self) -> None:
        """Deliver messages until cancelled."""
        async with anyio.create_task_group() as tasks:
            while True:
                self._news = anyio.Event()
                accounts = self._reachable()
                try:
                    self._collect(accounts)
                    if accounts:
                        self._start_due(tasks)
                except RetinueError as error:
                    log.warning("the delivery of messages failed, retrying: %s", error)
                with anyio.move_on_after(self._pause(used=bool(accounts))):
                    await self._news.wait()

    def _reachable(self) -> Sequence[tuple[str, str]]:
        """Return the accounts that can be reached; computed once for a configuration, as each turn asks twice."""
        home = self._sessions.home
        if self._accounts_of is not home:
            self._accounts_of, self._accounts = home, reachable(home)
        return self._accounts

    def _pause(self, *, used: bool) -> float:
        if not used:
            return UNUSED_SECONDS
        if self._lively > 0:
            self._lively -= 1
            return LIVELY_SECONDS
        return QUIET_SECONDS

    def _collect(self, accounts: Sequence[tuple[str, str]]) -> None:
        """Add answers to the outbox; an answer without text counts as delivered."""
        sessions = self._sessions
        for channel, account in accounts:
            for inbound, outbound in sessions.services.outbox.results(channel, account):
                messages = use_previews(sessions, inbound, outbound, outgoing_of(sessions, inbound, outbound))
                ending = withdraw_acks(sessions, outbound.run)
                if all(message.run is None for message in messages):
                    sessions.services.outbox.put([*messages, *ending])
                    sessions.services.inbox.delivered(outbound.run)
                    continue
                delay = sessions.home.config.agents.resolve(outbound.session.agent).human_delay
                sessions.services.outbox.put([*messages, *ending], human_pauses(delay, len(messages), self._chance))

    def _start_due(self, tasks: TaskGroup) -> None:
        now = self._sessions.home.clock.now()
        for head in self._sessions.services.outbox.heads():
            if head.due > now:
                self._lively = max(self._lively, 1 if (head.due - now).total_seconds() < QUIET_SECONDS else 0)
            elif (place := _place(head.outgoing.to)) not in self._busy and len(self._busy) < MAX_AT_ONCE:
                self._busy.add(place)
                tasks.start_soon(self._bring, head)

    async def _bring(self, head: Head) -> None:
        """Try to send one message; a failure is retried later."""
        outbox, to = self._sessions.services.outbox, head.outgoing.to
        is_unsure = head.was_tried
        try:
            channel = await self._channels.find(to.channel, to.account)
            outgoing = await self._resolve(head.outgoing)
            message_id = await self._find_sent(channel, head, outgoing)
            if message_id is None:
                is_unsure = False
                if not outbox.begin(outgoing):
                    return
                message_id = await self._send(channel, head, outgoing)
            outbox.sent(outgoing, message_id)
        except DeliveryFailed as error:
            is_unsure = is_unsure or error.uncertain
            if not outbox.missed(
                head, str(error), final=error.final, uncertain=is_unsure, retry_after=error.retry_after
            ):
                log.warning("%s was given up: %s", head.label, error)
        except RetinueError as error:
            if not outbox.missed(head, str(error), final=False, uncertain=is_unsure):
                log.warning("%s was given up: %s", head.label, error)
        except (Exception, SystemExit):  # boundary: a channel may raise anything; the message is retried
            log.exception("the channel %s crashed", to.channel)
            outbox.missed(head, "the channel crashed", final=False, uncertain=True)
        finally:
            self._busy.discard(_place(to))
            self._news.set()

    async def _resolve(self, outgoing: OutgoingMessage) -> OutgoingMessage:
        """Return a message that completes one in the chat with the id of that one, if it was sent."""
        if outgoing.edits_key is None:
            return outgoing
        editing = self.editing.get(RunId(outgoing.edits_key.partition(":preview:")[0]))
        if editing is not None:
            with anyio.move_on_after(EDIT_SECONDS):  # an edit that is under way must not come after this one
                await editing.wait()
        return replace(outgoing, edits=self._sessions.services.outbox.message_of(outgoing.edits_key))

    async def _send(self, channel: Channel, head: Head, outgoing: OutgoingMessage) -> str | None:
        """Send a message; one that should complete another, which is gone, becomes a new message."""
        if outgoing.removes and outgoing.edits_key is not None and outgoing.edits is None:
            return None
        try:
            return await channel.send(outgoing)
        except DeliveryFailed as error:
            if outgoing.edits_key is None or outgoing.edits is None or not error.final:
                raise
            log.info("%s could not be changed: %s", outgoing.edits_key, error)
        if outgoing.removes:
            return None
        outgoing = replace(outgoing, edits=None)
        return await self._find_sent(channel, head, outgoing) or await channel.send(outgoing)

    async def _find_sent(self, channel: Channel, head: Head, outgoing: OutgoingMessage) -> str | None:
        """Return the id of a message that was sent although nobody recorded it; None if it is to be sent.

        A service that does not let the bot look is not asked again: the message is repeated rather than lost.
        """
        outbox = self._sessions.services.outbox
        if not head.was_tried or not isinstance(channel, ServiceChannel):
            return None
        if outgoing.reaction is not None or outgoing.edits is not None:
            return None  # repeating these changes nothing
        after = outbox.last_message(head)
        try:
            found = await channel.find_sent(outgoing, after)
            while found is not None and outbox.is_recorded(outgoing.to, found):
                found = await channel.find_sent(outgoing, found)  # it was sent to another thread of the chat
        except DeliveryFailed as error:
            if not error.final:
                raise
            log.warning("whether %s was sent cannot be seen: %s", outgoing.key, error)
            return None
        return found


def _place(to: Origin) -> tuple[str, str, str]:
    """Return what one message is sent to at a time: the threads of a chat have common message ids."""
    return to.channel, to.account, to.peer
