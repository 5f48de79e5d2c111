"""Requests are cut to what a model can take."""

from __future__ import annotations

import pytest

from retinue.core.labels import Label
from retinue.core.messages import AssistantMessage, Image, Text, ToolCall, ToolResult, UserMessage
from retinue.core.model import ModelInfo, ModelRef, ModelRequest, ReasoningEffort
from retinue.providers.adapt_request import IMAGE_OMITTED, RequestOptions, adapt_request, apply_options
from tests.providers.support import EXEC

REF = ModelRef("local", "small")
REQUEST = ModelRequest(
    ModelRef("openai", "gpt"),
    "stable",
    "session",
    (
        UserMessage((Text("look: "), Image("image/png", "aa=="))),
        AssistantMessage((Text("yes "), ToolCall("1", "exec", {"command": "ls"}))),
        ToolResult("1", "exec", (Text("a.txt"),), label=Label.UNTRUSTED),
    ),
    (EXEC,),
    max_output=9_000,
    thinking=ReasoningEffort.HIGH,
)


def test_a_model_that_can_do_everything_gets_everything() -> None:
    able = ModelInfo(REF, inputs=frozenset({"text", "image"}), reasoning=True, max_output=20_000)
    fitted = adapt_request(REQUEST, able)
    assert fitted.messages == REQUEST.messages
    assert (fitted.tools, fitted.max_output, fitted.thinking, fitted.model) == (
        (EXEC,),
        9_000,
        ReasoningEffort.HIGH,
        REF,
    )


def test_a_small_model_reads_it_all_as_words() -> None:
    fitted = adapt_request(REQUEST, ModelInfo(REF, tools=False, max_output=512))
    assert [message.text for message in fitted.messages] == [
        f"look: {IMAGE_OMITTED}",
        'yes [called exec {"command":"ls"}]',
        "[exec returned]\na.txt",
    ]
    assert isinstance(fitted.messages[2], UserMessage)
    assert fitted.messages[2].label.is_foreign
    assert (fitted.tools, fitted.max_output, fitted.thinking) == ((), 512, ReasoningEffort.OFF)


@pytest.mark.parametrize(("asked", "tuned", "sent"), [(None, 50, 50), (40, 50, 40), (60, 50, 50), (60, None, 60)])
def test_the_smaller_limit_on_an_answer_holds(asked: int | None, tuned: int | None, sent: int) -> None:
    request = ModelRequest(ModelRef("a", "b"), "", "", (), max_output=asked)
    assert apply_options(request, RequestOptions(max_output=tuned)).max_output == sent


def test_what_a_request_asks_for_itself_stays() -> None:
    request = ModelRequest(ModelRef("a", "b"), "", "", (), temperature=0.0)
    tuned = apply_options(request, RequestOptions(temperature=0.7, top_p=0.4))
    assert (tuned.temperature, tuned.top_p) == (0.0, 0.4)
