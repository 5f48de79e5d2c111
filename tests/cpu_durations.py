"""Prints the tests that used the most CPU time: python -m pytest -p tests.cpu_durations.

Unlike `--durations`, the numbers hardly change with what else the machine does. Processes that a test started count
once they have ended.
"""

from __future__ import annotations

import resource
from collections.abc import Generator

import pytest

SHOWN = 30
_begun = pytest.StashKey[float]()
_PROPERTY = "cpu seconds"
_spent: dict[str, float] = {}


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.stash[_begun] = _cpu_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "teardown":
        # A property reaches the process that prints the summary, also from a worker of xdist.
        report.user_properties.append((_PROPERTY, _cpu_seconds() - item.stash[_begun]))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    for name, value in report.user_properties:
        if name == _PROPERTY and isinstance(value, float):
            _spent[report.nodeid] = value


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section(f"{SHOWN} tests with the most CPU time, of {sum(_spent.values()):.0f} s in all")
    for name in sorted(_spent, key=lambda each: _spent[each], reverse=True)[:SHOWN]:
        terminalreporter.write_line(f"{_spent[name]:8.2f} s  {name}")
