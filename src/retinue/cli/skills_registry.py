"""`retinue skills search|publish|login|audit|withdraw|serve`: registries of skills, and the scan of skills."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Command, Invocation, ProgressBar, ask_is_possible, pass_invocation, table, which_agent
from retinue.cli.skill_access import find_skill, load_skills, make_access, open_owner_home
from retinue.cli.skills_install import describe_findings, format_findings, which_registry
from retinue.cli.terminal import count

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from retinue.runtime.home import Home
    from retinue.skills.registry.answers import RegistryVerdict
    from retinue.skills.registry.client import RegistryClient, SkillReference
    from retinue.skills.registry.sign_in import RegistryDeviceCode
    from retinue.skills.scan import SkillFinding
    from retinue.skills.skill import Skill

MAX_RESULTS = 100


@click.command(cls=Command)
@click.argument("query", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, MAX_RESULTS), default=25, help="Maximum number of results.")
@which_registry
@pass_invocation
def search(invocation: Invocation, query: tuple[str, ...], limit: int, registry: str | None) -> None:
    """Search the registry."""
    home = invocation.load_home()

    async def find(client: RegistryClient) -> list[dict[str, Any]]:
        return [
            {
                "slug": each.slug,
                "owner": each.owner_handle or (each.owner.handle if each.owner else None),
                "name": each.display_name,
                "summary": each.summary,
                "version": each.version,
                "downloads": each.downloads,
                "score": each.score,
            }
            for each in await client.search(" ".join(query), limit)
        ]

    rows = _ask_registry(invocation, home, registry, find)
    lines = [(_reference(row), row["version"] or "", (row["summary"] or row["name"] or "")[:80]) for row in rows]
    none = f"The registry has no skill for '{' '.join(query)}'."
    invocation.show(rows, lambda: table(lines, header=("skill", "version", "description")) if rows else none)


@click.command(cls=Command)
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--slug", help="Name in the registry (default: the folder's name).")
@click.option("--owner", help="Publisher (default: the owner of the token).")
@click.option("--version", default="", help="Version (default: 1.0.0, or the next patch).")
@click.option("--changelog", default="", help="What changed.")
@click.option("--dry-run", is_flag=True, help="Only show what would be published.")
@click.option("--yes", is_flag=True, help="Publish without a question.")
@which_registry
@pass_invocation
def publish(
    invocation: Invocation,
    folder: Path,
    slug: str | None,
    owner: str | None,
    version: str,
    changelog: str,
    dry_run: bool,
    yes: bool,
    registry: str | None,
) -> None:
    """Publish a skill under the licence MIT-0, as the registry requires.

    Hidden files and files that `.gitignore` and `.clawhubignore` name are left out.
    """
    from retinue.skills.registry.fingerprint import fingerprint, hash_contents, read_publishable
    from retinue.skills.skill import SkillTier, parse_skill

    home = open_owner_home(invocation)
    files = read_publishable(folder)
    manifest = files["SKILL.md"].data if "SKILL.md" in files else b""
    declared = parse_skill(manifest, folder.absolute() / "SKILL.md", SkillTier.MANAGED)
    named = (slug or folder.absolute().name).lower()
    print_only = dry_run or not (yes or invocation.as_json)
    if print_only:
        invocation.note("\n".join(f"{len(file.data):>9,}  {path}" for path, file in files.items()))
    if not (yes or dry_run) and ask_is_possible() and not invocation.as_json:
        click.confirm(
            f"Publish these files as '{named}' under MIT-0, so that everyone may use them?", abort=True, err=True
        )

    with ProgressBar(invocation) as bar:

        async def send(client: RegistryClient) -> dict[str, Any]:
            from retinue.skills.registry.answers import Publication, next_patch
            from retinue.skills.registry.client import parse_reference

            handle = (owner or (await client.whoami()).handle or "").lower()
            reference = parse_reference(f"@{handle}/{named}")
            known = await client.resolve(reference, fingerprint(hash_contents(files)))
            latest = known.latest_version.version if known.latest_version else None
            result = {"slug": named, "owner": handle, "files": list(files), "latestVersion": latest}
            if known.match is not None and not version:
                return result | {"status": "unchanged", "version": known.match.version}
            chosen = version or next_patch(latest)
            if dry_run:
                return result | {"status": "would-publish", "version": chosen}
            plan = Publication(named, declared.name, chosen, changelog, (), handle, True, ("latest",))
            done = await client.publish(plan, files, bar.show)
            status = done.publication_status or done.status or "submitted"
            return result | {"status": status, "version": chosen, "id": done.version_id}

        data = _ask_registry(invocation, home, registry, send)
    if data["status"] == "published":
        home.audit.record("skill_publish", _actor(), {key: data[key] for key in ("slug", "owner", "version")})
    invocation.show(data, f"{data['slug']} {data['version']}: {data['status']}.")


@click.command(cls=Command)
@click.option("--token", help="Token of the registry (default: ask for it; better than a visible argument).")
@click.option("--device", is_flag=True, help="Get a token by confirming a code in a browser, on any device.")
@click.option("--logout", is_flag=True, help="Remove the stored token.")
@which_registry
@pass_invocation
def login(invocation: Invocation, token: str | None, device: bool, logout: bool, registry: str | None) -> None:
    """Store a token for the registry, after checking it. Reading needs none."""
    from retinue.core.errors import UsageError
    from retinue.skills.registry.address import write_token

    home = open_owner_home(invocation)
    if sum(map(bool, (token, device, logout))) > 1:
        raise UsageError("Give one of --token, --device and --logout.")
    if not logout and not token and not device:
        if not ask_is_possible():
            raise UsageError("Give the token with --token, use --device, or run this in a terminal.")
        token = click.prompt("Token", hide_input=True, err=True)
    invocation.keep_quiet(token or "")

    async def check(client: RegistryClient) -> dict[str, Any]:
        if logout:
            write_token(home.paths.credentials, client.address, None)
            return {"registry": client.address, "handle": None}
        given = token or await client.sign_in(
            make_access(home, registry, _show_no_progress).site, _show_code, platform.node()
        )
        invocation.keep_quiet(given)
        client.use_token(given)
        account = await client.whoami()
        write_token(home.paths.credentials, client.address, given)
        return {"registry": client.address, "handle": account.handle}

    data = _ask_registry(invocation, home, registry, check)
    text = f"Signed in to {data['registry']} as {data['handle']}."
    invocation.show(data, f"Removed the token for {data['registry']}." if logout else text)


@click.command(cls=Command)
@click.argument("names", nargs=-1)
@click.option("--remote", is_flag=True, help="Also ask the registries what they know about the installed versions.")
@click.option("--all", "everything", is_flag=True, help="Include the bundled skills.")
@which_agent
@pass_invocation
def audit(invocation: Invocation, names: tuple[str, ...], remote: bool, everything: bool, agent_id: str | None) -> int:
    """Scan skills for what attacks look like.

    These are injections, downloads that are run, encoded commands and requests for secrets, for example. The exit code
    is 1 if something severe was found. A name may also be a folder that is not installed.
    """
    from retinue.security.injection_rules import RiskLevel
    from retinue.skills.skill import SkillTier

    home = invocation.load_home()
    places = {name: Path(name) for name in names if "/" in name and Path(name, "SKILL.md").is_file()}
    skills = [find_skill(home, agent_id, name) for name in names if name not in places]
    if not names:
        skills = [each for each in load_skills(home, agent_id) if everything or each.tier is not SkillTier.BUNDLED]
    found = [(name, each) for name, place in places.items() for each in _scan_folder(place)]
    found += [(skill.name, each) for skill in skills for each in _scan_folder(skill.folder)]
    rows = [{"name": name, **row} for name, each in found for row in describe_findings([each])]
    if remote:
        rows += _remote_findings(home, skills)
    texts = [f"{name}\n{format_findings([each for owner, each in found if owner == name])}" for name in _unique(found)]
    texts += [f"{row['name']}: the registry says {row['rule']}" for row in rows if row["file"] == ""]
    invocation.show(rows, "\n\n".join(texts) or f"Nothing was found in {count(len(skills) + len(places), 'skill')}.")
    return 1 if any(row["severity"] == RiskLevel.HIGH for row in rows) else 0


@click.command(cls=Command)
@click.argument("name")
@click.argument("version")
@click.option("--undo", is_flag=True, help="Make the version available again.")
@which_registry
@pass_invocation
def withdraw(invocation: Invocation, name: str, version: str, undo: bool, registry: str | None) -> None:
    """Withdraw a version that you published, so that nobody installs it any more."""
    from retinue.skills.registry.client import parse_reference

    home = open_owner_home(invocation)

    async def send(client: RegistryClient) -> None:
        await client.withdraw(parse_reference(name), version, undo=undo)

    _ask_registry(invocation, home, registry, send)
    state = "available" if undo else "withdrawn"
    invocation.show({"name": name, "version": version, "status": state}, f"{name} {version} is {state}.")


@click.command(cls=Command)
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--host", default="127.0.0.1", help="Address to listen on (default: this machine only).")
@click.option("--port", type=click.IntRange(0, 65_535), default=8750, help="Port; 0 selects a free one.")
@click.option("--requests-per-minute", type=click.IntRange(1), default=600, help="Limit for each address.")
@click.option("--add-token", "handle", metavar="NAME", help="Create and print a token of a publisher, and end.")
@pass_invocation
def serve(
    invocation: Invocation, folder: Path, host: str, port: int, requests_per_minute: int, handle: str | None
) -> None:
    """Serve a registry from a folder, for this program and ClawHub's.

    The skills in the folder (NAME/SKILL.md) are published under the name `local`, also after each change and restart.
    Others publish with a token.
    """
    import anyio

    from retinue.core.clock import SystemClock
    from retinue.skills.registry.folder import RegistryFolder

    store = RegistryFolder(folder.absolute(), SystemClock())
    if handle is not None:
        token = store.add_token(handle)
        invocation.show({"handle": handle, "token": token}, token, exact=True)
        return
    from retinue.gateway.skill_registry.app import make_registry_app, serve_registry

    published, problems = store.publish_folders()
    for each in published:
        invocation.note(f"Published {each}.")
    for each in problems:
        invocation.note(each)

    def announce(address: str) -> None:
        invocation.show({"address": address, "folder": str(folder)}, f"The registry of {folder} is at {address}.")

    app = make_registry_app(store, requests_per_minute=requests_per_minute)
    anyio.run(serve_registry, app, host, port, announce)


COMMANDS = (search, publish, login, audit, withdraw, serve)


def show_remote(invocation: Invocation, name: str) -> None:
    """Show what the registry says about a skill."""
    from msgspec import to_builtins

    from retinue.skills.registry.client import parse_reference

    reference = parse_reference(name)

    async def describe(client: RegistryClient) -> dict[str, Any]:
        about = await client.skill(reference)
        versions = [each.version for each in await client.versions(reference)]
        found: dict[str, Any] = to_builtins(about)
        return {"registry": client.address, **found, "versions": versions}

    data = _ask_registry(invocation, invocation.load_home(), None, describe)
    skill, latest = data["skill"], data["latestVersion"] or {}
    rows = [
        ("name", skill["displayName"]),
        ("publisher", (data["owner"] or {}).get("handle")),
        ("description", skill["summary"]),
        ("latest version", latest.get("version")),
        ("changes", latest.get("changelog")),
        ("versions", ", ".join(data["versions"])),
        ("safety", (data["moderation"] or {}).get("verdict", "not checked")),
    ]
    invocation.show(data, lambda: table([row for row in rows if row[1]]))


def _show_no_progress(what: str, done: int, total: int) -> None:
    """Show no progress."""


def _show_code(code: RegistryDeviceCode) -> None:
    from retinue.security.untrusted_text import literal

    click.echo(
        f"Open {literal(code.verification_uri, 300)} and enter the code {literal(code.user_code, 40)}.", err=True
    )
    click.echo("Waiting until it is confirmed; Ctrl-C ends this.", err=True)


def _ask_registry(
    invocation: Invocation, home: Home, registry: str | None, ask: Callable[[RegistryClient], Awaitable[Any]]
) -> Any:
    import anyio

    from retinue.skills.registry.client import connect

    access = make_access(home, registry, _show_no_progress)

    async def run() -> Any:
        async with connect(access.site) as client:
            client.use_token(access.token(client.address))
            return await ask(client)

    return anyio.run(run)


def _remote_findings(home: Home, skills: list[Skill]) -> list[dict[str, Any]]:
    """Return what the registries say about the versions that were installed from them."""
    import anyio

    from retinue.skills.integrity.lock import read_lock
    from retinue.skills.registry.client import SkillReference

    locked = {home.paths.path / key: entry for key, entry in read_lock(home.paths.path).skills.items()}
    installed: dict[str, dict[SkillReference, tuple[str, str]]] = {}
    for skill in skills:
        origin = locked[skill.folder].origin if skill.folder in locked else None
        if origin is not None and origin.kind == "registry":
            reference = SkillReference(origin.slug, origin.owner)
            installed.setdefault(origin.registry, {})[reference] = skill.name, origin.version
    found = []
    for site, wanted in installed.items():
        verdicts = anyio.run(_fetch_verdicts, site, {each: version for each, (_, version) in wanted.items()})
        for (name, _), verdict in zip(wanted.values(), verdicts, strict=True):
            for reason in verdict.reasons or (() if verdict.ok else ("unknown-version",)):
                row = {"name": name, "file": "", "line": 0, "rule": f"registry:{reason}", "severity": "high"}
                found.append(row)
    return found


async def _fetch_verdicts(site: str, installed: dict[SkillReference, str]) -> tuple[RegistryVerdict, ...]:
    from retinue.skills.registry.client import connect

    async with connect(site) as client:
        return await client.verdicts(installed)


def _scan_folder(folder: Path) -> tuple[SkillFinding, ...]:
    from retinue.core.errors import SkillError
    from retinue.security.injection_rules import RiskLevel
    from retinue.skills.integrity.contents import read_folder
    from retinue.skills.scan import SkillFinding, scan_files

    try:
        return scan_files(read_folder(folder))
    except (SkillError, OSError) as error:
        return (SkillFinding("", 0, "unreadable", RiskLevel.HIGH, str(error)),)


def _unique(found: list[tuple[str, SkillFinding]]) -> list[str]:
    return list(dict.fromkeys(name for name, _ in found))


def _reference(row: dict[str, Any]) -> str:
    return f"@{row['owner']}/{row['slug']}" if row["owner"] else str(row["slug"])


def _actor() -> str:
    from retinue.cli.skill_access import cli_actor

    return cli_actor()
