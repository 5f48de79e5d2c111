"""A failed test is repeated alone: the run passes only if the test then passes, and names it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
UNSTEADY = """
from pathlib import Path

def test_unsteady() -> None:
    marker = Path(__file__).with_name("ran")
    first = not marker.exists()
    marker.touch()
    assert not first

def test_steady() -> None: ...
"""
BROKEN = "def test_broken() -> None:\n    assert False\n"


def run_tests(folder: Path, text: str) -> tuple[int, str]:
    (folder / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (folder / "test_sample.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "-n", "1", "-p", "tests.repeat_failed"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout


def test_a_test_that_passes_when_repeated_is_named_and_the_run_passes(tmp_path: Path) -> None:
    code, output = run_tests(tmp_path, UNSTEADY)
    assert code == 0
    assert "unsteady, passed only when repeated alone: test_sample.py::test_unsteady" in output


def test_a_test_that_fails_twice_fails_the_run(tmp_path: Path) -> None:
    code, output = run_tests(tmp_path, BROKEN)
    assert code == 1
    assert "unsteady" not in output


def test_many_failures_are_not_repeated(tmp_path: Path) -> None:
    code, output = run_tests(
        tmp_path, "\n".join(f"def test_{number}() -> None:\n    assert 0\n" for number in range(11))
    )
    assert code == 1
    assert "Repeating" not in output
