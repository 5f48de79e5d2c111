"""Processes that others can see living."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from retinue.storage.process_locks import FilePresence, ancestors, has_ancestor_with_variable, process_of


def test_a_presence_is_seen_from_showing_to_its_end(tmp_path: Path) -> None:
    one, other = FilePresence(tmp_path / "presence"), FilePresence(tmp_path / "presence")
    assert not other.is_present(one.name)
    assert not one.is_present(one.name)
    one.show()
    one.show()
    assert other.is_present(one.name)
    assert one.is_present(one.name)
    one.end()
    one.end()
    assert not other.is_present(one.name)
    assert list((tmp_path / "presence").iterdir()) == []


def test_two_that_look_at_the_same_time_do_not_mislead_each_other(tmp_path: Path) -> None:
    import fcntl

    folder = tmp_path / "presence"
    folder.mkdir()
    left = folder / "1-dead"
    left.touch()
    with left.open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert not FilePresence(folder).is_present("1-dead")
    assert not left.exists()


@pytest.mark.parametrize("name", ["../audit.jsonl", "..", "nothing"])
def test_a_name_that_leads_elsewhere_is_nobody(tmp_path: Path, name: str) -> None:
    (tmp_path / "presence").mkdir()
    (tmp_path / "audit.jsonl").write_text("kept")
    assert not FilePresence(tmp_path / "presence").is_present(name)
    assert (tmp_path / "audit.jsonl").read_text() == "kept"


def test_a_name_tells_its_process(tmp_path: Path) -> None:
    assert process_of(FilePresence(tmp_path).name) == os.getpid()
    assert process_of("nobody") is None


def test_ancestors_are_those_above_and_not_oneself() -> None:
    script = "from retinue.storage.process_locks import ancestors; print(*ancestors())"
    argv = ["sh", "-c", '"$@"; exit', "sh", sys.executable, "-c", script]
    told = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    assert str(os.getpid()) in told
    assert os.getpid() not in ancestors()


def test_a_variable_that_an_ancestor_was_started_with_cannot_be_dropped() -> None:
    script = (
        "from retinue.storage.process_locks import has_ancestor_with_variable as has;"
        "print(has('OF_AN_AGENT'), has('OF_AN'))"
    )
    argv = ["sh", "-c", 'env -i "$@"; exit', "sh", sys.executable, "-c", script]
    started = {"env": {**os.environ, "OF_AN_AGENT": "1"}, "capture_output": True, "text": True, "check": True}
    told = subprocess.run(argv, **started).stdout.split()  # type: ignore[call-overload]
    assert told == ["True", "False"]
    assert not has_ancestor_with_variable("OF_AN_AGENT")
