"""Keeping a session's context within its model's window by compaction."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import aclosing
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from retinue.context.compaction import (
    CompactionRefused,
    FailedSummaries,
    FlushState,
    RefusalReason,
    newest_within,
    room_for_history,
    should_compact,
    should_flush,
    should_retry_summary,
)
from retinue.context.engine import Assembled, AssembleRequest, CompactRequest
from retinue.context.measure import estimate
from retinue.context.points import AFTER_COMPACTION, BEFORE_COMPACTION, Compacting
from retinue.context.prompt.report import PromptReport
from retinue.context.settings import CompactionSettings
from retinue.core.envelope import Source
from retinue.core.errors import ModelError, StorageError
from retinue.core.events import Notice
from retinue.core.labels import Label
from retinue.core.messages import AssistantMessage, Message, label_of_all, said
from retinue.core.model import ModelFailed, ModelFinished, ModelRef, ModelRequest, ReasoningEffort, ToolSpec
from retinue.dispatch.silence import is_silent
from retinue.runtime.agents.confinement import may_write_notes
from retinue.runtime.turns.plan import TurnContext, local_time
from retinue.runtime.turns.run_record import history_of
from retinue.sessions.entries import FLUSHED, MessageAdded, Noted
from retinue.sessions.session import owned_by
from retinue.storage.labels.written_lines import lines_of

log = logging.getLogger(__name__)

COMPACTED_AT = "retinue:compacted-at"
SUMMARY_FAILED = "retinue:summary-failed"
FLUSH_PROMPT = (
    "[Not from a person] The older part of this conversation will soon be replaced by a summary. Write down, as short "
    "Markdown bullets for your daily notes, what must not be lost: decisions, promises, open tasks, preferences, "
    "names, exact identifiers. Only what is not in your files already. If there is nothing, reply NO_REPLY."
)


class Fixed(Struct, frozen=True):
    """The parts that are the same in every request of a turn."""

    chain: tuple[ModelRef, ...]
    stable: str
    session: str
    tools: tuple[ToolSpec, ...]
    thinking: ReasoningEffort
    window: int
    report: PromptReport
    max_output: int | None = None
    tainted: bool = False

    @property
    def overhead(self) -> int:
        """Return the tokens of the system prompt and the tool schemas."""
        return self.report.total.tokens + sum(tool.tokens for tool in self.report.tools)


class ContextWindow(Struct, frozen=True):
    """Builds the requests of one turn from its session's transcript, and compacts it."""

    turn: TurnContext
    fixed: Fixed
    logged_repairs: set[str]
    """Repairs that earlier turns of the session logged: a damaged history is repaired in each of them."""

    async def prepare(self) -> ModelRequest:
        assembled = await self._assemble()
        if self.turn.plan.info.is_demo:  # it reads only the last messages, and its summaries would be worthless
            return self._request(assembled.messages)
        used = assembled.estimated_tokens
        due = should_flush(used, self.fixed.window, self._settings, self._flush_state())
        if due and self._may_write_notes():
            await self._flush(assembled.messages)
        is_too_long = should_compact(used, self.fixed.window, self._settings, transcript_bytes=self._bytes())
        if is_too_long and self._may_summarise(used):
            await self.compact()
            assembled = await self._assemble()
        return self._request(self._fit(assembled.messages, self.fixed.window))

    async def relieve(self) -> ModelRequest | None:
        present = await self._assemble()
        before = present.estimated_tokens
        if not self._may_summarise(before):
            fewer = self._fit(present.messages, self.fixed.window // 2)
            return self._request(fewer) if len(fewer) < len(present.messages) else None
        await self.compact(force=True)
        assembled = await self._assemble()
        if assembled.estimated_tokens >= before:
            return None
        return self._request(self._fit(assembled.messages, self.fixed.window))

    def _fit(self, messages: tuple[Message, ...], window: int) -> tuple[Message, ...]:
        """Return the messages, without the oldest ones if all of them do not fit the window.

        A history that is compacted in time always fits. One that was imported, or whose summary failed, may not, and a
        provider would refuse it after it was sent.
        """
        if self.fixed.overhead + estimate(messages) <= window:
            return messages
        summary = messages[:1] if self.turn.transcript.tree.summary is not None else ()
        room = room_for_history(window, self._settings) - self.fixed.overhead - estimate(summary)
        newest = newest_within(messages[len(summary) :], room)
        left_out = len(messages) - len(summary) - len(newest)
        log.warning("the oldest %d messages of %s do not fit the window of its model", left_out, self.turn.key)
        return (*summary, *newest)

    def _may_write_notes(self) -> bool:
        agent, key = self.turn.agent, self.turn.key
        if self.turn.plan.info.is_demo:
            return False
        return may_write_notes(agent.workspace, key, owned_by(agent.store.peek(key)))

    async def compact(self, focus: str = "", *, force: bool = False) -> str:
        """Compact the older part, after notes were written; emit and return the outcome."""
        state = self._flush_state()
        wanted = self._settings.memory_flush.enabled and self._may_write_notes()
        if wanted and state.flushed_in != state.compactions:
            await self._flush((await self._assemble()).messages)
        tree = self.turn.transcript.tree
        window = min(self.fixed.window, self.turn.agent.access.info(self._summariser()[0]).window)
        request = CompactRequest(
            self.turn.key, tree.kept, window, self._ask, previous=tree.summary, focus=focus, force=force
        )
        before = request.tokens
        event = Compacting(
            self.turn.key, before, session_id=self._session_id, workspace=str(self.turn.agent.workspace.root.path)
        )
        ahead, _ = await self.turn.agent.shared.bus.fire(BEFORE_COMPACTION, event)
        await self._pass_on(ahead.messages)
        outcome = await self.turn.agent.engine.compact(request)
        if isinstance(outcome, CompactionRefused):
            await self._note_failed_summary(outcome)
            await self.turn.emit(Notice(outcome.reason))
            return outcome.reason
        self.turn.transcript.append(outcome.entry)
        self.turn.transcript.append(Noted(COMPACTED_AT, {"bytes": self._size()}))
        await self.turn.agent.shared.memories.index_compaction(
            self.turn.agent.workspace, self._session_id, self._settings.post_index_sync
        )
        done, _ = await self.turn.agent.shared.bus.fire(
            AFTER_COMPACTION, replace(event, tokens_after=outcome.tokens_after)
        )
        await self._pass_on(done.messages)
        summary_notice = f"The conversation was compacted: {before:,} tokens became {outcome.tokens_after:,}."
        if self._settings.notify_user:
            await self.turn.emit(Notice(summary_notice))
        log.info("compacted session=%s tokens=%d->%d", self.turn.key, before, outcome.tokens_after)
        return "\n\n".join((summary_notice, *ahead.messages, *done.messages))

    def _may_summarise(self, used: int) -> bool:
        failed = FailedSummaries(0, 0)
        if self._last_noted(SUMMARY_FAILED, "compactions") == self._compactions():
            count, tokens = self._last_noted(SUMMARY_FAILED, "count"), self._last_noted(SUMMARY_FAILED, "tokens")
            failed = FailedSummaries(count or 0, tokens or 0)
        return should_retry_summary(used, self.fixed.window, self._settings, failed)

    async def _note_failed_summary(self, refusal: CompactionRefused) -> None:
        if refusal.because is RefusalReason.NOTHING:
            return
        compactions = self._compactions()
        again = self._last_noted(SUMMARY_FAILED, "compactions") == compactions
        count = 1 + ((self._last_noted(SUMMARY_FAILED, "count") or 0) if again else 0)
        tokens = (await self._assemble()).estimated_tokens
        self.turn.transcript.append(
            Noted(SUMMARY_FAILED, {"compactions": compactions, "count": count, "tokens": tokens})
        )

    async def _pass_on(self, messages: Iterable[str]) -> None:
        for text in messages:
            await self.turn.emit(Notice(text))

    @property
    def _settings(self) -> CompactionSettings:
        return self.turn.agent.workspace.settings.compaction

    async def _assemble(self) -> Assembled:
        request = AssembleRequest(
            self.turn.key,
            history_of(self.turn.transcript),
            self.fixed.window,
            self.turn.agent.workspace.home.clock.now(),
            self._last_call(),
            self.fixed.overhead,
        )
        assembled = await self.turn.agent.engine.assemble(request)
        if news := [note for note in assembled.notes if note not in self.logged_repairs]:
            log.info("repaired history of %s: %s", self.turn.key, "; ".join(news))
            self.logged_repairs.update(news)
        return assembled

    def _last_call(self) -> datetime | None:
        """Return when this session last called a model, and so last used the provider's cache."""
        for entry in reversed(self.turn.transcript.tree.kept):
            if isinstance(entry.body, MessageAdded) and isinstance(entry.body.message, AssistantMessage):
                return entry.timestamp
        return None

    def _request(self, messages: tuple[Message, ...]) -> ModelRequest:
        return ModelRequest(
            self.fixed.chain[0],
            self.fixed.stable,
            self.fixed.session,
            messages,
            self.fixed.tools,
            self.fixed.max_output,
            thinking=self.fixed.thinking,
            cache_key=self._session_id,
        )

    @property
    def _session_id(self) -> str:
        header = self.turn.transcript.header
        return str(header.id) if header else ""

    async def _flush(self, messages: tuple[Message, ...]) -> None:
        """Write notes to the diary: the model's or, if it gives none, an extract made without it."""
        notes, origins = await self._take_notes(messages)
        now = local_time(self.turn.agent)
        if notes:
            path = f"memory/{now:%Y-%m-%d}.md"
            entry = f"\n## {now:%H:%M} Notes before a summary\n\n{notes}\n"
            try:
                writes = self.turn.agent.shared.memories.writes(self.turn.agent.workspace)
                for origin, lines in origins.items():
                    writes.record(path, lines, str(self.turn.key), origin=origin)
                writes.record_own(path, lines_of(entry), str(self.turn.key))
                self.turn.agent.workspace.root.append(path, entry.encode())
            except StorageError as error:
                await self.turn.emit(Notice(f"Notes could not be written to the diary: {error}"))
                return
            self.turn.agent.shared.memories.record_change(self.turn.agent.workspace)
        self.turn.transcript.append(Noted(FLUSHED, {"compactions": self._compactions()}))

    async def _take_notes(self, messages: tuple[Message, ...]) -> tuple[str, dict[Label, list[str]]]:
        """Return notes on the conversation, and which of their lines derive from untrusted text or quote the owner."""
        flush = self._settings.memory_flush
        chain = self._flusher()
        window = min(self.fixed.window, self.turn.agent.access.info(chain[0]).window)
        request = self._request((*self._fit(messages, window), said(flush.prompt or FLUSH_PROMPT)))
        # After everything else, so that the provider's cache of the prompt is still valid.
        request = replace(request, session="\n\n".join(filter(None, (request.session, flush.system_prompt))))
        from retinue.context.extract_notes import extract_notes, usable_notes

        try:
            answer = await self._complete(request, Source.MEMORY, chain)
            notes = "" if is_silent(answer.text) else usable_notes(answer)
        except ModelError as error:
            log.warning("the memory flush of %s got no answer: %s", self.turn.key, error)
            notes = ""
        if notes:
            foreign = lines_of(notes) if self.fixed.tainted or label_of_all(messages).is_foreign else []
            return notes, {Label.UNTRUSTED: foreign}
        extract = extract_notes(self.turn.transcript.tree.messages, redact=self.turn.agent.shared.tools.redact)
        return extract.markdown, {
            label: [f"- {line.text}" for line in extract.lines if line.label.origin == label.origin]
            for label in (Label.OWNER, Label.UNTRUSTED)
        }

    async def _ask(self, system: str, user: str) -> str:
        """Make one call to the model that writes summaries."""
        chain = self._summariser()
        request = ModelRequest(
            chain[0], system, "", (said(user),), thinking=ReasoningEffort(self._settings.thinking_level)
        )
        return (await self._complete(request, Source.COMPACTION, chain)).text

    def _flusher(self) -> tuple[ModelRef, ...]:
        return self.turn.agent.access.chain_beside(self._settings.memory_flush.model) or self.fixed.chain

    def _summariser(self) -> tuple[ModelRef, ...]:
        return self.turn.agent.access.chain_beside(self._settings.model) or self.fixed.chain

    async def _complete(
        self, request: ModelRequest, source: Source, chain: tuple[ModelRef, ...] | None = None
    ) -> AssistantMessage:
        """Make a background model call; its answer is stored in the transcript, outside of the branch that is read."""

        async with aclosing(
            self.turn.agent.access.stream(request, chain or self.fixed.chain, self.turn.emit)
        ) as events:
            async for event in events:
                match event:
                    case ModelFinished(message):
                        self.turn.transcript.append(MessageAdded(message, self.turn.run, source))
                        return message
                    case ModelFailed(reason, detail):
                        raise ModelError(f"{reason}: {detail}")
        raise ModelError("The model's stream ended without a final event.")

    def _compactions(self) -> int:
        session = self.turn.agent.store.peek(self.turn.key)
        return session.compactions if session else 0

    def _flush_state(self) -> FlushState:
        return FlushState(self._compactions(), self._last_noted(FLUSHED, "compactions"), self._bytes())

    def _bytes(self) -> int:
        """Return how many bytes the transcript has grown since the last summary."""
        return self._size() - (self._last_noted(COMPACTED_AT, "bytes") or 0)

    def _last_noted(self, kind: str, name: str) -> int | None:
        noted = self.turn.transcript.tree.last_noted(kind)
        value = noted.data.get(name) if noted else None
        return value if isinstance(value, int) else None

    def _size(self) -> int:
        return self.turn.transcript.size
