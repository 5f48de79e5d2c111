"""The log file: private, of limited size, and shared by all processes of a home."""

from __future__ import annotations

import logging
import os
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

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
        if self.stream is not None and self._was_moved(os.fstat(self.stream.fileno())):
            self.stream.close()
            self.stream = self._open()
        super().emit(record)

    def _was_moved(self, mine: os.stat_result) -> bool:
        try:
            there = Path(self.baseFilename).stat()
        except FileNotFoundError:
            return True
        return (mine.st_dev, mine.st_ino) != (there.st_dev, there.st_ino)

    def _open(self) -> TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)
        return TextIOWrapper(os.fdopen(descriptor, "ab"), self.encoding, self.errors)
