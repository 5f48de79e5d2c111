"""The guided first run by methods, as the page uses it."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from retinue.providers.detect import KNOWN_SERVERS
from retinue.providers.local import engine, pull
from retinue.providers.local.pull import HubSource, PullableModel
from retinue.testing.replies import refuses, says
from retinue.wire.protocol import Scope
from tests.gateway.conftest import Hall, RawSocket, open_hall, raw_socket
from tests.modelhub import CONTENT, HUB_PATH
from tests.modelhub import serving as serving_hub

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


async def wait_until(raw: RawSocket, state: str) -> dict[str, object]:
    with anyio.fail_after(30):
        while (found := await raw.result("setup.downloading"))["state"] != state:
            await anyio.sleep(0.01)
    return dict(found)


async def test_a_download_is_followed_continued_after_a_failure_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = PullableModel("tiny", "for tests", len(CONTENT), HubSource(HUB_PATH), memory=10**9)
    monkeypatch.setattr(pull, "PULLABLE", (small,))
    monkeypatch.setattr(engine, "has_engine", lambda: False)
    async with serving_hub() as hub, open_hall(tmp_path) as hall:
        hub.stop_after = len(CONTENT) // 2
        hall.config = {
            "models": {"providers": provider(hall)},
            "agents": {"defaults": {}},
            "env": {"vars": {"HF_ENDPOINT": hub.url}},
        }
        async with hall.serving(), raw_socket(hall) as raw:
            state = await raw.result("setup.get")
            assert state["download"]["state"] == "none"
            assert state["downloads"][0]["name"] == "tiny"
            refused = await raw.call("setup.download", name="tiny")
            assert "install 'xllamacpp>=" in refused["error"]["message"]
            monkeypatch.setattr(engine, "has_engine", lambda: True)
            refused = await raw.call("setup.download", name="nosuch")
            assert "These can be pulled: tiny" in refused["error"]["message"]
            await raw.result("setup.download", name="tiny")
            failed = await wait_until(raw, "failed")
            assert "Check the network connection" in str(failed["message"])
            half = (await raw.result("setup.get"))["downloads"][0]["received"]
            assert 0 < half < len(CONTENT)
            hub.stop_after = len(CONTENT)
            await raw.result("setup.download", name="tiny")
            await wait_until(raw, "done")
            assert hub.ranges == ["", f"bytes={half}-"]
            state = await raw.result("setup.get")
            assert (state["model"], state["next"]) == ("local/tiny", "you")
    assert (hall.home.models / "tiny.gguf").read_bytes() == CONTENT


async def test_a_download_that_is_stopped_keeps_what_it_received(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = PullableModel("tiny", "for tests", len(CONTENT), HubSource(HUB_PATH))
    other = PullableModel("other", "for tests", len(CONTENT), HubSource(HUB_PATH))
    monkeypatch.setattr(pull, "PULLABLE", (small, other))
    monkeypatch.setattr(engine, "has_engine", lambda: True)
    async with serving_hub() as hub, open_hall(tmp_path) as hall:
        hub.stop_after, hub.hangs = len(CONTENT) // 2, True
        hall.config = {
            "models": {"providers": provider(hall)},
            "agents": {"defaults": {}},
            "env": {"vars": {"HF_ENDPOINT": hub.url}},
        }
        async with hall.serving(), raw_socket(hall) as raw:
            await raw.result("setup.download", name="tiny")
            with anyio.fail_after(30):
                while not (await raw.result("setup.downloading"))["done"]:
                    await anyio.sleep(0.01)
            refused = await raw.call("setup.download", name="other")
            assert "'tiny' is being downloaded" in refused["error"]["message"]
            stopped = await raw.result("setup.stop")
            assert (stopped["state"], "is kept" in stopped["message"]) == ("stopped", True)
            assert (await raw.result("setup.get"))["downloads"][0]["received"] > 0


async def test_a_configured_home_is_not_offered_a_setup_and_guests_see_none(hall: Hall) -> None:
    async with raw_socket(hall) as owner, raw_socket(hall, hall.token(Scope.WRITE)) as guest:
        assert (await owner.result("setup.get"))["offered"] is False
        refused = await guest.call("setup.get")
        assert refused["error"]["code"] == "forbidden"
