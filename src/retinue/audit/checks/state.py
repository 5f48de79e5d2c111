"""The database and the audit log of a home: whether they are whole."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.audit.facts import Facts
from retinue.audit.finding import Finding, Severity

AREA = "state"


def check_state(facts: Facts) -> Iterator[Finding]:
    """A damaged database is put aside when something next needs it; until then nothing is lost."""
    if facts.audit_damage:
        yield Finding(
            AREA,
            Severity.PROBLEM,
            f"The audit log is not as it was written: {'; '.join(facts.audit_damage[:3])}.",
            "Somebody or something changed the record of what agents did.",
            "`retinue security log --verify` shows all of it; compare with a backup.",
        )
    if not facts.state_whole:
        yield Finding(
            AREA,
            Severity.PROBLEM,
            f"{facts.home.path / 'state.sqlite'} is damaged, or no database at all.",
            "It holds messages that wait, jobs, approvals and tokens. The next start keeps it beside and begins anew.",
            "Put a copy of the file from a backup in its place before you start anything.",
        )
