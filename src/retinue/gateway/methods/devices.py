"""Devices that ask to be let in, and those that were."""

from __future__ import annotations

from retinue.gateway.gate import Refused
from retinue.gateway.gateway import Call
from retinue.gateway.pairing import PairingRequest, spell_code
from retinue.gateway.registry import Registry
from retinue.gateway.tokens import TokenRecord
from retinue.wire import devices as wire
from retinue.wire.frames import Done, Nothing
from retinue.wire.protocol import ErrorCode, with_implied

registry = Registry()


@registry.carries_out(wire.DEVICES_LIST)
async def list_devices(call: Call, params: Nothing) -> wire.Devices:
    gate = call.gateway.gate
    now = call.runtime.home.clock.now()
    return wire.Devices(
        waiting=[_waiting(request) for request in gate.requests.waiting()],
        paired=[_paired(record) for record in gate.book.devices() if record.is_valid(now)],
    )


@registry.carries_out(wire.DEVICES_APPROVE)
async def approve(call: Call, params: wire.ApproveDevice) -> Done:
    beyond = with_implied(params.scopes) - call.principal.scopes
    if beyond:
        raise Refused(
            ErrorCode.FORBIDDEN, f"You cannot give what you may not do yourself: {', '.join(sorted(beyond))}."
        )
    request = call.gateway.gate.requests.approve(params.code, params.scopes)
    _record(call, "gateway_device_approved", request, scopes=sorted(params.scopes))
    return Done()


@registry.carries_out(wire.DEVICES_REJECT)
async def reject(call: Call, params: wire.OfRequest) -> Done:
    _record(call, "gateway_device_rejected", call.gateway.gate.requests.reject(params.code))
    return Done()


@registry.carries_out(wire.DEVICES_REVOKE)
async def revoke(call: Call, params: wire.RevokeDevice) -> Done:
    record = call.gateway.gate.book.revoke(params.id, kind="device")
    details = {"id": record.id, "name": record.name}
    call.runtime.home.audit.record("gateway_token_revoked", call.principal.audited_as, details)
    call.gateway.tell_of_devices()
    return Done()


def _record(call: Call, kind: str, request: PairingRequest, **more: object) -> None:
    details = {"id": request.id, "name": request.name, "address": request.address, **more}
    call.runtime.home.audit.record(kind, call.principal.audited_as, details)


def _waiting(request: PairingRequest) -> wire.WaitingDevice:
    return wire.WaitingDevice(
        id=request.id,
        code=spell_code(request.code),
        name=request.name,
        platform=request.platform,
        address=request.address,
        asked_at=request.asked_at,
        expires_at=request.expires_at,
    )


def _paired(record: TokenRecord) -> wire.PairedDevice:
    return wire.PairedDevice(
        id=record.id,
        name=record.name,
        scopes=list(record.scopes),
        created_at=record.created_at,
        used_at=record.used_at,
    )
