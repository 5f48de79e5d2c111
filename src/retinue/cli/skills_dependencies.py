"""`retinue skills dependencies`: install what a skill needs, on consent."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Command, Invocation, ask_is_possible, pass_invocation, table, which_agent
from retinue.cli.skill_access import cli_actor, find_skill, open_owner_home

if TYPE_CHECKING:
    from retinue.runtime.home import Home
    from retinue.skills.dependencies import InstallPlan
    from retinue.skills.skill import Skill

TOOLS_FOLDER = "skill-tools"


@click.command(cls=Command)
@click.argument("name")
@click.option("--id", "chosen", metavar="ID", help="The way to install it (default: the first that fits).")
@click.option("--yes", is_flag=True, help="Run the command that is shown without a question.")
@which_agent
@pass_invocation
def dependencies(invocation: Invocation, name: str, chosen: str | None, yes: bool, agent_id: str | None) -> int:
    """Show the exact commands that install what a skill needs, and run one of them if you agree."""
    from retinue.core.errors import UsageError

    home = open_owner_home(invocation)
    skill = find_skill(home, agent_id, name)
    plans = list_plans(home, skill)
    if chosen is not None and chosen not in {plan.id for plan in plans}:
        raise UsageError(f"'{skill.name}' has no way '{chosen}' to install it. It has: {_ids(plans) or 'none'}.")
    usable = [plan for plan in plans if not plan.problem and chosen in (None, plan.id)]
    rows = [(plan.id, plan.text or plan.label, plan.problem) for plan in plans]
    listed = table(rows, header=("id", "command", "")) if rows else f"'{skill.name}' names nothing to install."
    if not usable or not (yes or (ask_is_possible() and not invocation.as_json)):
        invocation.show({"name": skill.name, "ways": [describe_plan(plan) for plan in plans], "ran": None}, listed)
        return 0
    plan = usable[0]
    if not yes:
        invocation.note(listed)
        if skill.held:
            invocation.note(f"Note that the skill was not accepted: it is {skill.held}.")
        click.confirm(f"Run this now? {plan.text}", abort=True, err=True)
    home.audit.record("skill_dependency", cli_actor(), {"skill": skill.name, "command": plan.text})
    code, place = _run(home, skill, plan)
    data = {"name": skill.name, "ways": [describe_plan(each) for each in plans], "ran": plan.text, "code": code}
    done = f"Stored in {place}." if place else "Done."
    invocation.show(data | {"path": place}, done if code == 0 else f"The command ended with {code}.")
    return 0 if code == 0 else 1


def list_plans(home: Home, skill: Skill) -> tuple[InstallPlan, ...]:
    """Return the ways to install what a skill needs."""
    from retinue.skills.dependencies import plan_installs

    return plan_installs(skill, sys.platform, home.programs.on(home.environment.get("PATH", "")))


def describe_plan(plan: InstallPlan) -> dict[str, Any]:
    """Return a way to install something as data."""
    return {"id": plan.id, "kind": plan.kind, "label": plan.label, "command": plan.text, "problem": plan.problem}


def _run(home: Home, skill: Skill, plan: InstallPlan) -> tuple[int, str]:
    import subprocess

    import anyio

    from retinue.skills.dependencies import download

    if plan.url:
        folder = home.paths.path / TOOLS_FOLDER / skill.folder.name
        return 0, str(anyio.run(download, plan, folder))
    # The output belongs to the person; standard output stays the result of this command.
    done = subprocess.run(list(plan.command), stdout=2, check=False)
    return done.returncode, ""


def _ids(plans: tuple[InstallPlan, ...]) -> str:
    return ", ".join(plan.id for plan in plans)
