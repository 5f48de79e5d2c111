"""Pruning shortens old tool results, nothing else, and says the same thing twice."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from msgspec.structs import replace as change

from retinue.context.measure import estimate
from retinue.context.pruning import Pruned, prune, trim_text
from retinue.context.settings import ContextPruningSettings, HardClear, PruningTools, SoftTrim
from retinue.core.messages import AssistantMessage, Image, Message, Text, ToolResult, UserMessage, said
from tests.context.builders import START, answers, calls, gives, histories, words
from tests.examples import examples

ON = ContextPruningSettings(mode="cache-ttl")
EAGER = change(ON, soft_trim_ratio=0.0, hard_clear_ratio=0.0, min_prunable_tool_chars=0)
few = settings(max_examples=examples(40), deadline=None)


def prune_cold(messages: tuple[Message, ...], pruning: ContextPruningSettings, window: int = 1_000) -> Pruned:
    return prune(messages, pruning, window_tokens=window, last_cache_touch=None, now=START)


def long_work(results: int, chars: int = 20_000) -> tuple[Message, ...]:
    """A question, several calls with long results, and enough answers after them that none is protected."""
    work: list[Message] = [said("go")]
    for at in range(results):
        work += [calls(f"c{at}"), gives(f"c{at}", f"{at}" * chars)]
    return (*work, answers("one"), answers("two"), answers("three"))


@few
@given(histories(), st.integers(0, 4))
def test_only_old_tool_results_without_pictures_change(messages: tuple[Message, ...], keep: int) -> None:
    pruning = change(EAGER, keep_last_assistants=keep, tools=PruningTools(deny=["web_*"]))
    pruned = prune_cold(messages, pruning)
    assert len(pruned.messages) == len(messages)
    at_answers = [at for at, message in enumerate(messages) if isinstance(message, AssistantMessage)]
    protected_from = (at_answers[-keep] if len(at_answers) >= keep else 0) if keep else len(messages)
    first_user = next((at for at, message in enumerate(messages) if isinstance(message, UserMessage)), len(messages))
    for at, (before, after) in enumerate(zip(messages, pruned.messages, strict=True)):
        if before == after:
            continue
        assert isinstance(before, ToolResult)
        assert isinstance(after, ToolResult)
        assert first_user < at < protected_from
        assert before.tool != "web_fetch"
        assert not any(isinstance(part, Image) for part in before.content)
        assert replace(after, content=before.content) == before
        assert len(after.text) < len(before.text)
    assert pruned.changed == (pruned.messages != messages)


@pytest.mark.slow
@few
@given(histories(), histories())
def test_what_was_pruned_is_sent_in_the_same_words_while_the_cache_lives(
    messages: tuple[Message, ...], later: tuple[Message, ...]
) -> None:
    first = prune_cold(messages, EAGER)
    assert prune_cold(messages, EAGER) == first
    again = prune(
        (*messages, *later),
        EAGER,
        window_tokens=1_000,
        last_cache_touch=START,
        now=START + timedelta(minutes=4),
        marks=first.marks,
    )
    assert not again.changed
    assert again.messages[: len(messages)] == first.messages
    assert again.messages[len(messages) :] == later
    assert again.marks == first.marks


def test_a_living_cache_is_left_alone_until_it_has_run_out() -> None:
    messages = long_work(3)
    for minutes, changed in ((0, False), (4, False), (5, True), (60, True)):
        now = START + timedelta(minutes=minutes)
        pruned = prune(messages, ON, window_tokens=10_000, last_cache_touch=START, now=now)
        assert pruned.changed is changed
        assert (pruned.messages == messages) is not changed


def test_off_changes_nothing() -> None:
    messages = long_work(3)
    assert prune_cold(messages, ContextPruningSettings()).messages == messages


def test_a_history_that_leaves_most_of_the_window_free_stays_whole() -> None:
    messages = long_work(1)
    tokens = estimate(messages)
    assert not prune_cold(messages, ON, window=int(tokens / 0.29)).changed
    assert prune_cold(messages, ON, window=int(tokens / 0.31)).changed


def test_a_long_result_keeps_its_beginning_and_end_and_says_so() -> None:
    text = "a" * 1_500 + "b" * 2_000 + "c" * 1_500
    assert trim_text(text, SoftTrim()) == (
        "a" * 1_500
        + "\n...\n"
        + "c" * 1_500
        + "\n\n[Tool result trimmed: kept first 1500 chars and last 1500 chars of 5000 chars.]"
    )
    assert trim_text("x" * 4_000, SoftTrim()) == "x" * 4_000


def test_the_oldest_results_are_taken_out_until_there_is_room() -> None:
    work: list[Message] = [said("go")]
    for at in range(40):
        work += [calls(f"c{at}"), gives(f"c{at}", words(600))]
    messages = (*work, answers("one"), answers("two"), answers("three"))
    window = 30_000
    pruned = prune_cold(messages, ON, window)
    cleared = [
        isinstance(message, ToolResult) and message.text == ON.hard_clear.placeholder for message in pruned.messages
    ]
    results = [flag for flag, message in zip(cleared, messages, strict=True) if isinstance(message, ToolResult)]
    assert results == sorted(results, reverse=True)
    assert 0 < sum(results) < 40
    assert estimate(pruned.messages) < window * ON.hard_clear_ratio
    last = cleared.index(True) + 2 * (sum(results) - 1)
    one_less = [*pruned.messages[:last], messages[last], *pruned.messages[last + 1 :]]
    assert estimate(one_less) >= window * ON.hard_clear_ratio


def test_few_characters_are_not_worth_taking_out() -> None:
    messages = long_work(10, chars=4_000)
    assert not prune_cold(messages, change(ON, min_prunable_tool_chars=40_001)).changed
    assert prune_cold(messages, change(ON, min_prunable_tool_chars=40_000)).changed
    off = change(ON, min_prunable_tool_chars=0, hard_clear=HardClear(enabled=False))
    assert not prune_cold(messages, off).changed


def test_globs_say_whose_results_are_pruned() -> None:
    def pruned_tools(tools: PruningTools) -> set[str]:
        messages: list[Message] = [said("go")]
        for name in ("web_fetch", "web_search", "exec"):
            messages += [calls(name, tool=name), gives(name, "x" * 9_000, tool=name)]
        messages += [answers("one"), answers("two"), answers("three")]
        pruned = prune_cold(tuple(messages), change(EAGER, tools=tools))
        return {
            before.tool
            for before, after in zip(messages, pruned.messages, strict=True)
            if isinstance(before, ToolResult) and before != after
        }

    assert pruned_tools(PruningTools()) == {"web_fetch", "web_search", "exec"}
    assert pruned_tools(PruningTools(allow=["web_*"])) == {"web_fetch", "web_search"}
    assert pruned_tools(PruningTools(allow=["WEB_*"], deny=["*search"])) == {"web_fetch"}


def test_a_result_is_trimmed_first_and_taken_out_when_the_cache_has_run_out_again() -> None:
    messages = long_work(30, chars=6_000)
    first = prune_cold(messages, ON, window=100_000)
    assert len(first.marks.trimmed) == 30
    assert not first.marks.cleared
    second = prune(
        messages, EAGER, window_tokens=100_000, last_cache_touch=None, now=START + timedelta(hours=1), marks=first.marks
    )
    assert second.changed
    assert len(second.marks.cleared) == 30
    assert second.messages[2] == ToolResult("c0", "exec", (Text(EAGER.hard_clear.placeholder),))
