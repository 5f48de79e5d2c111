"""Closing a turn that a crash left open."""

from __future__ import annotations

from msgspec.structs import replace

from retinue.core.messages import AssistantMessage, Message
from retinue.sessions.entries import Entry, Interrupted, MessageAdded
from retinue.sessions.repair import find_unanswered
from retinue.sessions.transcript import Transcript


def close_interrupted_turn(transcript: Transcript, reason: str) -> Entry | None:
    """Give every tool call without a result one that says `interrupted`, so that none is silently run twice.

    To be called by the process that holds the session's lease, before the next turn. Returns the entry that records it,
    or None where the last turn was closed.
    """
    tree = transcript.tree
    if tree.messages and _is_answer(tree.messages[-1]):
        return None  # a turn that ended with an answer left nothing open, and looking for it costs with every message
    missing = find_unanswered(tree.messages, tree.started_calls)
    if not missing:
        return None
    last = tree.kept[-1].body
    assert isinstance(last, MessageAdded)
    for result in missing:
        transcript.append(replace(last, message=result))
    return transcript.append(Interrupted(reason, tuple(result.call_id for result in missing), last.run))


def _is_answer(message: Message) -> bool:
    return isinstance(message, AssistantMessage) and not message.calls
