"""Checks of model services, budgets and logs."""

from __future__ import annotations

from collections.abc import Iterator

from retinue.audit.risks.access import is_plain_remote
from retinue.audit.risks.facts import RiskCheck, RiskFacts, each_agent, find_setting
from retinue.security.injection_rules import RiskLevel


def _find_providers(facts: RiskFacts) -> Iterator[str]:
    for name, provider in facts.config.models.providers.items():
        if is_plain_remote(provider.base_url) and (provider.api_key is not None or provider.headers):
            yield f"models.providers.{name}.baseUrl"


CHECKS = (
    RiskCheck(
        "models.plain-endpoint",
        RiskLevel.HIGH,
        "The key and the conversation are sent unencrypted to another machine.",
        "Use an https: URL.",
        _find_providers,
    ),
    RiskCheck(
        "search.plain-endpoint",
        RiskLevel.LOW,
        "Search queries are sent unencrypted to another machine.",
        "Use an https: URL.",
        find_setting(lambda facts: is_plain_remote(facts.config.tools.web.search.base_url), "tools.web.search.baseUrl"),
    ),
    RiskCheck(
        "budget.background",
        RiskLevel.MEDIUM,
        "Heartbeats, jobs and webhooks may cost any amount.",
        "Remove the null values of budget.background.",
        each_agent(
            lambda agent: agent.budget.background.usd is None and agent.budget.background.tokens is None,
            "budget.background",
        ),
    ),
    RiskCheck(
        "logging.redaction-off",
        RiskLevel.HIGH,
        "Text that looks like a secret is written to logs and exports.",
        "Remove logging.redactSensitive: off.",
        find_setting(lambda facts: facts.config.logging.redact_sensitive == "off", "logging.redactSensitive"),
    ),
    RiskCheck(
        "logging.verbose",
        RiskLevel.LOW,
        "The log contains more details of conversations than operation needs.",
        "Set logging.level to `info`.",
        find_setting(lambda facts: facts.config.logging.level in ("debug", "trace"), "logging.level"),
    ),
    RiskCheck(
        "logging.plain-traces",
        RiskLevel.MEDIUM,
        "Traces are sent unencrypted to another machine.",
        "Use an https: URL.",
        find_setting(
            lambda facts: (
                facts.config.diagnostics.otel.enabled and is_plain_remote(facts.config.diagnostics.otel.endpoint)
            ),
            "diagnostics.otel.endpoint",
        ),
    ),
)
