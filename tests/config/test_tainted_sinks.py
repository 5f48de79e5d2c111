"""`tools.askWhenTainted`: where approval is required after untrusted text was read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue.config.load import check_text
from retinue.config.schema import Config
from retinue.config.sinks import unasked_sinks
from retinue.config.sources import Problem
from retinue.core.sinks import ALL_SINKS, Sink
from retinue.storage.home_paths import HomePaths
from retinue.structs.decode import decode


def sinks_of(tools: dict[str, Any]) -> frozenset[Sink]:
    config = decode(Config, {"tools": tools})
    return unasked_sinks(config, config.agents.resolve(config.agents.default_id))


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        ({}, frozenset()),
        ({"askWhenTainted": True}, frozenset()),
        ({"askWhenTainted": False}, frozenset()),
        ({"askWhenTainted": {"fetch": False, "pluginTools": False}}, {Sink.FETCH, Sink.PLUGIN_TOOLS}),
        ({"askWhenTainted": dict.fromkeys(ALL_SINKS, False)}, frozenset()),
        ({"exec": {"security": "full"}}, frozenset()),
        ({"exec": {"ask": "off"}}, frozenset()),
        ({"exec": {"security": "full", "ask": "off"}}, ALL_SINKS),
    ],
)
def test_only_single_sinks_or_unrestricted_commands_switch_questions_off(
    tools: dict[str, Any], expected: frozenset[Sink]
) -> None:
    assert sinks_of(tools) == expected


def problems_of(folder: Path, value: str) -> tuple[Problem, ...]:
    home = HomePaths(folder)
    return check_text(home, home.config_file, f"{{tools: {{askWhenTainted: {value}}}}}", {}).problems


@pytest.mark.parametrize("value", ["false", "{" + ", ".join(f"{sink}: false" for sink in sorted(ALL_SINKS)) + "}"])
def test_a_value_that_would_disable_everything_is_reported(value: str, tmp_path: Path) -> None:
    problems = problems_of(tmp_path, value)
    assert [(problem.severity, problem.path) for problem in problems] == [("warning", "tools.askWhenTainted")]
    assert "counts as true" in problems[0].message


@pytest.mark.parametrize("value", ["true", "{messages: false}"])
def test_other_values_are_not_reported(value: str, tmp_path: Path) -> None:
    assert problems_of(tmp_path, value) == ()
