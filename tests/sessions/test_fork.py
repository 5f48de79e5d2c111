"""What another session may begin with of a conversation."""

from __future__ import annotations

from datetime import UTC, datetime

from retinue.core.labels import Label
from retinue.core.messages import AssistantMessage, Message, Text, ToolCall, ToolResult, Usage, UserMessage, said
from retinue.sessions.entries import Body, Compacted, EntryId, MessageAdded, Noted, TranscriptEntry
from retinue.sessions.tree import TranscriptTree, fork_entries, has_untrusted_content, messages_in

NOW = datetime(2026, 2, 3, tzinfo=UTC)


def tree_of(*bodies: Body | Message) -> TranscriptTree:
    tree = TranscriptTree(whole=True)
    for number, body in enumerate(bodies):
        added = MessageAdded(body) if isinstance(body, UserMessage | AssistantMessage | ToolResult) else body
        tree.add(TranscriptEntry(EntryId(str(number)), tree.leaf, NOW, added))
    return tree


def answer(text: str = "", *calls: str) -> AssistantMessage:
    return AssistantMessage((Text(text), *(ToolCall(name, "ls", {}) for name in calls)), usage=Usage(input=5))


def test_a_fork_ends_before_the_first_call_that_has_no_result() -> None:
    done = ToolResult("a", "ls", (Text("x"),))
    tree = tree_of(said("one"), answer("", "a"), done, answer("two", "b", "c"), ToolResult("b", "ls", (Text("y"),)))
    texts = [message.content[0] for message in messages_in(fork_entries(tree))]
    assert texts == [Text("one"), Text(""), Text("x")]


def test_a_fork_costs_nothing_and_leaves_out_what_only_the_program_notes() -> None:
    tree = tree_of(said("one"), Noted("x"), answer("two"))
    copied = messages_in(fork_entries(tree))
    assert copied == (said("one"), AssistantMessage((Text("two"),)))


def test_a_fork_of_what_was_summed_up_begins_with_the_summary() -> None:
    kept = EntryId("1")
    tree = tree_of(said("old"), said("kept"), Compacted("It was about boats.", kept, 10), said("new"))
    first, *others = fork_entries(tree)
    assert first == Compacted("It was about boats.", None, 10)
    copied = tree_of(first, *others)
    assert copied.messages == (said("kept"), said("new"))
    assert copied.summary == first


def test_a_conversation_is_foreign_by_its_messages_or_its_summary() -> None:
    outside = UserMessage((Text("page"),), label=Label.UNTRUSTED)
    assert not has_untrusted_content(tree_of(said("one"), answer("two")))
    assert has_untrusted_content(tree_of(said("one"), outside))
    assert has_untrusted_content(tree_of(outside, Compacted("A page.", None, 10, label=Label.UNTRUSTED), said("new")))
