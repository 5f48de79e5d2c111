"""The tool with which an agent proposes a skill; the owner decides, on a card in the conversation or later."""

from __future__ import annotations

from typing import Any, Protocol

import anyio
from msgspec import Struct

from retinue.core.approval import ApprovalRequest
from retinue.core.errors import RetinueError
from retinue.toolkit.parts import ToolParts
from retinue.tools.sinks import TAINTED_REASON
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput, argument, reported_to_model

CARD_SECONDS = 120
MAX_FILES = 20


class ProposeArguments(Arguments):
    name: str = argument(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$", description="name of the skill, as in its front matter")
    reason: str = argument(min_length=1, max_length=2_000, description="what was learned, and when it helps")
    files: dict[str, str] = argument(
        description="whole contents by path, such as SKILL.md (with name and description) and scripts/x.py"
    )
    remove: list[str] = argument([], max_length=MAX_FILES, description="files to remove from an existing skill")
    test: str = argument("", max_length=2_000, description="shell command that must succeed in the skill's folder")


class ProposedSkill(Struct, frozen=True):
    """A stored proposal as the owner sees it; `applied` if the owner lets this agent change skills by itself."""

    id: str
    title: str
    diff: str
    notes: tuple[str, ...]
    applied: str = ""


class SkillLearning(Protocol):
    """Stores proposals and carries out decisions; every method raises `RetinueError` with what to do."""

    async def propose(self, arguments: ProposeArguments, context: ToolContext) -> ProposedSkill: ...

    async def decide(self, proposal: str, *, accepted: bool, by: str, because: str) -> str:
        """Accept or reject a proposal, and return what was done."""
        ...


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """Make the tool that proposes skills."""

    async def propose(arguments: ProposeArguments, context: ToolContext) -> ToolOutput:
        learning = parts.services.skill_learning()
        with reported_to_model(RetinueError):
            proposed = await learning.propose(arguments, context)
            if proposed.applied:
                return ToolOutput.of(proposed.applied)
            decision = None
            with anyio.move_on_after(CARD_SECONDS):
                decision = await context.ask(_make_card(proposed, context))
            if decision is None or not decision.by:
                return ToolOutput.of(f"Proposal {proposed.id} is stored. The owner decides about it later.")
            done = await learning.decide(
                proposed.id, accepted=decision.allowed, by=decision.by, because=decision.because
            )
        return ToolOutput.of(done)

    return (
        Tool(
            "skill_propose",
            "Propose a skill",
            "Propose a new skill, or a change to one, after a task of several steps that will come again. The owner "
            "reviews it; it is not used before. Write what to do, not what happened.",
            ProposeArguments,
            propose,
            deferred=True,
            parallel=False,
            owner_only=True,
            asks=True,
        ),
    )


def _make_card(proposed: ProposedSkill, context: ToolContext) -> ApprovalRequest:
    notes = (*proposed.notes, *((f"Note that {TAINTED_REASON}.",) if context.tainted else ()))
    return ApprovalRequest(
        context.call_id or context.run,
        "skill_propose",
        proposed.title,
        proposed.diff,
        context.agent,
        context.session,
        binding=proposed.id,
        explanation=notes,
    )
