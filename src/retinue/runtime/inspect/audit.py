"""The security audit of a home: collecting the facts, which changes nothing, and applying the fixes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from retinue.audit.facts import Restrict
from retinue.audit.risks.facts import AgentRisks, Risk, RiskFacts, RuleRow, TokenRow, WatchedFile
from retinue.core.clock import format_moment
from retinue.core.errors import RetinueError
from retinue.core.keys import AgentId
from retinue.runtime.agents.workspace import locate_workspace, open_workspace
from retinue.runtime.home import Home
from retinue.runtime.inspect.doctor import list_own, set_permissions
from retinue.security.injection import scan_text
from retinue.security.redaction import Redactor
from retinue.storage.database import DATABASE_NAME
from retinue.storage.database.database import query_read_only
from retinue.workspace.bootstrap import BOOTSTRAP_FILES

MAX_SCAN_BYTES = 256_000
MAX_LOG_BYTES = 1_000_000
MAX_LOG_BYTES_DEEP = 50_000_000
MAX_NOTES = 500
SECRET_NAMES = (".env", ".env.local", ".netrc", "id_rsa", "id_ed25519", "credentials.json", ".pgpass", ".npmrc")

_TOKENS = """
SELECT name, scopes, expires_at IS NOT NULL FROM gateway_tokens
WHERE kind = 'token' AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?)
ORDER BY name
"""
_RULES = "SELECT id, pattern FROM command_rules ORDER BY agent, pattern"


def collect_risk_facts(home: Home, *, deep: bool = False) -> RiskFacts:
    """Collect all facts. With `deep`, notes of the memory and whole logs are read too."""
    folder, config = home.paths.path, home.config
    state = folder / DATABASE_NAME
    hooks = config.hooks.internal.load.extra_dirs
    programs = (*config.tools.exec.safe_bin_trusted_dirs, *config.tools.exec.path_prepend)
    logs = (home.log_file, *sorted(home.log_file.parent.glob(f"{home.log_file.name}.*")))
    return RiskFacts(
        loaded=home.loaded,
        plain=home.plain_config,
        home=folder,
        user_home=Path(home.environment.get("HOME") or Path.home()),
        entries=tuple(list_own(folder)),
        parents=tuple(_see(folder.parents)),
        agents=tuple(_see_agent(home, agent, deep=deep) for agent in config.agents.ids),
        tokens=tuple(
            TokenRow(name, scopes, bool(expires))
            for name, scopes, expires in query_read_only(state, _TOKENS, (format_moment(home.clock.now()),)) or ()
        ),
        rules=tuple(RuleRow(*row) for row in query_read_only(state, _RULES) or ()),
        plugin_files=tuple(_see(_code(map(home.locate, config.plugins.load.paths)))),
        program_folders=tuple(_see(map(home.locate, programs))),
        hook_folders=tuple(_see(_code([*map(home.locate, hooks), folder / "hooks"]))),
        secret_files=tuple(_see(map(home.locate, _secret_paths(home.plain_config)))),
        logs_with_secrets=tuple(_find_leaks(logs, MAX_LOG_BYTES_DEEP if deep else MAX_LOG_BYTES)),
        audit_damage=tuple(map(str, home.audit.verify())),
    )


def apply_fixes(risks: Iterable[Risk]) -> tuple[str, ...]:
    """Apply every fix once; return a sentence for each that says what was done, or why not."""
    fixes = dict.fromkeys(risk.fix for risk in risks if risk.fix is not None)
    return tuple(map(_restrict, fixes))


def _restrict(fix: Restrict) -> str:
    try:
        set_permissions(fix.path, fix.mode)
    except OSError as error:
        return f"{fix.path} was not changed: {error.strerror}."
    return f"Set the permissions of {fix.path} to {fix.mode:04o}."


def _see(paths: Iterable[Path], *, scan: bool = False) -> Iterator[WatchedFile]:
    """Yield the paths that exist."""
    for path in paths:
        try:
            status = path.lstat()
        except OSError:
            continue
        regular = stat.S_ISREG(status.st_mode)
        yield WatchedFile(
            path,
            stat.S_IMODE(status.st_mode),
            mine=status.st_uid == os.getuid(),
            links=status.st_nlink if regular else 1,
            is_link=stat.S_ISLNK(status.st_mode),
            suspicions=scan_text(_read(path)) if scan and regular else (),
        )


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_SCAN_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _code(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield files and folders with the Python files and programs in them."""
    for path in paths:
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from sorted(each for each in path.rglob("*") if each.is_file() and not each.is_symlink())


def _see_agent(home: Home, agent: AgentId, *, deep: bool) -> AgentRisks:
    path, settings = locate_workspace(home, agent), home.config.agents.resolve(agent)
    folder = next(_see((path,)), None)
    exposed = tuple(path / name for name in SECRET_NAMES if (path / name).is_file())
    seen = AgentRisks(agent, settings, path, folder, exposed=exposed)
    try:
        workspace = open_workspace(home, agent)
    except RetinueError:
        return seen
    with workspace:
        named = [row.name for row in BOOTSTRAP_FILES] + workspace.reader.configured_names(workspace.settings)
        skills = [item.skill.location for item in workspace.skills()]
        notes = sorted((path / "memory").rglob("*.md"))[:MAX_NOTES] if deep else ()
        return AgentRisks(
            agent,
            settings,
            path,
            folder,
            trusted=workspace.trusted,
            control=tuple(_see((path / name for name in dict.fromkeys(named)), scan=True)),
            skills=tuple(_see(skills, scan=True)),
            notes=tuple(_see(notes, scan=True)),
            exposed=exposed,
        )


def _secret_paths(data: object) -> Iterator[str]:
    """Yield the paths of files that references to secrets name."""
    match data:
        case {"source": "file", "path": str(path)}:
            yield path
        case dict():
            for value in data.values():
                yield from _secret_paths(value)
        case list() | tuple():
            for value in data:
                yield from _secret_paths(value)


def _find_leaks(logs: Iterable[Path], most: int) -> Iterator[Path]:
    """Yield the logs whose newest part contains text with the pattern of a well-known key."""
    shapes = Redactor()
    for path in logs:
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - most))
                text = file.read(most).decode("utf-8", "replace")
        except OSError:
            continue
        if shapes.redact(text) != text:
            yield path
