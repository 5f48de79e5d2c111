"""Questions to a person."""

from __future__ import annotations

from retinue.gateway.gateway import Call
from retinue.gateway.registry import Registry
from retinue.tools.approvals.broker import format_outcome
from retinue.wire import approvals as wire
from retinue.wire.frames import Nothing
from retinue.wire.values import WireApproval

registry = Registry()


@registry.carries_out(wire.LIST)
async def list_pending(call: Call, params: Nothing) -> wire.PendingList:
    return wire.PendingList(
        approvals=[
            wire.Pending(
                request=WireApproval.of(approval.request), asked_at=approval.asked_at, expires_at=approval.expires_at
            )
            for approval in call.runtime.shared.permissions.approvals.pending()
        ]
    )


@registry.carries_out(wire.RESOLVE)
async def resolve(call: Call, params: wire.Resolve) -> wire.Resolved:
    permissions = call.runtime.shared.permissions
    approver = permissions.approver(call.principal.known_as)
    settled = permissions.approvals.decide(
        params.id, params.verdict, approver, reason=params.reason, binding=params.binding
    )
    return wire.Resolved(id=settled.id, told=format_outcome(settled))
