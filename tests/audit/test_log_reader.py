"""Reading the log back, in both formats and across rotations."""

from __future__ import annotations

import json
from pathlib import Path

from retinue.audit.log_reader import LogFollower, make_filter, read_last

HELLO = "2026-01-01 10:00:00,000 INFO retinue.a hello"
BROKE = "2026-01-01 10:00:01,000 ERROR retinue.b [agent=main session=agent:main:main run=r1] it broke"
TRACE = "Traceback (most recent call last):\n  here\nValueError: x"
EVERYTHING = make_filter(None, None)


def test_a_traceback_belongs_to_its_record(tmp_path: Path) -> None:
    path = tmp_path / "retinue.log"
    path.write_text(f"{HELLO}\n{BROKE}\n{TRACE}\n{HELLO}\n")
    first, broke, last = read_last(path, 10, EVERYTHING)
    assert (first.message, last.message) == ("hello", "hello")
    assert broke.message == f"it broke\n{TRACE}"
    assert (broke.agent, broke.session, broke.run) == ("main", "agent:main:main", "r1")


def test_json_lines_are_read_as_well(tmp_path: Path) -> None:
    path = tmp_path / "retinue.log"
    line = {"time": "t", "level": "ERROR", "logger": "l", "session": "agent:a:main", "message": "m", "error": TRACE}
    path.write_text(f"{json.dumps(line)}\n{{no json\n")
    (record,) = read_last(path, 10, make_filter("error", "agent:a"))
    assert record.message == f"m\n{TRACE}\n{{no json"


def test_level_and_session_narrow(tmp_path: Path) -> None:
    path = tmp_path / "retinue.log"
    path.write_text(f"{HELLO}\n{BROKE}\n")
    assert [r.message for r in read_last(path, 10, make_filter("warning", None))] == ["it broke"]
    assert [r.message for r in read_last(path, 10, make_filter(None, "main:main"))] == ["it broke"]
    assert [r.message for r in read_last(path, 10, make_filter(None, "r1"))] == ["it broke"]
    assert read_last(path, 10, make_filter(None, "r2")) == []


def test_older_files_fill_up_what_the_newest_lacks(tmp_path: Path) -> None:
    path = tmp_path / "retinue.log"
    path.write_text(f"{HELLO} 3\n")
    (tmp_path / "retinue.log.1").write_text(f"{HELLO} 1\n{HELLO} 2\n")
    assert [r.message for r in read_last(path, 2, EVERYTHING)] == ["hello 2", "hello 3"]
    assert read_last(path, 0, EVERYTHING) == []
    assert read_last(tmp_path / "none.log", 5, EVERYTHING) == []


def test_following_begins_at_the_end_and_waits_for_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "retinue.log"
    path.write_text(f"{HELLO} before\n")
    follower = LogFollower(path)
    with path.open("a") as file:
        file.write(f"{HELLO} one\n{HELLO} tw")
    assert [r.message for r in follower.poll()] == ["hello one"]
    with path.open("a") as file:
        file.write("o\n")
    assert [r.message for r in follower.poll()] == ["hello two"]
    assert follower.poll() == []
    follower.close()


def test_a_line_that_comes_late_keeps_the_marks_of_its_record(tmp_path: Path) -> None:
    path = tmp_path / "retinue.log"
    path.touch()
    follower = LogFollower(path)
    with path.open("a") as file:
        file.write(f"{BROKE}\n")
    follower.poll()
    with path.open("a") as file:
        file.write("Traceback\n")
    (late,) = follower.poll()
    follower.close()
    assert (late.raw, late.level, late.run) == ("Traceback", "ERROR", "r1")


def test_nothing_is_lost_or_doubled_by_rotations(tmp_path: Path) -> None:
    path = tmp_path / "retinue.log"
    path.write_text("")
    follower = LogFollower(path)
    seen: list[str] = []
    for turn in range(5):
        for step in range(2):  # two rotations between two looks
            with path.open("a") as file:
                file.write(f"{HELLO} {turn}.{step}\n")
            for number in (2, 1):
                old = tmp_path / f"retinue.log.{number}"
                if old.exists():
                    old.replace(tmp_path / f"retinue.log.{number + 1}")
            path.replace(tmp_path / "retinue.log.1")
            path.touch()
        seen += [record.message for record in follower.poll()]
    follower.close()
    assert seen == [f"hello {turn}.{step}" for turn in range(5) for step in range(2)]


def test_a_log_that_begins_later_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "retinue.log"
    follower = LogFollower(path)
    assert follower.poll() == []
    path.write_text(f"{HELLO}\n")
    assert [r.message for r in follower.poll()] == ["hello"]
    follower.close()


def test_a_log_that_was_cut_short_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "retinue.log"
    path.write_text(f"{HELLO} a long line that is gone\n")
    follower = LogFollower(path)
    path.write_text(f"{HELLO}\n")
    assert [r.message for r in follower.poll()] == ["hello"]
    follower.close()
