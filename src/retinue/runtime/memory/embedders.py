"""The embedders of an agent's memory, from the settings and the embedding providers of plugins."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.core.extension import Extension, ExtensionPoint
from retinue.memory.embedding import BuiltInEmbedder, Embedder, EmbeddingParts
from retinue.memory.settings import MemorySearchSettings
from retinue.plugins.containment import call_contained
from retinue.plugins.manifest import PluginError
from retinue.plugins.registry import PluginRegistry
from retinue.providers.settings import ModelsSettings
from retinue.providers.vendors import settings_of
from retinue.security.secrets import Secrets

if TYPE_CHECKING:
    from retinue.providers.embeddings.remote import RemoteEmbedder

log = logging.getLogger(__name__)

KEY_VARIABLES = {
    "openai": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "voyage": "VOYAGE_API_KEY",
    "mistral": "MISTRAL_API_KEY",
}
NO_PROVIDERS = ("none", "auto")


def make_embedders(
    settings: MemorySearchSettings,
    secrets: Secrets,
    models: Path,
    chat: ModelsSettings | None,
    registry: PluginRegistry,
) -> list[Embedder]:
    """Return the embedders in order of preference; none if vectors are off.

    `auto` never sends notes anywhere unless an endpoint or a key for embedding was configured. `models` is the folder
    of model files; `chat` has the keys of chat models, which a provider that is named uses too.
    """
    if not settings.store.vector.enabled:
        return []
    known = registry.extensions[ExtensionPoint.EMBEDDINGS]
    made = []
    for name in dict.fromkeys((choose_provider(settings), settings.fallback)):
        extension = known.get(name)
        if extension is not None:
            parts = _read_parts(name, settings, secrets, models, chat, registry)
            made += _make_embedder(extension, parts, registry)
        elif name not in NO_PROVIDERS:
            log.warning("there is no embedding provider '%s'; known: %s", name, ", ".join(sorted(known)))
    return made


def choose_provider(settings: MemorySearchSettings) -> str:
    """Return the embedding provider that the settings mean."""
    if settings.provider != "auto":
        return settings.provider
    remote = settings.remote
    return "openai-compatible" if remote.base_url else "openai" if remote.api_key else "local"


def make_local(parts: EmbeddingParts) -> Embedder:
    """Return the embedder of a local model: the built-in one unless a file is configured."""
    if not parts.local_model:
        return BuiltInEmbedder()
    from retinue.providers.embeddings.local import LocalEmbedder

    return LocalEmbedder(parts.models / Path(parts.local_model).expanduser())


def make_remote(parts: EmbeddingParts) -> RemoteEmbedder:
    """Return the embedder of a provider's HTTP API."""
    from retinue.providers.embeddings.batches import BatchLimits
    from retinue.providers.embeddings.remote import EmbeddingEndpoint, RemoteEmbedder

    endpoint = EmbeddingEndpoint(parts.provider, parts.model, parts.base_url, parts.api_key, parts.headers)
    batch = parts.batch
    if batch is None:
        return RemoteEmbedder(endpoint)
    if parts.open_batches is None:
        log.warning("batches of %s are not supported; texts are embedded directly", parts.provider)
        return RemoteEmbedder(endpoint)
    limits = BatchLimits(batch.wait, batch.concurrency, batch.poll_interval_ms / 1000, batch.timeout_minutes * 60.0)
    return RemoteEmbedder(endpoint, terms=limits, open_batches=parts.open_batches)


def _make_embedder(extension: Extension, parts: EmbeddingParts, registry: PluginRegistry) -> list[Embedder]:
    if extension.plugin == "retinue":
        return [extension.make.load()(parts)]
    try:
        return [call_contained(lambda: extension.make.load()(parts))]
    except PluginError as error:
        registry.switch_off(extension.plugin, f"its embedding provider '{extension.name}' cannot be used: {error}")
        return []


def _read_parts(
    name: str,
    settings: MemorySearchSettings,
    secrets: Secrets,
    models: Path,
    chat: ModelsSettings | None,
    registry: PluginRegistry,
) -> EmbeddingParts:
    local, remote = settings.local, settings.remote
    folder = Path(local.model_cache_dir).expanduser() if local.model_cache_dir else models
    if name == "local":
        return EmbeddingParts(name, settings.model, models=folder, local_model=local.model_path or "")
    batches = registry.extensions[ExtensionPoint.EMBEDDING_BATCHES].get(name)
    return EmbeddingParts(
        name,
        settings.model,
        remote.base_url,
        _find_key(name, settings, secrets, chat),
        {header: secrets.resolve(value) for header, value in remote.headers.items()},
        folder,
        batch=remote.batch if remote.batch.enabled else None,
        open_batches=batches.make.load() if batches is not None and remote.batch.enabled else None,
    )


def _find_key(name: str, settings: MemorySearchSettings, secrets: Secrets, chat: ModelsSettings | None) -> str | None:
    if settings.remote.api_key:
        return secrets.resolve(settings.remote.api_key)
    if key := secrets.environment.get(KEY_VARIABLES.get(name, "")):
        return key
    configured = settings_of(chat, name) if chat and name in KEY_VARIABLES else None
    return secrets.resolve(configured.api_key) if configured and configured.api_key else None
