"""The capability matrix agrees with the table of the documentation, and follows the configuration."""

from __future__ import annotations

import json

import pytest

from retinue.config.schema import Config
from retinue.runtime.inspect.matrix import PRINCIPALS, TOOLS, capability_matrix
from retinue.structs.decode import decode
from tests.cli.conftest import RunCommand

DENIED = {
    "owner": "",
    "contact": "configure approve",
    "guest": "run fetch configure approve",
    "group member": "run fetch configure approve",
    "sub-agent": "send configure approve",
    "cron": "configure approve",
    "heartbeat": "configure approve",
    "webhook": "configure approve",
    "program": "configure approve",
    "device": "configure approve",
}


def denied(config: Config, principal: str, agent: str = "main") -> set[str]:
    rows = [row for row in capability_matrix(config) if row.principal == principal and row.agent == agent]
    assert len(rows) == len(TOOLS) + 1
    assert all(row.by for row in rows)
    return {row.capability for row in rows if row.decision.value == "deny"}


@pytest.mark.parametrize("principal", [principal.name for principal in PRINCIPALS])
def test_each_principal_is_denied_what_the_table_says(principal: str) -> None:
    assert denied(Config(), principal) == set(DENIED[principal].split())


def test_without_a_sandbox_a_contact_runs_nothing_and_the_owner_is_asked() -> None:
    config = decode(Config, {"agents": {"defaults": {"sandbox": {"mode": "off"}}}})
    assert "run" in denied(config, "contact")
    (run,) = [row for row in capability_matrix(config) if (row.principal, row.capability) == ("owner", "run")]
    assert run.decision.value == "ask"


def test_the_rules_of_one_agent_change_only_its_rows() -> None:
    agents = {"list": [{"id": "main"}, {"id": "reader", "tools": {"deny": ["group:web"]}}]}
    config = decode(Config, {"agents": agents})
    assert denied(config, "owner") == set()
    assert denied(config, "owner", "reader") == {"fetch"}


def test_the_command_prints_rows_as_json(retinue: RunCommand) -> None:
    rows = json.loads(retinue("security", "matrix", "--json").out)
    assert len(rows) == len(PRINCIPALS) * (len(TOOLS) + 1)
    assert set(rows[0]) == {"principal", "agent", "capability", "decision", "by"}
