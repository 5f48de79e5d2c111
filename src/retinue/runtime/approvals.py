"""The approvals and the command rules of a home: stored patterns, configured patterns, and who may change them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cache, partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.config.schema import Config
from retinue.config.sections.tools import AgentExec, ExecSection
from retinue.core.approval import IN_COMMAND, Ask
from retinue.core.clock import Clock, format_moment
from retinue.core.codec import dump_json, from_plain, load_json
from retinue.core.envelope import Inbound, Source
from retinue.core.errors import ConfigError, StorageError, UsageError
from retinue.core.events import Emit
from retinue.core.keys import AgentId
from retinue.runtime.home import Home
from retinue.security.redaction import redact_everything
from retinue.security.untrusted_text import literal
from retinue.storage.auditlog import AuditLog
from retinue.storage.database import Database, Row
from retinue.structs.declare import set_attributes
from retinue.toolkit.settings import SafeBinProfile as ProfileSettings
from retinue.tools.approvals.broker import ApprovalBroker, Approver, NotAnApprover
from retinue.tools.approvals.store import generate_code
from retinue.tools.shell.allowlist import (
    DEFAULT_SAFE_BINS,
    ArgvPattern,
    AskWhen,
    CommandRules,
    SafeBinSpec,
    Security,
)

log = logging.getLogger(__name__)

MAX_COMMAND_CHARS = 2_000
"""How many characters of a command are stored with a rule; approvals store the whole command."""

_REMEMBERED = "SELECT pattern, command, content FROM command_rules WHERE agent = ? ORDER BY rowid"

_LIST = """
SELECT rule.id, rule.agent, rule.pattern, rule.added_at, rule.added_by, rule.command,
    use.used_at, use.command AS used_command, use.uses
FROM command_rules rule LEFT JOIN rule_uses use ON use.agent = rule.agent AND use.pattern = rule.pattern
ORDER BY rule.agent, rule.rowid
"""

_USES = "SELECT pattern, used_at, command AS used_command, uses FROM rule_uses WHERE agent = ?"

_ADD = """
INSERT INTO command_rules (id, agent, pattern, added_at, added_by, command, content) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (agent, pattern) DO UPDATE SET content = excluded.content, added_at = excluded.added_at,
    added_by = excluded.added_by, command = excluded.command
WHERE coalesce(command_rules.content, '') <> coalesce(excluded.content, '') RETURNING id
"""

_HAS = "SELECT 1 FROM command_rules WHERE id = ?"

_REMOVE = "DELETE FROM command_rules WHERE id = ?"

_USED = """
INSERT INTO rule_uses (agent, pattern, used_at, command, uses) VALUES (?, ?, ?, ?, 1)
ON CONFLICT (agent, pattern) DO UPDATE SET used_at = excluded.used_at, command = excluded.command,
    uses = rule_uses.uses + 1
