"""`retinue skills install|update|remove`: skills from a registry, a Git repository, a folder or a ZIP file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Command, Invocation, ProgressBar, ask_is_possible, pass_invocation, table, which_agent
from retinue.cli.skill_access import (
    check_folder_name,
    cli_actor,
    describe_locked,
    find_skill,
    make_access,
    open_owner_home,
    open_store,
    record_change,
    skill_roots,
    write_foreign_locks,
)
from retinue.cli.terminal import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from retinue.runtime.home import Home
    from retinue.skills.integrity.contents import SkillContent
    from retinue.skills.integrity.lock import LockedSkill, SkillOrigin
    from retinue.skills.registry.client import FetchedSkill
    from retinue.skills.scan import SkillFinding
    from retinue.skills.sources import RegistryAccess

SHOWN_FINDINGS = 20
UPDATABLE = ("registry", "git", "folder", "zip")
which_registry = click.option("--registry", metavar="URL", help="Registry (default: skills.registry).")


@click.command(cls=Command)
@click.argument("source")
@click.option("--version", default="", metavar="VERSION", help="Version of a registry (default: the latest).")
@click.option("--as", "name", metavar="NAME", help="Name of the installed folder (default: the skill's name).")
@click.option("--global", "everywhere", is_flag=True, help="Install for all agents of this home.")
@click.option("--path", "below", metavar="DIR", default="", help="Folder of the skill in the repository or archive.")
@click.option("--yes", is_flag=True, help="Accept the content, so that agents may use it.")
@click.option("--force", is_flag=True, help="Install in spite of findings, and replace a skill of another origin.")
@click.option("--executables", is_flag=True, help="Let files of the skill stay executable.")
@which_registry
@which_agent
@pass_invocation
def install(
    invocation: Invocation,
    source: str,
    version: str,
    name: str | None,
    everywhere: bool,
    below: str,
    yes: bool,
    force: bool,
    executables: bool,
    registry: str | None,
    agent_id: str | None,
) -> None:
    """Install a skill: NAME or @OWNER/NAME of a registry, ./folder, file.zip, git:owner/repo[@ref], or a Git address.

    It is off until you accept it, here or with `retinue skills accept`.
    """
    home = open_owner_home(invocation)
    with ProgressBar(invocation) as bar:
        fetched = _fetch(make_access(home, registry, bar.show), source, version, below, force=force)
    files = fetched.files if executables else _without_executables(fetched.files)
    root = skill_roots(home, agent_id)[1 if everywhere else 0]
    folder = root / _target(fetched, name)
    _refuse_other_origin(home, folder, fetched.origin, force=force)
    accepted = _ask(invocation, folder.name, {}, files, yes=yes, force=force, warning=fetched.warning)
    entry = open_store(home).install(folder, files, fetched.origin, accept=accepted)
    record_change(home, "skill_install", entry)
    write_foreign_locks(home, agent_id)
    state = "It can be used now." if accepted else f"It is off until you accept it: retinue skills accept {folder.name}"
    title = f"{folder.name} {fetched.origin.version}".rstrip()
    shown = f"Installed {title} ({count(len(files), 'file')}) in {folder}. {state}"
    invocation.show(describe_locked(folder, entry) | {"findings": describe_findings(_scan(files))}, shown)


@click.command(cls=Command)
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All installed skills.")
@click.option("--version", default="", metavar="VERSION", help="Version of a registry (default: the latest).")
@click.option("--check", "only_check", is_flag=True, help="Only report what would change.")
@click.option("--yes", is_flag=True, help="Accept the new content without a question.")
@click.option("--force", is_flag=True, help="Update in spite of findings, and replace skills that were changed here.")
@which_agent
@pass_invocation
def update(
    invocation: Invocation,
    names: tuple[str, ...],
    everything: bool,
    version: str,
    only_check: bool,
    yes: bool,
    force: bool,
    agent_id: str | None,
) -> int:
    """Update installed skills from where they were installed; a new version is used once its changes are accepted."""
    from retinue.core.errors import UsageError

    if bool(names) == everything or (version and len(names) != 1):
        raise UsageError("Name the skills to update, or give --all. --version needs exactly one skill.")
    home = open_owner_home(invocation)
    rows = []
    with ProgressBar(invocation) as bar:
        access = make_access(home, None, bar.show)
        for folder, entry in _installed(home, agent_id, names):
            updating = _Update(home, access, folder, entry, version=version, force=force)
            rows.append(updating.run(invocation, only_check=only_check, yes=yes))
    write_foreign_locks(home, agent_id)
    lines = [(row["name"], row["from"] or "-", row["to"] or "-", row["status"], row["reason"]) for row in rows]
    header = ("skill", "version", "offered", "status", "")
    invocation.show(rows, lambda: table(lines, header=header) if lines else "No skill was installed with this command.")
    return 1 if any(row["status"] == "failed" for row in rows) else 0


@click.command(cls=Command)
@click.argument("name")
@which_agent
@pass_invocation
def remove(invocation: Invocation, name: str, agent_id: str | None) -> None:
    """Remove an installed skill; its versions are kept."""
    from retinue.core.errors import UsageError
    from retinue.skills.skill import SkillTier

    home = open_owner_home(invocation)
    skill = find_skill(home, agent_id, name)
    if skill.tier not in (SkillTier.WORKSPACE, SkillTier.MANAGED):
        raise UsageError(f"'{skill.name}' is in {skill.folder}, which `retinue skills install` does not write to.")
    open_store(home).remove(skill.folder)
    write_foreign_locks(home, agent_id)
    home.audit.record("skill_remove", cli_actor(), {"name": skill.name, "path": str(skill.folder)})
    invocation.show({"name": skill.name, "removed": str(skill.folder)}, f"Removed {skill.folder}.")


COMMANDS = (install, update, remove)


class _Update:
    """The update of one skill."""

    def __init__(
        self, home: Home, access: RegistryAccess, folder: Path, entry: LockedSkill, *, version: str, force: bool
    ) -> None:
        self._home = home
        self._access = access
        self._folder = folder
        self._entry = entry
        self._version = version
        self._force = force

    def run(self, invocation: Invocation, *, only_check: bool, yes: bool) -> dict[str, Any]:
        """Return what was done, or why nothing was."""
        from retinue.core.errors import RetinueError

        try:
            return self._run(invocation, only_check=only_check, yes=yes)
        except RetinueError as error:
            return self._row("failed", str(error))

    def _run(self, invocation: Invocation, *, only_check: bool, yes: bool) -> dict[str, Any]:
        import anyio

        from retinue.skills.integrity.contents import digest_of, hash_files, read_folder
        from retinue.skills.integrity.differences import compare
        from retinue.skills.sources import fetch_again

        if self._entry.pinned:
            return self._row("pinned", self._entry.pin_reason or f"retinue skills unpin {self._folder.name}")
        before = read_folder(self._folder)
        if not self._force and self._entry.installed not in ("", digest_of(hash_files(before))):
            return self._row("changed", "It was changed here. --force replaces it; the changed content is kept.")
        fetched = anyio.run(self._fetch_newer, fetch_again)
        if fetched is None or _without_mark(fetched.files) == _without_mark(before):
            return self._row("current")
        files = _keep_executables(before, fetched.files)
        diff = compare(_without_mark(before), _without_mark(files))
        if not only_check and _ask(invocation, self._folder.name, before, files, yes=yes, force=self._force):
            entry = open_store(self._home).install(self._folder, files, fetched.origin, accept=True)
            record_change(self._home, "skill_update", entry)
            return self._row("updated", to=fetched.origin.version, diff=diff)
        reason = f"retinue skills update {self._folder.name} --yes accepts it."
        return self._row("available", reason, to=fetched.origin.version, diff=diff)

    async def _fetch_newer(self, fetch_again: Any) -> FetchedSkill | None:
        """Fetch the skill, unless the registry has no newer version."""
        from retinue.skills.registry.answers import version_key
        from retinue.skills.registry.client import SkillReference, connect

        origin = self._entry.origin
        if origin.kind == "registry" and not self._version and not self._force:
            async with connect(origin.registry or self._access.site) as client:
                about = await client.skill(SkillReference(origin.slug, origin.owner))
            latest = about.latest_version
            if latest is not None and version_key(latest.version) <= version_key(origin.version):
                return None
        fetched: FetchedSkill = await fetch_again(self._access, origin, self._version, force=self._force)
        return fetched

    def _row(self, status: str, reason: str = "", *, to: str = "", diff: str = "") -> dict[str, Any]:
        version = self._entry.origin.version
        name = self._entry.name
        return {"name": name, "from": version, "to": to, "status": status, "reason": reason, "diff": diff}


def _installed(home: Home, agent_id: str | None, names: tuple[str, ...]) -> list[tuple[Path, LockedSkill]]:
    """Return the named skills, or all, with what is known about their origin."""
    from msgspec.structs import replace

    from retinue.core.errors import UsageError
    from retinue.skills.integrity.lock import LockedSkill, read_lock
    from retinue.skills.registry.compatible_files import read_origin

    locked = read_lock(home.paths.path).skills
    roots = skill_roots(home, agent_id)
    if not names:
        placed = [(home.paths.path / key, entry) for key, entry in locked.items() if entry.origin.kind in UPDATABLE]
        return [(each, entry) for each, entry in placed if any(map(each.is_relative_to, roots)) and each.is_dir()]
    store = open_store(home)
    found = []
    for name in names:
        folder = find_skill(home, agent_id, name).folder
        entry = store.find(folder)
        if entry is None and (origin := read_origin(folder)) is not None:
            # The file may be of a stranger, so the skill is updated from the configured registry.
            entry = LockedSkill(folder.name, replace(origin, registry=""))
        if entry is None:
            raise UsageError(f"'{name}' was not installed with `retinue skills install`, so it cannot be updated.")
        found.append((folder, entry))
    return found


def _fetch(access: RegistryAccess, source: str, version: str, below: str, *, force: bool) -> FetchedSkill:
    import anyio

    from retinue.core.errors import UsageError
    from retinue.skills.sources import fetch_from_registry, fetch_local, fetch_source_reference

    local = fetch_local(source, below)
    if local is not None:
        if version:
            raise UsageError("--version needs a skill of a registry. For a Git repository, add @REF to the address.")
        return local
    reference = fetch_source_reference(source)

    async def fetch() -> FetchedSkill:
        return await fetch_from_registry(access, reference, version, force=force)

    return anyio.run(fetch)


def _target(fetched: FetchedSkill, name: str | None) -> str:
    """Return the path of the skill below the folder of skills; with an owner as other clients of the registry do it."""
    from retinue.skills.skill import SkillTier, parse_skill

    manifest = fetched.files["SKILL.md"].data if "SKILL.md" in fetched.files else b""
    declared = parse_skill(manifest, Path(name or "skill") / "SKILL.md", SkillTier.MANAGED)
    if fetched.origin.kind != "registry" or name:
        return check_folder_name(name or declared.name)
    owner, _, slug = fetched.origin.reference.rpartition("/")
    return f"{owner}/{check_folder_name(slug)}" if owner else check_folder_name(slug)


def _refuse_other_origin(home: Home, folder: Path, origin: SkillOrigin, *, force: bool) -> None:
    """Raise `UsageError` if another skill is in the folder already."""
    from retinue.core.errors import UsageError

    known = open_store(home).find(folder)
    if force or not folder.exists():
        return
    todo = "--force replaces it (its content is kept as a version), --as NAME installs beside it."
    if known is None:
        raise UsageError(f"There is already a skill in {folder} that was not installed. {todo}")
    before = known.origin
    same = (before.kind, before.owner, before.slug) == (origin.kind, origin.owner, origin.slug)
    if before.kind == "registry" and not same:
        raise UsageError(f"{folder} contains '{before.reference}' of {before.registry}. {todo}")


def _ask(
    invocation: Invocation,
    name: str,
    before: Mapping[str, SkillContent],
    files: Mapping[str, SkillContent],
    *,
    yes: bool,
    force: bool,
    warning: str = "",
) -> bool:
    """Show what the scan found, and return whether the owner accepts the content."""
    from retinue.core.errors import SkillError
    from retinue.security.injection_rules import RiskLevel
    from retinue.skills.integrity.differences import compare

    findings = _scan(files)
    severe = [each for each in findings if each.severity is RiskLevel.HIGH]
    if yes and severe and not force:
        listed = "; ".join(f"{each.file}:{each.line} {each.rule}" for each in severe[:5])
        raise SkillError(
            f"The scan of '{name}' found what attacks look like: {listed}. Nothing was installed. Without --yes it is "
            "installed but off, so that you can read it; --force accepts it."
        )
    if warning:
        invocation.note(warning)
    if findings:
        invocation.note(format_findings(findings))
    if yes or invocation.as_json or not ask_is_possible():
        return yes
    invocation.note(compare(_without_mark(before), _without_mark(files)) or "The content is unchanged.")
    return click.confirm(f"Accept '{name}', so that agents may use exactly this content?", err=True)


def format_findings(findings: Iterable[SkillFinding]) -> str:
    """Return the findings as a table."""
    rows = [(each.severity, f"{each.file}:{each.line}", each.rule, each.text[:80]) for each in findings]
    more = f"\n… and {len(rows) - SHOWN_FINDINGS} more" if len(rows) > SHOWN_FINDINGS else ""
    return table(rows[:SHOWN_FINDINGS], header=("severity", "place", "rule", "text")) + more


def _scan(files: Mapping[str, SkillContent]) -> tuple[SkillFinding, ...]:
    from retinue.skills.scan import scan_files

    return scan_files(_without_mark(files))


def describe_findings(findings: Iterable[SkillFinding]) -> list[dict[str, Any]]:
    """Return the findings as JSON."""
    return [
        {"file": each.file, "line": each.line, "rule": each.rule, "severity": str(each.severity)} for each in findings
    ]


def _without_mark(files: Mapping[str, SkillContent]) -> dict[str, SkillContent]:
    from retinue.skills.registry.compatible_files import ORIGIN_FILE

    return {path: file for path, file in files.items() if path != ORIGIN_FILE}


def _without_executables(files: Mapping[str, SkillContent]) -> dict[str, SkillContent]:
    from msgspec.structs import replace

    return {path: replace(file, executable=False) for path, file in files.items()}


def _keep_executables(before: Mapping[str, SkillContent], files: Mapping[str, SkillContent]) -> dict[str, SkillContent]:
    """Leave files executable only if they were before: the owner consented to those."""
    from msgspec.structs import replace

    allowed = {path for path, file in before.items() if file.executable}
    return {path: replace(file, executable=file.executable and path in allowed) for path, file in files.items()}
