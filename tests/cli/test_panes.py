"""The chat as it looks: what is on the screen of a terminal, at three widths and while things happen."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from retinue.cli.chat import ChatOptions
from retinue.core.messages import Usage
from retinue.testing.replies import Fault, breaks, calls, refuses, says
from tests.cli.panes import open_chat, without_times

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

PANES = Path(__file__).parent / "panes"
PLAN = (
    "Here is the **plan**:\n\n1. Read the notes, which takes one pass over every file in the folder.\n2. Write a "
    "summary.\n\n```python\nprint('done')\n```\n\nShall I begin?"
)
NOTES = "# Notes\n\n- milk\n- bread\n"


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.parametrize("columns", [60, 80, 120])
async def test_a_conversation_with_tools_looks_as_recorded(tmp_path: Path, columns: int) -> None:
    """After an intended change: delete the files in `panes` and run the test twice."""
    replies = (
        says(PLAN),
        calls("write", path="notes.md", content=NOTES),
        calls("edit", path="notes.md", edits=[{"oldText": "- milk", "newText": "- oat milk\n- eggs"}]),
        calls("grep", pattern="oat", path="notes.md"),
        calls("memory_search", query="zebra"),
        says("The list has **three** items now."),
    )
    async with open_chat(tmp_path, *replies, columns=columns) as (terminal, _):
        terminal.press("what is the plan?\r")
        await terminal.wait_for("Shall I begin?")
        terminal.press("yes, and note this:\x1b\rmilk and bread\r")
        await terminal.wait_for("items now.")
        terminal.press("a draft")
        await terminal.wait_for("items now.\n\nyou › a draft\ntest/test-model")
        seen = without_times(terminal.text)
    file = PANES / f"chat-{columns}.txt"
    if not file.exists():
        PANES.mkdir(exist_ok=True)
        file.write_text(seen + "\n")
        pytest.fail(f"{file.name} was recorded; look at it and run the test again")
    assert seen + "\n" == file.read_text("utf-8")
    assert all(len(line) <= columns for line in seen.splitlines())


async def test_what_is_typed_during_an_answer_is_shown_queued_and_sent_afterwards(tmp_path: Path) -> None:
    async with open_chat(tmp_path, breaks(Fault.HANG, "First answer"), says("Third answer.")) as (terminal, model):
        terminal.press("first\r")
        await terminal.wait_for("First answer")
        terminal.press("second\rthird\r")
        await terminal.wait_for("queued › third")
        assert "queued › second" in terminal.visible
        terminal.press("\x1b[1;3A")  # Alt-Up
        await terminal.wait_for("you › third")
        assert "queued › third" not in terminal.visible
        terminal.press("\x03")
        await terminal.wait_for("(stopped)")
        await terminal.wait_for(lambda seen: "you › second\n      third" in seen)
        assert len(model.model_requests) == 1
        terminal.press("\r")
        await terminal.wait_for("Third answer.")
        assert "second\nthird" in model.last_message


async def test_a_queued_message_is_sent_when_the_answer_is_complete(tmp_path: Path) -> None:
    async with open_chat(tmp_path, says("First."), says("Second.")) as (terminal, model):
        model.may_answer = anyio.Event()
        terminal.press("first\r")
        await terminal.wait_for("waiting for test/test-model")
        terminal.press("next\r")
        await terminal.wait_for("queued › next")
        model.may_answer.set()
        await terminal.wait_for("Second.")
        assert terminal.text.index("First.") < terminal.text.index("you › next") < terminal.text.index("Second.")


async def test_messages_that_are_queued_at_the_end_are_in_the_input_of_the_next_chat(tmp_path: Path) -> None:
    pasted = "\n".join(f"line {number}" for number in range(50))
    async with open_chat(tmp_path, breaks(Fault.HANG, "First answer")) as (terminal, _):
        terminal.press("first\r")
        await terminal.wait_for("First answer")
        terminal.press("second\rthird ")
        terminal.paste(pasted)
        terminal.press("\r/quit\r")
        await terminal.wait_for("2 queued messages were not sent; the next `retinue chat` has them in the input.")
    async with open_chat(tmp_path, says("The interrupted turn is finished."), says("Read.")) as (terminal, model):
        await terminal.wait_for("Enter sends it.")
        await terminal.wait_for("you › [pasted text #1, 51 lines]")
        terminal.press("\r")
        await terminal.wait_for("Read.")
        assert f"second\nthird {pasted}" in model.last_message
    async with open_chat(tmp_path) as (terminal, _):
        assert "Enter sends it." not in terminal.visible


async def test_a_large_paste_is_shown_as_a_label_and_sent_whole(tmp_path: Path) -> None:
    pasted = "\n".join(f"line {number} of a very long text" for number in range(2_000))
    assert len(pasted) > 54_000
    async with open_chat(tmp_path, says("Read.")) as (terminal, model):
        terminal.press("Summarise this: ")
        terminal.paste(pasted)
        await terminal.wait_for("you › Summarise this: [pasted text #1, 2,000 lines]")
        assert "Retinue" in terminal.visible, "the screen was blanked"
        terminal.press("\r")
        await terminal.wait_for("Read.")
        assert f"Summarise this: {pasted}" in model.last_message


async def test_a_small_paste_with_lines_is_one_message(tmp_path: Path) -> None:
    async with open_chat(tmp_path, says("Read.")) as (terminal, model):
        terminal.paste("one\r\ntwo\rthree")
        await terminal.wait_for("you › one\n      two\n      three")
        assert model.model_requests == []
        terminal.press("\r")
        await terminal.wait_for("Read.")
        assert "one\ntwo\nthree" in model.last_message


@pytest.mark.parametrize("keys", ["\x1b\r", "\n"], ids=["Alt-Enter", "Ctrl-J"])
async def test_a_key_begins_a_new_line(tmp_path: Path, keys: str) -> None:
    async with open_chat(tmp_path, says("Two lines.")) as (terminal, model):
        terminal.press(f"above{keys}below")
        await terminal.wait_for("you › above\n      below")
        assert model.model_requests == []


@pytest.mark.parametrize("keys", ["\x18\x05", "\x07"], ids=["Ctrl-X Ctrl-E", "Ctrl-G"])
async def test_the_input_is_edited_in_an_external_editor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: str
) -> None:
    monkeypatch.setenv("VISUAL", "sed -i s/hello/goodbye/")
    async with open_chat(tmp_path) as (terminal, _):
        terminal.press("hello there")
        await terminal.wait_for("you › hello there")
        terminal.press(keys)
        await terminal.wait_for("you › goodbye there")


async def test_without_an_editor_the_key_says_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_chat(tmp_path) as (terminal, _):
        monkeypatch.delenv("VISUAL", raising=False)
        monkeypatch.setenv("EDITOR", "")
        monkeypatch.setenv("PATH", "")
        terminal.press("draft\x07")
        await terminal.wait_for("Set the environment variable EDITOR")
        await terminal.wait_for("you › draft")


async def test_text_that_streams_is_never_doubled(tmp_path: Path) -> None:
    words = "\n\n".join(f"Paragraph {number} " + "with words " * 30 for number in range(12))
    async with open_chat(tmp_path, says(words, usage=Usage(input=12_000)), columns=60) as (terminal, _):
        terminal.press("tell me\rtyped during the answer")
        await terminal.wait_for("context 12 % of 100k")
        assert "you › typed during the answer" in terminal.visible
        for number in range(12):
            assert terminal.text.count(f"Paragraph {number} with") == 1


async def test_a_question_is_answered_with_one_key(tmp_path: Path) -> None:
    made = tmp_path / "home" / "workspace" / "made.txt"
    touch = calls("exec", command="touch made.txt")
    async with open_chat(tmp_path, touch, says("Not made."), touch, says("Made.")) as (terminal, _):
        terminal.press("make it\r")
        await terminal.wait_for("[n]o  [y]es, once")
        assert "touch made.txt" in terminal.visible
        terminal.press("x\r")
        terminal.press("n")
        await terminal.wait_for("Not made.")
        assert not made.exists()
        assert "[y]es" not in terminal.visible
        terminal.press("do make it\r")
        await terminal.wait_for("[n]o  [y]es, once")
        terminal.press("y")
        await terminal.wait_for(lambda seen: seen.rstrip().count("Made.") == 1)
        assert made.exists()


async def test_what_is_being_typed_does_not_answer_a_question_and_is_kept(tmp_path: Path) -> None:
    touch = calls("exec", command="touch made.txt")
    async with open_chat(tmp_path, touch, says("Not made.")) as (terminal, _):
        terminal.press("make it\ryes, I am still typing")
        await terminal.wait_for("[n]o  [y]es, once")
        assert "yes, I am still typing" in terminal.visible
        assert not (tmp_path / "home" / "workspace" / "made.txt").exists()
        terminal.press("n")
        await terminal.wait_for("Not made.")
        await terminal.wait_for("you › yes, I am still typing")


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (401, "retinue models auth add test"),
        (402, "Add credit to the account at test"),
        (404, "/models lists the models that can be used"),
        (429, "Wait for the limit to end, or choose another model with /model"),
    ],
)
async def test_a_failure_says_what_to_do(tmp_path: Path, status: int, advice: str) -> None:
    async with open_chat(tmp_path, refuses(status, "no"), columns=120) as (terminal, _):
        terminal.press("hi\r")
        await terminal.wait_for(advice)


async def test_a_pause_before_a_retry_is_shown_while_it_lasts(tmp_path: Path) -> None:
    async with open_chat(tmp_path, refuses(529, "busy"), says("Now."), columns=120) as (terminal, _):
        terminal.press("hi\r")
        await terminal.wait_for(
            lambda seen: "retry 1 of 5 " in seen and "test/test-model does not answer (overloaded)" in seen
        )
        await terminal.wait_for("Now.")
        assert "does not answer" not in terminal.visible


async def test_a_wrong_command_is_explained_and_help_is_aligned_when_it_is_narrow(tmp_path: Path) -> None:
    async with open_chat(tmp_path, columns=60) as (terminal, _):
        terminal.press("/stauts\r")
        await terminal.wait_for("There is no command /stauts. Did you mean /status?")
        terminal.press("/help\r")
        await terminal.wait_for("Skills, which /commands describes")
        lines = [line for line in terminal.text.split("you › /help\n")[1].splitlines() if line.strip()]
        described = [line for line in lines if line.startswith(" " * 10)]
        assert len(described) > 10
        assert {len(line) - len(line.lstrip()) for line in described} == {22}


@pytest.mark.parametrize("keys", ["/quit\r", "\x04"], ids=["/quit", "Ctrl-D"])
async def test_the_end_says_what_continues(tmp_path: Path, keys: str) -> None:
    options = ChatOptions(farewell="The gateway continues to run.")
    async with open_chat(tmp_path, options=options) as (terminal, _):
        terminal.press(keys)
        await terminal.wait_for("The gateway continues to run.")
        assert "you ›" not in terminal.visible


async def test_quiet_omits_the_greeting(tmp_path: Path) -> None:
    async with open_chat(tmp_path, options=ChatOptions(quiet=True)) as (terminal, _):
        assert terminal.visible.startswith("you ›")
