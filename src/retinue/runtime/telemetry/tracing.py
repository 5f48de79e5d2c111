"""Tracing turns: what a tracer must offer, the one that does nothing, and which one is used."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Protocol

from retinue.agent.loop import LoopParts, Turn
from retinue.config.sections.diagnostics import OtelSettings
from retinue.core.errors import RetinueError
from retinue.core.events import TurnFinished
from retinue.security.secrets import Secrets

log = logging.getLogger(__name__)


class TurnTrace(Protocol):
    """One turn as it is traced."""

    def watch(self, parts: LoopParts) -> LoopParts:
        """The same parts, whose model and tool calls are traced."""
        ...

    def end(self, finished: TurnFinished) -> None:
        """Note how the turn ended."""
        ...


class Tracer(Protocol):
    """Traces turns."""

    def turn(self, turn: Turn, name: str) -> AbstractContextManager[TurnTrace]:
        """The trace of a turn while the block runs; `name` is the agent's."""
        ...


class Untraced:
    """Traces nothing."""

    @contextmanager
    def turn(self, turn: Turn, name: str) -> Iterator[Untraced]:
        yield self

    def watch(self, parts: LoopParts) -> LoopParts:
        return parts

    def end(self, finished: TurnFinished) -> None:
        """Nothing to note."""


UNTRACED = Untraced()


@asynccontextmanager
async def open_tracer(settings: OtelSettings, secrets: Secrets) -> AsyncIterator[Tracer]:
    """The configured tracer while the block runs; one that cannot be had is logged, and turns go on untraced."""
    if not settings.enabled:
        yield UNTRACED
        return
    try:
        from retinue.runtime.telemetry.otel import make_exporter, open_otel

        exporter = make_exporter(settings, {name: secrets.resolve(value) for name, value in settings.headers.items()})
    except ImportError:
        log.warning("no traces are sent: the extra is missing; run `pip install 'retinue[otel]'`")
        yield UNTRACED
        return
    except RetinueError as error:
        log.warning("no traces are sent: %s", error)
        yield UNTRACED
        return
    async with open_otel(settings, exporter) as tracer:
        yield tracer
