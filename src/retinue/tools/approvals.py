"""Approvals: a call asks, waits, and whoever may decide answers, from any process of the home.

A question is a row in `state.sqlite`. The terminal that runs the turn, `/approve` in any chat and `retinue approvals`
in any shell all settle the same row: the first answer counts, and the later ones are told so. A question that nobody
answers in time is denied, and one whose process is gone is withdrawn, so that nothing can be approved into nothing.

Each end of a question goes into the audit log in the transaction that settles it: where it cannot be written down,
nothing is allowed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path

import anyio
from msgspec import Struct
from msgspec.structs import replace

from retinue.core.approval import IN_COMMAND, ApprovalDecision, ApprovalRequest, Ask, Verdict, nobody_to_ask
from retinue.core.clock import Clock
from retinue.core.envelope import Source
from retinue.core.errors import RetinueError, StorageError, UsageError, first_cause
from retinue.core.events import ApprovalAsked, ApprovalGiven, Emit
from retinue.core.keys import SessionKey
from retinue.security.escaping import literal
from retinue.settings import format_duration
from retinue.storage.auditlog import AuditLog
from retinue.storage.database import Database
from retinue.storage.presence import Presence, ancestors, has_ancestor_with_variable, process_of
from retinue.tools.approval_store import STATE_OF, Approval, ApprovalState, ApprovalStore
from retinue.tools.watchers import Watchers

log = logging.getLogger(__name__)

POLL_SECONDS = 0.1
PAUSE_SECONDS = 5.0
LOST = "the question was lost with a damaged database"
CHANGED = "the question was changed while it waited"
GONE = "the process that asked is gone"
NOBODY = "nobody is here to approve it"
CANCELLED = "the turn ended before anybody answered"
SOMEBODY_HERE = "the person at this process"
ITSELF = "Retinue"
"""Who denies what cannot be asked properly; nothing else may be made of that than of a person's no."""

Listener = Callable[[Approval], None]
"""Told of a question when it is asked and when it ends, in the process where that happens."""

_KINDS = {
    ApprovalState.PENDING: "approval_asked",
    ApprovalState.ALLOWED_ONCE: "approval_allowed",
    ApprovalState.ALLOWED_ALWAYS: "approval_allowed",
    ApprovalState.DENIED: "approval_denied",
    ApprovalState.EXPIRED: "approval_expired",
    ApprovalState.WITHDRAWN: "approval_withdrawn",
}


class UnknownApproval(UsageError):
    """No such question."""


class NotAnApprover(RetinueError):
    """Whoever tried may not decide."""


class AlreadySettled(RetinueError):
    """The question had ended before; the answer changed nothing."""

    def __init__(self, approval: Approval) -> None:
        super().__init__(f"{approval.id} is {spell_end(approval)} already; your answer changed nothing.")
        self.approval = approval


class Approver(Struct, frozen=True):
    """Who wants to decide, and how that came in. `in_command` says that a command of an agent is where it came from."""

    name: str
    owner: bool
    source: Source = Source.CHAT
    in_command: bool = False

    @property
    def objection(self) -> str | None:
        """Why this one may not decide."""
        if self.source is not Source.CHAT:
            return f"Only a person can decide; this came from {self.source}."
        if not self.owner:
            return "Only the owner of this assistant may decide."
        return "A command that an agent runs cannot decide." if self.in_command else None


