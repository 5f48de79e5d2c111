"""The demo model: few words, no repetition, and a note on how to add a real model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from retinue.core.messages import AssistantMessage, Text, UserMessage, said
from retinue.core.model import ModelRef, ModelRequest
from retinue.providers.catalog import ModelCatalog
from retinue.providers.local.demo import (
    DEMO_NOTE,
    DEMO_PROMPT,
    MAX_DEMO_TOKENS,
    MAX_MESSAGES,
    MAX_SENTENCES,
    demo_request,
    shorten_answer,
)
from tests.providers.support import EXEC

pytestmark = pytest.mark.anyio
REF = ModelRef("local", "smollm2-135m")


async def generate(text: str, finish: str | None = "stop") -> AsyncIterator[Any]:
    for word in text.split(" "):
        yield {"choices": [{"index": 0, "delta": {"content": f"{word} "}, "finish_reason": None}]}
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
    yield {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7}}


async def answer(text: str, finish: str | None = "stop") -> tuple[str, list[Any]]:
    chunks = [chunk async for chunk in shorten_answer(generate(text, finish))]
    pieces = [choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]]
    whole = "".join(pieces)
    assert whole.endswith(f"\n\n{DEMO_NOTE}"), "every answer says where a real model can be added"
    return whole.removesuffix(f"\n\n{DEMO_NOTE}"), chunks


async def test_a_short_answer_stays_and_its_usage_is_kept() -> None:
    text, chunks = await answer("Paris is the capital of France.")
    assert text == "Paris is the capital of France."
    assert chunks[-1]["usage"]["completion_tokens"] == 7


async def test_generation_stops_at_a_sentence_that_was_said_before() -> None:
    text, chunks = await answer("I can help. I can help. I can help. And so on.")
    assert text == "I can help."
    text, _ = await answer("(In short) it is so. It is so. And on.")
    assert text == "(In short) it is so."
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


async def test_generation_stops_at_words_that_run_in_a_circle() -> None:
    text, _ = await answer("the sun is big and warm and the sun is big and warm and the sun is big and warm and")
    assert text == "the sun is big and warm and"
    text, _ = await answer("very very very very very")
    assert text == "very"


async def test_there_are_only_a_few_sentences() -> None:
    text, _ = await answer("One is. Two are. Three are. Four are. Five are.")
    assert text.count(".") == MAX_SENTENCES


async def test_a_sentence_that_was_cut_off_is_not_shown() -> None:
    text, _ = await answer("This is whole. This one is not", finish="length")
    assert text == "This is whole."
    text, _ = await answer("Only a few words", finish="length")
    assert text == "Only a few words"


def test_the_demo_model_gets_neither_prompt_nor_tools_nor_notes() -> None:
    history: list[UserMessage | AssistantMessage] = []
    for number in range(5):
        history += [said(f"question {number}"), AssistantMessage((Text(f"answer {number}\n\n{DEMO_NOTE}"),))]
    last = UserMessage((Text("hello " * 1_000),), preface="recalled: a secret")
    request = demo_request(ModelRequest(REF, "a long prompt", "more", (*history, last), (EXEC,), max_output=4_000))
    assert (request.stable, request.session, request.tools) == (DEMO_PROMPT, "", ())
    assert request.max_output == MAX_DEMO_TOKENS
    assert len(request.messages) == MAX_MESSAGES
    assert request.messages[-2].text == "answer 4"
    assert len(request.messages[-1].text) <= 800
    assert all(not message.preface for message in request.messages if isinstance(message, UserMessage))


def test_only_the_tiny_model_is_a_demo() -> None:
    describe = ModelCatalog().describe
    assert describe(REF).is_demo
    assert not describe(ModelRef("local", "qwen3-4b")).is_demo
    assert not describe(ModelRef("anthropic", "claude-sonnet-5-5")).is_demo
