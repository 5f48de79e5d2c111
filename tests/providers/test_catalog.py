"""What is known of models, and which endpoint serves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue.core.errors import ConfigError
from retinue.core.messages import Usage
from retinue.core.model import ModelRef, Price
from retinue.providers.catalog import ModelCatalog, cost_of
from retinue.providers.registry import ADAPTERS, Providers
from retinue.providers.settings import ModelsSettings
from retinue.providers.vendors import canonical_provider
from retinue.security.secrets import Secrets
from retinue.structs.declare import to_plain
from retinue.structs.decode import decode
from tests.providers.test_gguf import write_gguf


def ref(text: str) -> ModelRef:
    found = ModelRef.parse(text)
    assert found is not None
    return found


def settings(**providers: Any) -> ModelsSettings:
    return decode(ModelsSettings, {"providers": providers})


@pytest.mark.parametrize(
    ("name", "window", "price"),
    [
        ("anthropic/claude-sonnet-5-5", 1_000_000, 2.0),
        ("anthropic/claude-haiku-4-5-20251001", 200_000, 1.0),
        ("anthropic/claude-opus-4-6", 1_000_000, 5.0),
        ("openai/gpt-5.4-mini-2026-03-17", 400_000, 0.75),
        ("openai/gpt-4.1", 1_047_576, 2.0),
        ("google/gemini-2.5-flash-lite", 1_048_576, 0.1),
        ("gemini/gemini-2.5-pro", 1_048_576, 1.25),
        ("openrouter/anthropic/claude-opus-4.6", 1_000_000, 5.0),
        ("openrouter/some/thing", 200_000, 0.0),
        ("ollama/llama3.2", 32_768, 0.0),
        ("unheard/of", 200_000, 0.0),
    ],
)
def test_the_longest_beginning_of_the_name_decides(name: str, window: int, price: float) -> None:
    info = ModelCatalog().describe(ref(name))
    assert info.window == window
    assert info.price.input == price


def test_the_configuration_corrects_what_is_known() -> None:
    configured = settings(
        openai={
            "models": [
                {
                    "id": "gpt-4.1",
                    "name": "Our GPT",
                    "contextWindow": 50_000,
                    "maxTokens": 1_000,
                    "input": ["text"],
                    "cost": {"input": 9, "output": 10, "cacheRead": 1, "cacheWrite": 2},
                    "compat": {"supportsTools": False},
                }
            ]
        }
    )
    catalog = ModelCatalog(configured)
    info = catalog.describe(ref("openai/gpt-4.1"))
    assert (info.window, info.max_output, info.tools, info.inputs) == (50_000, 1_000, False, frozenset({"text"}))
    assert info.price == Price(9, 10, 1, 2)
    assert catalog.display_name(info.ref) == "Our GPT"
    assert catalog.describe(ref("openai/gpt-4.1-mini")).window == 1_047_576
    assert catalog.listed("openai")[0] == ref("openai/gpt-4.1")


def test_a_local_model_says_itself_what_it_can_do(tmp_path: Path) -> None:
    write_gguf(tmp_path / "small.gguf", window=2_048, template="{{ messages }}")
    write_gguf(tmp_path / "Able.gguf", window=131_072, template="{% if tools %}<tool_call>{% endif %}")
    catalog = ModelCatalog(models_dir=tmp_path)
    small, able = catalog.describe(ref("local/small")), catalog.describe(ref("local/able"))
    assert (small.window, small.tools) == (2_048, False)
    assert (able.window, able.tools) == (32_768, True)
    assert catalog.listed("local") == (ref("local/able"), ref("local/small"))
    (tmp_path / "bad.gguf").write_bytes(b"nonsense")
    assert catalog.describe(ref("local/bad")).tools is False


def test_cost_counts_each_kind_of_token() -> None:
    usage = Usage(input=1_000_000, output=100_000, cache_read=2_000_000, cache_write=500_000)
    assert cost_of(usage, Price(3, 15, 0.3, 3.75)) == pytest.approx(3 + 1.5 + 0.6 + 1.875)
    assert cost_of(Usage(cache_read=1_000_000), Price(2, 8)) == 2.0


def providers(configured: ModelsSettings | None = None, **environment: str) -> Providers:
    return Providers(configured or ModelsSettings(), Secrets(environment))


def test_built_in_providers_need_no_configuration() -> None:
    endpoint = providers().endpoint("anthropic")
    assert (endpoint.api, endpoint.base_url, endpoint.auth) == (
        "anthropic-messages",
        "https://api.anthropic.com",
        "api-key",
    )
    ollama = providers().endpoint("ollama")
    assert (ollama.base_url, ollama.auth) == ("http://127.0.0.1:11434/v1", "none")


def test_the_configuration_moves_and_adds_endpoints() -> None:
    configured = settings(
        openai={"baseUrl": "https://proxy.example.com/v1/", "timeoutSeconds": 7},
        mine={
            "baseUrl": "http://10.0.0.5:8000/v1",
            "api": "openai-completions",
            "headers": {"X-Team": {"source": "env", "id": "TEAM"}},
            "models": [{"id": "m", "compat": {"promptCacheKey": True}}],
        },
    )
    opened = providers(configured, TEAM="blue")
    assert opened.endpoint("openai").base_url == "https://proxy.example.com/v1"
    assert opened.endpoint("openai").timeouts.idle == 7
    mine = opened.endpoint("mine")
    assert mine.headers == {"X-Team": "blue"}
    assert mine.compat_of("m").prompt_cache_key is True
    assert "blue" not in repr(mine)


@pytest.mark.parametrize(
    ("configured", "asked"), [("gemini", "google"), ("google", "gemini"), ("MyServer", "myserver"), ("X-AI", "xai")]
)
def test_a_provider_is_configured_under_any_of_its_names(configured: str, asked: str) -> None:
    model = {"id": "m", "contextWindow": 5_000}
    opened = providers(
        settings(**{configured: {"baseUrl": "http://10.0.0.5/v1", "api": "openai-completions", "models": [model]}})
    )
    ref = ModelRef(asked, "m")
    assert opened.endpoint(asked).base_url == "http://10.0.0.5/v1"
    assert opened.catalog.describe(ref).window == 5_000
    assert ModelRef(canonical_provider(asked), "m") in opened.catalog.listed(asked)


@pytest.mark.parametrize(
    ("configured", "provider", "told"),
    [
        (ModelsSettings(), "nobody", "models.providers"),
        (ModelsSettings(mode="replace"), "openai", "no provider"),
        (settings(mine={"api": "openai-completions"}), "mine", "baseUrl"),
        (settings(mine={"baseUrl": "http://169.254.169.254/"}), "mine", "metadata"),
    ],
)
def test_what_cannot_be_reached_is_explained(configured: ModelsSettings, provider: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        providers(configured).endpoint(provider)


@pytest.mark.anyio
async def test_each_protocol_has_an_adapter_that_can_be_made(tmp_path: Path) -> None:
    configured = settings(**{api: {"baseUrl": "http://127.0.0.1:1", "api": api} for api in ADAPTERS})
    opened = Providers(configured, Secrets({}), models_dir=tmp_path)
    for api in ADAPTERS:
        assert opened[api].id == api
        assert opened[api] is opened[api]
    await opened.aclose()


def test_a_key_in_the_configuration_may_be_a_reference() -> None:
    configured = settings(openai={"apiKey": {"source": "env", "id": "MY_KEY"}})
    assert to_plain(configured)["providers"]["openai"]["apiKey"] == {"source": "env", "id": "MY_KEY"}
    with pytest.raises(ValueError, match="moon"):
        settings(openai={"apiKey": {"source": "moon"}})
