"""The log: each record has its turn and contains no secrets; all processes of a home share a file of limited size."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Literal

from retinue.core.keys import current_run
from retinue.security.redaction import RedactingFormatter, redact_data

log = logging.getLogger(__name__)

LOG = "retinue-log"
"""The name of the handler that writes the log file."""

LEVELS = {
    "silent": logging.CRITICAL + 10,
    "fatal": logging.CRITICAL,
    "error": logging.ERROR,
    "warn": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
    "trace": logging.DEBUG,
}
LineFormat = Literal["text", "json"]
ConsoleStyle = Literal["pretty", "compact", "json"]
CONTINUATION = "    "
"""The prefix of a record's further lines in the text format."""
CONSOLE = "retinue-console"
"""The name of the handler that shows records in the terminal."""


class RunContextFilter(logging.Filter):
    """Adds the turn to each record, so that the log can be filtered by session."""

    def filter(self, record: logging.LogRecord) -> bool:
        run_context = current_run()
        marks = {
            "agent": str(run_context.session.agent) if run_context else None,
            "session": str(run_context.session) if run_context else None,
            "run": str(run_context.run) if run_context else None,
        }
        spelled = " ".join(f"{name}={value}" for name, value in marks.items())
        record.__dict__.update(marks, run_context=f"[{spelled}] " if run_context else "")
        return True


MAX_REPEATS = 60
"""How many records with the same origin and template are written in one period."""
REPEAT_SECONDS = 60.0
_NEVER_LIMITED = ("retinue.audit", "retinue.storage.auditlog")
"""Loggers whose records are always written, because they report on the audit log."""
_MAX_TEMPLATES = 1_000
_MAX_TEMPLATE_CHARS = 200

_Origin = tuple[str, str, int, str]


class _Repeats:
    """How often one template was logged in the current period."""

    def __init__(self, record: logging.LogRecord, template: str, started: float) -> None:
        self.record = record
        self.template = template
        self.started = started
        self.count = 0


class RepeatFilter(logging.Filter):
    """Writes the same record at most `MAX_REPEATS` times a minute, then one line with the number of the others.

    Records are the same if their logger, source line and template are equal. Several handlers may each have a filter:
    the first one decides for all. Records below INFO are never limited: they are enabled to see all.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._seen: dict[_Origin, _Repeats] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        decided: bool | None = getattr(record, "within_limit", None)
        if decided is not None:
            return decided
        with self._lock:
            now = self._monotonic()
            ended = [key for key, repeats in self._seen.items() if now - repeats.started >= REPEAT_SECONDS]
            summaries = [_summarize(self._seen.pop(key)) for key in ended]
            is_limited = record.levelno >= logging.INFO and not record.name.startswith(_NEVER_LIMITED)
            within_limit = not is_limited or self._count(record, now)
        record.within_limit = within_limit
        for summary in summaries:
            if summary is not None:
                logging.getLogger(summary.name).handle(summary)
        return within_limit

    def _count(self, record: logging.LogRecord, now: float) -> bool:
        # Libraries such as asyncio put addresses of objects in later lines of a message that has no arguments.
        template = str(record.msg).partition("\n")[0][:_MAX_TEMPLATE_CHARS]
        origin = (record.name, record.pathname, record.lineno, template)
        repeats = self._seen.get(origin)
        if repeats is None:
            if len(self._seen) >= _MAX_TEMPLATES:
                self._seen.pop(next(iter(self._seen)))
            repeats = self._seen[origin] = _Repeats(record, template, now)
        repeats.count += 1
        return repeats.count <= MAX_REPEATS


def _summarize(repeats: _Repeats) -> logging.LogRecord | None:
    """Return a record that reports how many records were not written; None if all were."""
    if repeats.count <= MAX_REPEATS:
        return None
    first = repeats.record
    arguments = (repeats.count - MAX_REPEATS, repeats.template)
    summary = logging.LogRecord(
        first.name, first.levelno, first.pathname, first.lineno, "repeated %d times: %s", arguments, None
    )
    summary.within_limit = True
    return summary


class TextFormatter(RedactingFormatter):
    """A line for people: time, level, logger, turn, message.

    Further lines of a record are indented, so untrusted text cannot imitate a record. Control characters are removed,
    so it cannot affect the terminal.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(run_context)s%(message)s")

    def format(self, record: logging.LogRecord) -> str:
        from retinue.security.untrusted_text import passage

        return passage(super().format(record)).replace("\n", f"\n{CONTINUATION}")


