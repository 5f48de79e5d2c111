"""Changes to the configuration by methods."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.core.keys import DEFAULT_AGENT
from retinue.runtime.agents.workspace import change_trust
from retinue.runtime.home import load_home
from retinue.wire.protocol import Scope
from tests.gateway.conftest import Hall, open_hall, raw_socket

pytestmark = pytest.mark.anyio


async def test_a_patch_is_taken_over_as_a_whole_or_not_at_all(hall: Hall) -> None:
    async with raw_socket(hall) as raw:
        seen = await raw.result("config.get", key="session.reset.atHour")
        changes = [{"key": "session.reset.atHour", "value": 5}, {"key": "gateway.port", "value": "none"}]
        refused = await raw.call("config.patch", baseHash=seen["hash"], changes=changes)
        assert refused["error"]["code"] == "conflict"
        assert "gateway.port" in refused["error"]["message"]
        assert await raw.result("config.get", key="session.reset.atHour") == seen


async def test_what_is_configured_is_told_only_to_who_may_read_the_configuration(hall: Hall) -> None:
    key = "messages.queue.cap"
    async with raw_socket(hall) as owner, raw_socket(hall, hall.token(Scope.READ)) as reader:
        told, meant = await owner.result("config.schema", key=key), await reader.result("config.schema", key=key)
        assert (told["value"], told["default"]) == (500, 20)
        assert str(hall.home.config_file) in told["origin"]
        assert meant == told | {"value": None, "origin": ""}


async def test_a_folder_that_is_vouched_for_counts_from_then_on(tmp_path: Path) -> None:
    async with open_hall(tmp_path) as hall:
        hall.home.workspace.mkdir(parents=True)
        (hall.home.workspace / "README.md").write_text("somebody's project")
        async with hall.serving(), raw_socket(hall) as raw:
            assert "retinue workspace trust" in (await raw.result("sessions.introduce"))["caution"]
            change_trust(load_home(hall.home), DEFAULT_AGENT, trusted=True)
            await raw.result("config.apply")
            assert (await raw.result("sessions.introduce"))["caution"] == ""
