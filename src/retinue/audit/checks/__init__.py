"""The checks of `retinue doctor`, one module per noun. Each is a pure function from facts to findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from retinue.audit.checks.agents import (
    check_memory,
    check_models,
    check_sandboxes,
    check_sessions,
    check_skills,
    check_workspaces,
)
from retinue.audit.checks.gateway import check_access, check_gateway, check_plugins, check_routes, check_sharing
from retinue.audit.checks.home import check_config, check_leftovers, check_machine, check_permissions, check_state
from retinue.audit.facts import Facts, Finding, Severity

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
    check_access,
    check_sharing,
    check_routes,
    check_sandboxes,
    check_permissions,
    check_leftovers,
    check_machine,
)
"""In the order of importance to a person."""


def examine(facts: Facts) -> tuple[Finding, ...]:
    """Return all findings about a home, most severe first."""
    found = [finding for check in CHECKS for finding in check(facts)]
    order = list(Severity)
    return tuple(sorted(found, key=lambda finding: order.index(finding.severity)))
