"""The audit log keeps everything, and what was changed or taken away afterwards shows."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from retinue.core.clock import SystemClock
from retinue.core.errors import StorageError
from retinue.storage.auditlog import AuditLog


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    return AuditLog(tmp_path / "home" / "audit.jsonl", SystemClock())


def fill(log: AuditLog, count: int = 5) -> list[str]:
    for number in range(1, count + 1):
        log.record("test", "me", {"number": number})
    return log.path.read_text().splitlines(keepends=True)


def damages(log: AuditLog) -> list[str]:
    return [str(damage) for damage in log.verify()]


def test_entries_come_back_in_order_with_everything_that_was_said(log: AuditLog) -> None:
    log.record("one", "me", {"text": "ä\n\u2028", "deep": {"list": (1, None, True, 2.5)}, "path": Path("/x")})
    log.record("two", "you", {})
    first, second = log.entries()
    assert (first["n"], first["kind"], first["who"]) == (1, "one", "me")
    assert first["details"] == {"text": "ä\n\u2028", "deep": {"list": [1, None, True, 2.5]}, "path": "/x"}
    assert second["previous"] == first["hash"]
    assert damages(log) == []


def test_a_log_that_was_never_written_is_empty_and_sound(log: AuditLog) -> None:
    assert list(log.entries()) == []
    assert damages(log) == []


def test_the_head_is_the_hash_of_the_last_line(log: AuditLog) -> None:
    assert log.head == "0" * 64
    log.record("approval", "owner", {"command": "ls"})
    log.record("approval", "owner", {"command": "cat"})
    *_, last = log.entries()
    assert log.head == last["hash"]


def test_nobody_else_can_read_it(log: AuditLog) -> None:
    fill(log)
    assert {file.stat().st_mode & 0o777 for file in log.path.parent.iterdir()} == {0o600}
    assert log.path.parent.stat().st_mode & 0o777 == 0o700


def test_secrets_are_taken_out_before_anything_is_written(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "a", SystemClock(), lambda text: text.replace("hunter2", "***"), durable=True)
    log.record("x", "by hunter2", {"hunter2": ["hunter2", {"k": "is hunter2"}], "odd": {"hunter2"}})
    assert "hunter2" not in log.path.read_text()
    assert "is ***" in log.path.read_text()
    assert damages(log) == []


def test_a_changed_line_is_named(log: AuditLog) -> None:
    lines = fill(log)
    log.path.write_text("".join([*lines[:2], lines[2].replace('"number": 3', '"number": 7'), *lines[3:]]))
    assert damages(log) == ["line 3: entry 3 was changed"]


def test_a_changed_line_with_a_fresh_hash_shows_at_the_next_one(log: AuditLog) -> None:
    lines = fill(log)
    entry = json.loads(lines[2])
    other = AuditLog(log.path.with_name("other"), SystemClock())
    fill(other, 2)
    other.record("test", "me", {"number": 7})
    forged = other.path.read_text().splitlines(keepends=True)[2]
    log.path.write_text("".join([*lines[:2], forged, *lines[3:]]))
    assert entry["n"] == 3
    assert [damage.line for damage in log.verify()] == [3, 4]
    assert all("does not follow" in damage.what for damage in log.verify())


def test_missing_lines_are_counted_in_the_middle_and_at_the_end(log: AuditLog) -> None:
    lines = fill(log)
    log.path.write_text("".join([lines[0], lines[3], lines[4]]))
    assert damages(log) == ["line 2: entries 2 to 3 are missing before it"]
    log.path.write_text("".join(lines[:3]))
    assert damages(log) == ["line 4: entries 4 to 5 are missing at the end"]
    log.path.unlink()
    assert damages(log) == ["line 1: entries 1 to 5 are missing at the end"]


def test_writing_on_does_not_hide_that_the_end_was_taken_away(log: AuditLog) -> None:
    lines = fill(log)
    log.path.write_text("".join(lines[:3]))
    log.record("later", "me", {})
    assert damages(log) == ["line 4: entries 4 to 5 are missing before it"]


def test_lines_that_were_swapped_or_put_in_show(log: AuditLog) -> None:
    lines = fill(log)
    log.path.write_text("".join([lines[0], lines[2], lines[1], *lines[3:]]))
    assert [damage.line for damage in log.verify()] == [2, 3, 4]
    log.path.write_text("".join([*lines[:2], lines[1], *lines[2:]]))
    assert "does not follow" in damages(log)[0]


@pytest.mark.parametrize("garbage", [b"\0\0\0\0", b'{"half": ', b"[1]", b"\xff\xfe", b'{"kind": "x", "hash": 5}', b""])
def test_a_torn_end_costs_itself_alone(log: AuditLog, garbage: bytes) -> None:
    fill(log, 3)
    with log.path.open("ab") as file:
        file.write(garbage)
    log.record("after", "me", {})
    log.record("after", "me", {})
    assert [entry["kind"] for entry in log.entries() if "at" in entry] == ["test"] * 3 + ["after"] * 2
    assert damages(log) == (["line 4: cannot be read"] if garbage else [])


def test_a_log_of_garbage_alone_begins_anew_behind_it(log: AuditLog) -> None:
    log.path.parent.mkdir()
    log.path.write_bytes(b"garbage\n")
    log.record("x", "me", {})
    assert damages(log) == ["line 1: cannot be read"]


def test_a_line_longer_than_the_reading_step_is_followed_by_the_next(log: AuditLog) -> None:
    log.record("long", "me", {"diff": ["x" * 1000] * 300})
    log.record("next", "me", {})
    log.record("longer", "me", {"diff": ["y" * 1000] * 1000})
    log.record("last", "me", {})
    assert damages(log) == []


def test_an_entry_without_a_number_is_counted(log: AuditLog) -> None:
    (line,) = fill(log, 1)
    entry = json.loads(line)
    del entry["n"]
    log.path.write_text(json.dumps(entry) + "\n")
    assert damages(log) == ["line 1: entry None was changed"]
    log._head.write_text("nonsense")
    log.record("x", "me", {})
    assert [entry["n"] for entry in log.entries() if "n" in entry] == [1]


@pytest.mark.slow
def test_many_processes_write_one_chain(log: AuditLog) -> None:
    program = dedent("""
        import sys
        from pathlib import Path
        from retinue.core.clock import SystemClock
        from retinue.storage.auditlog import AuditLog
        for number in range(50):
            AuditLog(Path(sys.argv[1]), SystemClock()).record("many", sys.argv[2], {"number": number})
    """)
    writers = [subprocess.Popen([sys.executable, "-c", program, str(log.path), str(name)]) for name in range(4)]
    assert [writer.wait() for writer in writers] == [0] * 4
    assert damages(log) == []
    assert len(list(log.entries())) == 200


def test_a_full_disk_takes_the_line_back_and_the_log_goes_on(log: AuditLog) -> None:
    lines = fill(log)
    size = log.path.stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, limits[1]))
    try:
        with pytest.raises(StorageError, match="limit"):
            log.record("too much", "me", {"text": "x" * 1000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert log.path.read_text() == "".join(lines)
    log.record("again", "me", {})
    assert damages(log) == []


def test_a_link_in_its_place_is_not_followed(log: AuditLog, tmp_path: Path) -> None:
    log.path.parent.mkdir()
    log.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError):
        log.record("x", "me", {})
    assert not (tmp_path / "elsewhere").exists()
