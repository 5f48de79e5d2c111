"""A home of one's own for each test, and a way to run commands in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from retinue.cli.main import run


@dataclass(frozen=True)
class Ran:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


RunCommand = Callable[..., Ran]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home that does not exist yet, with no trace of the machine's own settings."""
    user = tmp_path / "user"
    user.mkdir()
    monkeypatch.setenv("HOME", str(user))
    monkeypatch.setenv("RETINUE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("RETINUE_PROFILE", raising=False)
    return tmp_path / "home"


@pytest.fixture
def retinue(home: Path, capsys: pytest.CaptureFixture[str]) -> RunCommand:
    """Run `retinue …` in this process."""

    def command(*arguments: str) -> Ran:
        capsys.readouterr()
        code = run(list(arguments))
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return command
