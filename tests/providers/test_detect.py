"""Which provider a key belongs to, and which model is suggested."""

from __future__ import annotations

import pytest

from retinue.core.model import ModelRef
from retinue.providers.detect import (
    KEY_PAGES,
    KEY_SHAPES,
    LIKELY_SHAPES,
    Detected,
    FoundKey,
    FoundServer,
    recognise_key,
)
from retinue.providers.vendors import VENDORS


@pytest.mark.parametrize(
    ("key", "provider"),
    [
        ("sk-ant-api03-abcdefghijklmnop", "anthropic"),
        ("sk-or-v1-0123456789abcdef", "openrouter"),
        ("sk-proj-abcdefghijklmnopqrstuv", "openai"),
        ("AIza" + "b" * 35, "google"),
        ("gsk_abcdefghijklmnopqrst", "groq"),
        ("xai-abcdefghijklmnopqrst", "xai"),
        ("csk-abcdefghijklmnopqrst", "cerebras"),
        ("  sk-ant-api03-abcdefghijklmnop\n", "anthropic"),
    ],
)
def test_a_key_with_a_prefix_of_its_own_is_recognised(key: str, provider: str) -> None:
    guess = recognise_key(key)
    assert (guess.providers, guess.sure) == ((provider,), True)


@pytest.mark.parametrize(
    ("key", "providers"),
    [
        ("sk-" + "0a" * 16, ("deepseek", "openai")),
        ("sk-abcdefghijklmnopqrstuvwxyz", ("openai",)),
        ("A1" * 16, ("mistral",)),
        ("what is a key?", ()),
    ],
)
def test_a_key_that_could_be_anothers_is_only_a_suggestion(key: str, providers: tuple[str, ...]) -> None:
    guess = recognise_key(key)
    assert guess.providers == providers
    assert not guess.sure


def test_every_provider_with_a_shape_is_known_and_has_a_page_for_keys() -> None:
    known = {vendor.id for vendor in VENDORS if vendor.variables}
    assert {provider for _, provider in (*KEY_SHAPES, *LIKELY_SHAPES)} <= known
    assert {provider for _, provider in (*KEY_SHAPES, *LIKELY_SHAPES)} <= KEY_PAGES.keys() <= known


def test_a_key_is_suggested_before_a_server() -> None:
    server = FoundServer("ollama", "Ollama", "http://127.0.0.1:11434", ("small",))
    key = FoundKey("openai", "OpenAI", "environment variable OPENAI_API_KEY", "openai/gpt-5.4")
    assert Detected().first_choice() is None
    assert Detected(servers=(server,)).first_choice() == ModelRef("ollama", "small")
    assert Detected((key,), (server,)).first_choice() == ModelRef("openai", "gpt-5.4")
