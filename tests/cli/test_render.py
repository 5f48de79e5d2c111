"""A turn in the terminal: blocks appear once, whole, with one blank line between them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.cli.model_advice import advise
from retinue.cli.screen import Screen, cut, wrap_choices
from retinue.cli.tool_rows import to_text
from retinue.cli.turn_view import TurnView, ViewOptions, split_blocks
from retinue.core.events import (
    Accepted,
    MessageFinished,
    Notice,
    ReasoningDelta,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnFinished,
    TurnStarted,
    TurnStatus,
)
from retinue.core.keys import RunId, SessionKey
from retinue.core.messages import AssistantMessage, Text, ToolCall, ToolResult, Usage
from retinue.core.model import Failure
from retinue.security.untrusted_text import TextSource, wrap_untrusted

pytestmark = pytest.mark.anyio


class Shown:
    """What a view printed, without colours, and the screen with its live area."""

    def __init__(self, columns: int = 60) -> None:
        self.printed: list[str] = []
        self.now = 0.0
        self.screen = Screen(self.printed.append, lambda: columns, colours=False, clock=lambda: self.now)

    @property
    def text(self) -> str:
        return "".join(self.printed)

    @property
    def live(self) -> str:
        return "\n".join(self.screen.live_lines(40))


def view(verbose: str = "off", **options: object) -> tuple[TurnView, Shown]:
    shown = Shown()
    return TurnView(shown.screen, ViewOptions(verbose=verbose, **options)), shown  # type: ignore[arg-type]


def finished(call: ToolCall, text: str, seconds: float = 0.0, *, is_error: bool = False) -> ToolFinished:
    return ToolFinished(call, ToolResult(call.id, call.name, (Text(text),), is_error=is_error), seconds)


async def test_words_come_out_once_however_they_arrive() -> None:
    shown, out = view()
    text = "First paragraph.\n\n- one\n- two\n\nLast words."
    for letter in text:
        await shown.emit(TextDelta(letter))
    await shown.emit(MessageFinished(AssistantMessage((Text(text),))))
    lines = [line.rstrip() for line in out.text.splitlines()]
    assert lines == ["First paragraph.", "", " • one", " • two", "", "Last words."]


async def test_a_call_has_a_row_with_its_time_and_a_result_in_short() -> None:
    shown, out = view()
    call = ToolCall("1", "exec", {"command": "make\ntest"})
    await shown.emit(ToolStarted(call))
    assert "exec make test" in out.live
    await shown.emit(finished(call, "a\nb\nc\nd\ne\nf", 1.25))
    assert out.text.splitlines() == ["▸ exec make test  1.2 s", "  a", "  b", "  c", "  d", "  … 2 more lines"]
    assert "exec" not in out.live


async def test_a_call_that_failed_is_marked() -> None:
    shown, out = view()
    await shown.emit(finished(ToolCall("1", "ls", {"path": "x"}), "There is no x.", 0.04, is_error=True))
    assert out.text.splitlines() == ["✗ ls x  0.0 s", "  There is no x."]


async def test_an_edit_and_a_write_are_shown_as_a_diff(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("one\ntwo\nthree\nfour\nfive\nsix\nseven\n")
    shown, out = view(workspace=str(tmp_path))
    write = ToolCall("1", "write", {"path": "a.md", "content": "one\n2\nthree\nfour\nfive\nsix\n7\n"})
    await shown.emit(ToolStarted(write))
    (tmp_path / "a.md").write_text("changed by the tool")
    await shown.emit(finished(write, "Wrote a.md."))
    edits = [{"oldText": "a\nb", "newText": "a\nc"}, {"oldText": "x", "newText": ""}]
    await shown.emit(finished(ToolCall("2", "edit", {"path": "a.md", "edits": edits}), "Edited."))
    await shown.emit(finished(ToolCall("3", "edit", {"path": "a.md", "oldText": "x", "newText": "y"}), "Edited."))
    patch = "*** Begin Patch\n*** Update File: a.md\n@@\n-x\n+y\n*** End Patch"
    await shown.emit(finished(ToolCall("4", "apply_patch", {"input": patch}), "Done."))
    assert out.text.splitlines() == [
        "▸ write a.md  +2 -2  0.0 s",
        *("   one", "  -two", "  +2", "   three", "  …", "   six", "  -seven", "  +7"),
        "▸ edit a.md  +1 -2  0.0 s",
        *("   a", "  -b", "  +c", "  -x"),
        "▸ edit a.md  +1 -1  0.0 s",
        *("  -x", "  +y"),
        "▸ apply_patch *** Begin Patch *** Update Fil…  +1 -1  0.0 s",
        *("  *** Update File: a.md", "  @@", "  -x", "  +y"),
    ]


async def test_a_file_outside_the_workspace_is_not_read_for_a_diff(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret\n")
    (tmp_path / "workspace").mkdir()
    shown, out = view(workspace=str(tmp_path / "workspace"))
    write = ToolCall("1", "write", {"path": "../secret", "content": "new\n"})
    await shown.emit(ToolStarted(write))
    await shown.emit(finished(write, "Wrote it."))
    assert "▸ write ../secret  +1 -0" in out.text
    assert "-secret" not in out.text


@pytest.mark.parametrize(
    ("result", "lines"),
    [
        ("plain text", ["plain text"]),
        ('{"broken', ['{"broken']),
        ('{"results": [], "mode": "words"}', ["nothing found"]),
        (
            '{"results": [{"path": "memory/a.md", "startLine": 3, "score": 0.5, "snippet": "buy\\nmilk"}]}',
            ["memory/a.md:3  buy milk"],
        ),
        ('{"path": "memory/a.md", "text": "one\\ntwo", "from": 1}', ["one", "two"]),
        (
            '{"status": "accepted", "childSessionKey": "agent:main:x", "note": null, "ok": true, "in": {"a": 1}}',
            ["status: accepted", "child session key: agent:main:x", "ok: yes", "in:", "  a: 1"],
        ),
        ('[{"label": "scan", "state": "running"}, "x"]', ["label: scan · state: running", "x"]),
        (wrap_untrusted("a.md:1:x", TextSource.MEMORY, new_id=lambda: "1"), ["a.md:1:x"]),
    ],
)
def test_results_for_programs_are_shown_as_text(result: str, lines: list[str]) -> None:
    assert to_text(result).splitlines() == lines


async def test_verbose_shows_the_whole_result() -> None:
    shown, out = view("full")
    call = ToolCall("1", "ls", {"path": "."})
    await shown.emit(finished(call, "\n".join(f"line {n}" for n in range(30))))
    assert "line 29" in out.text
    assert "more lines" not in out.text


async def test_an_error_is_shown_and_remembered() -> None:
    shown, out = view()
    await shown.emit(TurnFinished(RunId("r"), TurnStatus.FAILED, "", Usage(), "m", "No answer: gone"))
    assert "No answer: gone" in out.text
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
    await shown.emit(finished(call, "page \x1b[2J says"))
    await shown.emit(TextDelta("I say \x1b]52;c;"))
    await shown.emit(TextDelta("cm0=\x07 this.\n\n"))
    await shown.emit(MessageFinished(AssistantMessage((Text(""),))))
    assert "\x1b" not in out.text
    assert "page  says" in out.text
    assert "I say  this." in out.text


async def test_what_is_waited_for_is_shown_until_there_is_something_to_read() -> None:
    shown, out = view(shows_waiting=True)
    session = SessionKey.parse("agent:main:main")
    await shown.emit(Accepted(RunId("r"), session, datetime(2026, 1, 1, tzinfo=UTC)))
    assert "waiting for its turn" in out.live
    await shown.emit(TurnStarted(RunId("r"), session, "test/m"))
    out.now = 4.2
    assert out.live.endswith("waiting for test/m  4 s")
    await shown.emit(ReasoningDelta("hm"))
    assert out.live.endswith("test/m is reasoning")
    await shown.emit(Notice("test/m does not answer (overloaded); trying again in 8 s (retry 2 of 5).", 8.0))
    out.now = 7.2
    assert out.live.endswith("retry 2 of 5 in 5 s: test/m does not answer (overloaded)")
    assert out.text == ""
    await shown.emit(TextDelta("Words."))
    assert out.live == "Words."
    await shown.emit(TurnFinished(RunId("r"), TurnStatus.OK, "Words.", Usage(), ""))
    shown.close()
    assert (out.text, out.live) == ("Words.\n", "")
    quiet, unseen = view()
    await quiet.emit(TurnStarted(RunId("r"), session, "test/m"))
    await quiet.emit(Notice("trying again in 8 s", 8.0))
    assert (unseen.text, unseen.live) == ("• trying again in 8 s\n", "")


async def test_the_end_of_a_pause_is_counted_down() -> None:
    shown, out = view(shows_waiting=True)
    await shown.emit(Notice("A pause of 8 s", 8.0))
    assert out.live.endswith("continuing in 8 s: A pause of 8 s")
    out.now = 5.0
    assert out.live.endswith("continuing in 3 s: A pause of 8 s")
    out.now = 7.5
    assert out.live.endswith("continuing now: A pause of 8 s")


async def test_reasoning_is_printed_by_lines_if_it_is_wanted() -> None:
    shown, out = view(thinking=True)
    await shown.emit(ReasoningDelta("first li"))
    await shown.emit(ReasoningDelta("ne\nsecond"))
    assert out.text == "first line\n"
    await shown.emit(TextDelta("Answer."))
    await shown.emit(MessageFinished(AssistantMessage((Text("Answer."),))))
    assert out.text == "first line\nsecond\nAnswer.\n"


async def test_the_last_progress_of_a_call_is_shown_while_it_runs() -> None:
    shown, out = view()
    await shown.emit(ToolStarted(ToolCall("1", "exec", {"command": "make"})))
    await shown.emit(ToolProgress("1", "one\ntwo\n"))
    await shown.emit(ToolProgress("1", "three"))
    await shown.emit(ToolProgress("unknown", "four"))
    assert out.live.endswith("exec make │ three")
    assert out.text == ""


@pytest.mark.parametrize(
    ("failure", "error", "advice"),
    [
        (Failure.AUTH, "No answer: test/m: 401", "retinue models auth add test"),
        (Failure.BILLING, "No answer: test/m: 402", "Add credit to the account at test"),
        (Failure.NOT_FOUND, "No answer: test/m: 404", "`retinue models list` lists the models"),
        (Failure.RATE_LIMIT, "No answer: test/m: 429", "agents.defaults.model.fallbacks"),
        (Failure.CONNECTION, "test/m: [Errno -2] Name or service not known", "models.providers.test.baseUrl"),
        (Failure.CONNECTION, "test/m: all connection attempts failed", "No server answers at this address"),
        (Failure.CONNECTION, "test/m: reset", "Check the network connection"),
        (Failure.SERVER, "test/m: 500", "Try again later"),
        (Failure.FORMAT, "test/m: 400", ""),
        (None, "gone", ""),
    ],
)
def test_each_failure_has_its_advice(failure: Failure | None, error: str, advice: str) -> None:
    found = advise(failure, error, "", in_chat=False)
    assert advice in found
    assert bool(found) == bool(advice)


def test_a_long_line_is_cut_at_the_width_of_its_characters() -> None:
    assert cut("short", 5) == "short"
    assert cut("longer", 5) == "long…"
    assert cut("日本語日本語", 7) == "日本語…"


def test_the_keys_of_a_question_wrap_between_them() -> None:
    assert wrap_choices("[n]o  [y]es, once  [a]lways", 20) == ["[n]o  [y]es, once", "[a]lways"]


async def test_queued_messages_are_listed_in_short() -> None:
    out = Shown()
    out.screen.queued = [f"message\n{number}" for number in range(7)]
    assert out.live.splitlines() == [*(f"  queued › message {number}" for number in range(5)), "  and 2 more"]


async def test_where_a_link_leads_is_shown() -> None:
    shown, out = view()
    await shown.emit(TextDelta("See [your bank](https://evil.example/x)."))
    await shown.emit(MessageFinished(AssistantMessage((Text(""),))))
    assert "your bank (https://evil.example/x)" in out.text
