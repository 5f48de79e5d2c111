"""The model of the configuration: decided defaults, agents over defaults, and rules between keys."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from retinue.config.explain import plain_config
from retinue.config.keypath import look_up, parse_path
from retinue.config.keys import documentation_of, every_key, suggest_key
from retinue.config.schema import Config
from retinue.core.errors import UsageError
from retinue.structs.decode import DecodeError, decode


def config(data: dict[str, Any]) -> Config:
    return decode(Config, data)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("agents.defaults.bootstrapMaxChars", 20_000),
        ("agents.defaults.bootstrapTotalMaxChars", 60_000),
        ("agents.defaults.contextInjection", "always"),
        ("agents.defaults.memorySearch.chunking.tokens", 400),
        ("agents.defaults.memorySearch.chunking.overlap", 80),
        ("agents.defaults.memorySearch.query.maxResults", 6),
        ("agents.defaults.memorySearch.query.minScore", 0.35),
        ("agents.defaults.memorySearch.query.hybrid.vectorWeight", 0.7),
        ("agents.defaults.memorySearch.query.hybrid.textWeight", 0.3),
        ("agents.defaults.memorySearch.query.hybrid.mmr.lambda", 0.7),
        ("agents.defaults.heartbeat.every", "30m"),
        ("agents.defaults.heartbeat.ackMaxChars", 300),
        ("agents.defaults.heartbeat.target", "last"),
        ("agents.defaults.subagents.maxConcurrent", 8),
        ("agents.defaults.subagents.delegationMode", "suggest"),
        ("agents.defaults.compaction.reserveTokens", 16_384),
        ("agents.defaults.compaction.keepRecentTokens", 20_000),
        ("agents.defaults.sandbox.mode", "auto"),
        ("agents.defaults.contextLimits.memoryGetDefaultLines", 120),
        ("skills.limits.maxSkillsPromptChars", 30_000),
        ("session.reset.atHour", 4),
        ("messages.queue.cap", 20),
        ("commands.ownerDisplay", "raw"),
        ("memory.citations", "auto"),
        ("memory.qmd.limits.maxInjectedChars", 4_000),
        ("gateway.port", 18_790),
        ("gateway.bind", "loopback"),
        ("hooks.maxBodyBytes", 262_144),
    ],
)
def test_defaults_are_as_decided(key: str, value: object) -> None:
    assert look_up(parse_path(key), plain_config(Config())) == (True, value)  # type: ignore[arg-type]


def test_every_key_is_documented() -> None:
    undocumented = [key.path for key in every_key(Config) if not key.description]
    assert undocumented == []


def test_documentation_follows_inheritance() -> None:
    from retinue.config.sections.agents import AgentDefaults

    assert "one file" in documentation_of(AgentDefaults)["bootstrap_max_chars"]


def test_no_key_is_called_differently_in_python_and_file_than_camel_case() -> None:
    odd = {key.path for key in every_key(Config) if "_" in key.path.rpartition(".")[2]}
    assert odd == set()


def test_an_agent_is_laid_over_the_defaults() -> None:
    agents = config(
        {
            "agents": {
                "defaults": {
                    "model": {"primary": "a/one", "fallbacks": ["b/two"]},
                    "heartbeat": {"every": "1h", "target": "none"},
                    "skills": ["x", "y"],
                    "sandbox": {"docker": {"network": "bridge", "env": {"A": "1"}}},
                    "workspace": "~/here",
                },
                "list": [
                    {"id": "main"},
                    {
                        "id": "Work",
                        "model": "c/three",
                        "heartbeat": {"every": "15m"},
                        "skills": [],
                        "sandbox": {"docker": {"env": {"B": "2"}}},
                        "identity": {"emoji": "🦉"},
                    },
                ],
            }
        }
    ).agents
    work = agents.resolve("work")
    assert work.model.primary == "c/three"
    assert work.model.fallbacks == [], "an agent's own model brings its own fallbacks"
    assert work.heartbeat.every == timedelta(minutes=15)
    assert work.heartbeat.target == "none"
    assert work.skills == []
    assert work.sandbox.docker.network == "bridge"
    assert work.sandbox.docker.env == {"A": "1", "B": "2"}
    assert work.identity.emoji == "🦉"
    assert work.workspace is None, "another agent's folder is not shared"
    assert not work.is_default
    main = agents.resolve("main")
    assert (main.workspace, main.skills, main.is_default) == ("~/here", ["x", "y"], True)


def test_without_agents_there_is_main() -> None:
    agents = Config().agents
    assert agents.ids == ("main",)
    assert agents.resolve("main").bootstrap_max_chars == 20_000


def test_the_default_agent_is_the_marked_one_else_the_first() -> None:
    assert config({"agents": {"list": [{"id": "a"}, {"id": "b"}]}}).agents.default_id == "a"
    assert config({"agents": {"list": [{"id": "a"}, {"id": "b", "default": True}]}}).agents.default_id == "b"


def test_an_unknown_agent_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"There is no agent 'x'. Known: a, b."):
        config({"agents": {"list": [{"id": "a"}, {"id": "b"}]}}).agents.resolve("x")


@pytest.mark.parametrize(
    "data",
    [
        {"agents": {"list": [{"id": "a"}, {"id": "A"}]}},
        {"agents": {"list": [{"id": "not an id"}]}},
        {"agents": {"list": [{"name": "without id"}]}},
        {"tools": {"allow": ["read"], "alsoAllow": ["exec"]}},
        {"agents": {"list": [{"id": "a", "tools": {"allow": ["read"], "alsoAllow": ["exec"]}}]}},
        {"agents": {"defaults": {"heartbeat": {"every": "soon"}}}},
        {"gateway": {"port": 70_000}},
    ],
)
def test_contradictions_are_refused(data: dict[str, Any]) -> None:
    with pytest.raises(DecodeError):
        config(data)


def test_senders_may_be_numbers() -> None:
    assert config({"commands": {"ownerAllowFrom": [123, "x"]}}).commands.owner_allow_from == ["123", "x"]


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("agents.defaults.bootstrapMaxChar", "agents.defaults.bootstrapMaxChars"),
        ("agents.defaults.bootstrap_max_chars", "agents.defaults.bootstrapMaxChars"),
        ("agents.entries.work", "agents.list"),
        ("agents.workspace", "agents.defaults.workspace"),
        ("memory.search", "agents.defaults.memorySearch"),
        ("gatewya", "gateway"),
        ("zzz", None),
    ],
)
def test_the_nearest_key_is_suggested(wrong: str, right: str | None) -> None:
    assert suggest_key(Config, parse_path(wrong)) == right
