"""Asking a person whether something may be done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum

from msgspec import Struct

from retinue.core.keys import AgentId, SessionKey

IN_COMMAND = "RETINUE_SHELL"
"""The variable that every command of an agent is started with: whoever has it is no person."""


class Verdict(StrEnum):
    """What the person decided."""

    ALLOW_ONCE = "allow-once"
    ALLOW_ALWAYS = "allow-always"
    DENY = "deny"


class ApprovalRequest(Struct, frozen=True):
    """Exactly what would happen, in the words that the person sees; `detail` is never shortened.

    `remember` are the exact argument patterns that "always" would store; where there are none, there is no "always".
    `binding` is a hash over what is agreed to. `explanation` helps the reader, and nothing ever decides from it.
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
    """A verdict and who gave it, or why it was given without anybody; then `by` is empty."""

    verdict: Verdict
    because: str
    by: str = ""

    @property
    def allowed(self) -> bool:
        return self.verdict is not Verdict.DENY


Ask = Callable[[ApprovalRequest], Awaitable[ApprovalDecision]]
"""Asks a person. Where nobody can be asked, the answer is deny. Cancelled where somebody else answered first."""


async def nobody_to_ask(request: ApprovalRequest) -> ApprovalDecision:
    """The `Ask` of a run that no person watches."""
    return ApprovalDecision(Verdict.DENY, f"`{request.tool}` needs approval and nobody is here to give it")
