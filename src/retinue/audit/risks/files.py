"""Checks of files: permissions of the state, workspaces, suspicious texts, and secrets in the wrong place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from retinue.audit.facts import Restrict, StateFile
from retinue.audit.risks.facts import AgentRisks, RiskCheck, RiskFacts, Spot, WatchedFile, writable_spots
from retinue.config.keys import is_secret
from retinue.security.injection_rules import RiskLevel
from retinue.storage.files.descriptors import PRIVATE_DIR, PRIVATE_FILE

OTHERS = 0o077
WORLD_WRITABLE = 0o002
STICKY = 0o1000
SYNCED = frozenset(
    {"dropbox", "onedrive", "google drive", "googledrive", "icloud drive", "mobile documents", "nextcloud", "owncloud"}
    | {"syncthing", "pclouddrive", "mega", "box sync", "seafile"}
)
MAX_NAMED = 3
PRIVATE_MODES = "Folders 0700, files 0600."


def _kind(entry: StateFile, home: Path) -> str:
    """Return the kind of state that a file belongs to; each file has one."""
    parts = entry.path.relative_to(home).parts
    match parts:
        case ():
            return "home"
        case ("credentials", *_) | ("agents", _, "agent", *_):
            return "credentials"
        case ("agents", _, "sessions", *_):
            return "sessions"
        case ("logs", *_) | ("audit.jsonl",) | ("outbox-sent.jsonl",):
            return "logs"
        case ("memory", *_):
            return "memory"
        case (name,) if name.startswith("retinue.json"):
            return "config"
        case (name,) if ".sqlite" in name:
            return "state"
    return "other"


def _shared(kind: str) -> Callable[[RiskFacts], Iterator[Spot]]:
    def find(facts: RiskFacts) -> Iterator[Spot]:
        for entry in facts.entries:
            if entry.mine and entry.mode & OTHERS and _kind(entry, facts.home) == kind:
                yield Spot(str(entry.path), Restrict(entry.path, PRIVATE_DIR if entry.is_dir else PRIVATE_FILE))

    return find


def _open_state(kind: str, severity: RiskLevel, what: str) -> RiskCheck:
    return RiskCheck(f"files.{kind}-open", severity, what, PRIVATE_MODES, _shared(kind))


def _find_shared_parents(facts: RiskFacts) -> Iterator[str]:
    for folder in facts.parents:
        if folder.mode & WORLD_WRITABLE and not folder.mode & STICKY:
            yield str(folder.path)


def _find_synced(facts: RiskFacts) -> Iterator[str]:
    if any(part.lower() in SYNCED or part.lower().startswith("onedrive") for part in facts.home.parts):
        yield str(facts.home)


def _find_plain_secrets(facts: RiskFacts) -> Iterator[str]:
    for path in _texts(facts.plain, ()):
        if is_secret(path) and facts.loaded.origin(path).kind == "file":
            yield ".".join(path)


def _texts(data: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the paths of all texts; a reference to a secret, which is an object with a source, is none."""
    if isinstance(data, str) and data:
        yield path
    elif isinstance(data, Mapping) and "source" not in data:
        for name, value in data.items():
            yield from _texts(value, (*path, str(name)))


def _readable_secrets(facts: RiskFacts) -> Iterator[Spot]:
    for file in facts.secret_files:
        if file.mode & OTHERS and not file.is_link:
            yield Spot(str(file.path), Restrict(file.path, PRIVATE_FILE) if file.mine else None)


def _of_agents(files: Callable[[AgentRisks], tuple[WatchedFile, ...]]) -> Callable[[RiskFacts], Iterator[WatchedFile]]:
    """Return the files of all agents, each once."""

    def collect(facts: RiskFacts) -> Iterator[WatchedFile]:
        yield from {file.path: file for agent in facts.agents for file in files(agent)}.values()

    return collect


_control = _of_agents(lambda agent: agent.control)
_skills = _of_agents(lambda agent: agent.skills)
_notes = _of_agents(lambda agent: agent.notes)
_folders = _of_agents(lambda agent: (agent.folder,) if agent.folder else ())


def _suspicious(files: Callable[[RiskFacts], Iterator[WatchedFile]]) -> Callable[[RiskFacts], Iterator[str]]:
    def find(facts: RiskFacts) -> Iterator[str]:
        for file in files(facts):
            if file.suspicions:
                named = ", ".join(f"line {each.line}: {each.rule}" for each in file.suspicions[:MAX_NAMED])
                yield f"{file.path} ({named})"

    return find


def _find_wide_workspaces(facts: RiskFacts) -> Iterator[str]:
    for agent in facts.agents:
        place = agent.workspace
        if (
            place == facts.user_home
            or place in facts.user_home.parents
            or place == facts.home
            or place in facts.home.parents
        ):
            yield f"agent {agent.id}: {place}"


def _find_shared_workspaces(facts: RiskFacts) -> Iterator[str]:
    seen: dict[Path, str] = {}
    for agent in facts.agents:
        if agent.workspace in seen:
            yield f"agents {seen[agent.workspace]} and {agent.id}: {agent.workspace}"
        seen.setdefault(agent.workspace, agent.id)


