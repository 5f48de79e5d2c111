"""Models outside a conversation: opening access, and a small request that tests whether they answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import anyio
from msgspec import Struct

from retinue.core.keys import AgentId
from retinue.core.messages import AssistantMessage, said
from retinue.core.model import ModelFailed, ModelFinished, ModelRef, ModelRequest
from retinue.providers.failover import SHORT_RETRY_DELAYS, Failover, OnFallback
from retinue.providers.registry import ADAPTERS, Providers
from retinue.runtime.home import Home
from retinue.runtime.models.access import ModelAccess, open_model_access
from retinue.security.secrets import Secrets

QUESTION = "Reply with the word ok."
MAX_ANSWER_TOKENS = 32
MAX_REASONING_ANSWER_TOKENS = 512
"""Some models reason before the answer; others only write more than needed if there is room."""


class Trial(Struct, frozen=True):
    """The result of a test: the answer, or None; the failed attempts by name; and the duration."""

    answer: AssistantMessage | None
    failures: tuple[tuple[str, ModelFailed], ...]
    seconds: float


def make_access(home: Home, agent: AgentId) -> ModelAccess:
    """Return an agent's models without opening its workspace, sessions or tools."""
    secrets = Secrets(home.environment, home.redactor)
    registered = {api: factory.make.target for api, factory in home.registry.providers.items()}
    providers = Providers(home.config.models, secrets, home.paths.models, {**ADAPTERS, **registered})
    return open_model_access(home, agent, providers, secrets)


@asynccontextmanager
async def open_access(home: Home, agent: AgentId) -> AsyncIterator[ModelAccess]:
    """The same, for calling models; their connections are closed at the end."""
    access = make_access(home, agent)
    try:
        yield access
    finally:
        await access.providers.aclose()


async def try_models(access: ModelAccess, chain: tuple[ModelRef, ...], on_fallback: OnFallback) -> Trial:
    """Call the models of a chain as a turn would, but without its retries."""
    clock = access.home.clock
    failover = Failover(
        access.providers,
        access.credentials,
        access.info,
        anyio.sleep,
        retries=SHORT_RETRY_DELAYS,
        tuning=access.tuning,
    )
    reasons = any(access.info(ref).reasoning for ref in chain)
    room = MAX_REASONING_ANSWER_TOKENS if reasons else MAX_ANSWER_TOKENS
    request = ModelRequest(chain[0], "This is a test of the connection.", "", (said(QUESTION),), max_output=room)
    failures: list[tuple[str, ModelFailed]] = []
    answer: AssistantMessage | None = None
    started = clock.monotonic()
    async with aclosing(failover.stream(request, chain, on_fallback, failures)) as events:
        async for event in events:
            if isinstance(event, ModelFinished):
                answer = event.message
    return Trial(answer, tuple(failures), clock.monotonic() - started)
