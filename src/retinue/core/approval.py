"""Asking a person whether something may be done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What the person decided."""

    ALLOW_ONCE = "allow-once"
    ALLOW_ALWAYS = "allow-always"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """Exactly what would happen, in the words that the person sees; `detail` is never shortened."""

    id: str
    tool: str
    title: str
    detail: str
    may_remember: bool = False


@dataclass(frozen=True, slots=True)
class ApprovalDecision:
    """A verdict and who gave it, or why it was given without anybody."""

    verdict: Verdict
    because: str

    @property
    def allowed(self) -> bool:
        return self.verdict is not Verdict.DENY


Ask = Callable[[ApprovalRequest], Awaitable[ApprovalDecision]]
"""Asks a person. Where nobody can be asked, the answer is deny."""


async def nobody_to_ask(request: ApprovalRequest) -> ApprovalDecision:
    """The `Ask` of a run that no person watches."""
    return ApprovalDecision(Verdict.DENY, f"`{request.tool}` needs approval and nobody is here to give it")
