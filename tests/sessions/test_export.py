"""A conversation as a document."""

from __future__ import annotations

import json
from pathlib import Path

from inline_snapshot import snapshot

from retinue.core.keys import RunId
from retinue.core.messages import AssistantMessage, Image, Text, Thinking, ToolCall, ToolResult, UserMessage
from retinue.core.model import ModelRef, ReasoningEffort
from retinue.sessions.entries import (
    CallStarted,
    Compacted,
    Interrupted,
    MessageAdded,
    ModelChanged,
    Noted,
    SettingChanged,
    ThinkingChanged,
)
from retinue.sessions.export import export_json, export_markdown
from retinue.sessions.repair import close_interrupted_turn
from retinue.sessions.transcript import Transcript, read_whole
from tests.sessions.builders import answer, result, stamps, start, texts, user


def same(text: str) -> str:
    return text


def conversation(folder: Path) -> Path:
    transcript = start(folder)
    transcript.append(
        MessageAdded(UserMessage((Text("What is here?"), Image("image/png", "AAAA")), "ada", "recalled notes"))
    )
    call = ToolCall("c1", "exec", {"command": "ls"})
    transcript.append(MessageAdded(AssistantMessage((Thinking("hm"), Text("Looking."), call), "openai/gpt-5")))
    transcript.append(CallStarted("c1", "exec", "abc"))
    transcript.append(MessageAdded(ToolResult("c1", "exec", (Text("a.md\n```\nb.md"),), is_error=True)))
    transcript.append(ModelChanged(ModelRef("openai", "gpt-5")))
    transcript.append(ThinkingChanged(None))
    transcript.append(SettingChanged("verbose", "on"))
    transcript.append(Noted("x"))
    kept = transcript.append(MessageAdded(AssistantMessage((), error="The model is overloaded.")))
    transcript.append(Compacted("Ada looked\naround.", kept.id, 1234))
    transcript.append(Interrupted("the process ended"))
    return transcript.path


def test_markdown_is_readable(tmp_path: Path) -> None:
    header, tree = read_whole(conversation(tmp_path))
    assert export_markdown(header, tree.path, redact=same) == snapshot("""\
# Session `agent:main:main`

Started 2026-02-03 10:00 UTC, id `s1`

## ada · 2026-02-03 10:00

What is here?

*[picture, image/png]*

## Assistant · 2026-02-03 10:00 · openai/gpt-5

Looking.

**Calls `exec`**

```json
{
  "command": "ls"
}
```

### Result of `exec` (error)

````
a.md
```
b.md
````

*Model: openai/gpt-5*

*Thinking: as configured*

## Assistant · 2026-02-03 10:00

*Error: The model is overloaded.*

## Summary of what came before (1,234 tokens)

> Ada looked
> around.

*Interrupted: the process ended*
""")


def test_reasoning_is_kept_on_request(tmp_path: Path) -> None:
    header, tree = read_whole(conversation(tmp_path))
    assert "> hm" in export_markdown(header, tree.path, redact=same, thinking=True)
    assert "recalled notes" not in export_markdown(header, tree.path, redact=same, thinking=True)


def test_json_holds_every_line(tmp_path: Path) -> None:
    path = conversation(tmp_path)
    header, tree = read_whole(path)
    exported = json.loads(export_json(header, tree.path, redact=same))
    assert [exported["session"], *exported["entries"]] == [json.loads(line) for line in path.read_bytes().splitlines()]


def test_secrets_are_taken_out_of_both(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    transcript.append(user("my key is sk-123"))
    transcript.append(answer("", ToolCall("c", "exec", {"command": ["curl", "sk-123"]})))
    header, tree = read_whole(transcript.path)
    for export in (export_markdown, export_json):
        text = export(header, tree.path, redact=lambda text: text.replace("sk-123", "[secret]"))
        assert "sk-123" not in text
        assert text.count("[secret]") == 2


def test_a_transcript_without_a_header_is_exported_too() -> None:
    assert export_markdown(None, (), redact=same) == "# Session\n"
    assert json.loads(export_json(None, (), redact=same)) == {"session": None, "entries": []}


def test_thinking_levels_are_named(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    transcript.append(ThinkingChanged(ReasoningEffort.HIGH))
    transcript.append(ModelChanged(None))
    text = export_markdown(transcript.header, transcript.tree.path, redact=same)
    assert "*Thinking: high*" in text
    assert "*Model: the configured one*" in text


def test_a_turn_cut_off_by_a_crash_is_closed_once(tmp_path: Path) -> None:
    transcript = start(tmp_path)
    transcript.append(user("Clean up"))
    transcript.append(
        answer("Yes.", ToolCall("c1", "exec", {}), ToolCall("c2", "exec", {}), ToolCall("c3", "exec", {}))
    )
    transcript.append(CallStarted("c1", "exec", "h1", RunId("r1")))
    transcript.append(result("c1"))
    transcript.append(CallStarted("c2", "exec", "h2", RunId("r1")))
    again = Transcript.open(transcript.path, stamps("n"))
    closed = close_interrupted_turn(again, "the process ended")
    assert closed is not None
    assert closed.body == Interrupted("the process ended", ("c2", "c3"), RunId("r1"))
    assert [text[:60] for text in texts(again)[2:]] == [
        "done",
        "interrupted: this call was started, but its result was lost.",
        "interrupted: this call was not run.",
    ]
    assert close_interrupted_turn(again, "again") is None
    assert close_interrupted_turn(Transcript.open(transcript.path, stamps("m")), "again") is None
