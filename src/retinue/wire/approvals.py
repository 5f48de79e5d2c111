"""Approval requests and the decisions on them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from retinue.core.approval import ApprovalRequest, Verdict
from retinue.wire.frames import Nothing, Params, Time, Wire
from retinue.wire.method import Method
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


LIST = Method("approvals.list", Scope.APPROVE, Nothing, PendingList, "List pending approval requests.")
RESOLVE = Method("approvals.resolve", Scope.APPROVE, Resolve, Resolved, "Decide on an approval request.", True)

METHODS = (LIST, RESOLVE)
