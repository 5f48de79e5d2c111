"""The audit log of a team: entries that are only added, each with the hash of the one before.

The hash covers a salted digest of who acted and how. If that content is erased, the digest stays and the chain is still
valid; without the salt nobody can find out the content by guessing. Every erasure and every deletion of old entries is
an entry itself, so that a verification tells them from tampering.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct, convert

from retinue.teams.database import TeamDatabase, TeamTransaction
from retinue.teams.members import TeamMember

FIRST = "0" * 64
ERASED = "member_erased"
PRUNED = "audit_pruned"
_PAGE = 1_000


class TeamAuditEntry(Struct, frozen=True):
    """One entry. `who`, `details` and `salt` are None after an erasure."""

    n: int
    at: datetime
    kind: str
    who: str | None
    details: str | None
    salt: str | None
    digest: str
    previous: str
    hash: str

    @property
    def plain_details(self) -> Mapping[str, Any]:
        """The details; empty after an erasure."""
        found = json.loads(self.details) if self.details else {}
        return found if isinstance(found, dict) else {}


class NewAuditEntry(Struct, frozen=True):
    """What is recorded."""

    at: datetime
    kind: str
    who: str
    details: Mapping[str, Any]


class TeamAuditReport(Struct, frozen=True):
    """The result of a verification: the number of entries, the hash of the last one, and every fault."""

    entries: int
    head: str
    faults: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.faults


class AuditSearch(Struct, frozen=True):
    """Which entries to return, the newest first; all conditions must hold."""

    kind: str | None = None
    text: str | None = None
    since: datetime | None = None
    limit: int = 200


class TeamAuditLog:
    """The audit log of one team."""

    def __init__(self, database: TeamDatabase) -> None:
        self._database = database

    def append(self, entries: Sequence[NewAuditEntry]) -> None:
        with self._database.transaction() as transaction:
            _append(transaction, entries)

    def copy(self, source: str, entries: Sequence[tuple[int, NewAuditEntry]]) -> None:
        """Add entries of a home's own log that were not copied yet, each with its number there."""
        with self._database.transaction() as transaction:
            _lock(transaction)  # before the position is read, so that no two gateways copy the same
            rows = transaction.run("read_audit_source", source=source)
            position = rows[0]["n"] if rows else 0
            fresh = [(number, entry) for number, entry in entries if number > position]
            if fresh:
                _append(transaction, [entry for _, entry in fresh])
                transaction.run("set_audit_source", source=source, n=fresh[-1][0])

    def position(self, source: str) -> int:
        """How far the log of a home was copied."""
        with self._database.transaction() as transaction:
            rows = transaction.run("read_audit_source", source=source)
            return int(rows[0]["n"]) if rows else 0

    def search(self, wanted: AuditSearch) -> tuple[TeamAuditEntry, ...]:
        with self._database.transaction() as transaction:
            rows = transaction.run(
                "search_audit", kind=wanted.kind, text=wanted.text, since=wanted.since, limit=wanted.limit
            )
            return tuple(convert(row, TeamAuditEntry) for row in rows)

    def all(self) -> Iterator[TeamAuditEntry]:
        """Every entry, the oldest first."""
        after = 0
        while True:
            with self._database.transaction() as transaction:
                rows = transaction.run("list_audit", after=after, limit=_PAGE)
            for row in rows:
                yield convert(row, TeamAuditEntry)
            if len(rows) < _PAGE:
                return
            after = rows[-1]["n"]

    def verify(self) -> TeamAuditReport:
        """Check the hash of every entry, their order, and that nothing is missing or was erased without an entry."""
        with self._database.transaction() as transaction:
            rows = transaction.run("read_audit_head")
        head_n, head = (int(rows[0]["n"]), str(rows[0]["hash"])) if rows else (0, FIRST)
        return _verify(self.all(), head_n, head)

    def prune(self, before: datetime) -> int:
        """Delete the entries before a time, and record that. Returns how many were deleted."""
        with self._database.transaction() as transaction:
            _lock(transaction)
            rows = transaction.run("find_prunable", before=before)
            if not rows:
                return 0
            last = rows[0]
            transaction.run("announce_audit", what="prune")
            first = transaction.run("list_audit", after=0, limit=1)[0]["n"]
            transaction.run("prune_audit", n=last["n"])
            details = {"upto": last["n"], "hash": last["hash"]}
            _append(transaction, [NewAuditEntry(self._database.now(), PRUNED, "retention", details)])
            return int(last["n"] - first + 1)

    def erase(self, member: TeamMember, by: str) -> int:
        """Erase a member's data: the account, the sign-ins and the content of entries that name the member."""
        with self._database.transaction() as transaction:
            _lock(transaction)
            rows = transaction.run("find_audit_of", patterns=[_whole(member.login), _whole(member.id)])
            numbers = [row["n"] for row in rows]
            transaction.run("announce_audit", what="erase")
            transaction.run("erase_audit", numbers=numbers)
            transaction.run("delete_access_of", id=member.id)
            transaction.run("delete_invitations_of", login=member.login)
            transaction.run("erase_member", id=member.id, now=self._database.now())
            details = {"member": member.id, "entries": numbers}
            _append(transaction, [NewAuditEntry(self._database.now(), ERASED, by, details)])
            return len(numbers)


