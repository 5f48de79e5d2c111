"""`retinue heartbeat`: when agents wake up by themselves."""

from __future__ import annotations

from retinue.automation.heartbeat import SkipReason
from tests.cli.conftest import RunCommand


def test_the_command_line_tells_and_wakes(retinue: RunCommand) -> None:
    assert retinue("heartbeat", "status", "--json").data[0]["every"] == "30m"
    assert "There are no heartbeats yet" in retinue("heartbeat", "log").out
    ran = retinue("heartbeat", "run", "--json")
    assert (ran.data["outcome"], ran.data["detail"]) == ("skipped", SkipReason.NOTHING_TO_DO)
    assert retinue("heartbeat", "log", "--json").data[0]["wake"] == "manual"
