"""Importing from Claude Code: its memory files, skills and MCP servers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from msgspec import Struct

from retinue.config.edit import Change, change_values
from retinue.core.errors import UsageError
from retinue.core.keys import AgentId
from retinue.runtime.agents.workspace import locate_workspace, seed_agent
from retinue.runtime.home import Home
from retinue.runtime.importing.folders import copy_whole
from retinue.runtime.importing.plan import ImportLedger, ImportStep, Note, Omission, StepResult
from retinue.storage.files import write_atomic
from retinue.toolkit.mcp.import_servers import read_servers

CLAUDE_KINDS = ("memory", "skills", "mcp")
_SECRET = "it has a secret; --with-credentials copies secrets"  # noqa: S105 - a sentence
_MAX_MEMORY_BYTES = 1024 * 1024


class ClaudeImport(Struct, frozen=True):
    """The source and the agent that gets what is imported."""

    source: Path
    home: Home
    agent: AgentId
    ledger: ImportLedger
    kinds: frozenset[str]
    with_credentials: bool = False

    def plan(self) -> list[ImportStep]:
        makers = {"memory": self._plan_memory, "skills": self._plan_skills, "mcp": self._plan_servers}
        return [step for kind, make in makers.items() if kind in self.kinds for step in make()]

    def _plan_memory(self) -> Iterator[ImportStep]:
        files = [path for path in _memory_files(self.source) if path.is_file() and not path.is_symlink()]
        too_large = [path for path in files if path.stat().st_size > _MAX_MEMORY_BYTES]
        omissions = tuple(Omission(str(path), "it is larger than 1 MB") for path in too_large)
        usable = [path for path in files if path not in too_large]
        if files:
            names = tuple(str(path) for path in usable)
            yield ImportStep("memory", len(usable), omissions, names, partial(self._copy_memory, usable))

    def _copy_memory(self, files: list[Path], _note: Note) -> StepResult:
        """Copy the files as notes, which memory search finds; the prompt's own files stay as they are."""
        seed_agent(self.home, self.agent)
        folder = locate_workspace(self.home, self.agent) / "memory"
        done = StepResult()
        for path in files:
            target = folder / f"claude-{_slug(path, self.source)}"
            data = path.read_bytes()
            if self.ledger.has("memory", str(path)) or target.exists():
                done.already += 1
                continue
            write_atomic(target, data)
            self.ledger.add("memory", str(path))
            done.imported += 1
        return done

    def _plan_skills(self) -> Iterator[ImportStep]:
        folder = self.source / "skills"
        names = sorted(path.parent.name for path in folder.glob("*/SKILL.md")) if folder.is_dir() else []
        if names:
            yield ImportStep("skills", len(names), (), tuple(names), partial(self._copy_skills, names))

    def _copy_skills(self, names: list[str], _note: Note) -> StepResult:
        done = StepResult()
        for name in names:
            copy_whole(self.source / "skills" / name, self.home.paths.skills / name, "skills", self.ledger, done)
        return done

    def _plan_servers(self) -> Iterator[ImportStep]:
        servers: dict[str, dict[str, object]] = {}
        omissions: list[Omission] = []
        for file in (self.source.parent / ".claude.json", self.source / ".mcp.json", self.source.parent / ".mcp.json"):
            try:
                found = read_servers(file)
            except UsageError:
                continue
            servers = {**found.servers, **servers}
            omissions += [Omission(name, why) for name, why in found.refused.items()]
        if not self.with_credentials:
            for name, server in servers.items():
                if server.pop("env", None) or server.pop("headers", None):
                    omissions.append(Omission(f"{name}: env and headers", _SECRET))
        if servers or omissions:
            names = tuple(servers)
            step = partial(self._add_servers, servers) if servers else None
            yield ImportStep("mcp", len(servers), tuple(omissions), names, step)

    def _add_servers(self, servers: dict[str, dict[str, object]], _note: Note) -> StepResult:
        done = StepResult()
        known = self.home.config.mcp.servers
        changes = [
            Change(f"mcp.servers.{name}", json.dumps(server, ensure_ascii=False))
            for name, server in servers.items()
            if name not in known
        ]
        done.already = len(servers) - len(changes)
        if changes:
            change_values(self.home.paths, changes, os.environ, who="import")
            done.imported = len(changes)
        return done


def locate_claude(named: Path | None, user_home: Path) -> Path:
    """Return the folder of Claude Code; raise `UsageError` if it does not exist."""
    folder = (named.expanduser() if named else user_home / ".claude").absolute()
    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder}. Name the one of Claude Code with --from.")
    return folder


def _memory_files(source: Path) -> Iterator[Path]:
    yield source / "CLAUDE.md"
    projects = source / "projects"
    if projects.is_dir():
        yield from sorted(projects.glob("*/memory/*.md"))


def _slug(path: Path, source: Path) -> str:
    """Return a name for a note that tells which project it belongs to."""
    parts = path.relative_to(source).parts
    if len(parts) == 1:
        return "instructions.md"
    return f"{parts[1].strip('-')}-{parts[-1]}".lower()