def _whole(word: str) -> str:
    """A pattern of PostgreSQL for a word in lower case, but not as a part of another: not `bo` in `bob@example.org`."""
    return rf"(^|[^[:alnum:]@_-]){re.escape(word.lower())}($|[^[:alnum:]@_-])"


def _lock(transaction: TeamTransaction) -> tuple[int, str]:
    transaction.run("begin_audit", first=FIRST)
    (row,) = transaction.run("lock_audit_head")
    return int(row["n"]), str(row["hash"])


def _append(transaction: TeamTransaction, entries: Sequence[NewAuditEntry]) -> None:
    number, previous = _lock(transaction)
    for entry in entries:
        number += 1
        details = json.dumps(dict(entry.details), ensure_ascii=False, sort_keys=True, default=str).replace(
            "\\u0000", ""
        )
        who, salt = entry.who.replace("\0", ""), secrets.token_hex(16)
        digest = _digest(salt, who, details)
        sealed = _hash(number, entry.at, entry.kind, digest, previous)
        transaction.run(
            "add_audit",
            n=number,
            at=entry.at,
            kind=entry.kind,
            who=who,
            details=details,
            salt=salt,
            digest=digest,
            previous=previous,
            hash=sealed,
        )
        previous = sealed
    transaction.run("set_audit_head", n=number, hash=previous)


def _digest(salt: str, who: str, details: str) -> str:
    return hashlib.sha256(json.dumps([salt, who, details]).encode("utf-8", "surrogatepass")).hexdigest()


def _hash(number: int, at: datetime, kind: str, digest: str, previous: str) -> str:
    time = at.astimezone(UTC).isoformat(timespec="microseconds")
    return hashlib.sha256(json.dumps([number, time, kind, digest, previous]).encode()).hexdigest()


def _verify(entries: Iterator[TeamAuditEntry], head_n: int, head: str) -> TeamAuditReport:
    faults: list[str] = []
    erased: set[int] = set()
    explained: set[int] = set()
    pruned: set[tuple[int, str]] = set()
    start: tuple[int, str] | None = None
    number, previous, count = 0, FIRST, 0
    for entry in entries:
        count += 1
        if count == 1 and entry.n != 1:
            start = entry.n - 1, entry.previous
            number, previous = start
        if entry.n != number + 1 or entry.previous != previous:
            faults.append(f"entry {entry.n} does not follow entry {number}")
        if _hash(entry.n, entry.at, entry.kind, entry.digest, entry.previous) != entry.hash:
            faults.append(f"entry {entry.n} was changed")
        if entry.salt is None or entry.who is None or entry.details is None:
            erased.add(entry.n)
        elif _digest(entry.salt, entry.who, entry.details) != entry.digest:
            faults.append(f"the content of entry {entry.n} was changed")
        elif entry.kind == ERASED:
            explained.update(entry.plain_details.get("entries", ()))
        elif entry.kind == PRUNED:
            pruned.add((entry.plain_details.get("upto", 0), entry.plain_details.get("hash", "")))
        number, previous = entry.n, entry.hash
    if (number, previous) != (head_n, head):
        faults.append(f"entries {number + 1} to {head_n} are missing at the end")
    if start is not None and start not in pruned:
        faults.append(f"entries up to {start[0]} are missing at the beginning")
    faults += [f"the content of entry {each} was removed without an erasure" for each in sorted(erased - explained)]
    return TeamAuditReport(count, previous, tuple(faults))
