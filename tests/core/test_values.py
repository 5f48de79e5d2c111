"""Small values: messages, usage and trust labels."""

from __future__ import annotations

import gc
import re
import sys
import tracemalloc
import weakref
from collections.abc import Callable

import pytest

from retinue.context.measure import estimate, tokens_of
from retinue.core.clock import SystemClock, random_id, random_uuid
from retinue.core.messages import (
    MAX_HISTORIES,
    AssistantMessage,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    label_of_all,
    memoize_per_message,
    said,
)
from retinue.core.model import ModelInfo, ModelRef, ModelRequest
from retinue.providers.adapt_request import adapt_request
from retinue.providers.apis.openai_chat import chat_messages
from retinue.runtime.known_secrets import without_secrets
from retinue.security.redaction import Redactor
from retinue.sessions.repair import repair


def test_usage_adds_up() -> None:
    total = Usage(1, 2, 3, 4, 0.5) + Usage(10, 20, 30, 40, 0.25)
    assert total == Usage(11, 22, 33, 44, 0.75)
    assert (total.prompt, total.total) == (88, 110)


def test_the_words_of_a_message_leave_out_reasoning_and_calls() -> None:
    call = ToolCall("1", "ls", {})
    message = AssistantMessage((Thinking("hm"), Text("Hello "), call, Text("world")))
    assert message.text == "Hello world"
    assert message.calls == (call,)
    assert said("Hi").content == (Text("Hi"),)
    assert Image("image/png", "") not in said("Hi").content


@pytest.mark.parametrize(
    "make",
    [
        lambda: said("Hi"),
        lambda: AssistantMessage((Text("Hello"), ToolCall("1", "ls", {}))),
        lambda: AssistantMessage((Text(" "), Text("Hello"))),
        lambda: ToolResult("1", "ls", (Text("a.txt"),)),
    ],
)
def test_a_message_that_was_read_by_every_cache_is_freed_with_its_last_reference(make: Callable[[], Message]) -> None:
    message = make()
    request = ModelRequest(ModelRef("test", "model"), "", "", (message,))
    repair([message])
    tokens_of(message)
    chat_messages(request)
    freed = weakref.ref(message)
    del message, request
    assert freed() is None


def test_a_cached_function_runs_once_for_each_message() -> None:
    seen: list[Message] = []

    def compute(message: Message) -> Message:
        seen.append(message)
        return message

    cached = memoize_per_message(compute)
    first, second = said("Hi"), said("Hi")
    assert cached(first) is cached(first) is first
    assert cached(second) is second
    assert len(seen) == 2


def read_history(messages: tuple[Message, ...]) -> int:
    """Read a history as a turn does, and return how many functions of Python were called."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    info = ModelInfo(ModelRef("test", "model"))
    gc.disable()  # It would call functions of objects that other tests left.
    sys.setprofile(count)
    try:
        whole, _ = repair(messages)
        estimate(whole)
        label_of_all(whole)
        request = adapt_request(ModelRequest(info.ref, "", "", whole), info)
        chat_messages(without_secrets(request, Redactor(["a secret value"])))
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


def test_reading_a_longer_history_again_calls_no_more_functions() -> None:
    messages = tuple(message for number in range(100) for message in (said(f"{number}"), _answer(number)))
    short, long = messages[:20], messages
    for history in (short, long):
        read_history(history)
    assert read_history(long) == read_history(short)


def _answer(number: int) -> AssistantMessage:
    return AssistantMessage((Text(f"answer {number}"),))


def test_a_model_is_split_at_the_first_slash() -> None:
    assert ModelRef.parse("OpenRouter/anthropic/claude") == ModelRef("openrouter", "anthropic/claude")
    assert str(ModelRef("openrouter", "anthropic/claude")) == "openrouter/anthropic/claude"
    assert [ModelRef.parse(text) for text in ("fast", "/x", "x/", "")] == [None] * 4


def test_the_clock_has_a_zone_and_ids_differ() -> None:
    assert SystemClock().now().utcoffset() is not None
    assert SystemClock().monotonic() <= SystemClock().monotonic()
    assert re.fullmatch(r"[0-9a-f]{16}", random_id())
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}", random_uuid())
    assert len({random_uuid() for _ in range(100)}) == 100


@pytest.mark.slow
def test_what_is_remembered_of_a_message_is_less_than_a_kilobyte() -> None:
    messages = tuple(message for number in range(500) for message in (said(f"{number}"), _answer(number)))
    read_history(messages[:20])
    tracemalloc.start()
    try:
        read_history(messages)
        remembered, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert remembered / len(messages) < 1_000


def test_only_the_histories_that_were_read_last_are_kept() -> None:
    cached = memoize_per_message(lambda message: message)
    alive = []
    for number in range(MAX_HISTORIES * 2):
        history = (said("Hello"), _answer(number), said("Bye"))
        assert cached.of_all(history) == history
        alive.append(weakref.ref(history[1]))
    del history
    assert sum(each() is not None for each in alive) == MAX_HISTORIES


def test_a_history_that_was_changed_is_read_again() -> None:
    cached = memoize_per_message(lambda message: message.text)
    first, second, third, other = said("1"), said("2"), said("3"), said("4")
    for history in ((first, second, third), (first, second), (other, second, third), (first, second, other, third)):
        assert list(cached.of_all(history)) == [message.text for message in history]
