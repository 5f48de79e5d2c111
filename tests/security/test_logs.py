"""How the log is written: with the turn, without secrets, in lines for people or for programs."""

from __future__ import annotations

import io
import json
import logging
import os
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread
import pytest

from retinue.audit.log_reader import LogRecord, parse_records
from retinue.core.keys import RunId, SessionKey, current_run, enter_run
from retinue.security.logs import (
    LOG,
    MAX_REPEATS,
    REPEAT_SECONDS,
    JsonFormatter,
    LogFile,
    RepeatFilter,
    RunContextFilter,
    TextFormatter,
    show_logs,
    tune_console,
    tune_logs,
)
from retinue.security.redaction import Redactor
from retinue.testing.clock import FrozenClock

KEY = SessionKey.parse("agent:work:main")
log = logging.getLogger("retinue.tests.logs")


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What a process writes into its log."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.name = LOG
    handler.addFilter(RunContextFilter())
    handler.setFormatter(TextFormatter())
    before = logging.getLogger("retinue").level
    logging.getLogger().addHandler(handler)
    logging.getLogger("retinue").setLevel(logging.INFO)
    yield stream
    logging.getLogger().removeHandler(handler)
    logging.getLogger("retinue").setLevel(before)


def read(written: io.StringIO) -> list[LogRecord]:
    return list(parse_records(written.getvalue().splitlines()))


def test_a_record_names_its_turn(written: io.StringIO) -> None:
    with enter_run(KEY, RunId("r1")):
        log.info("within")
    log.info("outside")
    within, outside = read(written)
    assert (within.agent, within.session, within.run, within.message) == ("work", "agent:work:main", "r1", "within")
    assert (outside.session, outside.message) == (None, "outside")
    assert "[" not in outside.raw


@pytest.mark.anyio
async def test_tasks_and_threads_of_a_turn_are_its_own(written: io.StringIO) -> None:
    async def work(run: str) -> None:
        with enter_run(KEY, RunId(run)):
            await anyio.sleep(0)
            await anyio.to_thread.run_sync(log.info, "in a thread")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_tell)

    async with anyio.create_task_group() as group:
        for run in ("r1", "r2", "r3"):
            group.start_soon(work, run)
    assert current_run() is None
    for message in ("in a thread", "in a task"):
        assert sorted(str(each.run) for each in read(written) if each.message == message) == ["r1", "r2", "r3"]


async def _tell() -> None:
    log.info("in a task")


@pytest.mark.parametrize("line_format", ["text", "json"])
def test_secrets_stay_out_and_tracebacks_stay_whole(written: io.StringIO, line_format: str) -> None:
    tune_logs("info", "json" if line_format == "json" else "text")
    redactor = Redactor(["a-secret-of-mine"])
    with enter_run(KEY, RunId("r1")):
        try:
            raise ValueError("a-secret-of-mine")
        except ValueError:
            log.exception("it broke with %s", "a-secret-of-mine")
    assert redactor.redact("a-secret-of-mine") not in ("", "a-secret-of-mine")
    (record,) = read(written)
    assert "a-secret-of-mine" not in written.getvalue()
    assert record.message.startswith("it broke with [redacted]\nTraceback (most recent call last):")
    assert record.run == "r1"


@pytest.mark.parametrize("line_break", ["\n", "\r", "\r\n", "\v", "\x0c", "\x1c", "\x85", "\u2028"])
@pytest.mark.parametrize("line_format", ["text", "json"])
def test_what_a_stranger_wrote_is_no_record_of_its_own(written: io.StringIO, line_format: str, line_break: str) -> None:
    tune_logs("info", "json" if line_format == "json" else "text")
    forged = "2026-01-01 00:00:00,000 INFO retinue.audit all is well"
    data = json.dumps({"time": "t", "level": "INFO", "logger": "retinue.audit", "message": "all is well"})
    log.warning("refused: %s", line_break.join(["x", forged, data, "\x1b[2Jcleared"]))
    (record,) = read(written)
    assert (record.level, record.logger) == ("WARNING", "retinue.tests.logs")
    assert forged in record.message
    assert "\x1b" not in written.getvalue()


def test_json_lines_have_named_fields(written: io.StringIO) -> None:
    tune_logs("info", "json")
    with enter_run(KEY, RunId("r1")):
        log.warning("two\nlines")
    (line,) = written.getvalue().splitlines()
    data = json.loads(line)
    assert {name: data[name] for name in ("level", "logger", "agent", "session", "run", "message")} == {
        "level": "WARNING",
        "logger": "retinue.tests.logs",
        "agent": "work",
        "session": "agent:work:main",
        "run": "r1",
        "message": "two\nlines",
    }
    assert "error" not in data


def test_the_level_is_as_configured(written: io.StringIO) -> None:
    tune_logs("warn", "text")
    log.info("no")
    log.warning("yes")
    tune_logs("debug", "text")
    log.debug("now")
    tune_logs("silent", "text")
    log.critical("nothing")
    assert [each.message for each in read(written)] == ["yes", "now"]


@pytest.fixture
def log_file(tmp_path: Path) -> Iterator[Path]:
    """The file that this process logs to."""
    path = tmp_path / "first.log"
    _close_log()  # one that a command of another test may have left
    handler = LogFile(path)
    handler.name = LOG
    handler.addFilter(RunContextFilter())
    logging.getLogger().addHandler(handler)
    yield path
    _close_log()


def _close_log() -> None:
    for each in [each for each in logging.getLogger().handlers if each.name == LOG]:
        logging.getLogger().removeHandler(each)
        each.close()


