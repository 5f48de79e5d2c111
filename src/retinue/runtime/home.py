"""The home: its configuration and the registrations of plugins."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.config.load import LoadedConfig, load_config
from retinue.config.schema import Config
from retinue.config.sections.gateway import EnvSettings, PluginEntry
from retinue.config.variables import declared_variables
from retinue.core.approval import IN_COMMAND
from retinue.core.clock import Clock, SystemClock
from retinue.core.errors import ConfigError, StorageError
from retinue.core.fence import Lease
from retinue.core.keys import DEFAULT_AGENT, AgentId, SessionKey, parse_agent_id
from retinue.plugins.bundles import fill_data
from retinue.plugins.discovery import PluginPlaces
from retinue.plugins.loading import effective_config, load_registry
from retinue.plugins.manifest import PluginManifest
from retinue.plugins.registry import PluginRegistry
from retinue.runtime.known_secrets import known_secrets
from retinue.security.logs import tune_console, tune_logs
from retinue.security.redaction import Redactor
from retinue.security.secret_sources import run_for_secret
from retinue.security.secrets import Secrets, resolve_references
from retinue.skills.requirements import Programs
from retinue.storage.auditlog import AuditLog
from retinue.storage.database import DATABASE_NAME, Database, SqliteDatabase, query_read_only
from retinue.storage.files import create_atomic
from retinue.storage.home_paths import HomePaths
from retinue.storage.postgres import open_team
from retinue.storage.process_locks import FilePresence, Presence, SessionLease, has_ancestor_with_variable
from retinue.structs.declare import to_plain
from retinue.structs.decode import DecodeError, decode
from retinue.toolkit.mcp.settings import McpServerSettings
from retinue.workspace.settings import workspace_dir
from retinue.workspace.state import TrustedFolder, read_trusted

if TYPE_CHECKING:
    from retinue.storage.postgres.team_storage import TeamStorage

log = logging.getLogger(__name__)

SHELL_VARIABLES = frozenset(
    {"HOME", "USER", "LOGNAME", "PATH", "SHELL", "LANG", "TMPDIR", "XDG_CONFIG_HOME", "ZDOTDIR"}
)
"""The variables that a login shell gets when it is asked for API keys."""
WORKSPACE_PLUGINS = Path(".retinue", "plugins")
"""The folder of a workspace's plugins, which no tool and no sandboxed command can write."""
SHELL_MARK = "retinue-variables-follow"


