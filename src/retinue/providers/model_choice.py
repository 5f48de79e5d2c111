"""Model selection: resolves the names that people write, and selects a default model.

Without a configured model, it asks the configured model servers for their models; without those and without a key, the
servers on this machine (Ollama, llama.cpp).
"""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import anyio
from msgspec import Struct

from retinue.core.errors import ModelError, UsageError
from retinue.core.model import ModelRef
from retinue.providers.base import Timeouts
from retinue.providers.local.gguf import list_model_files
from retinue.providers.settings import ModelsSettings, ProviderSettings
from retinue.providers.vendors import (
    BUILT_IN_ALIASES,
    LLAMACPP_URL,
    OLLAMA_URL,
    VENDORS,
    canonical_provider,
    find_vendor,
)

PROBE_SECONDS = 0.2
CONFIGURED_PROBE_SECONDS = 5.0
"""A configured server may be on another machine."""

Probe = Callable[[str], Awaitable[tuple[str, ...] | None]]
"""Returns the model names of the server at an address; None if no such server answers."""
HOW_TO_CHANGE = "retinue models set <provider/model>"


class ChosenModel(Struct, frozen=True):
    """A model, why it was chosen, and how to choose another."""

    ref: ModelRef
    because: str
    how_to_change: str = HOW_TO_CHANGE
    base_url: str | None = None
    fallbacks: tuple[str, ...] | None = None
    """Models to try after it, instead of the agent's own fallbacks."""
    pinned: bool = False
    """Whether it was chosen for this conversation, so that no other model may answer instead."""


async def list_ollama_models(base_url: str, seconds: float = PROBE_SECONDS) -> tuple[str, ...] | None:
    """Return the models of an Ollama server, the most recently used first."""
    answer = await _get(f"{base_url.rstrip('/').removesuffix('/v1')}/api/tags", seconds)
    return _names(answer, "models", "name")


async def list_served_models(base_url: str, seconds: float = PROBE_SECONDS) -> tuple[str, ...] | None:
    """Return the models of any OpenAI-compatible server."""
    return await _list_models(f"{base_url.rstrip('/').removesuffix('/v1')}/v1", seconds)


async def _list_models(base_url: str, seconds: float) -> tuple[str, ...] | None:
    return _names(await _get(f"{base_url}/models", seconds), "data", "id")


async def _get(url: str, seconds: float) -> Any:
    import httpx2

    from retinue.providers.http_client import open_client

    # Creating a client takes longer than a local server needs to answer; the time-out starts after it.
    async with open_client(Timeouts(connect=seconds, idle=seconds)) as client:
        with anyio.move_on_after(seconds):
            try:
                response = await client.get(url)
                return response.json() if response.is_success else None
            except (httpx2.HTTPError, OSError, ValueError, ModelError):
                return None
    return None


def _names(answer: Any, field: str, name: str) -> tuple[str, ...] | None:
    listed = answer.get(field) if isinstance(answer, dict) else None
    if not isinstance(listed, list):
        return None
    return tuple(str(entry[name]) for entry in listed if isinstance(entry, dict) and entry.get(name))


class LocalServers:
    """The addresses of model servers on this machine, and how to query them."""

    def __init__(
        self,
        ollama_url: str = OLLAMA_URL,
        llamacpp_url: str = LLAMACPP_URL,
        ask_ollama: Probe = list_ollama_models,
        ask_llamacpp: Probe = list_served_models,
    ) -> None:
        self.ollama_url = ollama_url
        self.llamacpp_url = llamacpp_url
        self.ask_ollama = ask_ollama
        self.ask_llamacpp = ask_llamacpp


def known_aliases(configured: Mapping[str, str], providers: Iterable[str]) -> dict[str, str]:
    """Return the aliases of models: the configured ones, and the built-in ones of usable providers."""
    usable = frozenset(map(canonical_provider, providers))
    built_in = {name: ref for name, ref in BUILT_IN_ALIASES.items() if ref.partition("/")[0] in usable}
    return built_in | {name.lower(): ref for name, ref in configured.items()}


