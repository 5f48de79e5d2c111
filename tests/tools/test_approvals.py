"""ApprovalBroker: asked once, answered once, by whoever may and comes first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from retinue.core.approval import ApprovalDecision, ApprovalRequest, Ask, Verdict, deny_unattended
from retinue.core.clock import Clock, SystemClock
from retinue.core.envelope import Source
from retinue.core.errors import UsageError
from retinue.core.events import ApprovalAsked, ApprovalGiven, TurnEvent
from retinue.core.keys import DEFAULT_AGENT, SessionKey
from retinue.storage.auditlog import AuditLog
from retinue.storage.database import SqliteDatabase
from retinue.storage.process_locks import FilePresence
from retinue.testing.clock import FrozenClock
from retinue.tools.approvals.broker import AlreadySettled, ApprovalBroker, Approver, NotAnApprover, UnknownApproval
from retinue.tools.approvals.store import CODE_CHARACTERS, CODE_DIGITS, Approval, ApprovalState

pytestmark = pytest.mark.anyio

KEY = SessionKey.parse("agent:main:main")
OTHER = SessionKey.parse("agent:main:ideas")
OWNER = Approver("anna", owner=True)
REQUEST = ApprovalRequest(
    id="",
    tool="exec",
    title="Run a command",
    detail="git push",
    agent=DEFAULT_AGENT,
    session=KEY,
    remember=(("git", "push"),),
    binding="b1",
    explanation=("git: reaches the network",),
)
HALF_AN_HOUR = timedelta(minutes=30)


@dataclass
class Stand:
    """A home with a database and an audit log, in which several processes may open a book."""

    path: Path
    stack: ExitStack
    clock: FrozenClock = field(default_factory=FrozenClock)
    events: list[TurnEvent] = field(default_factory=list)

    def open(self, clock: Clock | None = None) -> ApprovalBroker:
        database = SqliteDatabase(self.path / "state.sqlite")
        self.stack.callback(database.close)
        book = ApprovalBroker(database, self.audit, clock or self.clock, FilePresence(self.path / "presence"))
        self.stack.callback(book.close)
        return book

    @property
    def audit(self) -> AuditLog:
        return AuditLog(self.path / "audit.jsonl", self.clock)

    async def show(self, event: TurnEvent) -> None:
        self.events.append(event)

    def recorded(self) -> list[tuple[str, str]]:
        return [(entry["kind"], entry["who"]) for entry in self.audit.entries()]


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    with ExitStack() as stack:
        yield Stand(tmp_path / "home", stack)


async def never(request: ApprovalRequest) -> ApprovalDecision:
    """A person who looks at the question and says nothing."""
    await anyio.sleep_forever()
    raise AssertionError


def says(verdict: Verdict) -> Ask:
    async def answer(request: ApprovalRequest) -> ApprovalDecision:
        return ApprovalDecision(verdict, "said so", "the person here")

    return answer


async def wait_for_question(book: ApprovalBroker) -> Approval:
    with anyio.fail_after(30):
        while not (found := book.pending()):
            await anyio.sleep(0.01)
    return found[0]


async def ask_and(
    stand: Stand, act: Callable[[Approval], Awaitable[None]], here: Ask = never, request: ApprovalRequest = REQUEST
) -> ApprovalDecision:
    """Ask, do something about the question from elsewhere, and return what the call is told."""
    book = stand.open()
    told: list[ApprovalDecision] = []

    async def call() -> None:
        told.append(await book.ask(request, here, HALF_AN_HOUR, stand.show))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await act(await wait_for_question(stand.open()))
    return told[0]


async def test_a_question_has_a_code_that_is_easy_to_type(stand: Stand) -> None:
    await stand.open().ask(REQUEST, says(Verdict.ALLOW_ONCE), HALF_AN_HOUR, stand.show)
    [asked, given] = stand.events
    assert isinstance(asked, ApprovalAsked)
    assert isinstance(given, ApprovalGiven)
    code = asked.request.id
    assert len(code) == 4
    assert code[0] in CODE_DIGITS
    assert set(code) <= set(CODE_CHARACTERS)
    assert not set("01oil") & set(CODE_CHARACTERS)
    assert given.request == asked.request == replace(REQUEST, id=code)


@pytest.mark.parametrize(
    ("verdict", "state"),
    [
        (Verdict.ALLOW_ONCE, ApprovalState.ALLOWED_ONCE),
        (Verdict.ALLOW_ALWAYS, ApprovalState.ALLOWED_ALWAYS),
        (Verdict.DENY, ApprovalState.DENIED),
    ],
)
async def test_the_answer_given_here_is_kept(stand: Stand, verdict: Verdict, state: ApprovalState) -> None:
    book = stand.open()
    decision = await book.ask(REQUEST, says(verdict), HALF_AN_HOUR, stand.show)
    assert (decision.verdict, decision.by) == (verdict, "the person here")
    [kept] = stand.open().recent(10)
    assert (kept.state, kept.decided_by, kept.request.detail) == (state, "the person here", "git push")
    assert kept.decided_at == stand.clock.now()
    assert book.pending() == ()


@pytest.mark.parametrize("verdict", list(Verdict))
async def test_another_process_answers(stand: Stand, verdict: Verdict) -> None:
    async def answer(approval: Approval) -> None:
        stand.open().decide(approval.id.upper(), verdict, OWNER)

    decision = await ask_and(stand, answer)
    assert (decision.verdict, decision.by) == (verdict, "anna")
    kind = "approval_denied" if verdict is Verdict.DENY else "approval_allowed"
    assert stand.recorded() == [("approval_asked", "agent:main"), (kind, "anna")]
    assert stand.audit.verify() == ()


async def test_the_question_here_goes_away_when_somebody_else_answers(stand: Stand) -> None:
    cancelled: list[str] = []

    async def here(request: ApprovalRequest) -> ApprovalDecision:
        try:
            return await never(request)
        except anyio.get_cancelled_exc_class():
            cancelled.append(request.id)
            raise

    async def answer(approval: Approval) -> None:
        stand.open().decide(approval.id, Verdict.ALLOW_ONCE, OWNER)

    assert (await ask_and(stand, answer, here)).allowed
    assert len(cancelled) == 1


async def test_the_first_answer_counts_and_the_second_is_told_so(stand: Stand) -> None:
    async def answer(approval: Approval) -> None:
        stand.open().decide(approval.id, Verdict.DENY, OWNER)
        with pytest.raises(AlreadySettled, match="is already denied by anna; your decision had no effect"):
            stand.open().decide(approval.id, Verdict.ALLOW_ONCE, Approver("bert", owner=True))

    assert not (await ask_and(stand, answer)).allowed
    assert [who for _, who in stand.recorded()] == ["agent:main", "anna"]


async def test_nobody_here_and_nobody_watching_is_denied_at_once(stand: Stand) -> None:
    decision = await stand.open().ask(REQUEST, None, HALF_AN_HOUR, stand.show)
    assert (decision.verdict, decision.by) == (Verdict.DENY, "")
    assert "no person is available" in decision.because
    assert stand.recorded() == [("approval_asked", "agent:main"), ("approval_denied", "nobody")]


async def test_a_front_end_with_nobody_behind_it_is_nobody(stand: Stand) -> None:
    async def here(request: ApprovalRequest) -> ApprovalDecision:
        return await deny_unattended(request)

    decision = await stand.open().ask(REQUEST, here, HALF_AN_HOUR, stand.show)
    assert (decision.verdict, decision.by) == (Verdict.DENY, "")
    assert stand.recorded()[-1] == ("approval_denied", "nobody")


async def test_somebody_who_watches_the_session_elsewhere_is_asked(stand: Stand) -> None:
    book, chat = stand.open(), stand.open()
    seen: list[TurnEvent] = []

    async def show(event: TurnEvent) -> None:
        seen.append(event)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(chat.attend, KEY, says(Verdict.ALLOW_ONCE), show)
            await anyio.wait_all_tasks_blocked()
            decision = await book.ask(REQUEST, None, HALF_AN_HOUR, stand.show)
            while len(seen) < 2:
                await anyio.sleep(0.01)
            elsewhere = replace(REQUEST, session=OTHER)
            denied = await book.ask(elsewhere, None, HALF_AN_HOUR, stand.show)
            tasks.cancel_scope.cancel()
    assert (decision.allowed, decision.by) == (True, "the person here")
    assert [type(event).__name__ for event in seen] == ["ApprovalAsked", "ApprovalGiven"]
    assert not denied.allowed
    after = await book.ask(REQUEST, None, HALF_AN_HOUR, stand.show)
    assert not after.allowed


async def test_a_watcher_that_leaves_while_it_is_needed_means_denied(stand: Stand) -> None:
    book, chat = stand.open(), stand.open()
    told: list[ApprovalDecision] = []

    async def call() -> None:
        told.append(await book.ask(REQUEST, None, HALF_AN_HOUR, stand.show))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks, anyio.create_task_group() as watching:
            watching.start_soon(chat.attend, KEY, never, stand.show)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(call)
            await wait_for_question(stand.open())
            watching.cancel_scope.cancel()
    assert (told[0].verdict, told[0].by) == (Verdict.DENY, "")


async def test_time_denies(stand: Stand) -> None:
    async def let_time_pass(approval: Approval) -> None:
        stand.clock.advance(HALF_AN_HOUR)

    decision = await ask_and(stand, let_time_pass)
    assert (decision.verdict, decision.because) == (Verdict.DENY, "no decision within 30m")
    assert stand.recorded()[-1] == ("approval_expired", "nobody")


async def test_an_expired_question_cannot_be_allowed(stand: Stand) -> None:
    async def answer_late(approval: Approval) -> None:
        stand.clock.advance(HALF_AN_HOUR)
        with pytest.raises(AlreadySettled, match="expired"):
            stand.open().decide(approval.id, Verdict.ALLOW_ONCE, OWNER)

    assert not (await ask_and(stand, answer_late)).allowed


async def test_a_cancelled_turn_withdraws_its_question(stand: Stand) -> None:
    book, other = stand.open(), stand.open()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(book.ask, REQUEST, never, HALF_AN_HOUR, stand.show)
        approval = await wait_for_question(other)
        tasks.cancel_scope.cancel()
    with pytest.raises(AlreadySettled, match="withdrawn"):
        other.decide(approval.id, Verdict.ALLOW_ONCE, OWNER)
    assert stand.recorded()[-1] == ("approval_withdrawn", "nobody")


@pytest.mark.parametrize(
    ("approver", "why"),
    [
        (Approver("eve", owner=False), "owner"),
        (Approver("cron", owner=True, source=Source.CRON), "person"),
        (Approver("the agent", owner=True, source=Source.SUBAGENT), "person"),
        (Approver("a command", owner=True, source=Source.BACKGROUND), "person"),
        (Approver("heartbeat", owner=True, source=Source.HEARTBEAT), "person"),
        (Approver("a script", owner=True, in_command=True), "command"),
    ],
)
async def test_whoever_may_not_decide_is_refused_and_noted(stand: Stand, approver: Approver, why: str) -> None:
    async def try_it(approval: Approval) -> None:
        book = stand.open()
        for verdict in Verdict:
            with pytest.raises(NotAnApprover, match=why):
                book.decide(approval.id, verdict, approver)
        assert [item.id for item in book.pending()] == [approval.id]
        assert stand.recorded()[1:] == [("approval_refused", approver.name)] * 3
        book.decide(approval.id, Verdict.DENY, OWNER)

    assert not (await ask_and(stand, try_it)).allowed


async def test_a_guest_does_not_learn_which_questions_there_are(stand: Stand) -> None:
    async def try_it(approval: Approval) -> None:
        book = stand.open()
        with pytest.raises(NotAnApprover):
            book.decide("2222", Verdict.DENY, Approver("eve", owner=False))
        book.decide(approval.id, Verdict.DENY, OWNER)

    await ask_and(stand, try_it)


async def test_an_unknown_code_names_those_that_wait(stand: Stand) -> None:
    async def try_it(approval: Approval) -> None:
        book = stand.open()
        with pytest.raises(UnknownApproval, match=rf"There is no approval '9999'. Pending: {approval.id} \(Run a com"):
            book.decide("9999", Verdict.DENY, OWNER)
        book.decide(approval.id, Verdict.DENY, OWNER)
        with pytest.raises(UnknownApproval, match="No approvals are pending"):
            book.decide("9999", Verdict.DENY, OWNER)

    await ask_and(stand, try_it)


async def test_what_cannot_be_remembered_can_only_be_allowed_once(stand: Stand) -> None:
    request = replace(REQUEST, remember=())

    async def try_it(approval: Approval) -> None:
        book = stand.open()
        with pytest.raises(UsageError, match="only once"):
            book.decide(approval.id, Verdict.ALLOW_ALWAYS, OWNER)
        book.decide(approval.id, Verdict.ALLOW_ONCE, OWNER)

    assert (await ask_and(stand, try_it, request=request)).verdict is Verdict.ALLOW_ONCE
    here = await stand.open().ask(request, says(Verdict.ALLOW_ALWAYS), HALF_AN_HOUR, stand.show)
    assert here.verdict is Verdict.ALLOW_ONCE


async def test_an_answer_to_another_binding_is_refused(stand: Stand) -> None:
    async def try_it(approval: Approval) -> None:
        book = stand.open()
        with pytest.raises(UsageError, match="has changed since it was shown"):
            book.decide(approval.id, Verdict.ALLOW_ONCE, OWNER, binding="b2")
        book.decide(approval.id, Verdict.ALLOW_ONCE, OWNER, binding="b1")

    assert (await ask_and(stand, try_it)).allowed


@pytest.mark.parametrize(
    ("statement", "because"),
    [("UPDATE approvals SET binding = 'b2'", "changed"), ("DELETE FROM approvals", "lost")],
)
async def test_a_row_that_is_not_the_waiting_call_s_allows_nothing(stand: Stand, statement: str, because: str) -> None:
    async def tamper(approval: Approval) -> None:
        database = SqliteDatabase(stand.path / "state.sqlite")
        with database.change() as base:
            base.execute("UPDATE approvals SET state = 'allowed-once'")
            base.execute(statement)
        database.close()

    decision = await ask_and(stand, tamper)
    assert not decision.allowed
    assert because in decision.because


async def test_the_reason_reaches_the_call_on_one_line(stand: Stand) -> None:
    async def deny(approval: Approval) -> None:
        stand.open().decide(approval.id, Verdict.DENY, OWNER, reason="not on\nFridays\u202e")

    assert (await ask_and(stand, deny)).because == "denied by anna: not on Fridays"


async def test_nothing_is_allowed_that_cannot_be_written_down(stand: Stand) -> None:
    book = stand.open()

    async def here(request: ApprovalRequest) -> ApprovalDecision:
        stand.audit.path.unlink()
        stand.audit.path.mkdir()
        return ApprovalDecision(Verdict.ALLOW_ONCE, "said so", "the person here")

    decision = await book.ask(REQUEST, here, HALF_AN_HOUR, stand.show)
    assert not decision.allowed
    assert "could not be stored" in decision.because


async def test_a_listener_is_told_what_is_asked_and_what_it_came_to(stand: Stand) -> None:
    book = stand.open()
    heard: list[ApprovalState] = []
    unsubscribe = book.subscribe(lambda approval: heard.append(approval.state))
    await book.ask(REQUEST, says(Verdict.DENY), HALF_AN_HOUR, stand.show)
    unsubscribe()
    await book.ask(REQUEST, says(Verdict.DENY), HALF_AN_HOUR, stand.show)
    assert heard == [ApprovalState.PENDING, ApprovalState.DENIED]


async def test_what_ended_long_ago_is_forgotten_and_what_waits_is_not(stand: Stand) -> None:
    await stand.open().ask(REQUEST, says(Verdict.DENY), HALF_AN_HOUR, stand.show)

    async def prune(approval: Approval) -> None:
        book = stand.open()
        assert book.prune(stand.clock.now() + timedelta(days=1)) == 1
        assert [item.id for item in book.recent(10)] == [approval.id]
        book.decide(approval.id, Verdict.DENY, OWNER)

    await ask_and(stand, prune)


async def test_text_that_no_database_takes_is_asked_all_the_same(stand: Stand) -> None:
    request = replace(REQUEST, title="half \ud800", detail="half \udfff", explanation=("half \ud800",))
    decision = await stand.open().ask(request, says(Verdict.ALLOW_ONCE), HALF_AN_HOUR, stand.show)
    assert decision.allowed
    assert stand.open().recent(1)[0].request.detail == "half \\udfff"


async def test_a_damaged_row_hides_no_other(stand: Stand) -> None:
    await stand.open().ask(REQUEST, says(Verdict.DENY), HALF_AN_HOUR, stand.show)
    await stand.open().ask(REQUEST, says(Verdict.DENY), HALF_AN_HOUR, stand.show)
    database = SqliteDatabase(stand.path / "state.sqlite")
    with database.change() as base:
        base.execute("UPDATE approvals SET remember = '[[' WHERE rowid = 1")
    database.close()
    assert len(stand.open().recent(10)) == 1


ASKER = """
import sys
from datetime import timedelta
from pathlib import Path
import anyio
from retinue.core.approval import ApprovalRequest
from retinue.core.clock import SystemClock
from retinue.core.keys import DEFAULT_AGENT, SessionKey
from retinue.storage.auditlog import AuditLog
from retinue.storage.database import SqliteDatabase
from retinue.storage.process_locks import FilePresence
from retinue.tools.approvals.broker import ApprovalBroker

