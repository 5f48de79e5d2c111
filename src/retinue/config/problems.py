"""Errors and warnings of a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

Severity = Literal["error", "warning"]


class Problem(msgspec.Struct, frozen=True):
    """An error, which makes the configuration unusable, or a warning."""

    severity: Severity
    path: str
    file: Path
    line: int | None
    message: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else str(self.file)
        return f"{where}: {f'{self.path}: ' if self.path else ''}{self.message}"
