"""What the capability matrix says about each kind of principal is what happens in a turn for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from retinue.config.load import load_config
from retinue.core.envelope import Inbound, Origin, PeerKind, Source
from retinue.core.events import ToolFinished
from retinue.core.keys import DEFAULT_AGENT, SessionKey
from retinue.runtime.agents.agent import GatewayControl
from retinue.runtime.inspect.matrix import PRINCIPALS, TOOLS, capability_matrix
from retinue.runtime.open import attach_gateway
from retinue.testing.replies import Reply, calls
from tests.security.hijack.scene import PAGE, open_scene
from tests.security.hijack.suites import OFFICE

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

USES: dict[str, Reply] = {
    "read": calls("read", path="plans.txt"),
    "write": calls("write", path="new.txt", content="x"),
    "run": calls("exec", command="true"),
    "send": calls("tool_call", name="message", arguments={"text": "Hello."}),
    "fetch": calls("web_fetch", url=PAGE),
    "configure": calls("tool_call", name="gateway", arguments={"action": "get", "key": "agents.defaults.model"}),
}
REFUSALS = ("is not allowed", "There is no tool")


def _message(principal: str) -> Inbound:
    """Return a message for a turn of a principal, as the part of the program that makes it does."""
    found = next(each for each in PRINCIPALS if each.name == principal)
    inbound = Inbound("Do it.", SessionKey.parse(f"agent:main:{found.session}"), owner=found.owner, source=found.source)
    match principal:
        case "contact" | "guest":
            origin = Origin("http", "chat", PeerKind.DIRECT, "person", sender="person")
            session = SessionKey.parse("agent:main:http:chat:direct:person")
            return replace(inbound, session=session, origin=origin, sender="person", contact=principal == "contact")
        case "group member":
            origin = Origin("http", "chat", PeerKind.GROUP, "some", sender="person")
            return replace(inbound, session=SessionKey.parse("agent:main:http:chat:group:some"), origin=origin)
        case "webhook":
            return replace(inbound, foreign=True)
        case "program" | "device":
            return replace(inbound, sender=principal)
        case _:
            return inbound


async def _apply() -> dict[str, Any]:
    return {}


def _restart(reason: str) -> None:
    raise AssertionError(reason)


@pytest.mark.parametrize("principal", [each.name for each in PRINCIPALS])
async def test_the_matrix_says_what_happens(tmp_path: Path, principal: str) -> None:
    refused: dict[str, bool] = {}

    async def watch(event: object) -> None:
        if isinstance(event, ToolFinished):
            refused[list(USES)[len(refused)]] = any(text in event.result.text for text in REFUSALS)

    async with open_scene(tmp_path, OFFICE) as scene:
        attach_gateway(scene.runtime, GatewayControl(_apply, _restart))
        config = load_config(scene.runtime.home.paths, {}).config
        scene.model.script.extend(USES.values())
        await scene.runtime.say(_message(principal), watch, scene.ask)
    rows = {
        row.capability: row.decision.value == "deny"
        for row in capability_matrix(config)
        if (row.principal, row.agent) == (principal, DEFAULT_AGENT)
    }
    assert set(refused) == set(TOOLS)
    assert refused == {capability: rows[capability] for capability in TOOLS}


def test_only_people_who_are_the_owner_approve() -> None:
    """The gateway checks the scope of a token as well."""
    assert [each.name for each in PRINCIPALS if each.owner and each.source is Source.CHAT] == ["owner"]
