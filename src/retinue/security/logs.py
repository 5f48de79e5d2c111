"""How the log is written: one record after the other, with the turn it belongs to and without secrets."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Literal

from retinue.core.errand import current_errand
from retinue.security.redaction import RedactingFormatter, redact_data

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


class ErrandFilter(logging.Filter):
    """Notes on each record which turn it is about, so that the log can be read by session."""

    def filter(self, record: logging.LogRecord) -> bool:
        errand = current_errand()
        marks = {
            "agent": str(errand.session.agent) if errand else None,
            "session": str(errand.session) if errand else None,
            "run": str(errand.run) if errand else None,
        }
        spelled = " ".join(f"{name}={value}" for name, value in marks.items())
        record.__dict__.update(marks, errand=f"[{spelled}] " if errand else "")
        return True


class TextFormatter(RedactingFormatter):
    """A line for people: time, level, where from, which turn, what."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(errand)s%(message)s")


class JsonFormatter(RedactingFormatter):
    """A JSON object in one line, for programs."""

    def format(self, record: logging.LogRecord) -> str:
        # Redacted as a text, where the shapes of secrets show, and only then written as JSON.
        whole = super().format(record)
        said, _, trace = whole.partition("\nTraceback ") if record.exc_info else (whole, "", "")
        data = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "agent": getattr(record, "agent", None),
            "session": getattr(record, "session", None),
            "run": getattr(record, "run", None),
            "message": said,
            "error": f"Traceback {trace}" if trace else None,
        }
        told = redact_data({name: value for name, value in data.items() if value is not None})
        return json.dumps(told, ensure_ascii=False)


def tune_logs(level: str, line_format: LineFormat) -> None:
    """Let the log of this process hold as much as configured, written as configured; nothing where it keeps none."""
    for handler in logging.getLogger().handlers:
        if handler.name == LOG:
            handler.setLevel(LEVELS[level])
            handler.setFormatter(JsonFormatter() if line_format == "json" else TextFormatter())
            logging.getLogger("retinue").setLevel(LEVELS[level])
