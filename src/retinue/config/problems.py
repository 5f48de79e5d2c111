"""What is wrong, or odd, about a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

Severity = Literal["error", "warning"]


class Problem(msgspec.Struct, frozen=True):
    """One thing to know about; an error makes the configuration unusable, a warning does not."""

    severity: Severity
    path: str
    file: Path
    line: int | None
    message: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else str(self.file)
        return f"{where}: {f'{self.path}: ' if self.path else ''}{self.message}"
