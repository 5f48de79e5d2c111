"""The default context engine, and a plugin's engine with the default behind it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from retinue.context.compaction import CompactionRefused, RefusalReason
from retinue.context.engine import (
    NOTHING_TO_COMPACT,
    Assembled,
    AssembleRequest,
    Compaction,
    CompactRequest,
    ContextEngine,
    DefaultEngine,
    FallbackEngine,
    History,
)
from retinue.context.measure import estimate
from retinue.context.settings import CompactionSettings, ContextPruningSettings
from retinue.context.summary_check import HEADINGS
from retinue.core.clock import SystemClock
from retinue.core.envelope import Source
from retinue.core.events import TurnStatus
from retinue.core.keys import SessionId, SessionKey
from retinue.core.labels import Label
from retinue.core.messages import AssistantMessage, Message, ToolResult, said
from retinue.sessions.entries import Compacted, EntryId, Header, MessageAdded
from retinue.sessions.transcript import EntryStamps, Transcript
from tests.context.builders import START, answers, calls, entries_of, gives, histories, words
from tests.examples import examples

pytestmark = pytest.mark.anyio

KEY = SessionKey.parse("main")
PRUNING = ContextPruningSettings(mode="cache-ttl", keep_last_assistants=1)
LONG: list[Message] = [said("file the tax return by 2026-07-31"), answers(words(900)), said("next"), answers("yes")]


def default() -> DefaultEngine:
    return DefaultEngine(CompactionSettings(), PRUNING)


def request_for(messages: tuple[Message, ...], **changes: object) -> AssembleRequest:
    request = AssembleRequest(KEY, History(messages), window=10_000, now=START)
    return replace(request, **changes)


async def minutes(system: str, user: str) -> str:
    body = "\n\n".join(f"## {heading}\n\n- none" for heading in HEADINGS)
    return f"{body}\n- file the tax return by 2026-07-31"


def compact_request(messages: list[Message], **changes: object) -> CompactRequest:
    request = CompactRequest(KEY, entries_of(messages), window=200_000, ask=minutes, force=True)
    return replace(request, **changes)


@settings(max_examples=examples(30), deadline=None)
@given(histories())
async def test_every_call_that_is_sent_has_its_result(messages: tuple[Message, ...]) -> None:
    assembled = await default().assemble(request_for(messages, overhead=7))
    waiting: list[str] = []
    for message in assembled.messages:
        if isinstance(message, ToolResult):
            assert message.call_id == waiting.pop(0)
        else:
            assert not waiting
            waiting = [call.id for call in message.calls] if isinstance(message, AssistantMessage) else []
    assert not waiting
    assert assembled.estimated_tokens == 7 + estimate(assembled.messages)


async def test_the_summary_stands_first_and_taints_what_it_is_made_of() -> None:
    old = Compacted("minutes so far", None, 0, label=Label.UNTRUSTED)
    assembled = await default().assemble(request_for((said("and?"),), history=History((said("and?"),), old)))
    assert [message.text for message in assembled.messages][1:] == ["and?"]
    assert assembled.messages[0].text.endswith("\n\nminutes so far")
    assert assembled.label.is_foreign


async def test_what_was_pruned_once_stays_pruned_until_the_session_starts_over() -> None:
    engine = default()
    work = (said("go"), calls("a"), gives("a", "x" * 90_000), answers("done"))
    whole = request_for(work)
    first = await engine.assemble(whole)
    assert first.pruned
    assert first.estimated_tokens < 2_000
    warm = request_for((*work, said("more")), last_cache_touch=START, now=START + timedelta(seconds=9))
    second = await engine.assemble(warm)
    assert not second.pruned
    assert second.messages[: len(work)] == first.messages
    await engine.bootstrap(KEY, whole.history)
    assert (await engine.assemble(warm)).messages[: len(work)] == work


async def test_a_short_history_is_not_compacted() -> None:
    assert await default().compact(compact_request([said("hi"), answers("hello")])) == NOTHING_TO_COMPACT
    assert await default().compact(compact_request(LONG, force=False)) == NOTHING_TO_COMPACT


async def test_a_transcript_reads_back_the_summary_and_what_was_kept(tmp_path: Path) -> None:
    stamps = EntryStamps(SystemClock())
    transcript = Transcript.create(tmp_path / "s.jsonl", Header(SessionId("s"), START, "", KEY), (), stamps)
    for message in LONG:
        transcript.append(MessageAdded(message))
    request = CompactRequest(KEY, transcript.tree.kept, 200_000, minutes, transcript.tree.summary, force=True)
    outcome = await default().compact(request)
    assert isinstance(outcome, Compaction)
    assert outcome.tokens_after < outcome.entry.tokens_before == request.tokens
    transcript.append(outcome.entry)
    tree = Transcript.open(tmp_path / "s.jsonl", stamps).tree
    assert tree.summary == outcome.entry
    assembled = await default().assemble(request_for((), history=History(tree.messages, tree.summary)))
    assert "file the tax return by 2026-07-31" in assembled.messages[0].text
    assert assembled.messages[1:] == tree.messages
    assert assembled.messages[-2:] == (said("next"), answers("yes"))
    assert assembled.estimated_tokens == outcome.tokens_after


@dataclass
class Plugin:
    """An engine from a plugin, with the outcome that a test wants."""

    fault: Exception | None = None
    hangs: bool = False
    messages: tuple[Message, ...] = (said("from the plugin"),)
    entry: Compacted = field(default_factory=lambda: Compacted("short", None, 0, label=Label.OWNER))
    heard: list[str] = field(default_factory=list)

    async def _act(self, step: str) -> None:
        self.heard.append(step)
        if self.fault:
            raise self.fault
        if self.hangs:
            await anyio.sleep_forever()

    async def bootstrap(self, session: SessionKey, history: History) -> None:
        await self._act("bootstrap")

    async def assemble(self, request: AssembleRequest) -> Assembled:
        await self._act("assemble")
        return Assembled(self.messages, 1)

    async def ingest(self, session: SessionKey, message: Message, source: Source) -> None:
        await self._act("ingest")

    async def compact(self, request: CompactRequest) -> Compaction | CompactionRefused:
        await self._act("compact")
        return Compaction(self.entry, 0)

    async def after_turn(self, session: SessionKey, history: History, status: TurnStatus) -> None:
        await self._act("after_turn")


class Told(list[str]):
    """What a person was told."""

    async def __call__(self, sentence: str) -> None:
        self.append(sentence)


def guarded(plugin: Plugin, told: Told) -> ContextEngine:
    return FallbackEngine(plugin, default(), told, seconds=0.05, compact_seconds=0.05)


async def test_a_working_plugin_engine_is_used_and_held_to_the_promises() -> None:
    told = Told()
    page = gives("a", "page", label=Label.UNTRUSTED)
    plugin = Plugin(messages=(said("x"), calls("lost")))
    engine = guarded(plugin, told)
    assembled = await engine.assemble(request_for((said("go"), calls("a"), page)))
    assert isinstance(assembled.messages[-1], ToolResult)
    assert assembled.label.is_foreign
    outcome = await engine.compact(compact_request([*LONG, calls("a"), page]))
    assert isinstance(outcome, Compaction)
    assert (outcome.entry.summary, outcome.entry.label) == ("short", Label.UNTRUSTED)
    assert 0 < outcome.tokens_after < 100
    assert not told


@pytest.mark.parametrize(
    ("plugin", "reason"),
    [(Plugin(fault=KeyError("boom")), "'boom'"), (Plugin(hangs=True), "timeout")],
)
async def test_where_a_plugin_engine_raises_or_hangs_the_default_goes_on(plugin: Plugin, reason: str) -> None:
    told = Told()
    engine = guarded(plugin, told)
    messages = (said("go"), answers("done"))
    await engine.bootstrap(KEY, History(messages))
    await engine.ingest(KEY, messages[0], Source.CHAT)
    assert (await engine.assemble(request_for(messages))).messages == messages
    assert isinstance(await engine.compact(compact_request(LONG)), Compaction)
    await engine.after_turn(KEY, History(messages), TurnStatus.OK)
    assert plugin.heard == ["bootstrap", "ingest", "assemble", "compact", "after_turn"]
    assert [f"`{step}` ({reason})" in sentence for step, sentence in zip(plugin.heard, told, strict=True)] == [True] * 5


@pytest.mark.parametrize(
    "plugin",
    [
        Plugin(entry=Compacted("short", EntryId("nowhere"), 0)),
        Plugin(entry=Compacted(words(5_000), None, 0)),
    ],
)
async def test_a_compaction_that_would_lose_or_save_nothing_is_not_taken(plugin: Plugin) -> None:
    told = Told()
    outcome = await guarded(plugin, told).compact(compact_request(LONG))
    assert isinstance(outcome, Compaction)
    assert outcome.entry.first_kept is not None
    assert len(told) == 1


async def test_an_engine_that_forgets_everything_is_not_believed() -> None:
    told = Told()
    assembled = await guarded(Plugin(messages=()), told).assemble(request_for((said("go"),)))
    assert assembled.messages == (said("go"),)
    assert len(told) == 1


async def test_a_refusal_of_the_plugin_is_passed_on() -> None:
    @dataclass
    class Reluctant(Plugin):
        async def compact(self, request: CompactRequest) -> Compaction | CompactionRefused:
            return CompactionRefused("not now", RefusalReason.NOTHING)

    told = Told()
    assert await guarded(Reluctant(), told).compact(compact_request(LONG)) == CompactionRefused(
        "not now", RefusalReason.NOTHING
    )
    assert not told


async def test_a_cancelled_turn_is_not_taken_for_a_failing_plugin() -> None:
    told = Told()
    engine = FallbackEngine(Plugin(hangs=True), default(), told)
    with anyio.move_on_after(0.01) as scope:
        await engine.assemble(request_for((said("go"),)))
    assert scope.cancelled_caught
    assert not told
