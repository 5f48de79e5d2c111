"""The guided first run by methods, as the page uses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.providers.detect import KNOWN_SERVERS
from retinue.testing.replies import refuses, says
from retinue.wire.protocol import Scope
from tests.gateway.conftest import Hall, open_hall, raw_socket

pytestmark = pytest.mark.anyio
KEY = "sk-ant-abcdefghijklmnop0123"
NOWHERE = {"baseUrl": "http://127.0.0.1:9", "auth": "none"}


def provider(hall: Hall) -> dict[str, object]:
    """The providers of a machine without model servers, where Anthropic is the scripted server."""
    return {**{server.provider: NOWHERE for server in KNOWN_SERVERS}, "anthropic": {"baseUrl": hall.model.url}}


async def test_a_new_user_gives_a_key_and_names_step_by_step(tmp_path: Path) -> None:
    async with open_hall(tmp_path) as hall:
        hall.model.push(refuses(401, "invalid x-api-key"), says("ok"))
        hall.config = {"models": {"providers": provider(hall)}, "agents": {"defaults": {}}}
        async with hall.serving(), raw_socket(hall) as raw:
            state = await raw.result("setup.get")
            assert (state["next"], state["offered"], state["model"]) == ("model", True, None)
            unclear = await raw.result("setup.key", key="A1" * 16)
            assert unclear["providers"][0] == "mistral"
            wrong = await raw.result("setup.key", key=KEY)
            assert not wrong["stored"]
            assert "refuses this key" in wrong["message"]
            right = await raw.result("setup.key", key=KEY)
            assert right["stored"], right["message"]
            assert KEY not in str((unclear, wrong, right))
            state = await raw.result("setup.profile", userName="Mira")
            assert (state["next"], state["model"]) == ("agent", "anthropic/claude-sonnet-5-5")
            state = await raw.result("setup.profile", agentName="Basil", temper="plain")
            assert state["next"] == "first"
            assert len(state["firstTasks"]) == 3
            state = await raw.result("setup.skip", step="first", done=True)
            assert state["next"] is None
            refused = await raw.call("setup.skip", step="nothing")
            assert "Steps: model, you, agent, first" in refused["error"]["message"]
        assert "- **Name:** Basil" in (hall.home.workspace / "IDENTITY.md").read_text()


async def test_a_configured_home_is_not_offered_a_setup_and_guests_see_none(hall: Hall) -> None:
    async with raw_socket(hall) as owner, raw_socket(hall, hall.token(Scope.WRITE)) as guest:
        assert (await owner.result("setup.get"))["offered"] is False
        refused = await guest.call("setup.get")
        assert refused["error"]["code"] == "forbidden"
