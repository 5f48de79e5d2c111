"""A plugin's context engine with the default engine as fallback: a failing plugin never stops a turn."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from msgspec import Struct
from msgspec.structs import replace

from retinue.context.compaction import CompactionRefused
from retinue.context.engine import Assembled, AssembleRequest, Compaction, CompactRequest, ContextEngine, History
from retinue.core.envelope import Source
from retinue.core.errors import RetinueError
from retinue.core.keys import SessionKey
from retinue.core.messages import Message
from retinue.core.trust import least
from retinue.sessions.repair import repair

log = logging.getLogger(__name__)

OnFailure = Callable[[str], Awaitable[None]]
"""Called with a message about the failure and the fallback."""

R = TypeVar("R")


class EngineFailed(RetinueError):
    """A context engine returned an invalid result."""


class FallbackEngine(Struct, frozen=True):
    """Calls `primary` and, if it raises, times out or returns an invalid result, `default`.

    Results of `primary` are checked: every call has its result, a compaction makes the history shorter, and nothing
    made from untrusted text is trusted.
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

    async def compact(self, request: CompactRequest) -> Compaction | CompactionRefused:
        found = await self._attempt("compact", lambda: self._compact(request), self.compact_seconds)
        return found or await self.default.compact(request)

    async def _assemble(self, request: AssembleRequest) -> Assembled:
        assembled = await self.primary.assemble(request)
        messages, notes = repair(assembled.messages, request.history.started)
        if request.history.messages and not messages:
            raise EngineFailed("It returned no messages.")
        trust = least([assembled.trust, request.history.trust])
        return replace(assembled, messages=messages, notes=(*assembled.notes, *notes), trust=trust)

    async def _compact(self, request: CompactRequest) -> Compaction | CompactionRefused:
        outcome = await self.primary.compact(request)
        if isinstance(outcome, CompactionRefused):
            return outcome
        entry = replace(outcome.entry, trust=least([outcome.entry.trust, request.history.trust]))
        at = next((at for at, known in enumerate(request.entries) if known.id == entry.first_kept), None)
        if at is None and entry.first_kept is not None:
            raise EngineFailed("It kept an entry that does not exist.")
        kept = () if at is None else request.entries[at:]
        tokens_after = replace(request, entries=kept, previous=entry).tokens
        if tokens_after >= request.tokens:
            raise EngineFailed("Its compaction did not make the history shorter.")
        return Compaction(entry, tokens_after)

    async def _attempt(self, step: str, work: Callable[[], Awaitable[R]], seconds: float) -> R | None:
        try:
            with anyio.fail_after(seconds):
                return await work()
        except Exception as error:  # border: an engine is foreign code
            log.exception("The context engine failed in %s.", step)
            reason = "timeout" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
        await self.on_failure(
            f"The context engine failed in `{step}` ({reason}); the default engine is used instead. "
            "Clear plugins.slots.contextEngine to stop using it."
        )
        return None
