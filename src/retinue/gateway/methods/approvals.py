"""Approval requests."""

from __future__ import annotations

from retinue.gateway.gateway import Call
from retinue.gateway.methods.registry import MethodRegistry
from retinue.tools.approvals.broker import format_outcome
from retinue.wire import approvals as wire
from retinue.wire.frames import Nothing

registry = MethodRegistry()


@registry.implements(wire.LIST)
async def list_pending(call: Call, params: Nothing) -> wire.PendingList:
    pending = call.runtime.shared.permissions.approvals.pending()
    return wire.PendingList([wire.Pending(each.request, each.asked_at, each.expires_at) for each in pending])


@registry.implements(wire.RESOLVE)
async def resolve(call: Call, params: wire.Resolve) -> wire.Resolved:
    permissions = call.runtime.shared.permissions
    approver = permissions.approver(call.principal.known_as)
    settled = permissions.approvals.decide(
        params.id, params.verdict, approver, reason=params.reason, binding=params.binding
    )
    return wire.Resolved(id=settled.id, told=format_outcome(settled))
