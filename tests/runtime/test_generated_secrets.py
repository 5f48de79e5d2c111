"""Secrets that a home generates for itself: every process gets the same one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier

import pytest

from retinue.runtime.home import generated_secret
from retinue.storage.home_paths import HomePaths

STARTS = 8


@pytest.mark.parametrize("number", range(10))
def test_processes_that_start_a_new_home_at_once_share_one_secret(tmp_path: Path, number: int) -> None:
    paths, ready = HomePaths(tmp_path), Barrier(STARTS)

    def start(_: int) -> str:
        ready.wait()
        return generated_secret(paths, "run-ids")

    with ThreadPoolExecutor(STARTS) as pool:
        found = set(pool.map(start, range(STARTS)))
    assert len(found) == 1
    assert found == {generated_secret(paths, "run-ids")}
    assert [path.name for path in paths.credentials.iterdir()] == ["run-ids"]
    assert (paths.credentials / "run-ids").stat().st_mode & 0o777 == 0o600


def test_an_emptied_secret_is_replaced(tmp_path: Path) -> None:
    secret = partial(generated_secret, HomePaths(tmp_path), "run-ids")
    first = secret()
    (HomePaths(tmp_path).credentials / "run-ids").write_text("")
    assert len(secret()) == len(first) == 64
    assert secret() != first
