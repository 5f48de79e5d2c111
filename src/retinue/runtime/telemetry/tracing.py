"""Tracing of turns: the interface of a tracer, the one that does nothing, and the choice between them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Protocol

from retinue.agent.loop import LoopParts, Turn
from retinue.config.sections.gateway import OtelSettings
from retinue.core.errors import RetinueError
from retinue.core.events import TurnFinished
from retinue.security.secrets import Secrets

log = logging.getLogger(__name__)


class TurnTrace(Protocol):
    """The trace of one turn."""

    def watch(self, parts: LoopParts) -> LoopParts:
        """Return the same parts with traced model and tool calls."""
        ...

    def end(self, finished: TurnFinished) -> None:
        """Record how the turn ended."""
        ...


class Tracer(Protocol):
    """Traces turns."""

    def turn(self, turn: Turn, name: str) -> AbstractContextManager[TurnTrace]:
        """Return the trace of a turn while the block runs; `name` is the agent's."""
        ...


class Untraced:
    """Traces nothing."""

    @contextmanager
    def turn(self, turn: Turn, name: str) -> Iterator[Untraced]:
        yield self

    def watch(self, parts: LoopParts) -> LoopParts:
        return parts

    def end(self, finished: TurnFinished) -> None:
        """Do nothing."""


UNTRACED = Untraced()


@asynccontextmanager
async def open_tracer(settings: OtelSettings, secrets: Secrets) -> AsyncIterator[Tracer]:
    """Return the configured tracer while the block runs; if it is not available, log that and run untraced."""
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
