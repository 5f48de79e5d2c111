"""What the security audit reads, and what its checks return."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from retinue.audit.facts import Restrict, StateFile
from retinue.config.load import LoadedConfig
from retinue.config.schema import Config
from retinue.config.sections.agents import AgentSettings
from retinue.core.keys import AgentId
from retinue.security.injection import Suspicion
from retinue.security.injection_rules import RiskLevel

WRITABLE_BY_OTHERS = 0o022


class WatchedFile(Struct, frozen=True):
    """A file or folder outside the state that influences agents or holds a secret."""

    path: Path
    mode: int
    mine: bool = True
    links: int = 1
    is_link: bool = False
    suspicions: tuple[Suspicion, ...] = ()

    @property
    def is_writable_by_others(self) -> bool:
        return not self.is_link and bool(self.mode & WRITABLE_BY_OTHERS)


class AgentRisks(Struct, frozen=True):
    """An agent's settings and files. `control` are the files that its prompt consists of; `notes` are read if deep."""

    id: AgentId
    settings: AgentSettings
    workspace: Path
    folder: WatchedFile | None = None
    trusted: bool = True
    control: tuple[WatchedFile, ...] = ()
    skills: tuple[WatchedFile, ...] = ()
    notes: tuple[WatchedFile, ...] = ()
    exposed: tuple[Path, ...] = ()
    """Files in the workspace whose names say that they hold secrets."""


class TokenRow(Struct, frozen=True):
    """A valid gateway token."""

    name: str
    scopes: str
    expires: bool


class RuleRow(Struct, frozen=True):
    """A remembered command pattern."""

    id: str
    pattern: str


class RiskFacts(Struct, frozen=True):
    """Everything the checks need to know."""

    loaded: LoadedConfig
    plain: Mapping[str, Any]
    """The keys that are set, as plain data."""
    home: Path
    user_home: Path
    entries: tuple[StateFile, ...]
    parents: tuple[WatchedFile, ...]
    agents: tuple[AgentRisks, ...]
    tokens: tuple[TokenRow, ...] = ()
    rules: tuple[RuleRow, ...] = ()
    plugin_files: tuple[WatchedFile, ...] = ()
    program_folders: tuple[WatchedFile, ...] = ()
    """Folders of trusted programs."""
    hook_folders: tuple[WatchedFile, ...] = ()
    secret_files: tuple[WatchedFile, ...] = ()
    """Files that references to secrets name."""
    logs_with_secrets: tuple[Path, ...] = ()
    audit_damage: tuple[str, ...] = ()

    @property
    def config(self) -> Config:
        return self.loaded.config


class Spot(Struct, frozen=True):
    """A place where a check found something, and the permissions that fix it."""

    where: str
    fix: Restrict | None = None


def writable_spots(files: Iterable[WatchedFile]) -> Iterator[Spot]:
    """Yield the files that other users can write, with the fix that removes this permission."""
    for file in files:
        if file.is_writable_by_others:
            fix = Restrict(file.path, file.mode & ~WRITABLE_BY_OTHERS) if file.mine else None
            yield Spot(str(file.path), fix)


Find = Callable[[RiskFacts], Iterable[str | Spot]]


class RiskCheck(Struct, frozen=True):
    """A check: a stable id, the severity, what it finds, what to do, and the function that yields the places."""

    id: str
    severity: RiskLevel
    what: str
    remedy: str
    find: Find

    def run(self, facts: RiskFacts) -> Iterator[Risk]:
        for found in self.find(facts):
            spot = Spot(found) if isinstance(found, str) else found
            yield Risk(self.id, self.severity, spot.where, self.what, self.remedy, spot.fix)


class Risk(Struct, frozen=True):
    """A finding of the security audit."""

    id: str
    severity: RiskLevel
    where: str
    what: str
    remedy: str
    fix: Restrict | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "severity": self.severity.value,
            "where": self.where,
            "what": self.what,
            "remedy": self.remedy,
            "fixable": self.fix is not None,
        }


Places = Callable[[RiskFacts], Iterator[str]]


def each_agent(is_risky: Callable[[AgentSettings], bool], key: str) -> Places:
    """Return a check of the settings of every agent."""
    return lambda facts: (f"agent {agent.id}: {key}" for agent in facts.agents if is_risky(agent.settings))


def find_setting(is_risky: Callable[[RiskFacts], bool], key: str) -> Places:
    """Return a check of one setting."""
    return lambda facts: iter((key,) if is_risky(facts) else ())
