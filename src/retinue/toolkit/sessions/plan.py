"""The update_plan tool: records the steps of a task and shows them to the user."""

from __future__ import annotations

from typing import Any, Literal

from retinue.core.errors import ToolFailed
from retinue.toolkit.parts import ToolParts
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput, argument

MAX_PLAN_STEPS = 40
_MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}


class PlanStep(Arguments):
    step: str = argument(min_length=1)
    status: Literal["pending", "in_progress", "completed"]


class PlanArguments(Arguments):
    plan: list[PlanStep] = argument(min_length=1, max_length=MAX_PLAN_STEPS)
    explanation: str | None = None


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """Make the update_plan tool."""
    return (
        Tool(
            name="update_plan",
            summary="Track the steps of a task",
            description="State the whole plan of a longer task; exactly one step is in_progress until all are "
            "completed.",
            arguments=PlanArguments,
            run=update_plan,
            parallel=False,
        ),
    )


async def update_plan(arguments: PlanArguments, context: ToolContext) -> ToolOutput:
    """Check a plan and show it."""
    states = [step.status for step in arguments.plan]
    active = states.count("in_progress")
    if active != 1 and not (active == 0 and set(states) == {"completed"}):
        raise ToolFailed(
            f"A plan must have exactly one step in_progress; this one has {active}. Correct it and call again."
        )
    lines = [f"{_MARKS[step.status]} {' '.join(step.step.split())}" for step in arguments.plan]
    if arguments.explanation:
        lines.insert(0, arguments.explanation)
    await context.report("\n".join(lines))
    return ToolOutput.of(f"Plan updated: {states.count('completed')} of {len(states)} steps done.")
