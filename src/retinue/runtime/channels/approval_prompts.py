"""Approval requests in chats: shown to the owner with buttons, and decided by a press of an approver."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import anyio
from msgspec.structs import replace

from retinue.channels.channel import ButtonPress
from retinue.core.approval import ApprovalDecision, ApprovalRequest, Ask, Verdict
from retinue.core.envelope import Origin, OutgoingMessage, PeerKind
from retinue.core.errors import RetinueError, StorageError
from retinue.core.styled_text import StyledText, split_styled
from retinue.dispatch.admission import is_named, is_owner
from retinue.runtime.agents.chats import find_account
from retinue.runtime.channels.send import find_chat
from retinue.tools.approvals.broker import AlreadySettled, format_outcome
from retinue.tools.approvals.view import QUESTION, answer_lines, question_lines

if TYPE_CHECKING:
    from retinue.runtime.turns.sessions import Sessions

log = logging.getLogger(__name__)

PRESS = "approve:"
"""The beginning of the value of a button that decides on a request."""
_VERDICTS = {"once": Verdict.ALLOW_ONCE, "always": Verdict.ALLOW_ALWAYS, "no": Verdict.DENY}
_BINDING_CHARS = 12
MAX_CHARS = 12_000


class ApprovalPrompts:
    """Shows the requests of the turns of this process in the chats of approvers."""

    def __init__(
        self, sessions: Sessions, elsewhere: Ask, can_approve: Callable[[], bool], wake: Callable[[], None]
    ) -> None:
        """`elsewhere` asks the connected clients, and `can_approve` says whether one of them can decide."""
        self._sessions = sessions
        self._elsewhere = elsewhere
        self._can_approve = can_approve
        self._wake = wake

    async def ask(self, request: ApprovalRequest) -> ApprovalDecision:
        """The `Ask` of the gateway's turns: a person decides in a chat or through a connected client.

        It is cancelled when the request was decided.
        """
        chats = self._show(request)
        if not chats:
            return await self._elsewhere(request)
        try:
            await anyio.sleep_forever()
        finally:
            self._show_outcome(request.id, chats)
        raise AssertionError

    def press(self, press: ButtonPress) -> str:
        """Decide on a request by a press; returns what happened. Only approvers can, at the shown message."""
        _, code, verdict, binding = (*press.value.split(":"), "", "", "")[:4]
        origin, approvals = press.origin, self._sessions.services.approvals
        found = approvals.find(code)
        if verdict not in _VERDICTS or found is None:
            return "This request is not known any more."
        shown = self._sessions.services.outbox.message_of(self._key(code, _chat_of(origin)))
        if shown is None or shown != origin.message_id or not found.request.binding.startswith(binding):
            return "This button does not belong to this request."
        name = f"{origin.sender_name or origin.writer} on {origin.channel}"
        permissions = self._sessions.shared.permissions
        approver = permissions.approver(name, owner=self._is_approver(origin))
        try:
            settled = approvals.decide(code, _VERDICTS[verdict], approver, binding=found.request.binding)
        except AlreadySettled as error:
            self._show_outcome(code, [_chat_of(origin)])
            return str(error)
        except RetinueError as error:
            return str(error)
        return f"{settled.id} is {format_outcome(settled)}"

    def _is_approver(self, origin: Origin) -> bool:
        """Return whether a sender may decide: the owner, and who is listed in `execApprovals.approvers`."""
        config = self._sessions.home.config
        approvers = [str(each) for each in _settings(self._sessions, origin.channel).get("approvers") or ()]
        return is_owner(origin, config.commands.owner_allow_from) or is_named(origin, approvers)

    def _show(self, request: ApprovalRequest) -> list[Origin]:
        try:
            chats = list(dict.fromkeys(self._find_chats(request)))
            for chat in chats:
                self._sessions.services.outbox.put(self._format(request, chat))
        except RetinueError as error:
            log.warning("the request %s could not be shown in a chat: %s", request.id, error)
            return []
        self._wake()
        return chats

    def _find_chats(self, request: ApprovalRequest) -> Iterator[Origin]:
        """Yield the chats for a request: the owner's, if the owner wrote there or no client can decide."""
        sessions = self._sessions
        spoken = sessions.services.inbox.last_spoken(request.session)
        here = spoken.origin if spoken is not None else None
        if spoken is not None and here is None and self._can_approve():
            return  # the owner is at a terminal or the page
        if here is not None and not here.kind.is_shared:
            owners: Origin | None = here
        else:
            owners = find_chat(sessions, request.agent).origin
        for origin in filter(None, (owners, here if here is not None and here.kind.is_shared else None)):
            settings = _settings(sessions, origin.channel)
            enabled = settings.get("enabled", "auto") is not False and find_account(
                sessions.home, origin.channel, origin.account
            )
            wanted = ("channel", "both") if origin.kind.is_shared else ("dm", "both", None)
            if enabled and settings.get("target") in wanted:
                yield _chat_of(origin)
            if origin is owners:
                for approver in settings.get("approvers") or ():
                    person = str(approver).rpartition(":")[2]
                    if enabled and person not in ("*", origin.peer):
                        yield Origin(origin.channel, origin.account, PeerKind.DIRECT, person)

    def _format(self, request: ApprovalRequest, chat: Origin) -> list[OutgoingMessage]:
        found = find_account(self._sessions.home, chat.channel, chat.account)
        assert found is not None
        buttons = _buttons(request) if found.capabilities.buttons and request.tool != QUESTION else ()
        lines = [*question_lines(request), *(() if buttons else ("", *answer_lines(request)))]
        limit = min(found.capabilities.max_text, 1_500)  # escaping can double the length
        pieces = split_styled(StyledText("\n".join(lines)[:MAX_CHARS]), lambda piece: len(piece.text) <= limit)
        key = self._key(request.id, chat)
        messages = [OutgoingMessage(f"{key}:{number}", chat, piece.text) for number, piece in enumerate(pieces)]
        return [*messages[:-1], replace(messages[-1], key=key, buttons=buttons)]

    def _show_outcome(self, code: str, chats: list[Origin]) -> None:
        """Replace the request in the chats by its outcome, so that its buttons disappear."""
        try:
            approval = self._sessions.services.approvals.find(code)
            for chat in chats:
                found = find_account(self._sessions.home, chat.channel, chat.account)
                shown = self._sessions.services.outbox.message_of(self._key(code, chat))
                if approval is None or found is None or shown is None or not found.capabilities.edits:
                    continue
                outcome = "no longer needed" if approval.is_pending else format_outcome(approval)
                text = f"{question_lines(approval.request)[0]}\n{code}: {outcome}"[:1_000]
                self._sessions.services.outbox.put(
                    [OutgoingMessage(f"{self._key(code, chat)}:end", chat, text, edits=shown)]
                )
        except StorageError as error:
            log.warning("the outcome of %s could not be shown in a chat: %s", code, error)
        self._wake()

    def _key(self, code: str, chat: Origin) -> str:
        return f"approval:{code}:{chat.channel}:{chat.account}:{chat.peer}"


def _settings(sessions: Sessions, channel: str) -> dict[str, Any]:
    """Return `execApprovals` of a channel."""
    known = sessions.home.config.channels.get(channel)
    found = known.other_keys.get("execApprovals") if known is not None else None
    return found if isinstance(found, dict) else {}


def _chat_of(origin: Origin) -> Origin:
    """Return the chat of a message without its sender."""
    return replace(origin, sender=None, sender_name=None, roles=(), message_id=None)


def _buttons(request: ApprovalRequest) -> tuple[tuple[dict[str, Any], ...], ...]:
    choices = [("Allow once", "once"), *([("Always", "always")] if request.may_remember else []), ("Deny", "no")]
    mark = request.binding[:_BINDING_CHARS]
    return (tuple({"text": text, "value": f"{PRESS}{request.id}:{name}:{mark}"} for text, name in choices),)