def test_the_log_moves_to_the_configured_file(log_file: Path, tmp_path: Path) -> None:
    tune_logs("info", "text")
    log.info("before")
    elsewhere = tmp_path / "deep" / "down" / "second.log"
    for _ in range(2):
        tune_logs("info", "text", elsewhere)
        log.info("after")
    assert log_file.read_text().count("before") == 1
    assert "after" not in log_file.read_text()
    assert elsewhere.read_text().count("after") == 2
    assert (elsewhere.stat().st_mode & 0o777, elsewhere.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_log_that_cannot_move_stays_and_says_so(log_file: Path, tmp_path: Path) -> None:
    tune_logs("info", "text", tmp_path)
    log.info("still here")
    assert "the log stays at" in log_file.read_text()
    assert "still here" in log_file.read_text()


def test_the_terminal_shows_what_it_is_told_to(log_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tune_logs("error", "text")
    show_logs()
    redactor = Redactor(["a-secret-of-mine"])
    for style in ("pretty", "compact", "json"):
        tune_console("warn", cast("Any", style))
        with enter_run(KEY, RunId("r1")):
            log.info("not shown")
            log.warning("%s says a-secret-of-mine and \x1b[2J", style)
    assert redactor.redact("a-secret-of-mine") == "[redacted]"
    pretty, compact, as_json = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d WARNING  \[agent=work session=agent:work:main run=r1\] pretty says \[redacted\] and \[2J",
        pretty,
    )
    assert compact == "W compact says [redacted] and [2J"
    assert json.loads(as_json)["run"] == "r1"
    assert log_file.read_text() == "", "the file wants errors alone"
    tune_console("silent", "compact")
    log.error("nothing")
    assert capsys.readouterr().err == ""


def test_a_process_without_a_log_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    before = logging.getLogger("retinue").level
    tune_logs("silent", "json")
    assert logging.getLogger("retinue").level == before
    assert JsonFormatter().format(logging.makeLogRecord({"msg": "no filter saw this"}))


def test_the_file_is_private_also_after_it_was_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "retinue.log"
    before = os.umask(0o022)
    handler = LogFile(path)
    try:
        handler.emit(logging.makeLogRecord({"msg": "first"}))
        handler.doRollover()
        handler.emit(logging.makeLogRecord({"msg": "é \udc80"}))
    finally:
        os.umask(before)
        handler.close()
    assert (path.stat().st_mode & 0o777, path.read_text()) == (0o600, "é \\udc80\n")
    assert (tmp_path / "retinue.log.1").stat().st_mode & 0o777 == 0o600


def test_a_process_follows_when_another_began_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "retinue.log"
    one, other = LogFile(path), LogFile(path)
    one.emit(logging.makeLogRecord({"msg": "one"}))
    other.emit(logging.makeLogRecord({"msg": "other"}))
    one.doRollover()
    other.emit(logging.makeLogRecord({"msg": "after"}))
    path.unlink()
    other.emit(logging.makeLogRecord({"msg": "again"}))
    one.close()
    other.close()
    assert (tmp_path / "retinue.log.1").read_text() == "one\nother\n"
    assert path.read_text() == "again\n"


@pytest.fixture
def limited(written: io.StringIO) -> tuple[io.StringIO, FrozenClock]:
    """A log with a limit on repetitions, and its clock."""
    clock = FrozenClock()
    handler = next(each for each in logging.getLogger().handlers if each.name == LOG)
    handler.addFilter(RepeatFilter(clock.monotonic))
    return written, clock


def messages(written: io.StringIO) -> list[str]:
    return [record.message for record in read(written)]


def test_the_same_record_is_written_at_most_so_often_a_minute(limited: tuple[io.StringIO, FrozenClock]) -> None:
    written, clock = limited
    for number in range(MAX_REPEATS + 40):
        log.warning("attempt %d failed", number)
    log.warning("something else failed")
    assert messages(written) == [
        *(f"attempt {number} failed" for number in range(MAX_REPEATS)),
        "something else failed",
    ]
    clock.advance(timedelta(seconds=REPEAT_SECONDS))
    log.warning("attempt %d failed", 1_000)
    assert messages(written)[-2:] == ["repeated 40 times: attempt %d failed", "attempt 1000 failed"]


def test_a_message_without_arguments_is_recognised_by_its_first_line(
    limited: tuple[io.StringIO, FrozenClock],
) -> None:
    written, _clock = limited
    for number in range(MAX_REPEATS * 2):
        logging.getLogger("asyncio").error("\n".join(("socket.accept() out of system resource", hex(number))))
    assert len(read(written)) == MAX_REPEATS


def test_records_about_the_audit_log_and_debug_records_are_not_limited(
    limited: tuple[io.StringIO, FrozenClock],
) -> None:
    written, _clock = limited
    logging.getLogger("retinue").setLevel(logging.DEBUG)
    audit = logging.getLogger("retinue.storage.auditlog")
    for number in range(MAX_REPEATS * 2):
        audit.warning("entry %d is damaged", number)
        log.debug("step %d", number)
    assert len(read(written)) == MAX_REPEATS * 4


def test_two_handlers_of_a_record_count_it_once(limited: tuple[io.StringIO, FrozenClock]) -> None:
    written, clock = limited
    other = logging.StreamHandler(io.StringIO())
    other.addFilter(RepeatFilter(clock.monotonic))
    logging.getLogger().addHandler(other)
    try:
        for number in range(MAX_REPEATS):
            log.warning("attempt %d failed", number)
    finally:
        logging.getLogger().removeHandler(other)
    assert len(read(written)) == MAX_REPEATS
