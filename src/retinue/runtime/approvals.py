"""Approvals and remembered rules of a home, reached with or without a running turn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial

from msgspec import Struct

from retinue.core.approval import IN_COMMAND, Ask
from retinue.core.envelope import Inbound, Source
from retinue.core.events import Emit
from retinue.runtime.foundation import Foundation
from retinue.runtime.rulebook import ConfiguredRulebook
from retinue.storage.database import DATABASE_NAME, Database
from retinue.tools.approvals import ApprovalBook, Approver


class Permissions(Struct, frozen=True):
    """What people are asked and what they allowed: open questions and the rules for commands."""

    foundation: Foundation
    approvals: ApprovalBook
    rulebook: ConfiguredRulebook

    def renewed(self, foundation: Foundation) -> Permissions:
        """The same questions and remembered rules under another configuration."""
        return Permissions(foundation, self.approvals, self.rulebook.renewed(foundation.config))

    def asking(self, here: Ask, show: Emit) -> Ask:
        """The `Ask` of a turn: its questions are kept, and answered here or from anywhere else."""
        within = timedelta(milliseconds=self.foundation.config.tools.exec.approval_timeout_ms)
        return partial(self.approvals.ask, here=here, within=within, show=show)

    def approver(self, name: str, *, owner: bool = True, source: Source = Source.CHAT) -> Approver:
        """Somebody who wants to decide through this process."""
        return Approver(name, owner, source, in_command=IN_COMMAND in self.foundation.environment)

    def sender(self, inbound: Inbound) -> Approver:
        """The sender of a message, as one who wants to decide."""
        name = inbound.sender or f"the {'owner' if inbound.owner else 'guest'} on {inbound.channel}"
        return self.approver(name, owner=inbound.owner, source=inbound.source)


@contextmanager
def open_permissions(foundation: Foundation, database: Database | None = None) -> Iterator[Permissions]:
    """Open what people are asked and allowed; without a database at hand, the home's is opened and closed again."""
    if database is None:
        path = foundation.home.path / DATABASE_NAME
        database = Database(path, durable=foundation.durable, newer="aside")
        try:
            with open_permissions(foundation, database) as permissions:
                yield permissions
        finally:
            database.close()
        return
    audit, clock = foundation.audit, foundation.clock
    book = ApprovalBook(database, audit, clock, foundation.home.path / "presence")
    try:
        yield Permissions(foundation, book, ConfiguredRulebook(foundation.config, database, audit, clock))
    finally:
        book.close()
