"""Which tools there are, and how much of a result the model gets."""

from __future__ import annotations

from typing import Any

import pytest

from retinue.core.errors import RetinueError
from retinue.core.messages import ToolCall
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput
from retinue.tools.toolset import Toolset, cap_output, max_result_chars, unwrap_call


class Nothing(Arguments):
    pass


async def run(arguments: Nothing, context: ToolContext) -> ToolOutput:
    return ToolOutput.of("done")


def tool(name: str, *, deferred: bool = False) -> Tool[Any]:
    return Tool(name, name, f"About {name}.", Nothing, run, deferred=deferred)


NAMES = (
    "read",
    "write",
    "apply_patch",
    "exec",
    "process",
    "web_fetch",
    "memory_search",
    "session_status",
    "message",
    "cron",
)


def toolset() -> Toolset:
    return Toolset([*map(tool, NAMES), tool("image", deferred=True)])


def test_tools_keep_their_order_and_answer_to_their_aliases() -> None:
    tools = toolset()
    assert tuple(tools) == (*NAMES, "image")
    assert tools["file_read"] is tools["read"]
    assert tools["bash"].name == "exec"
    assert "nothing" not in tools


def test_two_tools_of_one_name_are_an_error() -> None:
    with pytest.raises(RetinueError, match="Two tools"):
        Toolset([tool("a"), tool("a")])


def test_deferred_tools_are_not_sent_with_every_request() -> None:
    assert [spec.name for spec in toolset().specs] == list(NAMES)
    assert [tool.name for tool in toolset().deferred] == ["image"]


def test_a_wrapped_call_is_the_inner_call_with_the_outer_id() -> None:
    wrapped = ToolCall("c1", "tool_call", {"name": "image", "arguments": {"path": "a.png"}})
    assert unwrap_call(wrapped) == ToolCall("c1", "image", {"path": "a.png"})
    assert unwrap_call(ToolCall("c1", "tool_call", {"name": "image"})) == ToolCall("c1", "image", {})
    by_text = ToolCall("c1", "tool_call", {"name": "image", "arguments": '{"path": "a.png"}'})
    assert unwrap_call(by_text) == ToolCall("c1", "image", {"path": "a.png"})
    for text in ("{", "[1]", "[" * 100_000):
        unread = ToolCall("c1", "tool_call", {"name": "image", "arguments": text})
        assert unwrap_call(unread) is unread
    plain = ToolCall("c2", "read", {"name": "x", "arguments": {}})
    assert unwrap_call(plain) is plain
    broken = ToolCall("c3", "tool_call", {"name": 3})
    assert unwrap_call(broken) is broken


@pytest.mark.parametrize(
    ("window", "override", "room"),
    [
        (200_000, None, 64_000),
        (199_999, None, 32_000),
        (100_000, None, 32_000),
        (99_999, None, 16_000),
        (8_000, None, 9_600),
        (1_000, None, 2_000),
        (200_000, 5_000, 5_000),
        (200_000, 100, 2_000),
    ],
)
def test_the_room_for_a_result_depends_on_the_window(window: int, override: int | None, room: int) -> None:
    assert max_result_chars(window, override) == room


def test_a_long_result_keeps_its_beginning_and_end() -> None:
    text = "a" * 5_000 + "b" * 5_000
    capped = cap_output(text, 1_000)
    assert capped.startswith("a" * 1_400 + "\n[… 8,000 characters left out")
    assert capped.endswith("…]\n" + "b" * 600)
    assert cap_output("short", 1_000) == "short"
