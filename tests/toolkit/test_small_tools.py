"""Status, plan, image, and the way to deferred tools; and what all schemas together cost."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from retinue.core.clock import clock_style
from retinue.core.messages import Image
from retinue.core.people import Person, Role
from retinue.toolkit.files import patch, read_write, search
from retinue.toolkit.files.read_write import MAX_PICTURE_BYTES
from retinue.toolkit.parts import ToolParts
from retinue.toolkit.processes.tools import make_exec_tool, make_process_tool
from retinue.toolkit.sessions import make_plan_tool, make_status_tool
from retinue.toolkit.web import tools as web
from retinue.tools.tool import Tool, ToolContext
from retinue.tools.toolset import Toolset, search_tools
from tests.core.tokenizer import count_tokens
from tests.toolkit.conftest import Board, call, failure, text_of
from tests.toolkit.test_read_write import PNG

pytestmark = pytest.mark.anyio

FAMILIES = (
    *(read_write.make_tools, patch.make_tools, search.make_tools, make_exec_tool, make_process_tool),
    *(web.make_tools, make_status_tool, make_plan_tool, read_write.make_image_tool),
)


@pytest.fixture
def toolset(parts: ToolParts) -> Toolset:
    tools = Toolset(tool for family in FAMILIES for tool in family(parts))
    return Toolset([*tools.values(), *search_tools(tools)])


@pytest.mark.slow
async def test_the_default_set_is_complete_and_cheap(toolset: Toolset) -> None:
    assert [spec.name for spec in toolset.specs] == [
        *("read", "write", "edit", "apply_patch", "grep", "find", "ls", "exec", "process"),
        *("web_fetch", "web_search", "session_status", "update_plan", "tool_search", "tool_call"),
    ]
    schemas = [{"name": s.name, "description": s.description, "parameters": s.parameters} for s in toolset.specs]
    assert count_tokens(json.dumps(schemas, separators=(",", ":"))) < 1_400


async def test_the_status_tells_time_model_and_usage(toolset: Toolset, context: ToolContext) -> None:
    assert text_of(await call(toolset["session_status"], context)).splitlines() == [
        "Time: Tuesday 2026-02-03 13:00 Europe/Berlin",
        "Session: agent:main:main",
        "Model: test/default",
        "Context: 50,000 of 200,000 tokens (25%)",
        "Used: 1,000 tokens read (900 cached), 20 written, $0.0125",
        "Queue: empty",
    ]


async def test_the_status_tool_sets_and_clears_the_model(toolset: Toolset, context: ToolContext, board: Board) -> None:
    tool = toolset["session_status"]
    assert text_of(await call(tool, context, model="test/other")).startswith("Model set to test/other.\n")
    assert board.model == "test/other"
    await call(tool, context, model="default")
    assert board.model == "test/default"
    assert "Known: test/default" in await failure(tool, context, model="unknown")


async def test_another_person_than_the_owner_cannot_choose_the_model(toolset: Toolset, context: ToolContext) -> None:
    guest = replace(context, person=Person(Role.GUEST, "chat:eve"))
    assert "may not choose it" in await failure(toolset["session_status"], guest, model="test/other")
    assert "Model:" in text_of(await call(toolset["session_status"], guest))


async def test_an_unknown_time_zone_falls_back(toolset: Toolset, context: ToolContext, board: Board) -> None:
    board.timezone = "Nowhere/Land"
    assert "2026-02-03 12:00" in text_of(await call(toolset["session_status"], context))


async def test_the_time_is_told_as_the_person_reads_it(toolset: Toolset, context: ToolContext, board: Board) -> None:
    board.clock_style = clock_style("12", {})
    assert "Time: Tuesday 2026-02-03 01:00 PM Europe/Berlin" in text_of(await call(toolset["session_status"], context))


@pytest.mark.parametrize(
    ("wanted", "environment", "told"),
    [
        ("12", {"LANG": "de_DE.UTF-8"}, "01:00 PM"),
        ("24", {"LANG": "en_US.UTF-8"}, "13:00"),
        ("auto", {"LANG": "en_US.UTF-8"}, "01:00 PM"),
        ("auto", {"LANG": "en_US.UTF-8", "LC_TIME": "de_DE.UTF-8"}, "13:00"),
        ("auto", {}, "13:00"),
    ],
)
def test_a_locale_decides_where_nobody_did(wanted: str, environment: dict[str, str], told: str) -> None:
    assert datetime(2026, 2, 3, 13, tzinfo=UTC).strftime(clock_style(wanted, environment)) == told


def steps(*states: str) -> list[dict[str, str]]:
    return [{"step": f"step {n}", "status": state} for n, state in enumerate(states, 1)]


async def test_a_plan_is_shown_and_counted(toolset: Toolset, context: ToolContext) -> None:
    shown: list[str] = []

    async def report(text: str) -> None:
        shown.append(text)

    watched = replace(context, report=report)
    made = await call(
        toolset["update_plan"], watched, plan=steps("completed", "in_progress", "pending"), explanation="Why"
    )
    assert text_of(made) == "Plan updated: 1 of 3 steps done."
    assert shown == ["Why\n[x] step 1\n[>] step 2\n[ ] step 3"]
    await call(toolset["update_plan"], context, plan=steps("completed", "completed"))


@pytest.mark.parametrize("states", [("in_progress", "in_progress"), ("pending",), ("completed", "pending")])
async def test_a_plan_has_exactly_one_active_step(
    toolset: Toolset, context: ToolContext, states: tuple[str, ...]
) -> None:
    assert "exactly one step in_progress" in await failure(toolset["update_plan"], context, plan=steps(*states))


async def test_an_empty_plan_is_refused(toolset: Toolset, context: ToolContext) -> None:
    await failure(toolset["update_plan"], context, plan=[])


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0rest", "image/jpeg"),
        (b"GIF89a...", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
    ],
)
async def test_a_picture_is_loaded_with_its_question(
    toolset: Toolset, context: ToolContext, workspace: Path, data: bytes, kind: str
) -> None:
    (workspace / "x").write_bytes(data)
    output = await call(toolset["image"], context, path="x", question="What is it?")
    assert text_of(output) == f"x: {kind}, {len(data)} bytes. What is it?"
    assert output.content[1] == Image(kind, base64.b64encode(data).decode())


async def test_what_is_no_picture_or_too_large_is_refused(
    toolset: Toolset, context: ToolContext, workspace: Path
) -> None:
    (workspace / "x.png").write_text("not a picture")
    (workspace / "big.png").write_bytes(PNG + b"\0" * MAX_PICTURE_BYTES)
    assert "is not a png" in await failure(toolset["image"], context, path="x.png")
    assert "larger than" in await failure(toolset["image"], context, path="big.png")
    assert "binary" in await failure(toolset["read"], context, path="big.png")
    assert "does not exist" in await failure(toolset["image"], context, path="none.png")


async def test_deferred_tools_are_found_by_name_and_words(toolset: Toolset, context: ToolContext) -> None:
    for query in ("image", "look at a picture", "IMAGE"):
        found = text_of(await call(toolset["tool_search"], context, query=query))
        assert found.startswith('image: Look at a picture file (png, jpeg, gif, webp).\n{"properties":{"path"')
    assert "Deferred tools: image." in text_of(await call(toolset["tool_search"], context, query="zzz"))


async def test_tool_call_does_nothing_by_itself(toolset: Toolset, context: ToolContext) -> None:
    run = toolset["tool_call"]
    for name in ("image", "nothing", "tool_call"):
        assert f"no deferred tool `{name}`" in await failure(run, context, name=name)
    assert "name: is required" in await failure(run, context, arguments={})


async def test_without_deferred_tools_there_is_nothing_to_search(toolset: Toolset) -> None:
    assert search_tools(Toolset([toolset["read"]])) == ()


async def test_every_tool_has_a_summary_and_a_description(toolset: Toolset) -> None:
    tools: list[Tool[Any]] = list(toolset.values())
    assert all(tool.summary and tool.description.endswith(".") for tool in tools)
