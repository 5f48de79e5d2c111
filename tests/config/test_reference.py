"""The documents that are made from the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinue.config.explain import json_schema, render_reference
from retinue.config.keypath import parse_path
from retinue.config.keys import every_key
from retinue.config.schema import Config
from retinue.core.errors import UsageError

PAGE = Path(__file__).parents[2] / "docs/reference/configuration.md"


@pytest.mark.slow
def test_the_committed_page_is_current() -> None:
    assert PAGE.read_text("utf-8") == render_reference(Config), "run `make docs`"


@pytest.mark.slow
def test_every_leaf_has_a_row() -> None:
    page = render_reference(Config)
    assert [key.path for key in every_key(Config) if key.shape.is_leaf and f"| `{key.path}` |" not in page] == []


@pytest.mark.slow
def test_a_row_tells_type_default_reload_and_whether_it_is_used() -> None:
    row = next(line for line in render_reference(Config).splitlines() if line.startswith("| `gateway.port` "))
    assert row == (
        "| `gateway.port` | a whole number, at least 1 and at most 65535 | `18790` | restart | "
        "The port for HTTP and WebSocket. |"
    )


@pytest.mark.slow
def test_every_key_of_the_json_schema_is_described() -> None:
    schema = json_schema(Config)
    missing = [
        f"{name}.{key}"
        for name, definition in {**schema["$defs"], "Config": schema}.items()
        for key, part in definition.get("properties", {}).items()
        if not part.get("description") and "source" not in definition["properties"]
    ]
    assert missing == []


def test_the_schema_of_one_part() -> None:
    part = json_schema(Config, parse_path("agents.list[0].model"))
    assert part["description"] == "The model that answers."
    with pytest.raises(UsageError, match="Did you mean gateway"):
        json_schema(Config, parse_path("gatewya"))