class Home(Struct, frozen=True, dict=True):
    """A home with its configuration, read once. It is immutable; a reload creates a new one."""

    paths: HomePaths
    loaded: LoadedConfig
    environment: Mapping[str, str]
    registry: PluginRegistry
    clock: Clock = field(default_factory=SystemClock)
    programs: Programs = field(default_factory=Programs)
    inherited: Mapping[str, str] = field(default_factory=dict)
    """The environment that this process was started with; `environment` also has the variables of the configuration."""
    trusted_workspaces: frozenset[TrustedFolder] = frozenset()
    """Workspaces that Retinue did not create and the owner trusts."""

    @property
    def config(self) -> Config:
        return self.loaded.config

    @property
    def is_in_command(self) -> bool:
        """Return whether an agent's command started this process; then its user is not the owner."""
        return IN_COMMAND in self.environment or has_ancestor_with_variable(IN_COMMAND)

    @property
    def durable(self) -> bool:
        """Return whether stored data must survive a power failure, and not only the death of the process."""
        return self.config.session.durability == "power"

    @property
    def job_database(self) -> Path:
        """Return the path of the job database: the home's own, or the one that `cron.store` names.

        OpenClaw stores jobs in a JSON file; for such a name the database is next to it.
        """
        named = self.config.cron.store
        if named is None:
            return self.paths.path / DATABASE_NAME
        path = self.locate(named)
        return path.with_suffix(".sqlite") if path.suffix == ".json" else path

    @cached_property
    def team_storage(self) -> TeamStorage | None:
        """Return the database of `storage.url`, which has the sessions; None if files of the home have them."""
        url = self.config.storage.url
        if url is None:
            return None
        return open_team(Secrets(self.environment, self.redactor).resolve(url), self.config.teams.team)

    def lease(self, session: SessionKey) -> Lease:
        """Return the lease of a session, which is not held yet."""
        team = self.team_storage
        return SessionLease(self.paths, session) if team is None else team.leases.lease(session.text)

    def make_presence(self) -> Presence:
        """Return a new presence of this process, which is not shown yet."""
        if self.team_storage is None:
            return FilePresence(self.paths.path / "presence")
        from retinue.storage.postgres.workers import TeamPresence  # most homes have no server

        return TeamPresence(self.team_storage)

    @property
    def state_files(self) -> tuple[Path, ...]:
        """Return the files of SQLite with the state of this home; none if a team's database has it."""
        if self.config.storage.url is not None:
            return ()
        return tuple(dict.fromkeys((self.paths.path / DATABASE_NAME, self.job_database)))

    def open_state(
        self, path: Path | None = None, *, newer: Literal["refuse", "aside"] = "aside", degrades: bool = False
    ) -> Database:
        """Open the state: that of the team, or the file of the home; `path` names another file for a part of it."""
        team = self.team_storage
        if team is None:
            file = path or self.paths.path / DATABASE_NAME
            return SqliteDatabase(file, durable=self.durable, newer=newer, degrades=degrades)
        from retinue.storage.postgres.state import PostgresDatabase  # most homes have no server

        return PostgresDatabase(team.connection)

    def query_state(self, sql: str, values: Sequence[str] = ()) -> Sequence[Sequence[Any]] | None:
        """Return rows of the state without creating it; None if it cannot be read."""
        file = self.paths.path / DATABASE_NAME
        if self.team_storage is None:
            return query_read_only(file, sql, values) if file.exists() else ()
        try:
            return [tuple(row) for row in self.open_state().read(sql, values)]
        except StorageError:
            return None

    @cached_property
    def run_secret(self) -> str:
        """Return the secret from which the ids of runs are derived, so that nobody else can compute them."""
        return generated_secret(self.paths, "run-ids")

    @property
    def log_file(self) -> Path:
        """Return the path of the log file."""
        named = self.config.logging.file
        return self.locate(named) if named else self.paths.log_file

    def agent_dir(self, agent: AgentId) -> Path:
        """Return the folder of an agent's credentials."""
        named = next((entry.agent_dir for entry in self.config.agents.entries if entry.id == agent), None)
        return self.locate(named) if named else self.paths.agent_dir(agent)

    def locate(self, named: str) -> Path:
        """Return a path of the configuration: relative to the home, unless it is absolute or begins with `~/`."""
        return _locate(self.paths, self.environment, named)

    @cached_property
    def plain_config(self) -> Mapping[str, Any]:
        """Return the configuration as plain data, for requirements that name a key."""
        plain: dict[str, Any] = to_plain(self.config, only_set=True)
        return plain

    def plugin_config(self, plugin: str, secrets: Secrets) -> Mapping[str, Any]:
        """Return the settings of a plugin, with the secrets that they refer to."""
        manifest = next((each.manifest for each in self.registry.plugins if each.name == plugin), None)
        entry = self.config.plugins.entries.get(plugin) or PluginEntry()
        config = effective_config(manifest or PluginManifest(plugin), entry)
        resolved: Mapping[str, Any] = resolve_references(config, secrets.resolve)
        return resolved

    @cached_property
    def redactor(self) -> Redactor:
        """Return the redactor that removes the known secrets, and those resolved while the program runs."""
        agents = {DEFAULT_AGENT, *self.config.agents.ids}
        folders = [self.agent_dir(agent) for agent in sorted(agents)]
        rules = self.config.logging
        return Redactor(
            known_secrets(self.plain_config, self.environment, folders),
            patterns=rules.redact_patterns,
            shapes=rules.redact_sensitive != "off",
        )

    @cached_property
    def audit(self) -> AuditLog:
        """Return the audit log, which contains no secrets."""
        return AuditLog(self.paths.audit_log, self.clock, self.redactor.redact, durable=self.durable)

    def tune_logs(self) -> None:
        """Configure the logs of this process."""
        rules = self.config.logging
        tune_logs(rules.level, rules.format, self.log_file)
        tune_console(rules.console_level, rules.console_style)

    def agent_id(self, text: str | None) -> AgentId:
        """Return the agent with a name, or the default agent; raise `UsageError` if it is unknown."""
        if text is None:
            return self.config.agents.default_id
        return self.config.agents.resolve(parse_agent_id(text)).id

    def session_key(self, text: str | None, agent: str | None) -> SessionKey:
        """Return the session with a name: a full key, a name within the agent, or the agent's main session."""
        if text is None:
            return SessionKey.main(self.agent_id(agent))
        key = SessionKey.parse(text, default_agent=self.agent_id(agent))
        self.config.agents.resolve(key.agent)
        named_main = f"agent:{key.agent}:{self.config.session.main_key.strip().lower()}"
        return SessionKey.main(key.agent) if key.text == named_main else key


