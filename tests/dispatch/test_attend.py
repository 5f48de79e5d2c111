"""Seeing a message through when something goes wrong that nobody foresaw."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from retinue.core.approval import Ask, nobody_to_ask
from retinue.core.envelope import Inbound, Outbound
from retinue.core.errors import StorageError
from retinue.core.events import Emit, TurnEvent, TurnStatus
from retinue.core.keys import RunId, SessionKey
from retinue.dispatch.attend import CRASHED, MAX_ATTEMPTS, POISONOUS, Attendant, Recalled
from retinue.dispatch.inbox import Inbox
from retinue.dispatch.queue import QueueMode, QueueRules
from retinue.storage.auditlog import AuditLog
from retinue.storage.database import Database
from retinue.storage.home_paths import HomePaths
from retinue.storage.lease import SessionLease
from retinue.testing.clock import FrozenClock
from retinue.tools.approvals.broker import ApprovalBroker

pytestmark = pytest.mark.anyio

KEY = SessionKey.parse("agent:main:main")


async def unseen(event: TurnEvent) -> None:
    """Nobody watches."""


@dataclass
class Scripted:
    """A session whose answers fail as they are told to."""

    failures: dict[str, Exception] = field(default_factory=dict)
    answered: list[str] = field(default_factory=list)
    key: SessionKey = KEY

    def rules(self) -> QueueRules:
        return QueueRules(mode=QueueMode.FOLLOWUP)

    def recall(self, run: RunId) -> Recalled:
        return Recalled.NOTHING

    async def answer(self, inbound: Inbound, run: RunId, merged: tuple[RunId, ...], show: Emit, ask: Ask) -> Outbound:
        self.answered.append(inbound.text)
        if inbound.text in self.failures:
            raise self.failures[inbound.text]
        return Outbound(run, KEY, "id", TurnStatus.OK, f"answer to {inbound.text}")

    async def resume(self, inbound: Inbound, run: RunId, show: Emit, ask: Ask) -> Outbound:
        raise AssertionError("nothing was begun")

    def reread(self, run: RunId) -> Outbound:
        raise AssertionError("nothing was begun")

    def stop(self) -> bool:
        return False


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[Inbox]:
    with closing(Database(tmp_path / "home" / "state.sqlite")) as database:
        yield Inbox(database, FrozenClock())


@pytest.fixture
def questions(tmp_path: Path) -> Iterator[ApprovalBroker]:
    home, clock = tmp_path / "home", FrozenClock()
    with closing(Database(home / "state.sqlite")) as database:
        yield ApprovalBroker(database, AuditLog(home / "audit.jsonl", clock), clock, home / "presence")


def attendant(worker: Scripted, inbox: Inbox, questions: ApprovalBroker, tmp_path: Path) -> Attendant:
    return Attendant(worker, inbox, SessionLease(HomePaths(tmp_path / "home"), KEY), FrozenClock(), questions)


def accept(inbox: Inbox, text: str) -> RunId:
    return inbox.accept(Inbound(text, KEY), RunId(text)).run


async def test_an_unexpected_error_ends_its_message_and_no_other(
    inbox: Inbox, questions: ApprovalBroker, tmp_path: Path
) -> None:
    worker = Scripted({"bad": ZeroDivisionError("ours")})
    attend = attendant(worker, inbox, questions, tmp_path)
    bad, good = accept(inbox, "bad"), accept(inbox, "good")
    assert (await attend.see_through(good, unseen, nobody_to_ask)).text == "answer to good"
    ended = await attend.see_through(bad, unseen, nobody_to_ask)
    assert (ended.status, ended.error) == (TurnStatus.FAILED, CRASHED)
    assert worker.answered == ["bad", "good"]


async def test_a_message_is_not_blamed_for_a_file_that_cannot_be_used(
    inbox: Inbox, questions: ApprovalBroker, tmp_path: Path
) -> None:
    worker = Scripted({"hello": StorageError("the disk is full")})
    attend = attendant(worker, inbox, questions, tmp_path)
    hello = accept(inbox, "hello")
    with pytest.raises(StorageError, match="the disk is full"):
        await attend.see_through(hello, unseen, nobody_to_ask)
    assert inbox.outcome(hello) is None
    worker.failures.clear()
    assert (await attend.see_through(hello, unseen, nobody_to_ask)).text == "answer to hello"


@pytest.mark.parametrize(("deaths", "given_up"), [(MAX_ATTEMPTS - 1, False), (MAX_ATTEMPTS, True)])
async def test_a_message_that_ends_every_process_is_given_up(
    inbox: Inbox, questions: ApprovalBroker, tmp_path: Path, deaths: int, given_up: bool
) -> None:
    poison = accept(inbox, "poison")
    for _ in range(deaths):
        inbox.requeue([poison])
        inbox.claim(KEY, (poison,), poison)
    worker = Scripted()
    outcome = await attendant(worker, inbox, questions, tmp_path).see_through(poison, unseen, nobody_to_ask)
    assert outcome.error == (POISONOUS if given_up else None)
    assert worker.answered == ([] if given_up else ["poison"])
