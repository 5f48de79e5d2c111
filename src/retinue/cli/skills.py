"""`retinue skills`: the skills of an agent, and why one is disabled."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import asdict

from retinue.cli import skills_dependencies, skills_install, skills_proposals, skills_registry, skills_review
from retinue.cli.common import Group, Invocation, pass_invocation, table
from retinue.cli.terminal import format_value, label

if TYPE_CHECKING:
    from collections.abc import Iterator

    from retinue.runtime.agents.workspace import AgentWorkspace
    from retinue.skills.catalog import SkillCatalog
    from retinue.skills.library import CheckedSkill, Discovery
    from retinue.skills.skill import SkillProblem

DESCRIPTION_SHOWN = 60


@click.group(cls=Group)
def skills() -> None:
    pass


def _which(command: Any) -> Any:
    """Add the options that select an agent's skills."""
    for option in (
        click.option("--agent", metavar="ID", help="Agent (default: the default agent)."),
        click.option(
            "--skill",
            "paths",
            metavar="PATH",
            multiple=True,
            type=click.Path(path_type=Path),
            help="Include this skill; may be repeated.",
        ),
    ):
        command = option(command)
    return command


for _command in (
    *skills_install.COMMANDS,
    *skills_review.COMMANDS,
    *skills_registry.COMMANDS,
    skills_proposals.proposals,
    skills_dependencies.dependencies,
):
    skills.add_command(_command)


@skills.command("list")
@_which
@click.option("--eligible", is_flag=True, help="Only skills that can be used.")
@pass_invocation
def list_skills(invocation: Invocation, agent: str | None, paths: tuple[Path, ...], eligible: bool) -> None:
    """List the skills of an agent."""
    with _open(invocation, agent, paths) as room:
        judged = [item for item in room.skills() if item.gate.eligible or not eligible]
    invocation.show(
        [_summarise(item) for item in judged],
        lambda: (
            table(
                [(item.skill.name, item.skill.tier, *_state(item)) for item in judged],
                header=("skill", "from", "state", "description"),
            )
            if judged
            else "No skills were found."
        ),
    )


@skills.command()
@click.argument("name")
@click.option("--remote", is_flag=True, help="Ask the registry about a skill that need not be installed.")
@_which
@pass_invocation
def info(invocation: Invocation, name: str, remote: bool, agent: str | None, paths: tuple[Path, ...]) -> None:
    """Show the details of a skill."""
    if remote:
        skills_registry.show_remote(invocation, name)
        return
    with _open(invocation, agent, paths) as room:
        details = _describe(_find(room.skills(), name))
    invocation.show(
        details,
        lambda: table(
            [(label(key), format_value(value)) for key, value in details.items() if value not in (None, (), [])]
        ),
    )


@skills.command()
@_which
@click.option("--strict", is_flag=True, help="Exit with 1 if a skill could not be read or a limit was reached.")
@pass_invocation
def check(invocation: Invocation, agent: str | None, paths: tuple[Path, ...], strict: bool) -> int:
    """Report for every skill whether it can be used, and if not, why."""
    with _open(invocation, agent, paths) as room:
        judged, found, catalog = room.skills(), room.library.load(), room.skill_catalog()
        plans = {
            item.skill.name: skills_dependencies.list_plans(room.home, item.skill)
            for item in judged
            if item.skill.install and not item.gate.eligible and not item.gate.switched_off
        }
    data = _check_data(judged, found, catalog)
    data["install"] = [
        {"skill": name, "ways": [skills_dependencies.describe_plan(plan) for plan in ways]}
        for name, ways in plans.items()
    ]
    commands = [(name, ways[0].text) for name, ways in plans.items() if ways and not ways[0].problem]
    offered = table([(text, f"retinue skills dependencies {name}") for name, text in commands], indent="  ")
    title = f"\n\nWhat skills need can be installed ({len(commands)})\n{offered}" if commands else ""
    invocation.show(data, lambda: _check_text(judged, found, catalog) + title)
    return 1 if strict and (found.problems or found.limits or catalog.omitted) else 0


@contextmanager
def _open(invocation: Invocation, agent: str | None, paths: tuple[Path, ...]) -> Iterator[AgentWorkspace]:
    from retinue.runtime.agents.workspace import open_workspace
    from retinue.runtime.home import load_home

    home = load_home(invocation.home)
    with open_workspace(home, home.agent_id(agent), extra_skills=paths) as room:
        yield room


