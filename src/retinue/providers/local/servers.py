"""Model servers on this machine: lists the models of Ollama and llama.cpp's server.

Both are then used through their OpenAI-compatible endpoint.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from retinue.core.errors import ModelError
from retinue.providers.base import Timeouts

OLLAMA_URL = "http://127.0.0.1:11434"
LLAMACPP_URL = "http://127.0.0.1:8080"
PROBE_SECONDS = 0.2

Probe = Callable[[str], Awaitable[tuple[str, ...] | None]]
"""Returns the model names of the server at an address; None if no such server answers."""


async def list_ollama_models(base_url: str, seconds: float = PROBE_SECONDS) -> tuple[str, ...] | None:
    """Return the models of an Ollama server, the most recently used first."""
    answer = await _get(f"{base_url.rstrip('/').removesuffix('/v1')}/api/tags", seconds)
    return _names(answer, "models", "name")


async def list_served_models(base_url: str, seconds: float = PROBE_SECONDS) -> tuple[str, ...] | None:
    """Return the models of any OpenAI-compatible server."""
    answer = await _get(f"{base_url.rstrip('/').removesuffix('/v1')}/v1/models", seconds)
    return _names(answer, "data", "id")


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