class ApprovalBook:
    """The questions of a home, as one process sees them; used from one thread."""

    def __init__(self, database: Database, audit: AuditLog, clock: Clock, folder: Path) -> None:
        self._database = database
        self._store = ApprovalStore(database)
        self._audit = audit
        self._clock = clock
        self._presence = Presence(folder)
        self._watchers = Watchers(self._store, self._presence)
        self._listeners: list[Listener] = []
        self._shown: set[str] = set()

    async def ask(self, request: ApprovalRequest, here: Ask, within: timedelta, show: Emit) -> ApprovalDecision:
        """Ask, here and wherever else a person can see it, and wait for the first answer.

        The question gets a code of its own as its id. Without anybody here or watching elsewhere it is denied at once.
        """
        try:
            approval = self._begin(request, within)
        except StorageError as error:
            return ApprovalDecision(Verdict.DENY, f"the question could not be kept: {error}", ITSELF)
        await show(ApprovalAsked(approval.request))
        try:
            decision = (await self._answer_to(approval, here, within)).decision
        except StorageError as error:
            self._abandon(approval)
            decision = ApprovalDecision(Verdict.DENY, f"the answer could not be kept: {error}", ITSELF)
        except BaseException:
            self._abandon(approval)
            raise
        await show(ApprovalGiven(approval.request, decision))
        return decision

    def decide(
        self, code: str, verdict: Verdict, approver: Approver, *, reason: str = "", binding: str | None = None
    ) -> Approval:
        """Answer a question; raises where it is unknown, settled already or not this one's to answer.

        `binding` is that of the question as it was shown; where given, it must be that of the question that waits.
        """
        found = self.find(code)
        if approver.objection is None and found is None:
            raise UnknownApproval(f"There is no approval '{literal(code, 40)}'. {self._spell_pending()}")
        self._check(approver, code, found)
        assert found is not None
        if not found.is_pending:
            raise AlreadySettled(found)
        if verdict is Verdict.ALLOW_ALWAYS and not found.request.may_remember:
            raise UsageError(f"{found.id} cannot be allowed for good, only once: /approve {found.id} allow-once.")
        if binding is not None and binding != found.request.binding:
            raise UsageError(f"{found.id} is not what was shown any more. Look at it again.")
        state = STATE_OF[verdict]
        because = f"{'allowed' if state.allows else 'denied'} by {approver.name}"
        told = f"{because}: {literal(reason, 400)}" if reason else because
        if not self._end(found, state, told, approver.name):
            raise AlreadySettled(self.find(code) or found)
        return self.find(code) or found

    def find(self, code: str) -> Approval | None:
        """The question with that code."""
        self.sweep()
        return self._store.find(code.strip().lower())

    def pending(self, session: SessionKey | None = None) -> tuple[Approval, ...]:
        """What waits for an answer, everywhere or in one session, the oldest first."""
        return tuple(item for item in self.sweep() if session is None or item.request.session == session)

    def recent(self, most: int) -> tuple[Approval, ...]:
        """The newest questions, whatever became of them."""
        self.sweep()
        return self._store.recent(most)

    def sweep(self) -> tuple[Approval, ...]:
        """End what is over: questions whose time is up, and those whose process is gone. Returns what waits still."""
        left = []
        for approval in self._store.pending():
            if approval.expires_at <= self._clock.now():
                self._end(approval, ApprovalState.EXPIRED, _spell_expiry(approval))
            elif not self._presence.is_present(approval.holder):
                self._end(approval, ApprovalState.WITHDRAWN, GONE)
            else:
                left.append(approval)
        return tuple(left)

    def prune(self, older_than: datetime) -> int:
        """Forget questions that ended and were asked before a moment, and whoever watched and died."""
        self._watchers.forget_dead()
        self._presence.sweep()
        return self._store.prune(older_than)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Tell a listener of questions that are asked or end in this process; returns what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def attend(self, session: SessionKey, here: Ask, show: Emit) -> None:
        """Ask here what turns of other processes ask in a session, until cancelled."""
        with self._watchers.watch(session):
            while True:
                try:
                    for approval in self.pending(session):
                        if approval.holder != self._presence.name and approval.id not in self._shown:
                            await self._ask_for_another(approval, here, show)
                except StorageError as error:
                    log.warning("what other processes ask in %s cannot be seen now: %s", session, error)
                    await anyio.sleep(PAUSE_SECONDS)
                await anyio.sleep(POLL_SECONDS)

    def close(self) -> None:
        self._presence.end()

    def _begin(self, request: ApprovalRequest, within: timedelta) -> Approval:
        self._presence.show()
        now = self._clock.now()
        with self._database.change() as base:
            approval = self._store.add(Approval(request, self._presence.name, now, now + within), base)
            self._record(approval)
        self._tell(approval)
        return approval

    async def _answer_to(self, approval: Approval, here: Ask, within: timedelta) -> Approval:
        try:
            async with anyio.create_task_group() as tasks:
                if here is not nobody_to_ask:
                    tasks.start_soon(self._ask_here, approval, here)
                settled = await self._settled(approval, within, watched=here is nobody_to_ask)
                tasks.cancel_scope.cancel()
        except ExceptionGroup as errors:
            raise first_cause(errors) from errors
        return settled

    async def _ask_here(self, approval: Approval, here: Ask) -> None:
        decision = await self._put_to(here, approval)
        self._end(approval, STATE_OF[decision.verdict], decision.because, decision.by)

    async def _settled(self, approval: Approval, within: timedelta, *, watched: bool) -> Approval:
        """The question once it has ended. `watched` says that it needs somebody elsewhere to see it."""
        deadline = self._clock.monotonic() + within.total_seconds()
        with self._woken_by(approval.id) as wake:
            while True:
                found = self._store.find(approval.id)
                if found is None or found.request.binding != approval.request.binding:
                    why = LOST if found is None else CHANGED
                    return replace(approval, state=ApprovalState.DENIED, because=why, decided_by=ITSELF)
                if not found.is_pending:
                    return found
                if self._clock.now() >= approval.expires_at or self._clock.monotonic() >= deadline:
                    self._end(approval, ApprovalState.EXPIRED, _spell_expiry(approval))
                elif watched and not self._watchers.watch_elsewhere(approval.request.session):
                    self._end(approval, ApprovalState.DENIED, NOBODY)
                else:
                    with anyio.move_on_after(POLL_SECONDS):
                        await wake.wait()

    async def _ask_for_another(self, approval: Approval, here: Ask, show: Emit) -> None:
        """Show what another process asks, and take it away again where somebody else answers."""
        await show(ApprovalAsked(approval.request))

        async def answer() -> None:
            decision = await self._put_to(here, approval)
            if decision.by:
                with suppress(AlreadySettled, UnknownApproval):  # what it came to is shown below
                    self.decide(approval.id, decision.verdict, Approver(decision.by, owner=True))

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(answer)
                while (found := self.find(approval.id)) is not None and found.is_pending:  # noqa: ASYNC110 - by any process
                    await anyio.sleep(POLL_SECONDS)
                tasks.cancel_scope.cancel()
        except ExceptionGroup as errors:
            raise first_cause(errors) from errors
        await show(ApprovalGiven(approval.request, (found or replace(approval, because=LOST)).decision))

    async def _put_to(self, here: Ask, approval: Approval) -> ApprovalDecision:
        self._shown.add(approval.id)
        try:
            decision = await here(approval.request)
        finally:
            self._shown.discard(approval.id)
        once = decision.verdict is Verdict.ALLOW_ALWAYS and not approval.request.may_remember
        verdict = Verdict.ALLOW_ONCE if once else decision.verdict
        return replace(decision, verdict=verdict, by=decision.by or (SOMEBODY_HERE if decision.allowed else ""))

    def _end(self, approval: Approval, state: ApprovalState, because: str, by: str = "") -> bool:
        """Settle a question and write that down, both or neither; false where it was settled before."""
        ended = replace(approval, state=state, decided_at=self._clock.now(), decided_by=by, because=because)
        with self._database.change() as base:
            if not self._store.settle(ended, base):
                return False
            self._record(ended)
        self._tell(ended)
        return True

    def _abandon(self, approval: Approval) -> None:
        """Nobody waits for the answer any more; where that cannot be kept, the question ends with its time."""
        with suppress(StorageError):
            self._end(approval, ApprovalState.WITHDRAWN, CANCELLED)

    def _check(self, approver: Approver, code: str, approval: Approval | None) -> None:
        """Refuse whoever may not decide; that they tried is written down."""
        objection = approver.objection
        if objection is None and approval is not None and _is_in_command(approval):
            objection = replace(approver, in_command=True).objection
        if objection is not None:
            details = {"id": literal(code, 40), "because": objection}
            self._audit.record("approval_refused", approver.name, details)
            raise NotAnApprover(objection)

    def _record(self, approval: Approval) -> None:
        request = approval.request
        details = {
            "id": request.id,
            "session": request.session.text,
            "tool": request.tool,
            "title": request.title,
            "detail": request.detail,
            "binding": request.binding,
            "state": approval.state.value,
        }
        if not approval.is_pending:
            details["because"] = approval.because
        who = f"agent:{request.agent}" if approval.is_pending else approval.decided_by or "nobody"
        self._audit.record(_KINDS[approval.state], who, details)

    def _tell(self, approval: Approval) -> None:
        for listener in tuple(self._listeners):
            listener(approval)

    @contextmanager
    def _woken_by(self, code: str) -> Iterator[anyio.Event]:
        """An event that is set when the question ends in this process."""
        event = anyio.Event()

        def wake(approval: Approval) -> None:
            if approval.id == code and not approval.is_pending:
                event.set()

        unsubscribe = self.subscribe(wake)
        try:
            yield event
        finally:
            unsubscribe()

    def _spell_pending(self) -> str:
        waiting = [f"{item.id} ({literal(item.request.title, 60)})" for item in self.sweep()]
        return f"Waiting: {', '.join(waiting)}." if waiting else "Nothing waits for approval."


def _is_in_command(approval: Approval) -> bool:
    """Whether this process belongs to a command that an agent runs, of whichever process and however it hides it."""
    return process_of(approval.holder) in ancestors() or has_ancestor_with_variable(IN_COMMAND)


def spell_end(approval: Approval) -> str:
    """How a question ended, as in `denied by anna`."""
    by = f" by {approval.decided_by}" if approval.decided_by else ""
    match approval.state:
        case ApprovalState.ALLOWED_ONCE:
            return f"allowed once{by}"
        case ApprovalState.ALLOWED_ALWAYS:
            return f"allowed for good{by}"
        case ApprovalState.WITHDRAWN:
            return f"withdrawn ({approval.because})"
        case ApprovalState.PENDING | ApprovalState.DENIED | ApprovalState.EXPIRED:
            return f"{approval.state}{by}"


def _spell_expiry(approval: Approval) -> str:
    return f"nobody answered within {format_duration(approval.expires_at - approval.asked_at)}"
