"""The one gateway of a home, and those who look for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from retinue.storage.home_paths import HomePaths
from retinue.storage.process_locks import AlreadyRunning, InstanceFacts, InstanceLock, find_instance

LOOK = """
import sys
from pathlib import Path
from retinue.storage.home_paths import HomePaths
from retinue.storage.process_locks import find_instance
home = HomePaths(Path(sys.argv[1]))
print("looking", flush=True)
while True:
    find_instance(home)
"""


@pytest.fixture
def home(tmp_path: Path) -> HomePaths:
    return HomePaths(tmp_path / "home")


def test_a_gateway_is_found_while_it_holds_the_lock(home: HomePaths) -> None:
    assert find_instance(home) is None
    lock = InstanceLock(home)
    assert find_instance(home) == InstanceFacts(os.getpid())
    lock.write(InstanceFacts(os.getpid(), "http://127.0.0.1:1", "now"))
    with pytest.raises(AlreadyRunning, match=r"http://127\.0\.0\.1:1"):
        InstanceLock(home)
    lock.release()
    assert find_instance(home) is None


@pytest.mark.slow
def test_whoever_looks_for_a_gateway_does_not_keep_one_from_starting(home: HomePaths) -> None:
    InstanceLock(home).release()
    with subprocess.Popen([sys.executable, "-c", LOOK, str(home.path)], stdout=subprocess.PIPE, text=True) as looker:
        assert looker.stdout is not None
        assert looker.stdout.readline() == "looking\n"
        try:
            for _ in range(2_000):
                InstanceLock(home).release()
        finally:
            looker.kill()