home = Path(sys.argv[1])
clock = SystemClock()
database = SqliteDatabase(home / "state.sqlite")
book = ApprovalBroker(database, AuditLog(home / "audit.jsonl", clock), clock, FilePresence(home / "presence"))
request = ApprovalRequest("", "exec", "Run", "ls", DEFAULT_AGENT, SessionKey.parse("agent:main:main"), binding="b")

async def show(event):
    print(event.request.id, getattr(event, "decision", None), flush=True)

async def never(request):
    await anyio.sleep_forever()

anyio.run(book.ask, request, never, timedelta(minutes=30), show)
"""

WATCHER = ASKER.replace(
    "anyio.run(book.ask, request, never, timedelta(minutes=30), show)",
    "print('ready', flush=True)\nanyio.run(book.attend, request.session, never, show)",
)

DECIDER = """
import os, sys
from pathlib import Path
from retinue.core.approval import Verdict
from retinue.core.clock import SystemClock
from retinue.core.errors import RetinueError
from retinue.storage.auditlog import AuditLog
from retinue.storage.database import SqliteDatabase
from retinue.storage.process_locks import FilePresence
from retinue.tools.approvals.broker import ApprovalBroker, Approver

home, code, name, verdict = Path(sys.argv[1]), *sys.argv[2:5]
clock = SystemClock()
database = SqliteDatabase(home / "state.sqlite")
book = ApprovalBroker(database, AuditLog(home / "audit.jsonl", clock), clock, FilePresence(home / "presence"))
print("ready", flush=True)
sys.stdin.readline()
try:
    book.decide(code, Verdict(verdict), Approver(name, owner=True))
    print("won", flush=True)