class JsonFormatter(RedactingFormatter):
    """A JSON object in one line, for programs."""

    def format(self, record: logging.LogRecord) -> str:
        from retinue.security.untrusted_text import passage

        # Redaction runs on plain text, where the patterns of secrets match; only then is it encoded as JSON.
        whole = passage(super().format(record))
        message, _, trace = whole.partition("\nTraceback ") if record.exc_info else (whole, "", "")
        data = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "agent": getattr(record, "agent", None),
            "session": getattr(record, "session", None),
            "run": getattr(record, "run", None),
            "message": message,
            "error": f"Traceback {trace}" if trace else None,
        }
        redacted = redact_data({name: value for name, value in data.items() if value is not None})
        return json.dumps(redacted, ensure_ascii=False)


class ConsoleFormatter(RedactingFormatter):
    """A line in the terminal, without control characters."""

    def __init__(self, style: ConsoleStyle) -> None:
        pretty = style == "pretty"
        super().__init__(
            "%(asctime)s %(levelname)-8s %(run_context)s%(message)s" if pretty else "%(levelname).1s %(message)s"
        )
        self.datefmt = "%H:%M:%S"

    def format(self, record: logging.LogRecord) -> str:
        from retinue.security.untrusted_text import passage

        return passage(super().format(record))


def tune_logs(level: str, line_format: LineFormat, file: Path | None = None) -> None:
    """Apply the configured level and format to the log file; does nothing if there is no log file."""
    everything = logging.getLogger()
    for handler in [each for each in everything.handlers if each.name == LOG]:
        kept = _move_handler(handler, file) if file is not None else handler
        kept.setLevel(LEVELS[level])
        kept.setFormatter(JsonFormatter() if line_format == "json" else TextFormatter())
    _update_root_level()


def _move_handler(handler: logging.Handler, file: Path) -> logging.Handler:
    """Return the handler of the log file, moved to a new path; the old handler if the path cannot be used."""
    if not isinstance(handler, LogFile) or Path(handler.baseFilename) == file.absolute():
        return handler
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = LogFile(file)
    except OSError as error:
        log.warning("the log stays at %s: %s cannot be used: %s", handler.baseFilename, file, error)
        return handler
    fresh.name = handler.name
    fresh.filters = handler.filters
    everything = logging.getLogger()
    everything.removeHandler(handler)
    handler.close()
    everything.addHandler(fresh)
    return fresh


def show_logs() -> None:
    """Show records in the terminal too; `tune_console` sets level and format."""
    handler = logging.StreamHandler()
    handler.name = CONSOLE
    handler.addFilter(RunContextFilter())
    handler.addFilter(RepeatFilter())
    logging.getLogger().addHandler(handler)


def tune_console(level: str, style: ConsoleStyle) -> None:
    """Apply the configured level and format to the terminal; does nothing if records are not shown there."""
    for handler in logging.getLogger().handlers:
        if handler.name == CONSOLE:
            handler.setLevel(LEVELS[level])
            handler.setFormatter(JsonFormatter() if style == "json" else ConsoleFormatter(style))
    _update_root_level()


def _update_root_level() -> None:
    """Set the root level to the lowest level of our handlers."""
    levels = [handler.level for handler in logging.getLogger().handlers if handler.name in (LOG, CONSOLE)]
    if levels:
        logging.getLogger("retinue").setLevel(min(levels))


MAX_FILE_BYTES = 5_000_000
OLDER_FILES = 3
_MODE = 0o600


class LogFile(RotatingFileHandler):
    """Writes to a file that only the owner may read, also after rotation.

    Several processes write to it. If another process rotated the file, this one reopens it; otherwise it would write to
    an old file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(
            path, maxBytes=MAX_FILE_BYTES, backupCount=OLDER_FILES, encoding="utf-8", errors="backslashreplace"
        )

    def emit(self, record: logging.LogRecord) -> None:
        if self.stream is not None:
            try:
                was_moved = not os.path.samestat(os.fstat(self.stream.fileno()), Path(self.baseFilename).stat())
            except FileNotFoundError:
                was_moved = True
            if was_moved:
                self.stream.close()
                self.stream = self._open()
        super().emit(record)

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)
        return TextIOWrapper(os.fdopen(descriptor, "ab"), self.encoding, self.errors)
