"""What every lease does, in files of a home and in PostgreSQL."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio
import pytest

from retinue.core.fence import Lease
from retinue.core.keys import SessionKey
from retinue.storage.home_paths import HomePaths
from retinue.storage.postgres.leases import PostgresLeases
from retinue.storage.postgres.server import PostgresServer
from retinue.storage.process_locks import LeaseTaken, SessionLease
from tests.postgres import create_database

KEY = SessionKey.parse("agent:main:main")
OTHER = SessionKey.parse("agent:main:ideas")

MakeLease = Callable[[SessionKey], Lease]


class Workers:
    """Two workers that share sessions. `argv` is a program that works as a third one."""

    def __init__(self, first: MakeLease, second: MakeLease, argv: list[str]) -> None:
        self.first = first
        self.second = second
        self.argv = argv


HOLDER = """
import sys
import time
from pathlib import Path
from retinue.core.keys import SessionKey

if sys.argv[1] == "files":
    from retinue.storage.home_paths import HomePaths
    from retinue.storage.process_locks import SessionLease
    lease = SessionLease(HomePaths(Path(sys.argv[2])), SessionKey.parse("agent:main:main"))
else:
    from retinue.storage.postgres.leases import PostgresLeases
    from retinue.storage.postgres.server import PostgresServer
    lease = PostgresLeases(PostgresServer(sys.argv[2]), "default", seconds=float(sys.argv[3])).lease("agent:main:main")
print(lease.try_acquire(), flush=True)
while sys.stdin.readline():
    deadline = time.monotonic() + 10
    while not (asked := lease.was_asked_to_stop()) and time.monotonic() < deadline:
        time.sleep(0.01)
    print(asked, flush=True)
"""


@contextmanager
def running(argv: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Another process, which has tried to take the lease."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def says(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def goes_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def open_leases(stack: ExitStack, url: str, seconds: float = 15.0, team: str = "default") -> PostgresLeases:
    server = PostgresServer(url)
    stack.callback(server.close)
    leases = PostgresLeases(server, team, seconds=seconds)
    stack.callback(leases.close)
    return leases


@pytest.fixture(params=["files", pytest.param("postgres", marks=pytest.mark.slow)])
def workers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workers]:
    if request.param == "files":
        home = HomePaths(tmp_path / "home")
        yield Workers(
            lambda key: SessionLease(home, key), lambda key: SessionLease(home, key), ["files", str(home.path)]
        )
        return
    with ExitStack() as stack:
        url = create_database()
        first, second = open_leases(stack, url), open_leases(stack, url)
        yield Workers(lambda key: first.lease(key.text), lambda key: second.lease(key.text), ["postgres", url, "15"])


def test_two_workers_exclude_each_other(workers: Workers) -> None:
    first, second = workers.first(KEY), workers.second(KEY)
    assert first.try_acquire()
    assert first.try_acquire()
    assert not second.try_acquire()
    first.release()
    first.release()
    assert not first.held
    assert second.try_acquire()
    assert not first.try_acquire()
    second.release()


def test_two_leases_of_one_worker_exclude_each_other(workers: Workers) -> None:
    with workers.first(KEY):
        assert not workers.first(KEY).try_acquire()
    with workers.first(KEY) as again:
        assert again.held


def test_other_sessions_are_not_concerned(workers: Workers) -> None:
    with workers.first(KEY), workers.second(OTHER) as other:
        assert other.held


def test_a_lease_that_is_taken_says_so(workers: Workers) -> None:
    with workers.first(KEY), pytest.raises(LeaseTaken, match="agent:main:main"), workers.second(KEY):
        pass


def test_an_error_gives_it_back(workers: Workers) -> None:
    lease = workers.first(KEY)
    with pytest.raises(RuntimeError), lease:
        raise RuntimeError
    assert not lease.held
    assert workers.second(KEY).try_acquire()


def test_the_holder_is_asked_to_stop_once(workers: Workers) -> None:
    lease = workers.first(KEY)
    assert not workers.second(KEY).ask_to_stop()
    with lease:
        assert not lease.was_asked_to_stop()
        assert workers.second(KEY).ask_to_stop()
        deadline = time.monotonic() + 10
        while not lease.was_asked_to_stop():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(0.05)
        assert not lease.was_asked_to_stop()
    assert not workers.second(KEY).ask_to_stop()


@pytest.mark.anyio
async def test_waiting_ends_when_the_holder_lets_go(workers: Workers) -> None:
    first, second = workers.first(KEY), workers.second(KEY)
    assert first.try_acquire()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(second.acquire)
        await anyio.sleep(0.1)
        assert not second.held
        first.release()
    assert second.held
    second.release()


@pytest.mark.slow
def test_a_killed_process_is_followed_at_once(workers: Workers) -> None:
    mine = workers.first(KEY)
    with running(workers.argv) as process:
        assert says(process) == "True"
        assert not mine.try_acquire()
        process.kill()
        killed = time.monotonic()
        while not mine.try_acquire():
            # Far below the time after which a lease expires, so it was the end of the process that was noticed.
            assert time.monotonic() - killed < 10
            time.sleep(0.01)
    mine.release()


@pytest.mark.slow
def test_another_process_is_asked_to_stop(workers: Workers) -> None:
    with running(workers.argv) as process:
        assert says(process) == "True"
        assert workers.first(KEY).ask_to_stop()
        goes_on(process)
        assert says(process) == "True"


@pytest.fixture
def url() -> str:
    return create_database()


@pytest.mark.slow
def test_a_process_that_hangs_is_followed_when_its_lease_expires(url: str) -> None:
    with ExitStack() as stack, running(["postgres", url, "0.6"]) as process:
        mine = open_leases(stack, url).lease(KEY.text)
        assert says(process) == "True"
        time.sleep(1)
        assert not mine.try_acquire()  # it is renewed
        process.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        while not mine.try_acquire():
            assert time.monotonic() - stopped < 30
            time.sleep(0.02)
        process.send_signal(signal.SIGCONT)
        time.sleep(0.5)
        assert not open_leases(stack, url).lease(KEY.text).try_acquire()


@pytest.mark.slow
def test_each_holder_has_a_new_epoch(url: str) -> None:
    with ExitStack() as stack:
        leases = open_leases(stack, url)
        seen = []
        for _ in range(3):
            with leases.lease(KEY.text) as lease:
                assert lease.fence is not None
                assert leases.fence(KEY.text) == lease.fence
                seen.append(lease.fence.epoch)
        assert seen == [1, 2, 3]
        assert leases.fence(KEY.text) is None


@pytest.mark.slow
def test_leases_survive_the_loss_of_their_connection(url: str) -> None:
    with ExitStack() as stack:
        leases, others = open_leases(stack, url, 0.6), open_leases(stack, url)
        with leases.lease(KEY.text), leases.server.connection() as connection:
            found = connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name LIKE 'retinue leases%%' AND datname = current_database()"
            ).fetchall()
            assert found == [(True,)]
            deadline = time.monotonic() + 30
            count = "SELECT count(*) FROM pg_locks l WHERE locktype = 'advisory' AND granted AND classid = 21093"
            while (row := connection.execute(count).fetchone()) is None or not row[0]:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            time.sleep(1)
            assert not others.lease(KEY.text).try_acquire()


@pytest.mark.slow
def test_teams_have_leases_of_their_own(url: str) -> None:
    with ExitStack() as stack:
        stack.enter_context(open_leases(stack, url).lease(KEY.text))
        assert stack.enter_context(open_leases(stack, url, team="other").lease(KEY.text)).held
