"""The contract of a tool: its schema is small, its arguments are checked."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from retinue.core.errors import ToolFailed
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput, argument, compact_schema


class Inner(Arguments):
    title: str = argument(min_length=1)


class Sample(Arguments):
    path: str
    mode: Literal["a", "b"] = "a"
    count: int | None = argument(None, ge=1, name="howMany", description="how many")
    items: list[Inner] = argument([])
    loud: bool = False


async def run(arguments: Sample, context: ToolContext) -> ToolOutput:
    return ToolOutput.of(arguments.path)


def sample_tool() -> Tool[Sample]:
    return Tool("sample", "Sample", "A sample.", Sample, run)


def test_a_schema_holds_only_what_a_model_needs() -> None:
    assert sample_tool().spec.parameters == {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
            "howMany": {"type": "integer", "minimum": 1, "description": "how many"},
            "items": {
                "type": "array",
                "items": {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]},
            },
            "loud": {"type": "boolean"},
        },
        "required": ["path"],
    }


def test_several_alternatives_stay_without_the_null() -> None:
    schema = {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}], "default": None}
    assert compact_schema(schema) == {"anyOf": [{"type": "string"}, {"type": "integer"}]}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "path: is required"),
        ({"path": "x", "howMany": 0}, "howMany: expected a whole number, at least 1, got 0"),
        ({"path": "x", "extra": 1}, "extra: is not known; known: path, mode, howMany, items, loud"),
        ({"path": "x", "items": [{}]}, "items.0.title: is required"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ToolFailed) as failure:
        sample_tool().parse(arguments)
    assert problem in str(failure.value)
    assert "`sample`" in str(failure.value)
