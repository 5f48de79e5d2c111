"""`retinue skills install|accept|diff|verify|rollback|pin|unpin|remove`: what the owner decides about skills."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Command, Invocation, pass_invocation, which_agent

if TYPE_CHECKING:
    from retinue.runtime.home import Home
    from retinue.skills.integrity.contents import SkillContent
    from retinue.skills.integrity.lock import LockedSkill, SkillOrigin
    from retinue.skills.integrity.store import SkillStore
    from retinue.skills.skill import Skill


@click.command(cls=Command)
@click.argument("source")
@click.option("--as", "name", metavar="NAME", help="Name of the installed folder (default: the skill's name).")
@click.option("--global", "everywhere", is_flag=True, help="Install for all agents of this home.")
@click.option("--path", "below", metavar="DIR", default="", help="Folder of the skill in the repository or archive.")
@click.option("--yes", is_flag=True, help="Accept the content, so that agents may use it.")
@click.option("--executables", is_flag=True, help="Let files of the skill stay executable.")
@which_agent
@pass_invocation
def install(
    invocation: Invocation,
    source: str,
    name: str | None,
    everywhere: bool,
    below: str,
    yes: bool,
    executables: bool,
    agent_id: str | None,
) -> None:
    """Install a skill from a folder, a ZIP file or a Git repository (git:owner/repo[@ref], or any Git address)."""
    from msgspec.structs import replace

    from retinue.runtime.agents.workspace import locate_workspace
    from retinue.skills.skill import SkillTier, parse_skill

    home = _owner_home(invocation)
    files, origin = _fetch(source, below)
    declared = parse_skill(
        files["SKILL.md"].data if "SKILL.md" in files else b"", Path(name or "skill") / "SKILL.md", SkillTier.MANAGED
    )
    target = _folder_name(name or declared.name)
    if not executables:
        files = {path: replace(file, executable=False) for path, file in files.items()}
    root = home.paths.skills if everywhere else locate_workspace(home, home.agent_id(agent_id)) / "skills"
    entry = _store(home).install(root / target, files, origin, accept=yes)
    _record(home, "skill_install", entry)
    state = "It can be used now." if yes else f"It is off until you accept it: retinue skills accept {target}"
    invocation.show(
        _describe(root / target, entry), f"Installed {target} ({len(files)} files) in {root / target}. {state}"
    )


@click.command(cls=Command)
@click.argument("name")
@click.option("--digest", default="", metavar="HEX", help="Accept only the content with this digest.")
@which_agent
@pass_invocation
def accept(invocation: Invocation, name: str, digest: str, agent_id: str | None) -> None:
    """Accept the present content of a skill, so that agents may use it."""
    home = _owner_home(invocation)
    skill = _find(home, agent_id, name)
    entry = _store(home).accept(skill.folder, digest)
    _record(home, "skill_accept", entry)
    invocation.show(_describe(skill.folder, entry), f"Accepted {skill.name} ({entry.accepted[:12]}).")


@click.command(cls=Command)
@click.argument("name")
@which_agent
@pass_invocation
def diff(invocation: Invocation, name: str, agent_id: str | None) -> None:
    """Show how a skill differs from its accepted content."""
    from retinue.skills.integrity.contents import digest_of, hash_files, read_folder
    from retinue.skills.integrity.differences import compare

    home = invocation.load_home()
    skill = _find(home, agent_id, name)
    present = read_folder(skill.folder)
    text = compare(_store(home).accepted_files(skill.folder), present)
    digest = digest_of(hash_files(present))
    invocation.show(
        {"name": skill.name, "digest": digest, "diff": text},
        text or f"{skill.name} has the accepted content.",
        exact=True,
    )


@click.command(cls=Command)
@click.argument("names", nargs=-1)
@which_agent
@pass_invocation
def verify(invocation: Invocation, names: tuple[str, ...], agent_id: str | None) -> int:
    """Compare installed skills with skills.lock; the exit code is 1 if one is new or changed."""
    from retinue.skills.skill import SkillTier

    home = invocation.load_home()
    skills = [_find(home, agent_id, name) for name in names]
    if not names:
        skills = [skill for skill in _load(home, agent_id) if skill.tier is not SkillTier.BUNDLED]
    results = [{"name": skill.name, "ok": not skill.held, "reason": skill.held} for skill in skills]
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
    home = _owner_home(invocation)
    folder = _find(home, agent_id, name).folder
    entry = _store(home).rollback(folder, to)
    _record(home, "skill_rollback", entry)
    invocation.show(_describe(folder, entry), f"Restored {entry.name} to {entry.accepted[:12]}.")


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


@click.command(cls=Command)
@click.argument("name")
@which_agent
@pass_invocation
def remove(invocation: Invocation, name: str, agent_id: str | None) -> None:
    """Remove an installed skill; its versions are kept."""
    from retinue.core.errors import UsageError
    from retinue.skills.skill import SkillTier

    home = _owner_home(invocation)
    skill = _find(home, agent_id, name)
    if skill.tier not in (SkillTier.WORKSPACE, SkillTier.MANAGED):
        raise UsageError(f"'{skill.name}' is in {skill.folder}, which `retinue skills install` does not write to.")
    _store(home).remove(skill.folder)
    home.audit.record("skill_remove", _cli(), {"name": skill.name, "path": str(skill.folder)})
    invocation.show({"name": skill.name, "removed": str(skill.folder)}, f"Removed {skill.folder}.")


COMMANDS = (install, accept, diff, verify, rollback, pin, unpin, remove)


def _pin(invocation: Invocation, name: str, agent_id: str | None, *, pinned: bool, reason: str = "") -> None:
    home = _owner_home(invocation)
    folder = _find(home, agent_id, name).folder
    entry = _store(home).pin(folder, pinned=pinned, reason=reason)
    invocation.show(_describe(folder, entry), f"{entry.name} is {'pinned' if pinned else 'not pinned'}.")


def _cli() -> str:
    from retinue.storage.auditlog import CLI

    return CLI


def _owner_home(invocation: Invocation) -> Home:
    """Load the home for a decision that only the owner may make."""
    from retinue.core.errors import UsageError

    home = invocation.load_home()
    if home.is_in_command:
        raise UsageError("A command that an agent runs cannot install or accept skills. Do it yourself.")
    return home


def _store(home: Home) -> SkillStore:
    from retinue.skills.integrity.store import SkillStore

    return SkillStore(home.paths.path, home.clock)


def _record(home: Home, kind: str, entry: LockedSkill) -> None:
    home.audit.record(
        kind, _cli(), {"name": entry.name, "digest": entry.installed, "accepted": entry.installed == entry.accepted}
    )


def _load(home: Home, agent_id: str | None) -> tuple[Skill, ...]:
    from retinue.runtime.agents.workspace import open_workspace

    with open_workspace(home, home.agent_id(agent_id)) as room:
        return room.library.load().skills


def _find(home: Home, agent_id: str | None, name: str) -> Skill:
    from retinue.core.errors import UsageError

    for skill in _load(home, agent_id):
        if name.casefold() in (skill.name.casefold(), skill.key.casefold(), skill.folder.name.casefold()):
            return skill
    raise UsageError(f"There is no skill '{name}'. `retinue skills list` shows them all.")


def _folder_name(name: str) -> str:
    import re

    from retinue.core.errors import UsageError

    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise UsageError(f"'{name}' cannot be the name of a folder. Choose one with --as NAME.")
    return name


def _fetch(source: str, below: str) -> tuple[dict[str, SkillContent], SkillOrigin]:
    from retinue.core.errors import UsageError
    from retinue.skills.integrity.contents import MAX_TOTAL_BYTES, read_folder
    from retinue.skills.integrity.lock import SkillOrigin
    from retinue.skills.integrity.unpack import fetch_git, unzip

    path = Path(source).expanduser()
    if path.is_dir() and not (path / "HEAD").is_file():
        return read_folder(path / below), SkillOrigin("folder", str(path.absolute()))
    if path.is_file():
        if path.stat().st_size > MAX_TOTAL_BYTES:
            raise UsageError(f"{path} is larger than {MAX_TOTAL_BYTES:,} bytes. A skill cannot be that large.")
        return unzip(path.read_bytes(), below), SkillOrigin("zip", str(path.absolute()))
    address, reference = _git_address(source)
    files, commit = fetch_git(address, reference, below)
    return files, SkillOrigin("git", source, commit)


def _git_address(source: str) -> tuple[str, str]:
    from retinue.core.errors import UsageError

    short = source.removeprefix("git:")
    address, at, reference = short.rpartition("@")
    if not at or "/" in reference or ":" in reference:
        address, reference = short, ""
    if source.startswith("git:") and "://" not in address and address.count("/") == 1 and ":" not in address:
        return f"https://github.com/{address}.git", reference
    if "://" in address or address.endswith(".git") or source.startswith("git:") or Path(address).is_dir():
        return address, reference
    raise UsageError(f"'{source}' is not a folder, a ZIP file or a Git address. Use git:owner/repo[@ref], for example.")


def _describe(folder: Path, entry: LockedSkill) -> dict[str, Any]:
    return {
        "name": entry.name,
        "path": str(folder),
        "digest": entry.installed,
        "accepted": entry.installed == entry.accepted,
        "version": entry.origin.version,
        "source": entry.origin.kind,
        "reference": entry.origin.reference,
        "pinned": entry.pinned,
        "pinReason": entry.pin_reason,
        "versions": [each.digest for each in entry.versions],
    }
