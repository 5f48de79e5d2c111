"""The official conformance suite plays clients of `/mcp`: with Retinue's own tools, and with those that it expects."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.gateway.routes import mcp
from tests.gateway.conftest import open_hall
from tests.gateway.mcp_fixture import make_fixture
from tests.toolkit.mcp.programs import check_outcome, needs_programs, run_suite

pytestmark = [pytest.mark.anyio, pytest.mark.slow, needs_programs]

REVISIONS = ("2025-11-25", "2026-07-28")
OPEN = {"auth": {"mode": "none"}}

NO_SESSIONS = "requests stand for themselves: without a session a server cannot send requests to its client"
NO_QUESTIONS = "the tools of the suite that ask the client for input; Retinue's tools never do"
NO_TASKS = "an extension of the protocol for long calls; messages_send and messages_wait serve them"
WANTS_OTHER_TOOLS = "needs a tool of the suite that shows a feature which Retinue's tools do not use"
EXPECTED = {
    **dict.fromkeys(
        (
            "logging-set-level",
            "tools-call-with-logging",
            "tools-call-sampling",
            "tools-call-elicitation",
            "elicitation-sep1034-defaults",
            "elicitation-sep1330-enums",
            "resources-subscribe",
            "resources-unsubscribe",
            "server-sse-polling",
        ),
        NO_SESSIONS,
    ),
    **dict.fromkeys(
        (
            "input-required-result-basic-elicitation",
            "input-required-result-basic-sampling",
            "input-required-result-basic-list-roots",
            "input-required-result-request-state",
            "input-required-result-multiple-input-requests",
            "input-required-result-multi-round",
            "input-required-result-non-tool-request",
            "input-required-result-result-type",
            "input-required-result-tampered-state",
            "input-required-result-capability-check",
        ),
        NO_QUESTIONS,
    ),
    **dict.fromkeys(
        (
            "tasks-lifecycle",
            "tasks-capability-negotiation",
            "tasks-wire-fields",
            "tasks-request-state-removal",
            "tasks-mrtr-input",
            "tasks-request-headers",
            "tasks-dispatch-and-envelope",
            "tasks-required-task-error",
            "tasks-mrtr-composition",
        ),
        NO_TASKS,
    ),
    **dict.fromkeys(
        ("server-stateless", "json-schema-2020-12", "http-custom-header-server-validation"), WANTS_OTHER_TOOLS
    ),
}
OF_THE_FIXTURE = {
    "completion-complete",
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-mixed-content",
    "tools-call-error",
    "tools-call-with-progress",
    "resources-list",
    "resources-read-text",
    "resources-read-binary",
    "resources-templates-read",
    "prompts-list",
    "prompts-get-simple",
    "prompts-get-with-args",
    "prompts-get-embedded-resource",
    "prompts-get-with-image",
}
"""Scenarios that look for certain tools, resources or prompts."""


@pytest.mark.parametrize("revision", REVISIONS)
async def test_the_gateway_follows_the_protocol(tmp_path: Path, revision: str) -> None:
    async with open_hall(tmp_path, gateway=OPEN) as hall, hall.serving():
        outcome = await run_suite("server", revision, tmp_path / "results", url=f"{hall.url}/mcp")
    why = "Retinue has no such tool, resource or prompt"
    check_outcome(outcome, {**EXPECTED, **dict.fromkeys((*OF_THE_FIXTURE, "caching"), why)})
    assert {"tools-list", "dns-rebinding-protection"} <= outcome.passed


@pytest.mark.parametrize("revision", REVISIONS)
async def test_every_kind_of_content_passes_the_guards_of_the_gateway(
    tmp_path: Path, revision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp, "_import_server", lambda: lambda _caller_of: make_fixture())
    async with open_hall(tmp_path, gateway=OPEN) as hall, hall.serving():
        outcome = await run_suite("server", revision, tmp_path / "results", url=f"{hall.url}/mcp")
    check_outcome(outcome, EXPECTED)
    assert outcome.passed >= OF_THE_FIXTURE
