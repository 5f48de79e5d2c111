"""Questions of running turns, put to whoever is connected and may decide."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from retinue.core.approval import ApprovalDecision, ApprovalRequest, Ask, nobody_to_ask


def ask_connected(somebody_may_decide: Callable[[], bool]) -> Ask:
    """The `Ask` of the gateway's turns: a client that is connected decides with `approvals.resolve`.

    The answer reaches the turn through the book of approvals, so this only keeps the question open; without anybody who
    could answer, it is a no.
    """

    async def ask(request: ApprovalRequest) -> ApprovalDecision:
        if somebody_may_decide():
            await anyio.sleep_forever()
        return await nobody_to_ask(request)

    return ask
