"""Approval requests, pairing requests and paired devices."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from msgspec import convert
from msgspec.structs import replace

from retinue.gateway.auth.member_access import is_limited, require_for, scopes_for
from retinue.gateway.auth.pairing import PairingRequest, format_code
from retinue.gateway.auth.request_source import address_for_others
from retinue.gateway.auth.tokens import CODE_MINUTES, pairing_link
from retinue.gateway.errors import RequestRefused
from retinue.gateway.gateway import Call
from retinue.gateway.methods.registry import MethodRegistry
from retinue.tools.approvals.broker import format_outcome
from retinue.tools.approvals.store import Approval
from retinue.wire import approvals as wire
from retinue.wire.frames import Done, Nothing
from retinue.wire.protocol import ErrorCode, Scope, with_implied

registry = MethodRegistry()


@registry.implements(wire.APPROVALS_LIST)
async def list_pending(call: Call, params: Nothing) -> wire.PendingList:
    pending = [each for each in call.runtime.shared.permissions.approvals.pending() if _may_decide(call, each)]
    return wire.PendingList([wire.Pending(each.request, each.asked_at, each.expires_at) for each in pending])


@registry.implements(wire.APPROVALS_RESOLVE)
async def resolve(call: Call, params: wire.Resolve) -> wire.Resolved:
    permissions = call.runtime.shared.permissions
    if is_limited(call.principal) and (asked := permissions.approvals.find(params.id)) is not None:
        require_for(call.principal, asked.request.agent, Scope.APPROVE)
    approver = permissions.approver(call.principal.known_as)
    settled = permissions.approvals.decide(
        params.id, params.verdict, approver, reason=params.reason, binding=params.binding
    )
    return wire.Resolved(id=settled.id, told=format_outcome(settled))


@registry.implements(wire.APPROVALS_HISTORY)
async def list_history(call: Call, params: wire.ListHistory) -> wire.ApprovalHistory:
    found = call.runtime.shared.permissions.approvals.recent(params.limit)
    return wire.ApprovalHistory(
        [
            wire.ApprovalRecord(
                id=each.id,
                state=each.state.value,
                agent=each.request.agent,
                session_key=each.request.session.text,
                tool=each.request.tool,
                title=each.request.title,
                detail=each.request.detail,
                asked_at=each.asked_at,
                decided_at=each.decided_at,
                decided_by=each.decided_by,
                because=each.because,
            )
            for each in found
            if _may_decide(call, each)
        ]
    )


def _may_decide(call: Call, approval: Approval) -> bool:
    return Scope.APPROVE in scopes_for(call.principal, approval.request.agent)


@registry.implements(wire.RULES_LIST)
async def list_rules(call: Call, params: wire.OfRules) -> wire.AllowRules:
    agent = call.runtime.home.agent_id(params.agent) if params.agent else None
    found = call.runtime.shared.permissions.rule_store.listing(agent)
    return wire.AllowRules([convert(rule, wire.AllowRule, from_attributes=True) for rule in found])


@registry.implements(wire.RULES_ADD)
async def add_rule(call: Call, params: wire.AddRule) -> wire.AllowRules:
    permissions = call.runtime.shared.permissions
    approver = permissions.approver(call.principal.known_as)
    permissions.rule_store.add(call.runtime.home.agent_id(params.agent), params.pattern, approver)
    return await list_rules(call, wire.OfRules())


@registry.implements(wire.RULES_REMOVE)
async def remove_rule(call: Call, params: wire.RemoveRule) -> wire.AllowRules:
    permissions = call.runtime.shared.permissions
    approver = permissions.approver(call.principal.known_as)
    agent = call.runtime.home.agent_id(params.agent) if params.agent else None
    permissions.rule_store.remove(params.id, approver, agent)
    return await list_rules(call, wire.OfRules())


@registry.implements(wire.DEVICES_LIST)
async def list_devices(call: Call, params: Nothing) -> wire.Devices:
    auth = call.gateway.auth
    now = call.runtime.home.clock.now()
    return wire.Devices(
        waiting=[
            replace(convert(request, wire.WaitingDevice, from_attributes=True), code=format_code(request.code))
            for request in auth.pairing.waiting()
        ],
        paired=[
            convert(record, wire.PairedDevice, from_attributes=True)
            for record in auth.tokens.devices()
            if record.is_valid(now)
        ],
    )


@registry.implements(wire.DEVICES_APPROVE)
async def approve(call: Call, params: wire.ApproveDevice) -> Done:
    _require_own(call, params.scopes)
    request = call.gateway.auth.pairing.approve(params.code, params.scopes)
    _record(call, "gateway_device_approved", request, scopes=sorted(params.scopes))
    return Done()


@registry.implements(wire.DEVICES_REJECT)
async def reject(call: Call, params: wire.OfRequest) -> Done:
    _record(call, "gateway_device_rejected", call.gateway.auth.pairing.reject(params.code))
    return Done()


@registry.implements(wire.DEVICES_INVITE)
async def invite(call: Call, params: wire.InviteDevice) -> wire.Invitation:
    _require_own(call, params.scopes)
    home, here = call.runtime.home, call.gateway.state.address
    code = call.gateway.auth.tokens.create_code(params.scopes)
    details = {"scopes": sorted(params.scopes)}
    home.audit.record("gateway_pairing_code_created", call.principal.audited_as, details)
    expires_at = home.clock.now() + timedelta(minutes=CODE_MINUTES)
    path = f"{home.config.gateway.control_ui.base_path.rstrip('/')}/"
    elsewhere = address_for_others(home.config.gateway, here)
    spelled = f"{code[:4]}-{code[4:]}"
    if elsewhere is None:
        return wire.Invitation(spelled, f"{here}{path}", expires_at)
    link = pairing_link(f"{elsewhere}{path}", spelled)
    return wire.Invitation(spelled, f"{elsewhere}{path}", expires_at, link, _draw_qr_code(link))


def _draw_qr_code(text: str) -> tuple[str, ...]:
    import segno

    return tuple("".join("1" if cell else "0" for cell in row) for row in segno.make(text, error="l").matrix_iter())


def _require_own(call: Call, wanted: Iterable[Scope]) -> None:
    """Raise `RequestRefused` for scopes that the caller does not have: nobody can give more than that."""
    beyond = with_implied(wanted) - call.principal.scopes
    if beyond:
        raise RequestRefused(
            ErrorCode.FORBIDDEN, f"Your token does not have these scopes itself: {', '.join(sorted(beyond))}."
        )


@registry.implements(wire.DEVICES_REVOKE)
async def revoke(call: Call, params: wire.RevokeDevice) -> Done:
    record = call.gateway.auth.tokens.revoke(params.id, kind="device")
    details = {"id": record.id, "name": record.name}
    call.runtime.home.audit.record("gateway_token_revoked", call.principal.audited_as, details)
    call.gateway.publish_devices()
    return Done()


def _record(call: Call, kind: str, request: PairingRequest, **more: object) -> None:
    details = {"id": request.id, "name": request.name, "address": request.address, **more}
    call.runtime.home.audit.record(kind, call.principal.audited_as, details)
