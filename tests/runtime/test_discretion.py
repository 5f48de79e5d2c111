"""What a model is sent holds no secret, wherever in the request it stands."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from retinue.core.messages import AssistantMessage, Message, Text, Thinking, ToolCall, ToolResult, UserMessage, said
from retinue.core.model import ModelRef, ModelRequest
from retinue.runtime.discretion import without_secrets
from retinue.security.redaction import Redactor

SECRET = "hunter2-hunter2-hunter2"

HARMLESS = ModelRequest(
    ModelRef("test", "model"),
    "who you are",
    "where you are",
    (
        said("hello"),
        AssistantMessage((Thinking("hm"), Text("hi"), ToolCall("1", "read", {"path": "notes.md", "lines": [1, 2]}))),
        ToolResult("1", "read", (Text("a note"),)),
    ),
)


def holding(message: Message) -> ModelRequest:
    return replace(HARMLESS, messages=(*HARMLESS.messages, message))


@pytest.mark.parametrize(
    "request_",
    [
        replace(HARMLESS, stable=f"key {SECRET}"),
        replace(HARMLESS, session=f"key {SECRET}"),
        holding(said(f"my key is {SECRET}")),
        holding(UserMessage((Text("hi"),), preface=f"seen: {SECRET}")),
        holding(AssistantMessage((Text(f"you said {SECRET}"),))),
        holding(AssistantMessage((ToolCall("2", "exec", {"argv": ("echo", SECRET)}),))),
        holding(AssistantMessage((ToolCall("2", "exec", {"env": {"deep": [{"TOKEN": SECRET}]}}),))),
        holding(AssistantMessage((ToolCall("2", "exec", {SECRET: "a name"}),))),
        holding(ToolResult("2", "exec", (Text("ok"), Text(f"printed {SECRET}")))),
    ],
)
def test_a_secret_is_hidden_wherever_it_stands(request_: ModelRequest) -> None:
    assert SECRET in repr(request_)
    assert SECRET not in repr(without_secrets(request_, Redactor([SECRET])))


def test_a_request_without_secrets_is_sent_as_it_is() -> None:
    assert without_secrets(HARMLESS, Redactor([SECRET])) is HARMLESS
    assert without_secrets(HARMLESS, Redactor()) is HARMLESS


def test_parts_without_a_secret_stay_the_same_objects() -> None:
    cleaned = without_secrets(holding(said(SECRET)), Redactor([SECRET]))
    assert all(one is other for one, other in zip(cleaned.messages, HARMLESS.messages, strict=False))