except RetinueError as error:
    print(type(error).__name__, error, flush=True)
"""


@contextmanager
def running(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-c", script, *arguments]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def let_go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.mark.slow
def test_a_question_of_a_killed_process_is_withdrawn(stand: Stand) -> None:
    with running(ASKER, str(stand.path)) as asker:
        code = line_of(asker).split()[0]
        book = stand.open(SystemClock())
        assert [item.id for item in book.pending()] == [code]
        os.kill(asker.pid, signal.SIGKILL)
        asker.wait()
        with pytest.raises(AlreadySettled, match=r"withdrawn \(the process that made the request has ended\)"):
            book.decide(code, Verdict.ALLOW_ONCE, OWNER)
    assert book.pending() == ()
    assert not list((stand.path / "presence").iterdir())


@pytest.mark.slow
def test_of_two_processes_that_answer_at_once_exactly_one_wins(stand: Stand) -> None:
    with running(ASKER, str(stand.path)) as asker:
        code = line_of(asker).split()[0]
        with (
            running(DECIDER, str(stand.path), code, "anna", "allow-once") as anna,
            running(DECIDER, str(stand.path), code, "bert", "deny") as bert,
        ):
            assert (line_of(anna), line_of(bert)) == ("ready", "ready")
            let_go(anna)
            let_go(bert)
            told = {"anna": line_of(anna), "bert": line_of(bert)}
        [winner] = [name for name, text in told.items() if text == "won"]
        [loser] = set(told) - {winner}
        assert told[loser].startswith("AlreadySettled")
        assert f" by {winner};" in told[loser]
        assert f"by='{winner}'" in line_of(asker)
    assert [who for kind, who in stand.recorded() if kind != "approval_asked"] == [winner]


@pytest.mark.slow
def test_a_process_below_the_one_that_waits_cannot_answer_for_it(stand: Stand) -> None:
    """A command that an agent started is a child of the process whose call waits."""
    starting = ASKER.replace(
        "    print(event.request.id",
        "    import subprocess; subprocess.Popen(\n"
        "        ['sh', '-c', '\"$@\"; exit', 'sh', sys.executable, '-c', sys.argv[2], str(home), event.request.id,"
        " 'x', 'allow-once'], stdin=subprocess.DEVNULL\n    )\n    print(event.request.id",
    )
    with running(starting, str(stand.path), DECIDER) as asker:
        lines = [line_of(asker) for _ in range(3)]
        [code] = [line.split()[0] for line in lines if line.endswith("None")]
        assert [line for line in lines if line.startswith("NotAnApprover A command")]
        assert [item.id for item in stand.open(SystemClock()).pending()] == [code]


@pytest.mark.slow
def test_a_command_of_another_process_cannot_answer_either(stand: Stand) -> None:
    """It may run beneath the gateway, hide its mark, and answer what a terminal asks."""
    with running(ASKER, str(stand.path)) as asker:
        code = line_of(asker).split()[0]
        deciding = [sys.executable, "-c", DECIDER, str(stand.path), code, "x", "allow-once"]
        told = subprocess.run(
            ["sh", "-c", 'env -u RETINUE_SHELL "$@"; exit', "sh", *deciding],
            env={**os.environ, "RETINUE_SHELL": "exec"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "NotAnApprover A command" in told.stdout + told.stderr
        assert [item.id for item in stand.open(SystemClock()).pending()] == [code]


@pytest.mark.slow
async def test_a_watcher_that_was_killed_counts_no_more_and_leaves_nothing(stand: Stand) -> None:
    with running(WATCHER, str(stand.path)) as watcher:
        line_of(watcher)
        book = stand.open(SystemClock())
        with anyio.fail_after(30):
            while not list((stand.path / "presence").glob(f"{watcher.pid}-*")):
                await anyio.sleep(0.01)
        os.kill(watcher.pid, signal.SIGKILL)
        watcher.wait()
    with anyio.fail_after(30):
        assert not (await book.ask(REQUEST, None, HALF_AN_HOUR, stand.show)).allowed
    book.close()
    stand.open().prune(stand.clock.now())
    assert not list((stand.path / "presence").iterdir())
