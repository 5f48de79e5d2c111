"""The security audit: a table of checks with stable ids, each a pure function from facts to places."""

from __future__ import annotations

from retinue.audit.risks import access, extensions, files, operation, sandbox, tools
from retinue.audit.risks.facts import Risk, RiskCheck, RiskFacts
from retinue.security.injection_rules import RiskLevel

CHECKS: tuple[RiskCheck, ...] = (
    *access.CHECKS,
    *tools.CHECKS,
    *sandbox.CHECKS,
    *extensions.CHECKS,
    *operation.CHECKS,
    *files.CHECKS,
)


def find_risks(facts: RiskFacts) -> tuple[Risk, ...]:
    """Return all findings, most severe first."""
    order = list(RiskLevel)
    found = [risk for check in CHECKS for risk in check.run(facts)]
    return tuple(sorted(found, key=lambda risk: order.index(risk.severity)))
