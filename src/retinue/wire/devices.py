"""Devices that ask to be let in, and those that were."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from retinue.wire.frames import Done, Name, Nothing, Params, Wire
from retinue.wire.method import Method
from retinue.wire.protocol import Scope


class WaitingDevice(Wire):
    """A device that asks. Name and platform are its own word; the code is on its screen."""

    id: str
    code: str
    name: str
    platform: str
    address: str
    asked_at: datetime
    expires_at: datetime


class PairedDevice(Wire):
    """A device that was let in; `id` is that of its token."""

    id: str
    name: str
    scopes: list[Scope]
    created_at: datetime
    used_at: datetime | None


class Devices(Wire):
    """Those that wait, and those that may come in."""

    waiting: list[WaitingDevice]
    paired: list[PairedDevice]


class OfRequest(Params):
    """A request, by its code or id."""

    code: Name


class ApproveDevice(OfRequest):
    """What the device may do; nobody can give what they may not do themselves."""

    scopes: list[Scope] = Field(default=[Scope.READ, Scope.WRITE], min_length=1, max_length=len(Scope))


class RevokeDevice(Params):
    """A paired device, by its id or name."""

    id: Name


DEVICES_LIST = Method("devices.list", Scope.PAIR, Nothing, Devices, "Devices that wait and devices that were let in.")
DEVICES_APPROVE = Method("devices.approve", Scope.PAIR, ApproveDevice, Done, "Let a device in.", changes=True)
DEVICES_REJECT = Method("devices.reject", Scope.PAIR, OfRequest, Done, "Send a device away.", changes=True)
DEVICES_REVOKE = Method("devices.revoke", Scope.ADMIN, RevokeDevice, Done, "End a device's token.", changes=True)

METHODS = (DEVICES_LIST, DEVICES_APPROVE, DEVICES_REJECT, DEVICES_REVOKE)
