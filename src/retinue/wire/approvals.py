"""What the owner decides: approval requests of agents, and devices that request access."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from retinue.core.approval import ApprovalRequest, Verdict
from retinue.wire.frames import Done, Method, Name, Nothing, Params, Time, Wire
from retinue.wire.protocol import Scope


class Pending(Wire, frozen=True):
    """An approval request without a decision."""

    request: ApprovalRequest
    asked_at: Time
    expires_at: Time


class PendingList(Wire, frozen=True):
    """Pending approval requests, oldest first."""

    approvals: list[Pending]


class Resolve(Params, frozen=True):
    """A decision. With `binding`, it is valid only for exactly what was shown under that binding."""

    id: Annotated[str, Meta(min_length=1, max_length=100)]
    verdict: Verdict
    reason: Annotated[str, Meta(max_length=400)] = ""
    binding: Annotated[str, Meta(max_length=200)] | None = None


class Resolved(Wire, frozen=True):
    """The outcome of the request, as a sentence."""

    id: str
    told: str


class ListHistory(Params, frozen=True):
    """How many requests to return."""

    limit: Annotated[int, Meta(ge=1, le=500)] = 100


class ApprovalRecord(Wire, frozen=True):
    """An approval request, its state, and who decided it when."""

    id: str
    state: str
    agent: str
    session_key: str
    tool: str
    title: str
    detail: str
    asked_at: Time
    decided_at: Time | None = None
    decided_by: str = ""
    because: str = ""


class ApprovalHistory(Wire, frozen=True):
    """Approval requests in any state, newest first."""

    requests: list[ApprovalRecord]


class OfRules(Params, frozen=True):
    """An agent; without one all agents."""

    agent: Name | None = None


class AllowRule(Wire, frozen=True):
    """A pattern of commands that need no approval. Without an `id` it is in the configuration, at the key `source`."""

    agent: str
    pattern: str
    source: str
    id: str = ""
    added_at: str | None = None
    added_by: str | None = None
    used_at: str | None = None
    uses: int = 0


class AllowRules(Wire, frozen=True):
    rules: list[AllowRule]


class AddRule(OfRules, frozen=True, kw_only=True):
    """A pattern such as `git diff *`."""

    pattern: Annotated[str, Meta(min_length=1, max_length=1_000)]


class RemoveRule(OfRules, frozen=True, kw_only=True):
    """A stored rule, by its id."""

    id: Annotated[str, Meta(min_length=1, max_length=100)]


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


class InviteDevice(Params, frozen=True):
    """The scopes of the device that uses the code; a caller can only give scopes that it has itself."""

    scopes: Annotated[tuple[Scope, ...], Meta(min_length=1, max_length=len(Scope))] = (Scope.READ, Scope.WRITE)


class Invitation(Wire, frozen=True):
    """A code that pairs one device, and the address to open on it.

    `link` contains the code in a part that browsers send to no server, and `qr` is its QR code: rows of `0` and `1`.
    Without an address for other devices both are empty.
    """

    code: str
    address: str
    expires_at: Time
    link: str = ""
    qr: tuple[str, ...] = ()


class RevokeDevice(Params, frozen=True):
    """A paired device, by its id or name."""

    id: Name


APPROVALS_LIST = Method("approvals.list", Scope.APPROVE, Nothing, PendingList, "List pending approval requests.")
APPROVALS_RESOLVE = Method(
    "approvals.resolve", Scope.APPROVE, Resolve, Resolved, "Decide on an approval request.", True
)
DEVICES_LIST = Method("devices.list", Scope.PAIR, Nothing, Devices, "List devices that wait and paired devices.")
DEVICES_APPROVE = Method("devices.approve", Scope.PAIR, ApproveDevice, Done, "Approve a device.", changes=True)
DEVICES_REJECT = Method("devices.reject", Scope.PAIR, OfRequest, Done, "Reject a device.", changes=True)
DEVICES_INVITE = Method(
    "devices.invite", Scope.PAIR, InviteDevice, Invitation, "Create a code that pairs one device.", changes=True
)
DEVICES_REVOKE = Method("devices.revoke", Scope.ADMIN, RevokeDevice, Done, "Revoke a device's token.", changes=True)

APPROVALS_HISTORY = Method(
    "approvals.history", Scope.APPROVE, ListHistory, ApprovalHistory, "List approval requests in any state."
)
RULES_LIST = Method("rules.list", Scope.APPROVE, OfRules, AllowRules, "List commands that need no approval.")
RULES_ADD = Method("rules.add", Scope.ADMIN, AddRule, AllowRules, "Let commands run without approval.", True)
RULES_REMOVE = Method("rules.remove", Scope.ADMIN, RemoveRule, AllowRules, "Remove a stored rule.", True)

METHODS = (
    *(APPROVALS_LIST, APPROVALS_RESOLVE, APPROVALS_HISTORY, RULES_LIST, RULES_ADD, RULES_REMOVE),
    *(DEVICES_LIST, DEVICES_APPROVE, DEVICES_REJECT, DEVICES_INVITE, DEVICES_REVOKE),
)
