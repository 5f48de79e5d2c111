"""A model that follows rules: it lets a message take effect once, and looks closely at what it is sent."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from retinue.context.summary_check import HEADINGS
from retinue.providers.stream import to_json
from retinue.sessions.repair import NEVER_STARTED
from retinue.testing.modelserver import ModelServer, Received
from retinue.testing.replies import Reply, ScriptedCall, says

TASK = re.compile(r"<([\w-]+)>")
FLUSH_NOTES = "- The user asks for tasks to be done, one by one."

_MINUTES = "You keep the minutes"
_FLUSH = "[Not from a person] The older part"


class RuleServer(ModelServer):
    """Speaks Anthropic's protocol.

    A message that names tasks, as `<task>`, makes it call `effect` for the last of them; a result makes it say that it
    is done, unless the result says that the call was not run. `violations` are requests that no provider would take.
    """

    def __init__(self, *, pause: Callable[[], float] = lambda: 0.0) -> None:
        super().__init__()
        self._pause = pause
        self._numbers = count(1)
        self._open = asyncio.Event()
        self._open.set()
        self._asking: Counter[str] = Counter()
        self.violations: list[str] = []
        self.most_at_once: Counter[str] = Counter()
        """For each session, by the first word of its tasks: how many requests there were at one time."""

    def hold(self) -> None:
        """Answer nothing until `release`."""
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    async def wait_for_requests(self, number: int) -> None:
        """Wait until a model was asked that often."""
        while len(self.model_requests) < number:
            await asyncio.sleep(0.002)

    async def reply_to(self, request: Received) -> Reply:
        body = request.json
        self.violations += [f"request {len(self.requests)}: {fault}" for fault in find_orphans(body["messages"])]
        session = _session_of(body["messages"])
        self._asking[session] += 1
        self.most_at_once[session] = max(self.most_at_once[session], self._asking[session])
        try:
            await self._open.wait()
            await asyncio.sleep(self._pause())
        finally:
            self._asking[session] -= 1
        return self._decide(body)

    def _decide(self, body: Mapping[str, Any]) -> Reply:
        blocks = list(_blocks(body["messages"][-1]))
        text = "\n".join(str(block.get("text", "")) for block in blocks)
        if _MINUTES in to_json(body.get("system", "")):
            return says(_minutes(text))
        if _FLUSH in text:
            return says(FLUSH_NOTES)
        tasks = TASK.findall(text)
        repeated = [block for block in blocks if block["type"] == "tool_result" and NEVER_STARTED in to_json(block)]
        if not tasks and not repeated:
            return says("done")
        task = tasks[-1] if tasks else _last_task(body["messages"])
        arguments = to_json({"text": task})
        return Reply(calls=(ScriptedCall("effect", arguments, f"toolu_{next(self._numbers):06}"),))


def find_orphans(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Calls that are not followed by exactly one result, and results of no call."""
    asked = [[block["id"] for block in _blocks(message) if block["type"] == "tool_use"] for message in messages]
    answered = [
        [block["tool_use_id"] for block in _blocks(message) if block["type"] == "tool_result"] for message in messages
    ]
    for at, (calls, results) in enumerate(zip([[], *asked], [*answered, []], strict=True), start=-1):
        if sorted(calls) != sorted(results):
            yield f"message {at} calls {calls}, and the results after it are for {results}"


def _blocks(message: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    content = message["content"]
    yield from [{"type": "text", "text": content}] if isinstance(content, str) else content


def _last_task(messages: Sequence[Mapping[str, Any]]) -> str:
    said = [block.get("text", "") for message in messages if message["role"] == "user" for block in _blocks(message)]
    return str(TASK.findall(" ".join(said))[-1])


def _session_of(messages: Sequence[Mapping[str, Any]]) -> str:
    tasks = TASK.findall(to_json(messages))
    return str(tasks[-1]).partition("-")[0] if tasks else ""


def _minutes(asked: str) -> str:
    """Minutes that pass the audit: every identifier that was asked for, and the latest request."""
    named = re.search(r"These must appear, spelt exactly so: (.*)", asked)
    latest = re.search(r"The latest request was: «(.*)»", asked)
    notes = {HEADINGS[3]: latest[1] if latest else "none", HEADINGS[4]: named[1] if named else "none"}
    return "\n\n".join(f"## {heading}\n\n- {notes.get(heading, 'none')}" for heading in HEADINGS)
