"""Requests are cut to what a model can take."""

from __future__ import annotations

from retinue.core.messages import AssistantMessage, Image, Text, ToolCall, ToolResult, UserMessage
from retinue.core.model import ModelInfo, ModelRef, ModelRequest, Thought
from retinue.core.trust import Trust
from retinue.providers.fit import NO_PICTURES, fit_request
from tests.providers.support import EXEC

REF = ModelRef("local", "small")
REQUEST = ModelRequest(
    ModelRef("openai", "gpt"),
    "stable",
    "session",
    (
        UserMessage((Text("look: "), Image("image/png", "aa=="))),
        AssistantMessage((Text("yes "), ToolCall("1", "exec", {"command": "ls"}))),
        ToolResult("1", "exec", (Text("a.txt"),), trust=Trust.UNTRUSTED),
    ),
    (EXEC,),
    max_output=9_000,
    thinking=Thought.HIGH,
)


def test_a_model_that_can_do_everything_gets_everything() -> None:
    able = ModelInfo(REF, inputs=frozenset({"text", "image"}), reasoning=True, max_output=20_000)
    fitted = fit_request(REQUEST, able)
    assert fitted.messages == REQUEST.messages
    assert (fitted.tools, fitted.max_output, fitted.thinking, fitted.model) == ((EXEC,), 9_000, Thought.HIGH, REF)


def test_a_small_model_reads_it_all_as_words() -> None:
    fitted = fit_request(REQUEST, ModelInfo(REF, tools=False, max_output=512))
    assert [message.text for message in fitted.messages] == [
        f"look: {NO_PICTURES}",
        'yes [called exec {"command":"ls"}]',
        "[exec returned]\na.txt",
    ]
    assert isinstance(fitted.messages[2], UserMessage)
    assert fitted.messages[2].trust is Trust.UNTRUSTED
    assert (fitted.tools, fitted.max_output, fitted.thinking) == ((), 512, Thought.OFF)