"""


class Rule(Struct, frozen=True):
    """A pattern whose commands need no approval: its source and its last use.

    `id` is empty if the pattern is in the configuration, at the key `source`.
    """

    agent: AgentId
    pattern: str
    source: str
    id: str = ""
    added_at: str | None = None
    added_by: str | None = None
    command: str | None = None
    used_at: str | None = None
    used_command: str | None = None
    uses: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id or None,
            "agent": self.agent,
            "pattern": self.pattern,
            "source": self.source,
            "addedAt": self.added_at,
            "addedBy": self.added_by,
            "command": self.command,
            "lastUsedAt": self.used_at,
            "lastUsedCommand": self.used_command,
            "uses": self.uses,
        }

    def __str__(self) -> str:
        used = f"used {self.uses}×, last {self.used_at} by `{self.used_command}`" if self.used_at else "never used"
        added = f", added {self.added_at} by {self.added_by}" if self.added_at else ""
        return f"{self.id or '—':<6} {self.pattern}  ({self.agent}, {self.source}{added}; {used})"


class ConfiguredAllowRules:
    """The rules of all agents of a home; satisfies `CommandRuleStore`."""

    def __init__(self, config: Config, database: Database, audit: AuditLog, clock: Clock) -> None:
        self._config = config
        self._database = database
        self._audit = audit
        self._clock = clock
        self._skill_bins: Callable[[AgentId], frozenset[str]] = lambda agent: frozenset()
        self._sections = cache(self._read_sections)
        self._configured = cache(self._read_configured)

    def attach_skills(self, skill_bins: Callable[[AgentId], frozenset[str]]) -> None:
        """Set the function that finds the programs of an agent's skills."""
        self._skill_bins = skill_bins

    def renewed(self, config: Config) -> ConfiguredAllowRules:
        """Return the same stored rules under another configuration."""
        fresh = ConfiguredAllowRules(config, self._database, self._audit, self._clock)
        fresh.attach_skills(self._skill_bins)
        return fresh

    def rules(self, agent: AgentId) -> CommandRules:
        """Return the current rules of an agent."""
        shared, own = self._sections(agent)
        remembered = (_remembered(row) for row in self._database.read(_REMEMBERED, (agent,)))
        merged = merge_sections(shared, own)
        bins = self._skill_bins(agent) if merged.auto_allow_skills else frozenset()
        return make_rules(merged, (*self._configured(agent), *(pattern for pattern in remembered if pattern)), bins)

    def record_use(self, agent: AgentId, pattern: ArgvPattern, command: str) -> None:
        """Record that a pattern allowed a command; if that cannot be stored, the command runs nevertheless."""
        values = (agent, str(pattern), format_moment(self._clock.now()), _shorten_command(command))
        try:
            with self._database.change() as base:
                base.execute(_USED, values)
        except StorageError as error:
            log.warning("the use of `%s` was not recorded: %s", pattern, error)

    def add_patterns(self, agent: AgentId, patterns: Sequence[ArgvPattern], command: str, by: str) -> None:
        """Store patterns that a person allowed; if that fails, the person is asked again."""
        try:
            for pattern in patterns:
                self._add(agent, pattern, command, by)
        except StorageError as error:
            log.warning("the rules that %s allowed were not stored: %s", by, error)

    def add(self, agent: AgentId, text: str, by: Approver) -> Rule:
        """Allow a pattern that a person wrote; raise `ConfigError` if it is invalid."""
        self._check(by, "rule_added", text)
        pattern = ArgvPattern.parse(text)
        self._add(agent, pattern, "", by.name)
        return next(rule for rule in self.listing(agent) if rule.id and rule.pattern == str(pattern))

    def remove(self, code: str, by: Approver, agent: AgentId | None = None) -> Rule:
        """Delete a stored rule by its id or text; raise `UsageError` if there is none."""
        self._check(by, "rule_removed", code)
        wanted = code.strip()
        known = [rule for rule in self.listing(agent) if wanted.lower() == rule.id or wanted == rule.pattern]
        found = next((rule for rule in known if rule.id), None)
        if found is None:
            raise UsageError(self._no_such_rule(wanted, known, agent))
        details = {"agent": found.agent, "pattern": found.pattern, "id": found.id}
        with self._database.change(durable=True) as base:
            base.execute(_REMOVE, (found.id,))
            self._audit.record("rule_removed", by.name, details)
        return found

    def listing(self, agent: AgentId | None = None) -> tuple[Rule, ...]:
        """Return all patterns of one agent or of all: those of the configuration first, then the stored ones."""
        agents = self._config.agents.ids if agent is None else (agent,)
        configured = [rule for each in agents for rule in self._list_configured(each)]
        remembered = map(_read_rule, self._database.read(_LIST))
        return (*configured, *(rule for rule in remembered if agent in (None, rule.agent)))

    def _check(self, approver: Approver, what: str, text: str) -> None:
        """Raise if the approver may not change the rules, and record the attempt."""
        objection = approver.objection
        if objection is not None:
            details = {"wanted": what, "rule": literal(text), "because": objection}
            self._audit.record("rule_refused", approver.name, details)
            raise NotAnApprover(objection)

    def _add(self, agent: AgentId, pattern: ArgvPattern, command: str, by: str) -> None:
        with self._database.change(durable=True) as base:
            code = generate_code()
            while base.execute(_HAS, (code,)).fetchone() is not None:
                code = generate_code(len(code) + 1)
            content = None if pattern.content is None else dump_json(dict(pattern.content))
            now = format_moment(self._clock.now())
            values = (code, agent, str(pattern), now, by, _shorten_command(command), content)
            stored = base.execute(_ADD, values).fetchone()
            if stored is not None:
                details = {"agent": agent, "pattern": str(pattern), "id": stored["id"]}
                self._audit.record("rule_added", by, details)

    def _read_sections(self, agent: AgentId) -> tuple[ExecSection, AgentExec]:
        return self._config.tools.exec, self._config.agents.resolve(agent).tools.exec

    def _read_configured(self, agent: AgentId) -> tuple[ArgvPattern, ...]:
        shared, own = self._sections(agent)
        return tuple(_readable((*shared.allowlist, *own.allowlist)))

    def _list_configured(self, agent: AgentId) -> Iterable[Rule]:
        shared, own = self._sections(agent)
        uses = {row["pattern"]: row for row in self._database.read(_USES, (agent,))}
        own_key = f"agents.list[{agent}].tools.exec.allowlist"
        for key, texts in (("tools.exec.allowlist", shared.allowlist), (own_key, own.allowlist)):
            for pattern in map(str, _readable(texts)):
                use = uses.get(pattern)
                used = (use["used_at"], use["used_command"], use["uses"]) if use else (None, None, 0)
                yield Rule(agent, pattern, key, used_at=used[0], used_command=used[1], uses=used[2])

    def _no_such_rule(self, wanted: str, known: Sequence[Rule], agent: AgentId | None) -> str:
        if known:
            return f"'{wanted}' is in the configuration: remove it from {known[0].source}."
        ids = ", ".join(f"{rule.id} ({rule.pattern})" for rule in self.listing(agent) if rule.id) or "none"
        return f"There is no stored rule '{literal(wanted, 80)}'. Stored: {ids}."


