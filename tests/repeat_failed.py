"""Repeats the few failed tests of a run alone, and lets the run pass if they then pass: pytest -p tests.repeat_failed.

A run on two cores starts hundreds of processes beside each other, so a test that waits for one can run into its limit
without a defect. A test that fails twice, the second time alone, fails the run; one that passes the second time is
named in red at the end of the run, and is to be repaired like any other defect.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

MOST = 10  # more than that is not bad luck


class RepeatFailed:
    """Collects the failed tests of the controlling process of a run."""

    def __init__(self) -> None:
        self.failed: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed[report.nodeid] = None

    @pytest.hookimpl(tryfirst=True)  # before the report on branches, which can still fail the run
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus != pytest.ExitCode.TESTS_FAILED or not 0 < len(self.failed) <= MOST:
            return
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        assert isinstance(terminal, pytest.TerminalReporter)
        terminal.write_line("")
        terminal.write_line(f"Repeating {len(self.failed)} failed tests, alone:")
        again = subprocess.run([sys.executable, "-m", "pytest", *self.failed], cwd=session.config.rootpath, check=False)
        if again.returncode == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.OK
            for name in self.failed:
                terminal.write_line(f"unsteady, passed only when repeated alone: {name}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(RepeatFailed())
