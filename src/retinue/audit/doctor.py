"""The whole inspection: every check, in the order in which a person would care."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from retinue.audit.checks.config import check_config
from retinue.audit.checks.gateway import check_gateway
from retinue.audit.checks.leftovers import check_leftovers
from retinue.audit.checks.machine import check_machine
from retinue.audit.checks.memory import check_memory
from retinue.audit.checks.models import check_models
from retinue.audit.checks.permissions import check_permissions
from retinue.audit.checks.plugins import check_plugins
from retinue.audit.checks.sandbox import check_sandboxes
from retinue.audit.checks.sessions import check_sessions
from retinue.audit.checks.skills import check_skills
from retinue.audit.checks.state import check_state
from retinue.audit.checks.workspace import check_workspaces
from retinue.audit.facts import Facts
from retinue.audit.finding import Finding, Severity

Check = Callable[[Facts], Iterator[Finding]]

CHECKS: tuple[Check, ...] = (
    check_config,
    check_state,
    check_models,
    check_workspaces,
    check_skills,
    check_memory,
    check_sessions,
    check_plugins,
    check_gateway,
    check_sandboxes,
    check_permissions,
    check_leftovers,
    check_machine,
)


def examine(facts: Facts) -> tuple[Finding, ...]:
    """Everything that is to be said about a home, the worst first."""
    found = [finding for check in CHECKS for finding in check(facts)]
    order = list(Severity)
    return tuple(sorted(found, key=lambda finding: order.index(finding.severity)))
