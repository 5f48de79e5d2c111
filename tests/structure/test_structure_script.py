"""The checks of `scripts/structure.py`: each one fails on a small package that breaks its rule."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "structure.py"
WORKER = "class Worker:\n    def work(self) -> None: ...\n"


def run_check(folder: Path, files: Mapping[str, str]) -> tuple[int, str]:
    """Write a package and check it; returns the exit code and the messages."""
    package = folder / "small"
    for name, text in files.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    command = [sys.executable, str(SCRIPT), "--check", "--source", str(package)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout + ended.stderr


def holder(count: int) -> str:
    """A class that keeps as many workers."""
    parameters = "".join(f", worker_{number}: Worker" for number in range(count))
    kept = "".join(f"        self.worker_{number} = worker_{number}\n" for number in range(count))
    return f"from small.worker import Worker\n\nclass Holder:\n    def __init__(self{parameters}) -> None:\n{kept}"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"a.py": "import small.b", "b.py": "def use() -> None:\n    import small.a"},
            "These modules import each other in a cycle: small.a small.b",
        ),
        (
            {"a.py": "class Entry: ...", "b.py": "class Entry: ..."},
            "The class name Entry is defined in several modules: small.a, small.b",
        ),
        ({f"many/module_{number}.py": "" for number in range(21)}, "The folder many has 21 modules; the limit is 20"),
        ({"worker.py": WORKER, "holder.py": holder(9)}, "small.holder.Holder holds 9 collaborators; the limit is 8"),
    ],
    ids=["cycle through a local import", "class name used twice", "folder with 21 modules", "nine collaborators"],
)
def test_each_rule_can_fail(tmp_path: Path, files: Mapping[str, str], message: str) -> None:
    code, shown = run_check(tmp_path, files)
    assert code == 1
    assert message in shown
    assert len(shown.splitlines()) == 1


@pytest.mark.parametrize(
    "files",
    [
        {
            "a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import small.b",
            "b.py": "import small.a",
        },
        {"a.py": "class _Entry: ...", "b.py": "class _Entry: ..."},
        {"wire/a.py": "class Entry: ...", "b.py": "class Entry: ..."},
        {f"{folder}/module_{number}.py": "" for folder in ("cli", "wire", "api/methods") for number in range(21)},
        {f"many/module_{number}.py": "" for number in range(20)} | {"many/__init__.py": ""},
        {"worker.py": WORKER, "holder.py": holder(8)},
        {"worker.py": "import enum\n\nclass Worker(enum.Enum): ...", "holder.py": holder(9)},
    ],
    ids=[
        "imports for types only",
        "private classes",
        "a class of the wire",
        "folders without a limit",
        "folder with 20 modules",
        "eight collaborators",
        "nine values",
    ],
)
def test_what_the_rules_allow(tmp_path: Path, files: Mapping[str, str]) -> None:
    assert run_check(tmp_path, files) == (0, "No structure rule is broken.\n")
