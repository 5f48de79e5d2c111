"""A turn in the terminal: blocks appear once, whole, with one blank line between them."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from retinue.cli.render import TerminalView, split_blocks
from retinue.core.events import (
    Accepted,
    MessageFinished,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStatus,
)
from retinue.core.keys import RunId, SessionKey
from retinue.core.messages import AssistantMessage, Text, ToolCall, ToolResult, Usage

pytestmark = pytest.mark.anyio


def view(verbose: str = "off") -> tuple[TerminalView, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, width=60, force_terminal=False, color_system=None)
    return TerminalView(console, verbose=verbose), out


async def test_words_come_out_once_however_they_arrive() -> None:
    shown, out = view()
    text = "First paragraph.\n\n- one\n- two\n\nLast words."
    for letter in text:
        await shown.emit(TextDelta(letter))
    await shown.emit(MessageFinished(AssistantMessage((Text(text),))))
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert lines == ["First paragraph.", "", " • one", " • two", "", "Last words."]


async def test_a_call_and_its_result_are_shown_in_short() -> None:
    shown, out = view()
    call = ToolCall("1", "write", {"path": "notes/a.md", "content": "x" * 500})
    await shown.emit(ToolStarted(call))
    await shown.emit(ToolFinished(call, ToolResult("1", "write", (Text("a\nb\nc\nd\ne\nf"),)), 1.25))
    assert "▸ write notes/a.md" in out.getvalue()
    assert "… 2 more lines, 1.2 s" in out.getvalue()
    assert "xxxx" not in out.getvalue()


async def test_verbose_shows_the_whole_result() -> None:
    shown, out = view("full")
    call = ToolCall("1", "ls", {"path": "."})
    await shown.emit(ToolFinished(call, ToolResult("1", "ls", (Text("\n".join(f"line {n}" for n in range(30))),)), 0.0))
    assert "line 29" in out.getvalue()
    assert "more lines" not in out.getvalue()


async def test_an_error_is_shown_and_remembered() -> None:
    shown, out = view()
    await shown.emit(TurnFinished(RunId("r"), TurnStatus.FAILED, "", Usage(), "m", "No answer: gone"))
    assert "No answer: gone" in out.getvalue()
    assert shown.shown_error


@given(st.text(alphabet="a`~\n -#", max_size=60))
def test_splitting_loses_nothing(text: str) -> None:
    done, growing = split_blocks(text)
    assert done + growing == text


def test_a_fence_is_not_cut_at_a_blank_line_inside_it() -> None:
    assert split_blocks("```\na\n\nb\n") == ("", "```\na\n\nb\n")
    assert split_blocks("```\na\n\nb\n```\nrest") == ("```\na\n\nb\n```\n", "rest")


async def test_nothing_that_is_shown_drives_the_terminal() -> None:
    shown, out = view()
    call = ToolCall("1", "exec", {"command": "curl \x1b]0;title\x07 evil"})
    await shown.emit(ToolStarted(call))
    await shown.emit(ToolFinished(call, ToolResult("1", "exec", (Text("page \x1b[2J says"),)), 0.0))
    await shown.emit(TextDelta("I say \x1b]52;c;"))
    await shown.emit(TextDelta("cm0=\x07 this.\n\n"))
    await shown.emit(MessageFinished(AssistantMessage((Text(""),))))
    assert "\x1b" not in out.getvalue()
    assert "page  says" in out.getvalue()
    assert "I say  this." in out.getvalue()


async def test_a_sign_of_life_is_shown_until_there_is_something_to_read() -> None:
    out = io.StringIO()
    shown = TerminalView(Console(file=out, width=60, force_terminal=True, color_system=None), shows_waiting=True)
    accepted = Accepted(RunId("r"), SessionKey.parse("agent:main:main"), datetime(2026, 1, 1, tzinfo=UTC))
    await shown.emit(accepted)
    with anyio.fail_after(30):
        while not set(out.getvalue()) & set("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"):
            await anyio.sleep(0.01)
    await shown.emit(TextDelta("Words."))
    await shown.emit(TurnFinished(RunId("r"), TurnStatus.OK, "Words.", Usage(), ""))
    shown.close()
    assert out.getvalue().rstrip().endswith("Words.")
    quiet, unseen = view()
    await quiet.emit(accepted)
    assert unseen.getvalue() == ""


async def test_where_a_link_leads_is_shown() -> None:
    shown, out = view()
    await shown.emit(TextDelta("See [your bank](https://evil.example/x)."))
    await shown.emit(MessageFinished(AssistantMessage((Text(""),))))
    assert "your bank (https://evil.example/x)" in out.getvalue()
