"""Questions to a person, and answering them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import StringConstraints

from retinue.core.approval import Verdict
from retinue.wire.frames import Nothing, Params, Wire
from retinue.wire.method import Method
from retinue.wire.protocol import Scope
from retinue.wire.values import WireApproval


class Pending(Wire):
    """A question that is open."""

    request: WireApproval
    asked_at: datetime
    expires_at: datetime


class PendingList(Wire):
    """Oldest first."""

    approvals: list[Pending]


class Resolve(Params):
    """A decision. With `binding`, it holds only for exactly what was shown under that binding."""

    id: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    verdict: Verdict
    reason: Annotated[str, StringConstraints(max_length=400)] = ""
    binding: Annotated[str, StringConstraints(max_length=200)] | None = None


class Resolved(Wire):
    """What became of the question, in words."""

    id: str
    told: str


LIST = Method("approvals.list", Scope.APPROVE, Nothing, PendingList, "Questions that wait for a person.")
RESOLVE = Method("approvals.resolve", Scope.APPROVE, Resolve, Resolved, "Answer a question.", True)

METHODS = (LIST, RESOLVE)