def load_home(paths: HomePaths, *, environment: Mapping[str, str] | None = None, clock: Clock | None = None) -> Home:
    """Read the configuration and load the plugins; creates nothing on disk."""
    inherited = dict(os.environ) if environment is None else environment
    loaded = load_config(paths, inherited)
    completed = _complete(inherited, loaded.config.env)
    registry = load_registry(loaded.config.plugins, _plugin_places(paths, loaded.config, inherited), completed)
    if registry.servers:
        loaded = replace(loaded, config=_with_servers(loaded.config, registry, paths))
    return Home(
        paths,
        loaded,
        completed,
        registry,
        clock or SystemClock(),
        inherited=inherited,
        trusted_workspaces=read_trusted(paths.path),
    )


def _with_servers(config: Config, registry: PluginRegistry, paths: HomePaths) -> Config:
    """Return the configuration with the MCP servers of bundles, unless it has one of the same name."""
    found = dict(config.mcp.servers)
    for server in registry.servers.values():
        if server.name not in found:
            try:
                settings = fill_data(server.settings, paths.plugin_data(server.plugin))
                found[server.name] = decode(McpServerSettings, settings)
            except DecodeError as error:
                log.warning("the MCP server '%s' of '%s' cannot be used: %s", server.name, server.plugin, error)
    return replace(config, mcp=replace(config.mcp, servers=found))


def locate_workspace_of(paths: HomePaths, config: Config, agent: AgentId) -> Path:
    """Return the path of an agent's workspace, whether or not it exists."""
    settings = config.agents.resolve(agent)
    return workspace_dir(
        paths,
        agent,
        configured=settings.workspace,
        is_default=settings.is_default,
        default_configured=config.agents.defaults.workspace,
    )


def agents_in_workspace(paths: HomePaths, config: Config, agent: AgentId) -> tuple[AgentId, ...]:
    """Return the agents with the same workspace; the labels of its files are recorded under the first of them."""
    ids = config.agents.ids
    if len(ids) == 1:
        return (agent,)
    place = os.path.realpath(locate_workspace_of(paths, config, agent))
    same = (each for each in ids if os.path.realpath(locate_workspace_of(paths, config, each)) == place)
    return tuple(same) or (agent,)


def _plugin_places(paths: HomePaths, config: Config, environment: Mapping[str, str]) -> PluginPlaces:
    workspaces = dict.fromkeys(locate_workspace_of(paths, config, agent) for agent in config.agents.ids)
    return PluginPlaces(
        tuple(_locate(paths, environment, path) for path in config.plugins.load.paths),
        tuple(workspace / WORKSPACE_PLUGINS for workspace in workspaces),
        paths.plugins,
    )


def generated_secret(paths: HomePaths, name: str) -> str:
    """Return a secret of the home, which is created once and stored with the credentials."""
    path = paths.credentials / name
    with suppress(FileNotFoundError):
        if found := path.read_text("utf-8").strip():
            return found
        path.unlink()  # a fault has emptied it: nothing may be derived from an empty secret
    create_atomic(path, secrets.token_hex(32).encode() + b"\n")  # the first of two processes decides
    return path.read_text("utf-8").strip()


def _locate(paths: HomePaths, environment: Mapping[str, str], named: str) -> Path:
    user_home = Path(environment.get("HOME") or Path.home())
    return paths.path / (user_home / named[2:] if named.startswith("~/") else named)


def _complete(inherited: Mapping[str, str], settings: EnvSettings) -> Mapping[str, str]:
    """Return the environment with missing variables of the configuration, then those of the login shell."""
    section = {**settings.other_keys, "vars": settings.vars}
    found = {**declared_variables({"env": section}), **inherited}
    if not settings.shell_env.enabled:
        return found
    return {**found, **missing_keys(found, settings.shell_env.timeout_ms / 1000)}


def missing_keys(environment: Mapping[str, str], seconds: float) -> dict[str, str]:
    """Return the providers' keys that the login shell sets and the environment lacks; none if it fails or is slow."""
    from retinue.providers.vendors import VENDORS  # Most homes do not read the login shell, and it is slow to import.

    known = {name for vendor in VENDORS for name in vendor.variables}
    shell = environment.get("SHELL") or "/bin/sh"
    if environment.keys() >= known or not Path(shell).is_absolute():
        return {}
    passed = {name: value for name, value in environment.items() if name in SHELL_VARIABLES}
    try:
        printed = run_for_secret((shell, "-l", "-c", f"printf '\\0{SHELL_MARK}\\0'; env -0"), passed, seconds)
    except ConfigError as error:
        log.warning("the login shell gave no keys: %s", error)
        return {}
    # Output of start-up files comes before the mark.
    pairs = (line.partition("=") for line in printed.rpartition(f"\0{SHELL_MARK}\0")[2].split("\0"))
    found = {name: value for name, _, value in pairs if name in known and name not in environment and value}
    if found:
        log.info("taken from the login shell: %s", ", ".join(sorted(found)))
    return found
