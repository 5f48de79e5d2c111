"""The state of this machine."""

from __future__ import annotations

import socket

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script

QUICK = ("--seconds", "0.05")


@pytest.fixture
def monitor(workspace: Workspace) -> Script:
    return script("system-monitor", "monitor.py", workspace)


def test_the_state_is_that_of_this_machine(monitor: Script) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        state = monitor.json("--processes", 3, *QUICK)
        assert f"localhost:{server.getsockname()[1]}" in state["ports"]
    assert 0 < state["memory"]["available"] < state["memory"]["total"]
    assert state["processors"] >= 1
    assert "/" in [disk["place"] for disk in state["disks"]]
    assert len(state["processes"]) == 3


def test_only_what_is_critical(monitor: Script) -> None:
    calm = ("--disk", 101, "--memory", 101, "--load", 10_000)
    state = monitor.json(*calm, *QUICK)
    assert not [problem for problem in state["problems"] if not problem.startswith(("tasks waited", "the service"))]
    done = monitor.workspace.call([str(monitor.path), "--problems", "--memory", "-1", *QUICK])
    assert done.returncode == 1
    assert "% of memory is used" in done.stdout
    assert "! " in monitor.run("--memory", "-1", *QUICK)


def test_arguments_are_checked(monitor: Script) -> None:
    assert "between 0.05 and 60" in monitor.misuse("--seconds", "0")
