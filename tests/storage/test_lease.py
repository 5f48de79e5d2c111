"""A session's lease: one holder, whatever happens to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from retinue.core.keys import SessionKey
from retinue.storage.home_paths import HomePaths
from retinue.storage.process_locks import LeaseTaken, SessionLease

KEY = SessionKey.parse("agent:main:main")
OTHER = SessionKey.parse("agent:main:ideas")


@pytest.fixture
def home(tmp_path: Path) -> HomePaths:
    return HomePaths(tmp_path / "home")


HOLDER = """
import sys
from pathlib import Path
from retinue.core.keys import SessionKey
from retinue.storage.home_paths import HomePaths
from retinue.storage.process_locks import SessionLease

lease = SessionLease(HomePaths(Path(sys.argv[1])), SessionKey.parse("agent:main:main"))
print(lease.try_acquire(), flush=True)
# then
sys.stdin.readline()
"""


@contextmanager
def holder(home: HomePaths, then: str = "") -> Iterator[subprocess.Popen[str]]:
    """Another process, which has tried to take the lease."""
    argv = [sys.executable, "-c", HOLDER.replace("# then", then), str(home.path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def says(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_two_leases_of_a_session_exclude_each_other(home: HomePaths) -> None:
    first, second = SessionLease(home, KEY), SessionLease(home, KEY)
    assert first.try_acquire()
    assert first.try_acquire()
    assert not second.try_acquire()
    first.release()
    first.release()
    assert second.try_acquire()
    assert not first.held
    second.release()


def test_other_sessions_are_not_concerned(home: HomePaths) -> None:
    with SessionLease(home, KEY), SessionLease(home, OTHER) as other:
        assert other.held


def test_a_lease_that_is_taken_says_so(home: HomePaths) -> None:
    with SessionLease(home, KEY), pytest.raises(LeaseTaken, match="agent:main:main"), SessionLease(home, KEY):
        pass


def test_an_error_gives_it_back(home: HomePaths) -> None:
    lease = SessionLease(home, KEY)
    with pytest.raises(RuntimeError), lease:
        raise RuntimeError
    assert not lease.held
    assert SessionLease(home, KEY).try_acquire()


def test_the_file_is_private_and_named_by_a_digest(home: HomePaths) -> None:
    with SessionLease(home, KEY) as lease:
        assert lease.path.parent == home.sessions(KEY.agent) / "leases"
        assert len(lease.path.stem) == 32
        assert lease.path.stat().st_mode & 0o777 == 0o600
        assert lease.path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_another_process_is_kept_out_and_let_in_after_kill_9(home: HomePaths) -> None:
    mine = SessionLease(home, KEY)
    with holder(home) as first:
        assert says(first) == "True"
        assert not mine.try_acquire()
        with holder(home) as second:
            assert says(second) == "False"
        first.kill()
        first.wait()
        assert mine.try_acquire()
        with holder(home) as third:
            assert says(third) == "False"
    mine.release()


def test_a_command_that_outlives_its_process_does_not_keep_the_lease(home: HomePaths) -> None:
    spawn = "import subprocess; print(subprocess.Popen(['sleep', '60'], close_fds=False).pid, flush=True)"
    with holder(home, then=spawn) as process:
        assert says(process) == "True"
        command = int(says(process))
        process.kill()
        process.wait()
        try:
            assert SessionLease(home, KEY).try_acquire()
        finally:
            os.kill(command, signal.SIGKILL)


def test_a_folder_in_its_place_serves_as_well(home: HomePaths) -> None:
    lease = SessionLease(home, KEY)
    lease.path.mkdir(parents=True)
    with lease:
        assert not SessionLease(home, KEY).try_acquire()


@pytest.mark.anyio
async def test_waiting_ends_when_the_holder_lets_go(home: HomePaths) -> None:
    first, second = SessionLease(home, KEY), SessionLease(home, KEY)
    assert first.try_acquire()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(second.acquire, 0.001)
        await anyio.sleep(0.01)
        assert not second.held
        first.release()
    assert second.held
    second.release()


@pytest.mark.anyio
async def test_waiting_can_be_given_up(home: HomePaths) -> None:
    second = SessionLease(home, KEY)
    with SessionLease(home, KEY):
        with anyio.move_on_after(0.01):
            await second.acquire(0.001)
        assert not second.held


CONTENDER = """
import os, random, sys, time
from pathlib import Path
from retinue.core.keys import SessionKey
from retinue.storage.home_paths import HomePaths
from retinue.storage.process_locks import SessionLease

home, number = Path(sys.argv[1]), sys.argv[2]
lease = SessionLease(HomePaths(home), SessionKey.parse("agent:main:main"))
done = 0
while done < 25:
    if lease.try_acquire():
        # Only one process at a time can make this folder.
        os.mkdir(home / "inside")
        os.rmdir(home / "inside")
        lease.release()
        done += 1
    time.sleep(random.random() / 1000)
"""


@pytest.mark.slow
def test_processes_that_contend_are_never_inside_together(home: HomePaths) -> None:
    home.path.mkdir()
    argv = [sys.executable, "-c", CONTENDER, str(home.path)]
    processes = [subprocess.Popen([*argv, str(n)], stderr=subprocess.PIPE, text=True) for n in range(4)]
    errors = [process.communicate(timeout=60)[1] for process in processes]
    assert errors == ["", "", "", ""]