def _find(judged: Iterable[CheckedSkill], name: str) -> CheckedSkill:
    from difflib import get_close_matches

    from retinue.core.errors import UsageError

    by_name = {spelling.casefold(): item for item in judged for spelling in (item.skill.key, item.skill.name)}
    found = by_name.get(name.casefold())
    if found is None:
        near = get_close_matches(name.casefold(), by_name, n=1)
        hint = f"Did you mean '{near[0]}'?" if near else "`retinue skills list` shows them all."
        raise UsageError(f"There is no skill '{name}'. {hint}")
    return found


def _summarise(item: CheckedSkill) -> dict[str, Any]:
    skill = item.skill
    return {
        "name": skill.name,
        "description": skill.description,
        "emoji": skill.emoji,
        "tier": str(skill.tier),
        "location": str(skill.location),
        "version": skill.version,
        "eligible": item.gate.eligible,
        "reasons": item.gate.reasons,
    }


def _describe(item: CheckedSkill) -> dict[str, Any]:
    skill = item.skill
    needs = skill.requirements
    return _summarise(item) | {
        "homepage": skill.homepage,
        "license": skill.license,
        "compatibility": skill.compatibility,
        "userInvocable": skill.user_invocable,
        "modelInvocable": not skill.disable_model_invocation,
        "allowRemote": skill.allow_remote,
        "commandDispatch": skill.command_dispatch,
        "commandTool": skill.command_tool,
        "allowedTools": skill.allowed_tools,
        "always": skill.always,
        "os": needs.os,
        "bins": needs.bins,
        "anyBins": needs.any_bins,
        "env": needs.env,
        "config": needs.config,
        "primaryEnv": skill.primary_env,
        "skillKey": skill.key,
        "install": [asdict(way) for way in skill.install],
    }


def _check_data(judged: tuple[CheckedSkill, ...], found: Discovery, catalog: SkillCatalog) -> dict[str, Any]:
    return {
        "skills": [_summarise(item) for item in judged],
        "problems": _list_problems(found.problems),
        "shadowed": [
            {
                "name": item.skill.name,
                "tier": str(item.skill.tier),
                "location": str(item.skill.location),
                "byTier": str(item.by.tier),
                "byLocation": str(item.by.location),
            }
            for item in found.shadowed
        ],
        "limits": _list_problems(found.limits),
        "prompt": {
            "listed": len(catalog.listed),
            "omitted": [skill.name for skill in catalog.omitted],
            "compact": catalog.compact,
            "characters": len(catalog.text),
            "note": catalog.note,
        },
    }


def _list_problems(problems: Iterable[SkillProblem]) -> list[dict[str, str]]:
    return [{"path": str(problem.path), "message": problem.message} for problem in problems]


def _check_text(judged: tuple[CheckedSkill, ...], found: Discovery, catalog: SkillCatalog) -> str:
    ready = [item for item in judged if item.gate.eligible]
    off = [item for item in judged if not item.gate.eligible]
    sections = (
        ("Ready", [(item.skill.name, item.skill.tier) for item in ready]),
        ("Off", [(item.skill.name, item.skill.tier, "; ".join(item.gate.reasons)) for item in off]),
        ("Could not be read", [(problem.path, problem.message) for problem in found.problems]),
        (
            "Hidden by another of the same name",
            [(item.skill.name, item.skill.location, f"by {item.by.location}") for item in found.shadowed],
        ),
        ("Limits reached", [(limit.path, limit.message) for limit in found.limits]),
        ("In the prompt", [(catalog.note,)] if catalog.note else []),
    )
    return "\n\n".join(f"{title} ({len(rows)})\n{table(rows, indent='  ')}" for title, rows in sections if rows)


def _state(item: CheckedSkill) -> tuple[str, str]:
    """Format the state of a skill: its purpose, or why it cannot be used."""
    return ("ready", _shorten(item.skill.description)) if item.gate.eligible else ("off", item.gate.reasons[0])


def _shorten(text: str) -> str:
    return text if len(text) <= DESCRIPTION_SHOWN else f"{text[: DESCRIPTION_SHOWN - 1].rstrip()}…"