def resolve_ref(text: str, aliases: Mapping[str, str], default_provider: str | None = None) -> ModelRef:
    """Resolve a model name: a full name, an alias, or a bare name of the default provider."""
    name = text.strip()
    if name.lower() in aliases:
        name = aliases[name.lower()]
    ref = ModelRef.parse(name)
    if ref is not None:
        return ModelRef(canonical_provider(ref.provider), ref.model)
    if name and default_provider:
        return ModelRef(default_provider, name)
    near = difflib.get_close_matches(text.strip().lower(), aliases, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    raise UsageError(
        f"'{text}' is not a valid model name. Write provider/model, as in anthropic/claude-sonnet-5-5.{hint}"
    )


async def discover_model(
    configured: str | None,
    aliases: Mapping[str, str],
    environment: Mapping[str, str],
    models_dir: Path,
    *,
    servers: LocalServers | None = None,
    with_credentials: Iterable[str] = (),
    models: ModelsSettings | None = None,
) -> ChosenModel | None:
    """Select the model: the configured one, else one of a configured server, of an available key, of this machine.

    None if there is none. `with_credentials` are the providers that have a stored credential.
    """
    if configured:
        return ChosenModel(resolve_ref(configured, aliases), "it is configured")
    by_configured_server = await _by_configured_server(models or ModelsSettings())
    if by_configured_server:
        return by_configured_server
    by_key = _by_key(environment, with_credentials)
    if by_key:
        return by_key
    return await _by_server(servers or LocalServers()) or _by_file(models_dir)


async def _by_configured_server(models: ModelsSettings) -> ChosenModel | None:
    """Return the first model of a configured server that is not a vendor's."""
    for name, settings in models.providers.items():
        vendor = find_vendor(name)
        if settings.base_url is None or (vendor is not None and vendor.variables):
            continue
        provider = canonical_provider(name)
        named = [model.id for model in settings.models]
        found = named or await _ask_server(settings.api or (vendor.api if vendor else None), settings)
        if found:
            because = f"models.providers.{name} {'lists' if named else 'serves'} it"
            return ChosenModel(ModelRef(provider, found[0]), because, base_url=settings.base_url)
    return None


async def _ask_server(api: str | None, settings: ProviderSettings) -> tuple[str, ...] | None:
    base_url = (settings.base_url or "").rstrip("/")
    match api:
        case "ollama":
            return await list_ollama_models(base_url, CONFIGURED_PROBE_SECONDS)
        case None | "openai-completions" | "openai-responses":
            return await _list_models(base_url, CONFIGURED_PROBE_SECONDS)
    return None


def _by_key(environment: Mapping[str, str], with_credentials: Iterable[str]) -> ChosenModel | None:
    stored = list(with_credentials)
    for provider in stored:
        vendor = find_vendor(provider)
        if vendor and vendor.default_model:
            return ChosenModel(ModelRef(vendor.id, vendor.default_model), f"there is a credential for {vendor.name}")
    for vendor in VENDORS:
        variable = next((name for name in vendor.variables if environment.get(name)), None)
        if variable:
            return ChosenModel(ModelRef(vendor.id, vendor.default_model), f"{variable} is set")
    return None


async def _by_server(servers: LocalServers) -> ChosenModel | None:
    served = await servers.ask_ollama(servers.ollama_url)
    if served:
        because = f"Ollama answers at {servers.ollama_url}"
        return ChosenModel(ModelRef("ollama", served[0]), because, base_url=servers.ollama_url)
    served = await servers.ask_llamacpp(servers.llamacpp_url)
    if served:
        because = f"llama.cpp answers at {servers.llamacpp_url}"
        return ChosenModel(ModelRef("llamacpp", served[0]), because, base_url=f"{servers.llamacpp_url.rstrip('/')}/v1")
    return None


def _by_file(models_dir: Path) -> ChosenModel | None:
    """Return the largest model file: among small models the larger one is usually better."""
    files = sorted(list_model_files(models_dir), key=lambda path: path.stat().st_size, reverse=True)
    if not files:
        return None
    return ChosenModel(ModelRef("local", files[0].stem.lower()), f"it is the largest model in {models_dir}")