def merge_sections(shared: ExecSection, own: AgentExec) -> ExecSection:
    """Merge the default section with the agent's own; folders and profiles are added, the rest is replaced."""
    chosen = {name: getattr(own, name) for name in set_attributes(own) if getattr(own, name) is not None}
    added = {
        "safe_bin_trusted_dirs": list(dict.fromkeys((*shared.safe_bin_trusted_dirs, *own.safe_bin_trusted_dirs))),
        "safe_bin_profiles": {**shared.safe_bin_profiles, **own.safe_bin_profiles},
    }
    return replace(shared, **(chosen | added))


def make_rules(
    section: ExecSection, patterns: tuple[ArgvPattern, ...], skill_bins: frozenset[str] = frozenset()
) -> CommandRules:
    """Return the rules of a section of the configuration and these patterns."""
    bins = section.safe_bins
    return CommandRules(
        security=Security(section.security or Security.ALLOWLIST),
        ask=AskWhen(section.ask or AskWhen.ON_MISS),
        ask_fallback=Security(section.ask_fallback),
        patterns=patterns,
        safe_bins=DEFAULT_SAFE_BINS if bins is None else frozenset(bins),
        safe_bin_profiles={name: _profile(profile) for name, profile in section.safe_bin_profiles.items()},
        trusted_dirs=tuple(section.safe_bin_trusted_dirs),
        strict_inline_eval=section.strict_inline_eval,
        skill_bins=skill_bins,
    )


def _profile(settings: ProfileSettings) -> SafeBinSpec:
    return SafeBinSpec(
        min_positional=settings.min_positional,
        max_positional=settings.max_positional,
        allowed_flags=frozenset(settings.allowed_flags),
        allowed_value_flags=frozenset(settings.allowed_value_flags),
        denied_flags=frozenset(settings.denied_flags),
    )


def _readable(texts: Iterable[str]) -> Iterable[ArgvPattern]:
    """Parse patterns; an invalid one is ignored."""
    for text in texts:
        try:
            yield ArgvPattern.parse(text)
        except ConfigError as error:
            log.warning("a command pattern is ignored: %s", error)


def _remembered(row: Row) -> ArgvPattern | None:
    """Read a stored pattern; None if it is invalid. Older rules of answers were not bound to any content."""
    pattern = next(iter(_readable((row["pattern"],))), None)
    if pattern is None or (row["content"] is None and not row["command"]):
        return pattern
    try:
        hashes = from_plain(load_json(row["content"] or "{}"), dict[str, str])
    except ValueError as error:
        log.warning("the rule `%s` is ignored: its content is damaged: %s", pattern, error)
        return None
    return pattern.bound_to(tuple(sorted(hashes.items())))


def _shorten_command(command: str) -> str:
    return redact_everything(command.encode("utf-8", "backslashreplace").decode())[:MAX_COMMAND_CHARS]


def _read_rule(row: Row) -> Rule:
    return Rule(
        AgentId(row["agent"]),
        row["pattern"],
        "remembered",
        row["id"],
        row["added_at"],
        row["added_by"],
        row["command"] or None,
        row["used_at"],
        row["used_command"],
        row["uses"] or 0,
    )


class Permissions(Struct, frozen=True):
    """The pending approvals and the rules for commands."""

    home: Home
    approvals: ApprovalBroker
    rule_store: ConfiguredAllowRules

    def renewed(self, home: Home) -> Permissions:
        """Return the same approvals and stored rules under another configuration."""
        return Permissions(home, self.approvals, self.rule_store.renewed(home.config))

    def asking(self, here: Ask | None, show: Emit) -> Ask:
        """Return the `Ask` of a turn: its requests are stored, and answered here or by another process."""
        within = timedelta(milliseconds=self.home.config.tools.exec.approval_timeout_ms)
        return partial(self.approvals.ask, here=here, within=within, show=show)

    def approver(self, name: str, *, owner: bool = True, source: Source = Source.CHAT) -> Approver:
        """Return the approver that decides through this process."""
        return Approver(name, owner, source, in_command=IN_COMMAND in self.home.environment)

    def sender(self, inbound: Inbound) -> Approver:
        """Return the sender of a message as an approver."""
        name = inbound.sender or f"the {'owner' if inbound.owner else 'guest'} on {inbound.channel}"
        return self.approver(name, owner=inbound.owner, source=inbound.source)


@contextmanager
def open_permissions(home: Home, database: Database | None = None) -> Iterator[Permissions]:
    """Open the approvals and rules; without a database, that of the home is opened and closed again."""
    if database is None:
        database = home.open_state()
        try:
            with open_permissions(home, database) as permissions:
                yield permissions
        finally:
            database.close()
        return
    audit, clock = home.audit, home.clock
    broker = ApprovalBroker(database, audit, clock, home.make_presence())
    try:
        yield Permissions(home, broker, ConfiguredAllowRules(home.config, database, audit, clock))
    finally:
        broker.close()
