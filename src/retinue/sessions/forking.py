"""A conversation as another session may begin with it."""

from __future__ import annotations

from msgspec.structs import replace

from retinue.core.messages import AssistantMessage, Message, ToolResult, Usage, said
from retinue.core.trust import Trust
from retinue.sessions.entries import Body, Compacted, MessageAdded
from retinue.sessions.tree import Tree


def fork(tree: Tree) -> tuple[Body, ...]:
    """What a model would read of a conversation now, as the first entries of another one.

    The last summary stands for what it sums up. An answer whose calls have no results yet is left out with everything
    after it, and nothing costs anything a second time.
    """
    added = [entry.body for entry in tree.kept if isinstance(entry.body, MessageAdded)]
    whole = added[: _settled([body.message for body in added])]
    summary: list[Body] = [replace(tree.summary, first_kept=None)] if tree.summary is not None else []
    return (*summary, *(_without_cost(body) for body in whole))


def is_foreign(tree: Tree) -> bool:
    """Whether anything that a model would read of a conversation came from outside."""
    labels = [message.trust for message in tree.messages if not isinstance(message, AssistantMessage)]
    return Trust.UNTRUSTED in (*labels, tree.summary.trust if tree.summary is not None else Trust.AGENT)


def messages_of(bodies: tuple[Body, ...]) -> tuple[Message, ...]:
    """The words among the entries, a summary included."""
    return tuple(
        body.message if isinstance(body, MessageAdded) else said(body.summary)
        for body in bodies
        if isinstance(body, MessageAdded | Compacted)
    )


def _settled(messages: list[Message]) -> int:
    """How many of the messages stand before the first call that has no result."""
    answered = {message.call_id for message in messages if isinstance(message, ToolResult)}
    for at, message in enumerate(messages):
        if isinstance(message, AssistantMessage) and any(call.id not in answered for call in message.calls):
            return at
    return len(messages)


def _without_cost(body: MessageAdded) -> MessageAdded:
    if not isinstance(body.message, AssistantMessage):
        return body
    return replace(body, message=replace(body.message, usage=Usage()))
