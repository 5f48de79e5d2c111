"""How much of a model's window messages take."""

from __future__ import annotations

import weakref

from retinue.context.measure import IMAGE_TOKENS, tokens_of
from retinue.core.messages import Image, Text, UserMessage, said


def test_the_same_message_is_measured_the_same() -> None:
    message = UserMessage((Text("Hello there."), Image("image/png", "AAAA")), preface="Notes.")
    assert tokens_of(message) == tokens_of(message) == tokens_of(UserMessage(message.content, preface="Notes."))
    assert tokens_of(message) > IMAGE_TOKENS


def test_measuring_a_message_does_not_keep_it() -> None:
    message = said("Hello there.")
    tokens_of(message)
    there = weakref.ref(message)
    del message
    assert there() is None
