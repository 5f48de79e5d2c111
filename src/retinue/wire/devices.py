"""Pairing requests of devices, and paired devices."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from retinue.wire.frames import Done, Name, Nothing, Params, Time, Wire
from retinue.wire.method import Method
from retinue.wire.protocol import Scope


class WaitingDevice(Wire, frozen=True):
    """A device that requests access. It chose its name and platform itself; its screen shows the code."""

    id: str
    code: str
    name: str
    platform: str
    address: str
    asked_at: Time
    expires_at: Time


class PairedDevice(Wire, frozen=True):
    """A paired device; `id` is the id of its token."""

    id: str
    name: str
    scopes: list[Scope]
    created_at: Time
    used_at: Time | None


class Devices(Wire, frozen=True):
    """Devices that wait for a decision, and paired devices."""

    waiting: list[WaitingDevice]
    paired: list[PairedDevice]


class OfRequest(Params, frozen=True):
    """A pairing request, by its code or id."""

    code: Name


class ApproveDevice(OfRequest, frozen=True):
    """The scopes of the device; a caller can only give scopes that it has itself."""

    scopes: Annotated[tuple[Scope, ...], Meta(min_length=1, max_length=len(Scope))] = (Scope.READ, Scope.WRITE)


class RevokeDevice(Params, frozen=True):
    """A paired device, by its id or name."""

    id: Name


DEVICES_LIST = Method("devices.list", Scope.PAIR, Nothing, Devices, "List devices that wait and paired devices.")
DEVICES_APPROVE = Method("devices.approve", Scope.PAIR, ApproveDevice, Done, "Approve a device.", changes=True)
DEVICES_REJECT = Method("devices.reject", Scope.PAIR, OfRequest, Done, "Reject a device.", changes=True)
DEVICES_REVOKE = Method("devices.revoke", Scope.ADMIN, RevokeDevice, Done, "Revoke a device's token.", changes=True)

METHODS = (DEVICES_LIST, DEVICES_APPROVE, DEVICES_REJECT, DEVICES_REVOKE)