CHECKS = (
    _open_state("home", RiskLevel.HIGH, "Other users can look into the folder of Retinue's state."),
    _open_state("config", RiskLevel.HIGH, "Other users can read or change the configuration."),
    _open_state("credentials", RiskLevel.CRITICAL, "Other users can read or change credentials."),
    _open_state("sessions", RiskLevel.HIGH, "Other users can read or change conversations."),
    _open_state("state", RiskLevel.HIGH, "Other users can read or change messages, jobs, approvals and tokens."),
    _open_state("memory", RiskLevel.HIGH, "Other users can read or change the index of the notes."),
    _open_state("logs", RiskLevel.MEDIUM, "Other users can read or change logs."),
    _open_state("other", RiskLevel.MEDIUM, "Other users can read or change files of Retinue's state."),
    RiskCheck(
        "files.foreign-owner",
        RiskLevel.HIGH,
        "The file belongs to another user, who can change it.",
        "Take ownership: `sudo chown $(id -un) PATH`.",
        lambda facts: (str(entry.path) for entry in facts.entries if not entry.mine),
    ),
    RiskCheck(
        "files.home-replaceable",
        RiskLevel.HIGH,
        "Other users can replace the folder of Retinue's state.",
        "`chmod o-w` the folder around it, or move the state.",
        _find_shared_parents,
    ),
    RiskCheck(
        "files.home-synced",
        RiskLevel.HIGH,
        "A service copies credentials and conversations to other machines, and may damage the databases.",
        "Move the state out of the synchronised folder, and set RETINUE_HOME.",
        _find_synced,
    ),
    RiskCheck(
        "files.audit-log-changed",
        RiskLevel.HIGH,
        "Entries of the audit log were changed or removed.",
        "Run `retinue security log --verify`, and compare with a backup.",
        lambda facts: facts.audit_damage[:MAX_NAMED],
    ),
    RiskCheck(
        "secrets.plain-text",
        RiskLevel.MEDIUM,
        "The configuration contains a secret as plain text.",
        "Use a reference, such as {source: env, id: NAME}, or `${NAME}`.",
        _find_plain_secrets,
    ),
    RiskCheck(
        "secrets.file-open",
        RiskLevel.HIGH,
        "Other users can read or change a file with a secret.",
        "`chmod 600` it.",
        _readable_secrets,
    ),
    RiskCheck(
        "secrets.in-logs",
        RiskLevel.HIGH,
        "The log contains text that looks like a secret.",
        "Replace the secret at its provider, and delete the log.",
        lambda facts: map(str, facts.logs_with_secrets),
    ),
    RiskCheck(
        "secrets.in-workspace",
        RiskLevel.MEDIUM,
        "The agent can read a file that usually holds secrets.",
        "Move it out of the workspace.",
        lambda facts: (str(path) for agent in facts.agents for path in agent.exposed),
    ),
    RiskCheck(
        "workspace.untrusted",
        RiskLevel.INFO,
        "Retinue did not create the workspace, so its files are data and its skills and hooks are off.",
        "If you trust its content: `retinue workspace trust`.",
        lambda facts: (f"agent {agent.id}: {agent.workspace}" for agent in facts.agents if not agent.trusted),
    ),
    RiskCheck(
        "workspace.too-wide",
        RiskLevel.CRITICAL,
        "The workspace contains the home folder or Retinue's state.",
        "Use a folder of its own as the workspace.",
        _find_wide_workspaces,
    ),
    RiskCheck(
        "workspace.shared",
        RiskLevel.LOW,
        "Two agents share files, identity and memory.",
        "Give each agent its own workspace.",
        _find_shared_workspaces,
    ),
    RiskCheck(
        "workspace.writable",
        RiskLevel.HIGH,
        "Other users can put instructions into the workspace.",
        "`chmod go-w` the folder.",
        lambda facts: writable_spots(_folders(facts)),
    ),
    RiskCheck(
        "workspace.control-writable",
        RiskLevel.HIGH,
        "Other users can change the instructions of the agent.",
        "`chmod go-w` the file.",
        lambda facts: writable_spots(_control(facts)),
    ),
    RiskCheck(
        "workspace.control-linked",
        RiskLevel.MEDIUM,
        "The file has another name or is a link, so it can be changed from elsewhere.",
        "Replace it with a copy.",
        lambda facts: (str(file.path) for file in _control(facts) if file.is_link or file.links > 1),
    ),
    RiskCheck(
        "workspace.suspicious",
        RiskLevel.HIGH,
        "A file of the prompt contains lines that look like prompt injection.",
        "Read the lines: `retinue security scan FILE`. Remove what you did not write.",
        _suspicious(_control),
    ),
    RiskCheck(
        "skills.suspicious",
        RiskLevel.HIGH,
        "A skill contains lines that look like prompt injection.",
        "Read the lines: `retinue security scan FILE`. Remove the skill if you do not trust it.",
        _suspicious(_skills),
    ),
    RiskCheck(
        "skills.writable",
        RiskLevel.HIGH,
        "Other users can change a skill.",
        "`chmod go-w` the file.",
        lambda facts: writable_spots(_skills(facts)),
    ),
    RiskCheck(
        "memory.suspicious",
        RiskLevel.MEDIUM,
        "A note contains lines that look like prompt injection.",
        "Read the lines: `retinue security scan FILE`. Remove what you did not write.",
        _suspicious(_notes),
    ),
)
