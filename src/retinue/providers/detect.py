"""What this machine offers for the choice of a model: keys, model servers on loopback, and model files.

Also recognises the provider of a pasted key by its shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import anyio
from msgspec import Struct

from retinue.core.model import ModelRef
from retinue.providers.auth_profiles import ProfileSummary
from retinue.providers.local.gguf import list_model_files
from retinue.providers.model_choice import list_ollama_models, list_served_models
from retinue.providers.settings import ModelsSettings
from retinue.providers.vendors import LLAMACPP_URL, OLLAMA_URL, canonical_provider, find_vendor, settings_of

DETECT_SECONDS = 2.0
"""How long a model server may take to list its models; a person waits for the answer."""


class KnownServer(Struct, frozen=True):
    """A program that serves models, and the address it listens on by default."""

    provider: str
    name: str
    base_url: str


KNOWN_SERVERS: tuple[KnownServer, ...] = (
    KnownServer("ollama", "Ollama", OLLAMA_URL),
    KnownServer("llamacpp", "llama.cpp", f"{LLAMACPP_URL}/v1"),
    KnownServer("lmstudio", "LM Studio", "http://127.0.0.1:1234/v1"),
    KnownServer("vllm", "vLLM", "http://127.0.0.1:8000/v1"),
)


class FoundServer(Struct, frozen=True):
    """A model server that answers, and its models."""

    provider: str
    name: str
    base_url: str
    models: tuple[str, ...]


class FoundKey(Struct, frozen=True):
    """A key that can be used, without its value; `where` says where it is stored."""

    provider: str
    name: str
    where: str
    model: str


class Detected(Struct, frozen=True):
    """Everything on this machine that a model can be chosen from."""

    keys: tuple[FoundKey, ...] = ()
    servers: tuple[FoundServer, ...] = ()
    files: tuple[str, ...] = ()

    def first_choice(self) -> ModelRef | None:
        """Return the model to suggest: of a key, else of a server; None if there is neither."""
        if self.keys:
            return ModelRef.parse(self.keys[0].model)
        served = ((server, server.models[0]) for server in self.servers if server.models)
        return next((ModelRef(server.provider, model) for server, model in served), None)


async def detect_models(stored: Iterable[ProfileSummary], settings: ModelsSettings, models_dir: Path) -> Detected:
    """Ask the known model servers, all at once, and list the keys and model files."""
    found: dict[str, FoundServer] = {}

    async def ask(server: KnownServer) -> None:
        served = await _list_models(server)
        if served is not None:
            found[server.provider] = FoundServer(server.provider, server.name, server.base_url, served)

    async with anyio.create_task_group() as group:
        for server in _addresses(settings):
            group.start_soon(ask, server)
    servers = tuple(found[server.provider] for server in KNOWN_SERVERS if server.provider in found)
    files = tuple(path.stem.lower() for path in list_model_files(models_dir))
    return Detected(_list_keys(stored), servers, files)


def _addresses(settings: ModelsSettings) -> list[KnownServer]:
    """Return the known servers at their configured addresses, else at their usual ones."""
    configured = ((server, settings_of(settings, server.provider)) for server in KNOWN_SERVERS)
    return [
        KnownServer(server.provider, server.name, own.base_url) if own and own.base_url else server
        for server, own in configured
    ]


async def _list_models(server: KnownServer) -> tuple[str, ...] | None:
    if server.provider == "ollama":
        return await list_ollama_models(server.base_url, DETECT_SECONDS)
    return await list_served_models(server.base_url, DETECT_SECONDS)


def _list_keys(stored: Iterable[ProfileSummary]) -> tuple[FoundKey, ...]:
    found: dict[str, FoundKey] = {}
    for row in stored:
        vendor = find_vendor(row.provider)
        if vendor is not None and vendor.default_model:
            key = FoundKey(vendor.id, vendor.name, row.where, f"{vendor.id}/{vendor.default_model}")
            found.setdefault(vendor.id, key)
    return tuple(found.values())


KEY_SHAPES: tuple[tuple[str, str], ...] = (
    (r"sk-ant-[\w-]{10,}", "anthropic"),
    (r"sk-or-v1-[\w-]{10,}", "openrouter"),
    (r"sk-(?:proj|svcacct|admin)-[\w-]{10,}", "openai"),
    (r"AIza[\w-]{30,}", "google"),
    (r"gsk_\w{16,}", "groq"),
    (r"xai-[\w-]{16,}", "xai"),
    (r"csk-[\w-]{16,}", "cerebras"),
    (r"tgp_v1_[\w-]{16,}", "together"),
)
"""Keys that only one provider issues."""
LIKELY_SHAPES: tuple[tuple[str, str], ...] = (
    (r"sk-[0-9a-f]{32}", "deepseek"),
    (r"sk-[\w-]{20,}", "openai"),
    (r"[0-9a-f]{64}", "together"),
    (r"[A-Za-z0-9]{32}", "mistral"),
)
"""Keys that look like those of a provider, but could be another's: the person is asked first."""
KEY_PAGES: Mapping[str, str] = {
    "anthropic": "https://console.anthropic.com/settings/keys",
    "openai": "https://platform.openai.com/api-keys",
    "google": "https://aistudio.google.com/apikey",
    "openrouter": "https://openrouter.ai/settings/keys",
    "mistral": "https://console.mistral.ai/api-keys",
    "groq": "https://console.groq.com/keys",
    "deepseek": "https://platform.deepseek.com/api_keys",
    "xai": "https://console.x.ai",
    "together": "https://api.together.ai/settings/api-keys",
    "cerebras": "https://cloud.cerebras.ai",
}
"""Where a person gets a key."""


class KeyGuess(Struct, frozen=True):
    """The providers a key may belong to; it is sent nowhere before the person confirms a guess that is not `sure`."""

    providers: tuple[str, ...]
    sure: bool = False


def recognise_key(text: str) -> KeyGuess:
    """Return the provider of a key by its shape."""
    key = text.strip()
    for shape, provider in KEY_SHAPES:
        if re.fullmatch(shape, key):
            return KeyGuess((provider,), sure=True)
    return KeyGuess(tuple(provider for shape, provider in LIKELY_SHAPES if re.fullmatch(shape, key)))


def is_known_server(provider: str) -> bool:
    """Return whether a provider is one of the programs that serve models on this machine."""
    return any(server.provider == canonical_provider(provider) for server in KNOWN_SERVERS)
