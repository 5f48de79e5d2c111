"""A context engine from a plugin, with the default one behind it: a failing plugin never stops a turn."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from msgspec import Struct
from msgspec.structs import replace

from retinue.context.engine import Assembled, AssembleRequest, Compaction, CompactRequest, ContextEngine, History
from retinue.context.refusal import Refused
from retinue.core.envelope import Source
from retinue.core.errors import RetinueError
from retinue.core.keys import SessionKey
from retinue.core.messages import Message
from retinue.core.trust import least
from retinue.sessions.repair import repair

log = logging.getLogger(__name__)

OnFailure = Callable[[str], Awaitable[None]]
"""Told in a sentence what failed and what was done instead."""

R = TypeVar("R")


class EngineBroke(RetinueError):
    """A context engine gave back something that cannot be used."""


class FallbackEngine(Struct, frozen=True):
    """Asks `primary` and, where it raises, takes too long or gives back nonsense, `default`.

    What it gives back is held to the same promises as the default: every call has its result, a compaction makes the
    history shorter, and nothing made from untrusted text is trusted.
    """

    primary: ContextEngine
    default: ContextEngine
    on_failure: OnFailure
    seconds: float = 15.0
    compact_seconds: float = 240.0

    async def bootstrap(self, session: SessionKey, history: History) -> None:
        await self.default.bootstrap(session, history)
        await self._attempt("bootstrap", lambda: self.primary.bootstrap(session, history), self.seconds)

    async def ingest(self, session: SessionKey, message: Message, source: Source) -> None:
        await self.default.ingest(session, message, source)
        await self._attempt("ingest", lambda: self.primary.ingest(session, message, source), self.seconds)

    async def assemble(self, request: AssembleRequest) -> Assembled:
        found = await self._attempt("assemble", lambda: self._assemble(request), self.seconds)
        return found or await self.default.assemble(request)

    async def compact(self, request: CompactRequest) -> Compaction | Refused:
        found = await self._attempt("compact", lambda: self._compact(request), self.compact_seconds)
        return found or await self.default.compact(request)

    async def _assemble(self, request: AssembleRequest) -> Assembled:
        assembled = await self.primary.assemble(request)
        messages, notes = repair(assembled.messages, request.history.started)
        if request.history.messages and not messages:
            raise EngineBroke("It left nothing of the history.")
        trust = least([assembled.trust, request.history.trust])
        return replace(assembled, messages=messages, notes=(*assembled.notes, *notes), trust=trust)

    async def _compact(self, request: CompactRequest) -> Compaction | Refused:
        outcome = await self.primary.compact(request)
        if isinstance(outcome, Refused):
            return outcome
        entry = replace(outcome.entry, trust=least([outcome.entry.trust, request.history.trust]))
        at = next((at for at, known in enumerate(request.entries) if known.id == entry.first_kept), None)
        if at is None and entry.first_kept is not None:
            raise EngineBroke("It kept an entry that is not there.")
        kept = () if at is None else request.entries[at:]
        tokens_after = replace(request, entries=kept, previous=entry).tokens
        if tokens_after >= request.tokens:
            raise EngineBroke("Its compaction made nothing shorter.")
        return Compaction(entry, tokens_after)

    async def _attempt(self, step: str, work: Callable[[], Awaitable[R]], seconds: float) -> R | None:
        try:
            with anyio.fail_after(seconds):
                return await work()
        except Exception as error:  # border: an engine is foreign code
            log.exception("context engine failed in %s", step)
            reason = "it took too long" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        await self.on_failure(
            f"The context engine failed in `{step}` ({reason}); the default engine goes on in its place. "
            "Clear plugins.slots.contextEngine to stop using it."
        )
        return None
