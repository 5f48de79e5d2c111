"""`retinue skills accept|diff|verify|rollback|pin|unpin`: what the owner decides about skills."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from retinue.cli.common import Command, Invocation, pass_invocation, which_agent
from retinue.cli.skill_access import (
    describe_locked,
    find_skill,
    load_skills,
    open_owner_home,
    open_store,
    record_change,
    write_foreign_locks,
)
from retinue.cli.skills_install import describe_findings, format_findings

if TYPE_CHECKING:
    from retinue.runtime.home import Home
    from retinue.skills.registry.answers import VerifyAnswer
    from retinue.skills.skill import Skill


@click.command(cls=Command)
@click.argument("name")
@click.option("--digest", default="", metavar="HEX", help="Accept only the content with this digest.")
@click.option("--force", is_flag=True, help="Accept it in spite of what the scan found.")
@which_agent
@pass_invocation
def accept(invocation: Invocation, name: str, digest: str, force: bool, agent_id: str | None) -> None:
    """Accept the present content of a skill, so that agents may use it."""
    from retinue.core.errors import SkillError
    from retinue.runtime.agents.skill_review import HomeSkillReview

    home = open_owner_home(invocation)
    skill = find_skill(home, agent_id, name)
    shown = HomeSkillReview(home, home.agent_id(agent_id)).show(name)
    if shown.suspicion and not force:
        raise SkillError(
            f"The scan of '{name}' found what attacks look like: {shown.suspicion}. Read `retinue skills diff {name}`; "
            "--force accepts it."
        )
    entry = open_store(home).accept(skill.folder, digest or shown.digest)
    record_change(home, "skill_accept", entry)
    invocation.show(describe_locked(skill.folder, entry), f"Accepted {skill.name} ({entry.accepted[:12]}).")


@click.command(cls=Command)
@click.argument("name")
@which_agent
@pass_invocation
def diff(invocation: Invocation, name: str, agent_id: str | None) -> None:
    """Show how a skill differs from its accepted content."""
    from retinue.runtime.agents.skill_review import HomeSkillReview

    home = invocation.load_home()
    shown = HomeSkillReview(home, home.agent_id(agent_id)).show(name)
    findings = describe_findings(shown.findings)
    if findings and shown.diff:
        invocation.note(format_findings(shown.findings))
    invocation.show(
        {"name": shown.skill.name, "digest": shown.digest, "diff": shown.diff, "findings": findings},
        shown.diff or f"{shown.skill.name} has the accepted content.",
        exact=True,
    )


@click.command(cls=Command)
@click.argument("names", nargs=-1)
@click.option("--remote", is_flag=True, help="Also compare the files with those of the registry.")
@which_agent
@pass_invocation
def verify(invocation: Invocation, names: tuple[str, ...], remote: bool, agent_id: str | None) -> int:
    """Compare installed skills with skills.lock; the exit code is 1 if one is new or changed."""
    from retinue.skills.skill import SkillTier

    home = invocation.load_home()
    skills = [find_skill(home, agent_id, name) for name in names]
    if not names:
        skills = [skill for skill in load_skills(home, agent_id) if skill.tier is not SkillTier.BUNDLED]
    reasons = {skill.name: skill.held or (_compare_with_registry(home, skill) if remote else "") for skill in skills}
    results = [{"name": name, "ok": not reason, "reason": reason} for name, reason in reasons.items()]
    lines = [f"{each['name']}: {each['reason'] or 'ok'}" for each in results]
    invocation.show(results, "\n".join(lines) or "There are no skills.")
    return 0 if all(each["ok"] for each in results) else 1


@click.command(cls=Command)
@click.argument("name")
@click.option("--to", default="", metavar="VERSION", help="Version or digest (default: the one before).")
@which_agent
@pass_invocation
def rollback(invocation: Invocation, name: str, to: str, agent_id: str | None) -> None:
    """Restore an earlier version of a skill, exactly as it was."""
    home = open_owner_home(invocation)
    folder = find_skill(home, agent_id, name).folder
    entry = open_store(home).rollback(folder, to)
    record_change(home, "skill_rollback", entry)
    write_foreign_locks(home, agent_id)
    invocation.show(describe_locked(folder, entry), f"Restored {entry.name} to {entry.accepted[:12]}.")


@click.command(cls=Command)
@click.argument("name")
@click.option("--reason", default="", help="Why; shown when an update is refused.")
@which_agent
@pass_invocation
def pin(invocation: Invocation, name: str, reason: str, agent_id: str | None) -> None:
    """Refuse updates of a skill."""
    _pin(invocation, name, agent_id, pinned=True, reason=reason)


@click.command(cls=Command)
@click.argument("name")
@which_agent
@pass_invocation
def unpin(invocation: Invocation, name: str, agent_id: str | None) -> None:
    """Allow updates of a pinned skill again."""
    _pin(invocation, name, agent_id, pinned=False)


COMMANDS = (accept, diff, verify, rollback, pin, unpin)


def _pin(invocation: Invocation, name: str, agent_id: str | None, *, pinned: bool, reason: str = "") -> None:
    home = open_owner_home(invocation)
    folder = find_skill(home, agent_id, name).folder
    entry = open_store(home).pin(folder, pinned=pinned, reason=reason)
    write_foreign_locks(home, agent_id)
    invocation.show(describe_locked(folder, entry), f"{entry.name} is {'pinned' if pinned else 'not pinned'}.")


def _compare_with_registry(home: Home, skill: Skill) -> str:
    """Return how the files of a skill differ from those of its registry, or why the registry advises against it."""
    import anyio

    from retinue.skills.integrity.contents import read_folder
    from retinue.skills.registry.client import SkillReference, connect
    from retinue.skills.registry.fingerprint import GENERATED, hash_contents, is_published

    entry = open_store(home).find(skill.folder)
    if entry is None or entry.origin.kind != "registry":
        return ""
    origin = entry.origin

    async def ask() -> VerifyAnswer:
        async with connect(origin.registry) as client:
            return await client.verify(SkillReference(origin.slug, origin.owner), origin.version)

    answer = anyio.run(ask)
    if not answer.ok:
        return f"the registry says: {', '.join(answer.reasons) or answer.decision}"
    listed = {each["path"]: each["sha256"] for each in (answer.artifact or {}).get("files", [])}
    here = {name: value for name, value in hash_contents(read_folder(skill.folder)).items() if is_published(name)}
    different = [name for name in sorted({*listed, *here} - GENERATED) if listed.get(name) != here.get(name)]
    return f"different from the registry: {', '.join(different)}" if different else ""
