"""`POST /v1/embeddings`: texts to vectors, by whoever embeds an agent's notes."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fastapi import APIRouter
from fastapi.responses import Response

from retinue.core.keys import AgentId
from retinue.core.tokens import estimate_tokens
from retinue.gateway.app import needs
from retinue.gateway.compat.errors import BadField, json_response, make_compat_group
from retinue.gateway.compat.names import find_agent
from retinue.gateway.compat.shapes import EmbeddingRequest
from retinue.gateway.gateway import Gateway
from retinue.gateway.registry import Entry
from retinue.wire.protocol import Scope

if TYPE_CHECKING:
    from retinue.memory.store.protocol import Vector

MOST_TEXTS = 2_048


def make_router(gateway: Gateway, entries: Mapping[str, Entry]) -> APIRouter:
    router = make_compat_group()

    @router.post(
        "/v1/embeddings",
        openapi_extra=needs(Scope.WRITE),
        summary="Vectors of texts, by the embedder of an agent's memory.",
        tags=["openai"],
    )
    async def embed(body: EmbeddingRequest) -> Response:
        agent = _find_owner(gateway, body.model)
        texts = _read_texts(body)
        room = gateway.runtime.agent(agent).workspace
        who, vectors = await gateway.runtime.shared.memories.embed(room, texts)
        if body.dimensions is not None and body.dimensions != vectors.shape[1]:
            raise BadField("dimensions", f"{who} gives vectors of {vectors.shape[1]} dimensions, and no others.")
        data = [
            {"object": "embedding", "index": at, "embedding": _write(row, body.encoding_format)}
            for at, row in enumerate(vectors)
        ]
        tokens = sum(map(estimate_tokens, texts))
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return json_response({"object": "list", "data": data, "model": who, "usage": usage})

    return router


def _find_owner(gateway: Gateway, model: str) -> AgentId:
    """Whose embedder is meant: an agent's by its name, the default agent's by the embedder's own."""
    config = gateway.runtime.home.config
    default = config.agents.default_id
    names = gateway.runtime.shared.memories.embedder_names(gateway.runtime.agent(default).workspace)
    return default if model in names else find_agent(config, model)


def _read_texts(body: EmbeddingRequest) -> list[str]:
    from retinue.memory.embedding import MAX_TEXT_CHARS

    texts = [body.input] if isinstance(body.input, str) else body.input
    if not 0 < len(texts) <= MOST_TEXTS:
        raise BadField("input", f"There are 1 to {MOST_TEXTS} texts to embed.")
    for at, text in enumerate(texts):
        if not text.strip():
            raise BadField(f"input.{at}", "A text to embed cannot be empty.")
        if len(text) > MAX_TEXT_CHARS:
            raise BadField(f"input.{at}", f"A text to embed has at most {MAX_TEXT_CHARS} characters.")
    return texts


def _write(row: Vector, encoding: str) -> str | list[float]:
    if encoding == "base64":
        return base64.b64encode(row.astype("<f4").tobytes()).decode()
    numbers: list[float] = row.tolist()
    return numbers
