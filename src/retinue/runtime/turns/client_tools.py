"""Tool calls that the client runs itself: pending calls, and the results that it returns."""

from __future__ import annotations

from msgspec.structs import replace

from retinue.core.envelope import Inbound
from retinue.core.keys import RunId
from retinue.core.messages import AssistantMessage, ToolCall, ToolResult
from retinue.sessions.entries import MessageAdded
from retinue.sessions.repair import find_unanswered
from retinue.sessions.transcript import Transcript
from retinue.tools.toolset import unwrap_call

NOTHING_WAITS = (
    "No tool call of this conversation waits for these results: it was answered, given up or archived. "
    "Send a message instead."
)


def take_results(transcript: Transcript, inbound: Inbound, run: RunId) -> bool:
    """Record results of client tool calls; return false if a message contained some and none were pending.

    Results that a previous process recorded under the same run count as recorded.
    """
    if not inbound.results:
        return True
    missing = {result.call_id: result.tool for result in _missing(transcript)}
    taken = [result for result in inbound.results if result.call_id in missing]
    for result in taken:
        named = replace(result, tool=missing[result.call_id])
        transcript.append(MessageAdded(named, run, inbound.source))
    return bool(taken) or any(
        isinstance(entry.body, MessageAdded) and entry.body.run == run for entry in transcript.tree.path
    )


def goes_on(inbound: Inbound) -> bool:
    """Return whether a message has no text, so that the agent continues from the results in it."""
    return bool(inbound.results) and not inbound.text.strip() and not inbound.images


def left_to_sender(transcript: Transcript, inbound: Inbound) -> tuple[ToolCall, ...]:
    """Return the calls with which a turn ended, if only the results of client tools are missing in it."""
    offered = {tool.name for tool in inbound.tools}
    missing = {result.call_id for result in _missing(transcript)}
    answers = (message for message in reversed(transcript.messages) if isinstance(message, AssistantMessage))
    last = next(answers, AssistantMessage(()))
    waiting = tuple(unwrap_call(call) for call in last.calls if call.id in missing)
    return waiting if len(waiting) == len(missing) and all(call.name in offered for call in waiting) else ()


def _missing(transcript: Transcript) -> tuple[ToolResult, ...]:
    return find_unanswered(transcript.messages, transcript.tree.started_calls)
