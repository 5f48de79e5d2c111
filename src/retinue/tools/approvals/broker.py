"""The approval broker: a tool call waits for a decision, which can come from any process of the home.

An approval request is a row in `state.sqlite`. The terminal that runs the turn, `/approve` in any chat and
`retinue approvals` in any shell all settle the same row; the first decision counts and later ones are refused. A
request without a decision expires, which denies it. A request whose process has ended is withdrawn, so that it can no
longer be approved.

Each outcome is written to the audit log in the transaction that settles the request. If that write fails, nothing is
allowed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta

import anyio
from msgspec import Struct
from msgspec.structs import replace

from retinue.core.approval import IN_COMMAND, ApprovalDecision, ApprovalRequest, Ask, Verdict
from retinue.core.clock import Clock
from retinue.core.envelope import Source
from retinue.core.errors import RetinueError, StorageError, UsageError, first_cause
from retinue.core.events import ApprovalAsked, ApprovalGiven, Emit
from retinue.core.keys import SessionKey
from retinue.security.untrusted_text import literal
from retinue.settings import format_duration
from retinue.storage.auditlog import AuditLog
from retinue.storage.database import Database
from retinue.storage.process_locks import Presence, ancestors, has_ancestor_with_variable, process_of
from retinue.tools.approvals.store import STATE_BY_VERDICT, Approval, ApprovalState, ApprovalStore, Watchers

log = logging.getLogger(__name__)

POLL_SECONDS = 0.1
PAUSE_SECONDS = 5.0
LOST = "the request was lost with a damaged database"
CHANGED = "the request was changed while it was pending"
GONE = "the process that made the request has ended"
NOBODY = "no person is available to approve it"
CANCELLED = "the turn ended before a decision"
SOMEBODY_HERE = "the person at this process"
ITSELF = "Retinue"
"""The name recorded for a denial because of a failure. It counts like a denial by a person: no fallback applies."""

Listener = Callable[[Approval], None]
"""Called when a request is made or settled, in the process in which that happens."""

_KINDS = {
    ApprovalState.PENDING: "approval_asked",
    ApprovalState.ALLOWED_ONCE: "approval_allowed",
    ApprovalState.ALLOWED_ALWAYS: "approval_allowed",
    ApprovalState.DENIED: "approval_denied",
    ApprovalState.EXPIRED: "approval_expired",
    ApprovalState.WITHDRAWN: "approval_withdrawn",
}


class UnknownApproval(UsageError):
    """There is no approval request with this id."""


class NotAnApprover(RetinueError):
    """The caller may not decide approval requests."""


class AlreadySettled(RetinueError):
    """The request was settled before; the decision had no effect."""

    def __init__(self, approval: Approval) -> None:
        super().__init__(f"{approval.id} is already {format_outcome(approval)}; your decision had no effect.")
        self.approval = approval


class Approver(Struct, frozen=True):
    """The person who decides and where the decision came from; `in_command` means a command that an agent runs."""

    name: str
    owner: bool
    source: Source = Source.CHAT
    in_command: bool = False

    @property
    def objection(self) -> str | None:
        """Why this approver may not decide, or None."""
        if self.source is not Source.CHAT:
            return f"Only a person can decide; this came from {self.source}."
        if not self.owner:
            return "Only the owner of this assistant may decide."
        return "A command that an agent runs cannot decide." if self.in_command else None


class ApprovalBroker:
    """The approval requests of a home in one process; used from one thread."""

    def __init__(self, database: Database, audit: AuditLog, clock: Clock, presence: Presence) -> None:
        self._database = database
        self._store = ApprovalStore(database)
        self._audit = audit
        self._clock = clock
        self._presence = presence
        self._watchers = Watchers(self._store, self._presence)
        self._listeners: list[Listener] = []
        self._shown: set[str] = set()

    async def ask(self, request: ApprovalRequest, here: Ask | None, within: timedelta, show: Emit) -> ApprovalDecision:
        """Make a request, show it here and in other processes, and wait for the first decision.

        The request gets a new id. If no person is present here or in another process, it is denied at once.
        """
        try:
            approval = self._begin(request, within)
        except StorageError as error:
            return ApprovalDecision(Verdict.DENY, f"the request could not be stored: {error}", ITSELF)
        await show(ApprovalAsked(approval.request))
        try:
            decision = (await self._wait_for_decision(approval, here, within)).decision
        except StorageError as error:
            self._abandon(approval)
            decision = ApprovalDecision(Verdict.DENY, f"the decision could not be stored: {error}", ITSELF)
        except BaseException:
            self._abandon(approval)
            raise
        await show(ApprovalGiven(approval.request, decision))
        return decision

    def decide(
        self, code: str, verdict: Verdict, approver: Approver, *, reason: str = "", binding: str | None = None
    ) -> Approval:
        """Decide a request; raises if it is unknown or already settled, or if the approver may not decide it.

        `binding` is that of the request as it was shown; if given, it must equal that of the pending request.
        """
        found = self.find(code)
        if approver.objection is None and found is None:
            raise UnknownApproval(f"There is no approval '{literal(code, 40)}'. {self._format_pending()}")
        self._check(approver, code, found)
        assert found is not None
        if not found.is_pending:
            raise AlreadySettled(found)
        if verdict is Verdict.ALLOW_ALWAYS and not found.request.may_remember:
            raise UsageError(f"{found.id} cannot be allowed permanently, only once: /approve {found.id} allow-once.")
        if binding is not None and binding != found.request.binding:
            raise UsageError(f"{found.id} has changed since it was shown. List the approvals again.")
        state = STATE_BY_VERDICT[verdict]
        because = f"{'allowed' if state.allows else 'denied'} by {approver.name}"
        full_reason = f"{because}: {literal(reason, 400)}" if reason else because
        if not self._end(found, state, full_reason, approver.name):
            raise AlreadySettled(self.find(code) or found)
        return self.find(code) or found

    def find(self, code: str) -> Approval | None:
        """Return the request with this id."""
        self.sweep()
        return self._store.find(code.strip().lower())

    def pending(self, session: SessionKey | None = None) -> tuple[Approval, ...]:
        """Return the pending requests of all sessions or of one, the oldest first."""
        return tuple(item for item in self.sweep() if session is None or item.request.session == session)

    def recent(self, most: int) -> tuple[Approval, ...]:
        """Return the newest requests in any state."""
        self.sweep()
        return self._store.recent(most)

    def sweep(self) -> tuple[Approval, ...]:
        """Settle requests that expired or whose process has ended; returns those that are still pending."""
        left = []
        for approval in self._store.pending():
            if approval.expires_at <= self._clock.now():
                self._end(approval, ApprovalState.EXPIRED, _format_expiry(approval))
            elif not self._presence.is_present(approval.holder):
                self._end(approval, ApprovalState.WITHDRAWN, GONE)
            else:
                left.append(approval)
        return tuple(left)

    def prune(self, older_than: datetime) -> int:
        """Delete settled requests that were made before a time, and watchers whose process has ended."""
        self._watchers.forget_dead()
        self._presence.sweep()
        return self._store.prune(older_than)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call a listener for each request made or settled in this process; returns a function that unsubscribes."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def attend(self, session: SessionKey, here: Ask | None, show: Emit) -> None:
        """Show requests that turns of other processes make in a session, until cancelled."""
        with self._watchers.watch(session):
            while True:
                try:
                    for approval in self.pending(session):
                        if approval.holder != self._presence.name and approval.id not in self._shown:
                            await self._show_request_of_other_process(approval, here, show)
                except StorageError as error:
                    log.warning("cannot read the approval requests of other processes in %s: %s", session, error)
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
        self._notify(approval)
        return approval

    async def _wait_for_decision(self, approval: Approval, here: Ask | None, within: timedelta) -> Approval:
        async def ask_here(here: Ask) -> None:
            decision = await self._ask_person(here, approval)
            self._end(approval, STATE_BY_VERDICT[decision.verdict], decision.because, decision.by)

        try:
            async with anyio.create_task_group() as tasks:
                if here is not None:
                    tasks.start_soon(ask_here, here)
                settled = await self._wait_until_settled(approval, within, watched=here is None)
                tasks.cancel_scope.cancel()
        except ExceptionGroup as errors:
            raise first_cause(errors) from errors
        return settled

    async def _wait_until_settled(self, approval: Approval, within: timedelta, *, watched: bool) -> Approval:
        """Wait until a request is settled. With `watched` it is denied if no other process displays it."""
        deadline = self._clock.monotonic() + within.total_seconds()
        with self._settled_event(approval.id) as wake:
            while True:
                found = self._store.find(approval.id)
                if found is None or found.request.binding != approval.request.binding:
                    why = LOST if found is None else CHANGED
                    return replace(approval, state=ApprovalState.DENIED, because=why, decided_by=ITSELF)
                if not found.is_pending:
                    return found
                if self._clock.now() >= approval.expires_at or self._clock.monotonic() >= deadline:
                    self._end(approval, ApprovalState.EXPIRED, _format_expiry(approval))
                elif watched and not self._watchers.is_watched_elsewhere(approval.request.session):
                    self._end(approval, ApprovalState.DENIED, NOBODY)
                else:
                    with anyio.move_on_after(POLL_SECONDS):
                        await wake.wait()

    async def _show_request_of_other_process(self, approval: Approval, here: Ask | None, show: Emit) -> None:
        """Show a request of another process; withdraw it when it is settled elsewhere."""
        await show(ApprovalAsked(approval.request))

        async def answer(here: Ask) -> None:
            decision = await self._ask_person(here, approval)
            if decision.by:
                with suppress(AlreadySettled, UnknownApproval):  # the outcome is shown below
                    self.decide(approval.id, decision.verdict, Approver(decision.by, owner=True))

        try:
            async with anyio.create_task_group() as tasks:
                if here is not None:
                    tasks.start_soon(answer, here)
                while (found := self.find(approval.id)) is not None and found.is_pending:  # noqa: ASYNC110 - by any process
                    await anyio.sleep(POLL_SECONDS)
                tasks.cancel_scope.cancel()
        except ExceptionGroup as errors:
            raise first_cause(errors) from errors
        await show(ApprovalGiven(approval.request, (found or replace(approval, because=LOST)).decision))

    async def _ask_person(self, here: Ask, approval: Approval) -> ApprovalDecision:
        self._shown.add(approval.id)
        try:
            decision = await here(approval.request)
        finally:
            self._shown.discard(approval.id)
        once = decision.verdict is Verdict.ALLOW_ALWAYS and not approval.request.may_remember
        verdict = Verdict.ALLOW_ONCE if once else decision.verdict
        return replace(decision, verdict=verdict, by=decision.by or (SOMEBODY_HERE if decision.allowed else ""))

    def _end(self, approval: Approval, state: ApprovalState, because: str, by: str = "") -> bool:
        """Settle a request and write the audit log in one transaction; returns false if it was settled before."""
        ended = replace(approval, state=state, decided_at=self._clock.now(), decided_by=by, because=because)
        with self._database.change(durable=True) as base:
            if not self._store.settle(ended, base):
                return False
            self._record(ended)
        self._notify(ended)
        return True

    def _abandon(self, approval: Approval) -> None:
        """Withdraw a request whose call no longer waits; if storing that fails, the request expires."""
        with suppress(StorageError):
            self._end(approval, ApprovalState.WITHDRAWN, CANCELLED)

    def _check(self, approver: Approver, code: str, approval: Approval | None) -> None:
        """Raise `NotAnApprover` for an approver who may not decide, and record the attempt in the audit log."""
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
            "explanation": list(request.explanation),
            "binding": request.binding,
            "state": approval.state.value,
        }
        if not approval.is_pending:
            details["because"] = approval.because
        who = f"agent:{request.agent}" if approval.is_pending else approval.decided_by or "nobody"
        self._audit.record(_KINDS[approval.state], who, details)

    def _notify(self, approval: Approval) -> None:
        for listener in tuple(self._listeners):
            listener(approval)

    @contextmanager
    def _settled_event(self, code: str) -> Iterator[anyio.Event]:
        """Return an event that is set when the request is settled in this process."""
        event = anyio.Event()

        def wake(approval: Approval) -> None:
            if approval.id == code and not approval.is_pending:
                event.set()

        unsubscribe = self.subscribe(wake)
        try:
            yield event
        finally:
            unsubscribe()

    def _format_pending(self) -> str:
        waiting = [f"{item.id} ({literal(item.request.title, 60)})" for item in self.sweep()]
        return f"Pending: {', '.join(waiting)}." if waiting else "No approvals are pending."


def _is_in_command(approval: Approval) -> bool:
    """Return whether this process was started by a command of an agent.

    The ancestors of the process are checked as well as its environment, because a command can clear the environment.
    """
    return process_of(approval.holder) in ancestors() or has_ancestor_with_variable(IN_COMMAND)


def format_outcome(approval: Approval) -> str:
    """Format the outcome of a request, as in `denied by anna`."""
    by = f" by {approval.decided_by}" if approval.decided_by else ""
    match approval.state:
        case ApprovalState.ALLOWED_ONCE:
            return f"allowed once{by}"
        case ApprovalState.ALLOWED_ALWAYS:
            return f"allowed permanently{by}"
        case ApprovalState.WITHDRAWN:
            return f"withdrawn ({approval.because})"
        case ApprovalState.PENDING | ApprovalState.DENIED | ApprovalState.EXPIRED:
            return f"{approval.state}{by}"


def _format_expiry(approval: Approval) -> str:
    return f"no decision within {format_duration(approval.expires_at - approval.asked_at)}"
