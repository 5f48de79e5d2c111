"""A program that opens a long session and tells what that cost: `python -m tests.faults.opener FOLDER [TIMES]`.

It prints a JSON object: the bytes that were read, the last message, and the peak of the process's memory.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from retinue.core.clock import SystemClock
from retinue.core.keys import DEFAULT_AGENT, SessionKey
from retinue.core.messages import AssistantMessage, Text, ToolCall, ToolResult, said
from retinue.sessions.entries import CallStarted, Compacted, MessageAdded
from retinue.sessions.store import SessionStore

KEY = SessionKey.main(DEFAULT_AGENT)
LAST = "the very last words"


def make_long_session(folder: Path, megabytes: float, *, compacted: bool) -> Path:
    """A session of about this size, with tool results as long as real ones; returns its transcript."""
    store = SessionStore(folder, SystemClock())
    transcript = store.open(KEY)
    size, number = 0, 0
    while size < megabytes * 1024 * 1024:
        number += 1
        call = ToolCall(f"call-{number}", "read", {"path": f"file-{number}.txt"})
        transcript.append(MessageAdded(said(f"Question {number}")))
        transcript.append(MessageAdded(AssistantMessage((Text("Let me look."), call), "test/test-model")))
        transcript.append(CallStarted(call.id, call.name, "0" * 16))
        transcript.append(MessageAdded(ToolResult(call.id, call.name, (Text(f"{number} " * 4_000),))))
        kept = transcript.append(MessageAdded(AssistantMessage((Text(f"Answer {number}"),), "test/test-model")))
        size = transcript.path.stat().st_size
    if compacted:
        transcript.append(Compacted("Many questions were answered.", kept.id, 1_000_000))
    transcript.append(MessageAdded(said("And now?")))
    transcript.append(MessageAdded(AssistantMessage((Text(LAST),), "test/test-model")))
    store.find(KEY)
    return transcript.path


def main(folder: Path, times: int) -> None:
    for _ in range(times):
        transcript = SessionStore(folder, SystemClock()).open(KEY)
    last = transcript.messages[-1]
    assert isinstance(last, AssistantMessage)
    told = {"bytesRead": transcript.bytes_read, "last": last.text, "peakMegabytes": peak_megabytes()}
    print(json.dumps(told))


def peak_megabytes() -> float:
    """The most memory that this process ever had; `getrusage` would count its parent's from before the start."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
