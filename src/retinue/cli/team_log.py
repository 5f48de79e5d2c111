"""`retinue teams log`: the audit log of the home's team."""

from __future__ import annotations

import csv
import io
import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from retinue.cli.team_access import open_team

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime
    from pathlib import Path

    from retinue.cli.common import Invocation
    from retinue.runtime.home import Home
    from retinue.teams.audit import TeamAuditEntry, TeamAuditLog
    from retinue.teams.database import TeamDatabase

COLUMNS = ("n", "at", "kind", "who", "details", "previous", "digest", "hash")


@contextmanager
def open_team_log(home: Home) -> Iterator[tuple[TeamAuditLog, TeamDatabase]]:
    """Open the audit log of the home's team, with everything that this home has recorded."""
    with open_team(home) as database:
        from retinue.teams.audit import TeamAuditLog
        from retinue.teams.audit_copy import AuditCopy

        log = TeamAuditLog(database)
        AuditCopy(home.paths.audit_log, log).run()
        yield log, database


def verify_team_log(invocation: Invocation) -> int:
    """Verify the log; the exit code is 1 if an entry was changed or removed."""
    with open_team_log(invocation.load_home()) as (log, _):
        report = log.verify()
    data = {"ok": report.ok, "entries": report.entries, "head": report.head, "damage": list(report.faults)}
    invocation.show(data, lambda: "\n".join(report.faults) or f"All {report.entries} entries are intact.")
    return 0 if report.ok else 1


def show_team_log(
    home: Home, invocation: Invocation, since: datetime | None, *, kind: str | None, search: str | None, limit: int
) -> None:
    """Print the newest entries, the oldest of them first."""
    from retinue.security.untrusted_text import literal

    with open_team_log(home) as (log, _):
        from retinue.teams.audit import AuditSearch

        found = [describe_entry(entry) for entry in reversed(log.search(AuditSearch(kind, search, since, limit)))]

    def text() -> str:
        lines = [
            f"{row['at'][:19].replace('T', ' ')}  {literal(row['kind'])}  {literal(row['who'] or 'erased')}"
            f"  {literal(json.dumps(row['details'], ensure_ascii=False), 300)}"
            for row in found
        ]
        return "\n".join(lines) or "There are no matching entries."

    invocation.show({"entries": found}, text)


def export_team_log(home: Home, invocation: Invocation, target: Path, kind: str | None, since: datetime | None) -> None:
    """Write entries to a file: CSV if its name ends so, otherwise JSON lines."""
    from retinue.storage.auditlog import CLI
    from retinue.storage.files import write_atomic

    with open_team_log(home) as (log, _):
        rows = [
            describe_entry(entry)
            for entry in log.all()
            if kind in (None, entry.kind) and (since is None or entry.at >= since)
        ]
    content = _to_csv(rows) if target.suffix == ".csv" else "".join(f"{json.dumps(row)}\n" for row in rows)
    write_atomic(target, content.encode())
    home.audit.record("audit_exported", CLI, {"team": home.config.teams.team, "entries": len(rows)})
    invocation.show({"file": str(target), "entries": len(rows)}, f"Wrote {len(rows)} entries to {target}.")


def describe_entry(entry: TeamAuditEntry) -> dict[str, Any]:
    """An entry as JSON; `who` is null and the details are empty after an erasure."""
    return {
        "n": entry.n,
        "at": entry.at.isoformat(),
        "kind": entry.kind,
        "who": entry.who,
        "details": dict(entry.plain_details),
        "previous": entry.previous,
        "digest": entry.digest,
        "hash": entry.hash,
    }


def _to_csv(rows: Iterable[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS)
    writer.writeheader()
    for row in rows:
        cells = row | {"details": json.dumps(row["details"], ensure_ascii=False)}
        writer.writerow({name: _as_cell(value) for name, value in cells.items()})
    return out.getvalue()


def _as_cell(value: object) -> object:
    """A text that a spreadsheet does not take for a formula."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value
