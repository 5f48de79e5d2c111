"""Approval requests and the decisions on them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum

from msgspec import Struct

from retinue.core.keys import AgentId, SessionKey

IN_COMMAND = "RETINUE_SHELL"
"""An environment variable of every command that an agent runs. A process that has it does not act for a person."""


class Verdict(StrEnum):
    """The decision of a person."""

    ALLOW_ONCE = "allow-once"
    ALLOW_ALWAYS = "allow-always"
    DENY = "deny"


class ApprovalRequest(Struct, frozen=True):
    """An action that needs approval, exactly as it is shown to the person; `detail` is never shortened.

    `remember` are the exact argument patterns that "always" would store; without any, "always" is not offered.
    `binding` is a hash of everything that is approved. `explanation` is for the reader only; no decision depends on it.
    """

    id: str
    tool: str
    title: str
    detail: str
    agent: AgentId
    session: SessionKey
    remember: tuple[tuple[str, ...], ...] = ()
    binding: str = ""
    explanation: tuple[str, ...] = ()

    @property
    def may_remember(self) -> bool:
        return bool(self.remember)


class ApprovalDecision(Struct, frozen=True):
    """A verdict, its reason, and the person who gave it; `by` is empty if no person decided."""

    verdict: Verdict
    because: str
    by: str = ""

    @property
    def allowed(self) -> bool:
        return self.verdict is not Verdict.DENY


Ask = Callable[[ApprovalRequest], Awaitable[ApprovalDecision]]
"""Asks a person. It is cancelled if the request is decided elsewhere first.

Code that passes requests on takes `Ask | None`; None means that no person can be asked in this process.
"""


async def deny_unattended(request: ApprovalRequest) -> ApprovalDecision:
    """Deny a request: the `Ask` of a tool call that no person watches."""
    return ApprovalDecision(Verdict.DENY, f"`{request.tool}` needs approval and no person is available")
