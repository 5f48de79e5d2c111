"""The tool `gateway` starts an update only if the owner agrees, each time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from retinue.core.approval import ApprovalDecision, ApprovalRequest, Verdict
from retinue.core.errors import ToolFailed
from retinue.toolkit.gateway import make_tools
from retinue.toolkit.parts import ToolParts
from retinue.tools.tool import ToolContext
from tests.toolkit.conftest import Board, call

pytestmark = pytest.mark.anyio


class UpdatesOnly:
    """A configuration service that counts updates."""

    started = 0

    async def update(self) -> dict[str, Any]:
        self.started += 1
        return {"started": True, "log": "update.log"}

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was not asked for")


@pytest.mark.parametrize("allowed", [True, False])
async def test_each_update_needs_the_owners_approval(
    parts: ToolParts, board: Board, context: ToolContext, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, asked = UpdatesOnly(), []

    async def ask(request: ApprovalRequest) -> ApprovalDecision:
        asked.append(request.title)
        return ApprovalDecision(Verdict.ALLOW_ONCE if allowed else Verdict.DENY, "as the test says", "owner")

    board.controls_gateway = True
    monkeypatch.setattr(board, "config_service", lambda: service)
    (tool,) = make_tools(parts)
    assert tool.owner_only
    attended = replace(context, ask=ask)
    if allowed:
        told = await call(tool, attended, action="update.run")
        assert json.loads(told.content[0].text)["started"] is True  # type: ignore[union-attr]
    else:
        with pytest.raises(ToolFailed, match="not started"):
            await call(tool, attended, action="update.run")
    assert (service.started, len(asked)) == (int(allowed), 1)


async def test_without_a_person_no_update_is_started(
    parts: ToolParts, board: Board, context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = UpdatesOnly()
    board.controls_gateway = True
    monkeypatch.setattr(board, "config_service", lambda: service)
    (tool,) = make_tools(parts)
    with pytest.raises(ToolFailed, match="not started"):
        await call(tool, context, action="update.run")
    assert service.started == 0
