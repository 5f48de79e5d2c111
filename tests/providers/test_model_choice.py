"""Which model is used."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from retinue.core.errors import UsageError
from retinue.core.model import ModelRef
from retinue.providers.model_choice import (
    ChosenModel,
    LocalServers,
    discover_model,
    known_aliases,
    list_ollama_models,
    list_served_models,
    resolve_ref,
)
from retinue.providers.settings import ModelSettings, ModelsSettings, ProviderSettings
from retinue.testing.modelserver import ModelServer

ALIASES = known_aliases({"Fast": "groq/openai/gpt-oss-120b"}, ["anthropic"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("anthropic/claude-opus-5-5", "anthropic/claude-opus-5-5"),
        ("openrouter/anthropic/claude-opus-4.6", "openrouter/anthropic/claude-opus-4.6"),
        ("Gemini/gemini-2.5-pro", "google/gemini-2.5-pro"),
        (" OpenRouter / z-ai/glm-5 ", "openrouter/z-ai/glm-5"),
        ("sonnet", "anthropic/claude-sonnet-5-5"),
        ("FAST", "groq/openai/gpt-oss-120b"),
    ],
)
def test_names_and_aliases(text: str, expected: str) -> None:
    assert str(resolve_ref(text, ALIASES)) == expected


def test_built_in_aliases_exist_only_for_providers_that_can_be_used() -> None:
    assert "sonnet" in ALIASES
    assert "gpt" not in ALIASES
    assert known_aliases({"sonnet": "mine/x"}, ["anthropic"])["sonnet"] == "mine/x"


def test_a_bare_name_belongs_to_the_default_provider() -> None:
    assert resolve_ref("llama3", {}, "ollama") == ModelRef("ollama", "llama3")


@pytest.mark.parametrize("text", ["", " ", "/", "openai/", "openai/ ", "/gpt-5", " / "])
def test_half_a_name_is_none(text: str) -> None:
    assert ModelRef.parse(text) is None


def test_an_unknown_name_is_explained() -> None:
    with pytest.raises(UsageError, match="Did you mean 'sonnet'"):
        resolve_ref("sonet", ALIASES)


async def nobody(url: str) -> None:
    return None


# A machine that runs tests may be slower than the one a person waits at.
patient_ollama = partial(list_ollama_models, seconds=10)
patient_llamacpp = partial(list_served_models, seconds=10)
NOBODY = LocalServers(ask_ollama=nobody, ask_llamacpp=nobody)


async def discover(
    folder: Path,
    configured: str | None = None,
    environment: dict[str, str] | None = None,
    servers: LocalServers = NOBODY,
    stored: tuple[str, ...] = (),
) -> ChosenModel | None:
    return await discover_model(
        configured, ALIASES, environment or {}, folder, servers=servers, with_credentials=stored
    )


@pytest.mark.anyio
async def test_discovery_takes_the_first_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"x")
    (tmp_path / "Big.gguf").write_bytes(b"x" * 10)
    keys = {"GROQ_API_KEY": "a", "OPENAI_API_KEY": "b"}
    async with ModelServer(models=("llama3:8b", "other")) as server:
        ollama = LocalServers(ollama_url=server.url, ask_ollama=patient_ollama, ask_llamacpp=nobody)
        found = await discover(tmp_path, "sonnet", keys, ollama)
        assert found == ChosenModel(ModelRef("anthropic", "claude-sonnet-5-5"), "it is configured")
        found = await discover(tmp_path, None, keys, ollama)
        assert found is not None
        assert (found.ref.provider, found.because) == ("openai", "OPENAI_API_KEY is set")
        found = await discover(tmp_path, None, keys, ollama, ("anthropic",))
        assert found is not None
        assert found.ref.provider == "anthropic"
        found = await discover(tmp_path, None, {}, ollama)
        assert found is not None
        assert found.ref == ModelRef("ollama", "llama3:8b")
        assert server.url in found.because
        served = LocalServers(ask_ollama=nobody, llamacpp_url=server.url, ask_llamacpp=patient_llamacpp)
        found = await discover(tmp_path, None, {}, served)
        assert found is not None
        assert (found.ref.provider, found.base_url) == ("llamacpp", f"{server.url}/v1")
    found = await discover(tmp_path)
    assert found is not None
    assert found.ref == ModelRef("local", "big")
    assert "retinue models set" in found.how_to_change
    assert await discover(tmp_path / "empty") is None


@pytest.mark.anyio
async def test_servers_that_are_not_there_or_say_nonsense_are_nobody(tmp_path: Path) -> None:
    async with ModelServer(models=()) as server:
        url = server.url
        empty = LocalServers(ollama_url=url, llamacpp_url=f"{url}/nowhere")
        assert await discover(tmp_path, servers=empty) is None
    gone = LocalServers(ollama_url=url, llamacpp_url=url)
    assert await discover(tmp_path, servers=gone) is None


@pytest.mark.anyio
@pytest.mark.parametrize(("provider", "path"), [("llamacpp", "/v1"), ("ollama", ""), ("lab", "/v1/")])
async def test_a_configured_server_without_a_model_uses_the_servers_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: str, path: str
) -> None:
    monkeypatch.setattr("retinue.providers.model_choice.CONFIGURED_PROBE_SECONDS", 60)
    async with ModelServer(models=("served", "other")) as server:
        models = ModelsSettings(providers={provider: ProviderSettings(base_url=server.url + path)})
        found = await discover_model(None, {}, {"OPENAI_API_KEY": "a"}, tmp_path, servers=NOBODY, models=models)
    assert found is not None
    assert found.ref == ModelRef(provider, "served")
    assert f"models.providers.{provider}" in found.because


@pytest.mark.anyio
async def test_the_first_listed_model_of_a_configured_server_is_used_without_asking_it(tmp_path: Path) -> None:
    lab = ProviderSettings(
        base_url="http://127.0.0.1:1/v1", api="anthropic-messages", models=[ModelSettings(id="mine")]
    )
    models = ModelsSettings(providers={"lab": lab})
    found = await discover_model(None, {}, {}, tmp_path, servers=NOBODY, models=models)
    assert found is not None
    assert found.ref == ModelRef("lab", "mine")


@pytest.mark.anyio
async def test_a_configured_server_that_does_not_answer_is_passed_over(tmp_path: Path) -> None:
    async with ModelServer() as server:
        url = server.url
    providers = {
        "llamacpp": ProviderSettings(base_url=f"{url}/v1"),
        "mine": ProviderSettings(base_url=url, api="anthropic-messages"),
        "openai": ProviderSettings(base_url=f"{url}/v1"),
    }
    models = ModelsSettings(providers=providers)
    found = await discover_model(None, {}, {"GROQ_API_KEY": "a"}, tmp_path, servers=NOBODY, models=models)
    assert found is not None
    assert found.ref.provider == "groq"
