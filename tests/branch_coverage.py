"""Fails a run unless it took every branch of the modules on which safety rests: pytest -p tests.branch_coverage.

The modules decide what may run, which file is opened, which address is dialled, and what survives a crash. Only their
own tests are measured, in the same run as all others: a branch that an unrelated test takes by chance does not count,
and no test runs twice.
"""

from __future__ import annotations

import json
import runpy
import sys
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from coverage import Coverage

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "retinue"

MODULES = (
    # policy
    "tools/policy.py",
    "tools/elevated.py",
    # paths
    "storage/files/root.py",
    "storage/files/openat.py",
    "storage/files/descriptors.py",
    "storage/files/file_info.py",
    "toolkit/files/paths.py",
    # network
    "security/fetch.py",
    "security/network.py",
    "security/checked_transport.py",
    # journals
    "dispatch/inbox.py",
    "runtime/turns/run_record.py",
    "sessions/repair.py",
    "storage/auditlog.py",
)
TESTS = (
    "tests/tools/test_policy.py",
    "tests/tools/test_elevated.py",
    "tests/storage/",
    "tests/toolkit/test_paths.py",
    "tests/security/test_addresses.py",
    "tests/security/test_http1.py",
    "tests/security/test_network.py",
    "tests/dispatch/test_inbox.py",
    "tests/sessions/test_recovery.py",
    "tests/sessions/test_repair.py",
)
_FOLDER = "branch coverage folder"


@dataclass(frozen=True)
class Measurement:
    """Measures the chosen tests in one process, a worker of xdist or the only one."""

    coverage: Coverage

    def run_modules(self) -> None:
        """Run the lines outside of functions once more: a conftest may have imported a module already."""
        with self.coverage.collect():
            for name in MODULES:
                runpy.run_path(str(SOURCE / name))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        if not item.nodeid.startswith(TESTS):
            return (yield)
        _clear_caches()
        with self.coverage.collect():
            return (yield)

    def pytest_sessionfinish(self) -> None:
        self.coverage.save()


@dataclass(frozen=True)
class Report:
    """Joins what the processes measured, and fails the run if a branch is missing."""

    folder: Path

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[_FOLDER] = str(self.folder)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        incomplete = _incomplete_modules(self.folder)
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        assert isinstance(terminal, pytest.TerminalReporter)
        terminal.write_line("")
        for name, missing in incomplete.items():
            terminal.write_line(f"{name}: {missing}", red=True)
        complete = len(MODULES) - len(incomplete)
        terminal.write_line(f"branch coverage: {complete} of {len(MODULES)} modules complete")
        if incomplete and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_configure(config: pytest.Config) -> None:
    given = getattr(config, "workerinput", {}).get(_FOLDER)
    if given is None:
        temporary = tempfile.TemporaryDirectory()
        config.add_cleanup(temporary.cleanup)
        folder = Path(temporary.name)
        config.pluginmanager.register(Report(folder))
    else:
        folder = Path(given)
    if given is not None or not config.getoption("numprocesses", None):
        measurement = Measurement(_coverage(folder, suffix=True))
        measurement.run_modules()
        config.pluginmanager.register(measurement)


def _coverage(folder: Path, *, suffix: bool) -> Coverage:
    return Coverage(
        data_file=str(folder / "data"),
        data_suffix=suffix,
        branch=True,
        include=[str(SOURCE / name) for name in MODULES],
        config_file=str(ROOT / "pyproject.toml"),
    )


def _clear_caches() -> None:
    """Forget what cached functions of the modules returned in a test that is not measured, so that they run again."""
    for name in MODULES:
        module = sys.modules.get(_module_name(name))
        for value in vars(module).values() if module else ():
            if hasattr(value, "cache_clear") and value.__module__ == _module_name(name):
                value.cache_clear()


def _module_name(path: str) -> str:
    return f"retinue.{path.removesuffix('.py').replace('/', '.')}"


def _incomplete_modules(folder: Path) -> dict[str, str]:
    """What was not run, by module."""
    coverage = _coverage(folder, suffix=False)
    coverage.combine([str(folder)])
    report = folder / "report.json"
    coverage.json_report(outfile=str(report))
    files = {(ROOT / name).resolve(): found for name, found in json.loads(report.read_text())["files"].items()}
    found = {}
    for name in MODULES:
        lines, branches = (files[SOURCE / name][key] for key in ("missing_lines", "missing_branches"))
        if lines or branches:
            found[name] = f"lines {lines} and branches {branches} were not run"
    return found
