"""The approvals and command rules of a home, with or without a running turn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial

from msgspec import Struct

from retinue.core.approval import IN_COMMAND, Ask
from retinue.core.envelope import Inbound, Source
from retinue.core.events import Emit
from retinue.runtime.approvals.allow_rules import ConfiguredAllowRules
from retinue.runtime.home import Home
from retinue.storage.database import DATABASE_NAME, Database
from retinue.tools.approvals.broker import ApprovalBroker, Approver


class Permissions(Struct, frozen=True):
    """The pending approvals and the rules for commands."""

    home: Home
    approvals: ApprovalBroker
    rule_store: ConfiguredAllowRules

    def renewed(self, home: Home) -> Permissions:
        """Return the same approvals and stored rules under another configuration."""
        return Permissions(home, self.approvals, self.rule_store.renewed(home.config))

    def asking(self, here: Ask, show: Emit) -> Ask:
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
        path = home.paths.path / DATABASE_NAME
        database = Database(path, durable=home.durable, newer="aside")
        try:
            with open_permissions(home, database) as permissions:
                yield permissions
        finally:
            database.close()
        return
    audit, clock = home.audit, home.clock
    broker = ApprovalBroker(database, audit, clock, home.paths.path / "presence")
    try:
        yield Permissions(home, broker, ConfiguredAllowRules(home.config, database, audit, clock))
    finally:
        broker.close()
