"""Long conversations: room is made before it is short, and nothing that matters is lost."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from retinue.context.measure import estimate
from retinue.core.envelope import Inbound, Outbound
from retinue.core.events import Notice, TurnStatus
from retinue.core.keys import AgentId, SessionKey
from retinue.core.messages import AssistantMessage, Text, said
from retinue.core.model import ModelInfo, ModelRef, ModelRequest
from retinue.core.text import estimate_tokens
from retinue.runtime.open import Runtime
from retinue.sessions.entries import Compacted, MessageAdded
from retinue.testing.replies import Reply, ScriptedProvider, calls, overflows, says
from tests.runtime.conftest import Stage, staged

pytestmark = pytest.mark.anyio

KEY = SessionKey.parse("agent:main:main")
MINUTES = """\
## Decisions
{facts}

## Open tasks
None.

## Constraints
None.

## Pending asks
{ask}

## Exact identifiers
{names}
"""


def good_summary(request: ModelRequest) -> Reply:
    """What an honest summariser writes: every name it is told to carry, and the latest request."""
    text = request.messages[-1].text
    names = re.search(r"spelt exactly so: (.*)", text)
    latest = re.search(r"«(.*?)»", text, re.DOTALL)
    known = re.findall(r"FACT-\d+", text)
    return says(
        MINUTES.format(
            facts="\n".join(dict.fromkeys(known)) or "None.",
            ask=latest[1] if latest else "None.",
            names=names[1] if names else "None.",
        )
    )


def install(runtime: Runtime, provider: ScriptedProvider) -> None:
    """Put a scripted model in the place of the one behind the wire."""
    runtime.shared.providers._open["test"] = provider


def is_summary(request: ModelRequest) -> bool:
    return not request.tools


def is_flush(request: ModelRequest) -> bool:
    return "[Not from a person]" in request.messages[-1].text


@pytest.mark.slow
async def test_an_overflow_is_answered_after_making_room(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage, stage.open() as runtime:
        long = "An ordinary sentence about ordinary things, repeated. " * 40

        def refuse_once(request: ModelRequest) -> Reply:
            return overflows()

        provider = ScriptedProvider(
            *(says(f"answer {n}. {long}") for n in range(6)),
            refuse_once,
            says("NO_REPLY"),
            good_summary,
            says("There is room again."),
        )
        install(runtime, provider)
        for number in range(6):
            await runtime.say(Inbound(f"question {number}. {long}", KEY))
        reply = await runtime.say(Inbound("and now?", KEY), stage.emit)
        assert (reply.status, reply.text) == (TurnStatus.OK, "There is room again.")
        last = provider.requests[-1]
        assert "was summarised" in last.messages[0].text
        assert last.messages[-1].text == "and now?"
        diary = (stage.workspace / "memory" / "2026-03-14.md").read_text()
        assert "Notes before a summary" in diary


@pytest.mark.parametrize(("tokens", "told"), [(None, "of 100,000"), (20_000, "of 20,000"), (900_000, "of 100,000")])
async def test_no_more_of_a_window_is_used_than_configured(tmp_path: Path, tokens: int | None, told: str) -> None:
    config = {"agents": {"defaults": {"contextTokens": tokens}}}
    async with staged(tmp_path, says("Hello."), config=config) as stage:
        _, status = await stage.ask("hello", "/status")
    assert told in status.text


@pytest.mark.slow
@pytest.mark.parametrize("enabled", [True, False])
async def test_room_is_made_in_the_middle_of_a_turn_where_wanted(tmp_path: Path, *, enabled: bool) -> None:
    compaction = {"midTurnPrecheck": {"enabled": enabled}, "memoryFlush": {"enabled": False}}
    settings = {"compaction": compaction, "contextTokens": 34_000}
    long = "We discuss the harbour and its many boats at length. " * 100
    async with staged(tmp_path, config={"agents": {"defaults": settings}}) as stage, stage.open() as runtime:
        (stage.workspace / "boats.txt").parent.mkdir(parents=True, exist_ok=True)
        (stage.workspace / "boats.txt").write_text(long * 6)
        talk = [says(f"answer {n}. {long}") for n in range(5)]
        summing = [good_summary, good_summary] if enabled else []
        provider = ScriptedProvider(*talk, calls("read", path="boats.txt"), *summing, says("There are many boats."))
        install(runtime, provider)
        for number in range(5):
            await runtime.say(Inbound(f"question {number}. {long}", KEY))
        reply = await runtime.say(Inbound("how many boats?", KEY), stage.emit)
        assert (reply.status, reply.text) == (TurnStatus.OK, "There are many boats.")
        assert any(map(is_summary, provider.requests)) is enabled
        assert [call.name for call in reply.calls] == ["read"]
        assert "harbour" in provider.requests[-1].messages[-1].text, "the result is still there"


async def sum_up_a_long_talk(runtime: Runtime, notes: str) -> tuple[ScriptedProvider, Outbound]:
    """Six long exchanges, compacted after the model wrote `notes`; what it was asked, and what the person is told."""
    long = "We discuss the harbour and its many boats at length. " * 40
    provider = ScriptedProvider(*(says(f"answer {n}. {long}") for n in range(6)), says(notes), good_summary)
    install(runtime, provider)
    for number in range(6):
        await runtime.say(Inbound(f"question {number}. {long}", KEY))
    return provider, await runtime.say(Inbound("/compact", KEY))


@pytest.mark.slow
async def test_the_turn_that_writes_notes_has_instructions_of_its_own(tmp_path: Path) -> None:
    settings = {
        "compaction": {"memoryFlush": {"systemPrompt": "Write like a sea captain.", "prompt": "Notes, please."}}
    }
    async with staged(tmp_path, config={"agents": {"defaults": settings}}) as stage, stage.open() as runtime:
        provider, _ = await sum_up_a_long_talk(runtime, "- Ahoy.")
        *before, flush, _ = provider.requests
        assert flush.messages[-1].text == "Notes, please."
        assert flush.session.endswith("\n\nWrite like a sea captain.")
        assert flush.stable == before[-1].stable
        assert "sea captain" not in before[-1].session


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "notes", "summary"),
    [
        ({}, "test-model", "test-model"),
        ({"utilityModel": "test/small"}, "small", "small"),
        ({"utilityModel": "test/small", "compaction": {"model": "test/careful"}}, "small", "careful"),
        ({"compaction": {"memoryFlush": {"model": "test/quick"}}}, "quick", "test-model"),
    ],
)
async def test_work_beside_the_conversation_can_have_models_of_its_own(
    tmp_path: Path, settings: dict[str, Any], notes: str, summary: str
) -> None:
    async with staged(tmp_path, config={"agents": {"defaults": settings}}) as stage, stage.open() as runtime:
        provider, _ = await sum_up_a_long_talk(runtime, "- Many boats.")
        assert [request.model.model for request in provider.requests] == ["test-model"] * 6 + [notes, summary]


@pytest.mark.slow
async def test_compact_on_request_tells_what_it_gained(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage, stage.open() as runtime:
        _, told = await sum_up_a_long_talk(runtime, "- The harbour has many boats.")
        before, after = (int(n.replace(",", "")) for n in re.findall(r"([\d,]+)", told.text)[:2])
        assert after < before
        assert "The harbour has many boats." in (stage.workspace / "memory" / "2026-03-14.md").read_text()


@pytest.mark.slow
async def test_a_summary_that_fails_its_check_changes_nothing(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage, stage.open() as runtime:
        long = "The plan names /srv/data/alpha.csv and ticket OPS-4711 again and again. " * 30
        replies = [says(f"answer {n}. {long}") for n in range(6)]
        provider = ScriptedProvider(*replies, says("NO_REPLY"), says("Things were said."), says("Still nothing."))
        install(runtime, provider)
        for number in range(6):
            await runtime.say(Inbound(f"question {number}. {long}", KEY))
        count = len(runtime.agent(AgentId("main")).store.open(KEY).messages)
        told = await runtime.say(Inbound("/compact", KEY))
        assert "kept" in told.text
        transcript = runtime.agent(AgentId("main")).store.open(KEY)
        assert len(transcript.messages) == count
        assert transcript.tree.summary is None


@pytest.mark.slow
async def test_the_rules_come_back_after_a_summary(tmp_path: Path) -> None:
    async with staged(tmp_path) as stage, stage.open() as runtime:
        long = "Words upon words about the weather in the mountains. " * 40
        provider = ScriptedProvider(
            *(says(f"answer {n}. {long}") for n in range(6)), says("NO_REPLY"), good_summary, says("ok"), says("ok")
        )
        install(runtime, provider)
        for number in range(6):
            await runtime.say(Inbound(f"question {number}. {long}", KEY))
        await runtime.say(Inbound("/compact", KEY))
        await runtime.say(Inbound("hello", KEY))
        await runtime.say(Inbound("again", KEY))
        first, second = provider.requests[-2].messages[-1], provider.requests[-1].messages[-1]
        assert "Red Lines" in first.preface  # type: ignore[union-attr]
        assert second.preface == ""  # type: ignore[union-attr]


async def test_a_new_day_is_a_new_conversation(stage: Stage) -> None:
    stage.server.push(says("good evening"), says("good morning"))
    async with stage.open() as runtime:
        first = await runtime.say(Inbound("hello", KEY), stage.emit)
        stage.clock.advance(timedelta(days=1))
        second = await runtime.say(Inbound("hello", KEY), stage.emit)
    assert first.session_id != second.session_id
    assert any(isinstance(event, Notice) and "daily reset" in event.text for event in stage.events)
    assert "good evening" not in json.dumps(stage.server.model_requests[1].json)


@pytest.mark.slow
async def test_five_hundred_turns_keep_every_planted_fact(tmp_path: Path) -> None:
    """Through many compactions, with a summariser that is bad every third time."""
    config = {
        "agents": {
            "defaults": {"compaction": {"keepRecentTokens": 3000, "reserveTokensFloor": 0, "reserveTokens": 2000}}
        },
        "session": {"reset": {"mode": "none"}},
    }
    async with staged(tmp_path, config=config) as stage:
        summaries = 0

        def answer(request: ModelRequest) -> Reply:
            nonlocal summaries
            if is_summary(request):
                summaries += 1
                return says("Nothing to report.") if summaries % 3 == 0 else good_summary(request)
            if is_flush(request):
                facts = dict.fromkeys(re.findall(r"FACT-\d+", " ".join(m.text for m in request.messages)))
                return says("\n".join(f"- remember {fact}" for fact in facts) or "NO_REPLY")
            return says("Understood. " + "I will keep that in mind for later. " * 10)

        async with stage.open() as runtime:
            window = runtime.shared.providers.catalog.describe

            def small(ref: ModelRef) -> ModelInfo:
                return replace(window(ref), window=20_000)

            runtime.shared.providers.catalog.describe = small  # type: ignore[method-assign]
            provider = ScriptedProvider(*[answer] * 3000)
            install(runtime, provider)
            for number in range(500):
                fact = f" Remember FACT-{number}." if number % 10 == 0 else ""
                reply = await runtime.say(Inbound(f"Turn {number}: {'we talk about many things. ' * 8}{fact}", KEY))
                assert reply.status is TurnStatus.OK, reply.error
            transcript = runtime.agent(AgentId("main")).store.open(KEY)
            context = " ".join(message.text for message in provider.requests[-1].messages)
        notes = "".join(file.read_text() for file in (stage.workspace / "memory").glob("*.md"))
        lost = [n for n in range(0, 500, 10) if f"FACT-{n}" not in context and f"FACT-{n}" not in notes]
        assert lost == []
        assert transcript.header is not None
        written = runtime.agent(AgentId("main")).store.entries(transcript.header.id)
        assert sum(isinstance(entry.body, Compacted) for entry in written) >= 5
        assert isinstance(transcript.tree.summary, Compacted)


def say_much(runtime: Runtime, messages: int) -> None:
    """Write a conversation that was never compacted, as an import does."""
    words = "We discuss the harbour and its many boats at length. " * 12
    turns = [
        MessageAdded(message)
        for number in range(messages // 2)
        for message in (said(f"question {number}. {words}"), AssistantMessage((Text(f"answer {number}. {words}"),)))
    ]
    runtime.agent(KEY.agent).store.begin(KEY, turns)


def size_of(request: ModelRequest) -> int:
    return estimate_tokens(request.stable + request.session) + estimate(request.messages)


@pytest.mark.slow
@pytest.mark.parametrize("works", [True, False])
async def test_the_first_request_of_a_huge_session_takes_few_calls_within_the_window(
    tmp_path: Path, *, works: bool
) -> None:
    async with staged(tmp_path, config={"agents": {"defaults": {"contextTokens": 40_000}}}) as stage:
        async with stage.open() as runtime:
            say_much(runtime, 2_000)

            def reply(request: ModelRequest) -> Reply:
                if is_flush(request):
                    return says("NO_REPLY")
                if is_summary(request):
                    return good_summary(request) if works else says("no")
                return says("Here I am.")

            provider = ScriptedProvider(*[reply] * 40)
            install(runtime, provider)
            answer = await runtime.say(Inbound("and now?", KEY), stage.emit)
        assert (answer.status, answer.text) == (TurnStatus.OK, "Here I am.")
        assert len(provider.requests) <= 10
        assert max(map(size_of, provider.requests)) <= 40_000
        assert sum(len(message.text) for request in provider.requests for message in request.messages) < 600_000
        assert provider.requests[-1].messages[-1].text == "and now?"


@pytest.mark.slow
@pytest.mark.parametrize("reply", ["I'm sorry, but I can't help with that.", "..."])
async def test_a_refusal_to_write_notes_is_not_written_into_the_diary(tmp_path: Path, reply: str) -> None:
    async with staged(tmp_path) as stage, stage.open() as runtime:
        await sum_up_a_long_talk(runtime, reply)
        diary = stage.workspace / "memory" / "2026-03-14.md"
        assert reply not in diary.read_text()
        assert "harbour" in diary.read_text(), "an extract of the conversation is written instead"


@pytest.mark.slow
async def test_a_model_whose_summaries_fail_is_not_asked_again_in_every_turn(tmp_path: Path) -> None:
    settings = {"contextTokens": 34_000}
    long = "The plan names /srv/data/alpha.csv and ticket OPS-4711 again and again. " * 200

    def answer(request: ModelRequest) -> Reply:
        return says("Things were said.") if is_summary(request) or is_flush(request) else says("Yes.")

    async with staged(tmp_path, config={"agents": {"defaults": settings}}) as stage, stage.open() as runtime:
        provider = ScriptedProvider(*[answer] * 60)
        install(runtime, provider)
        asked: list[int] = []
        for number in range(9):
            before = len(list(filter(is_summary, provider.requests)))
            await runtime.say(Inbound(f"question {number}. {long if number < 7 else ''}", KEY), stage.emit)
            asked.append(len(list(filter(is_summary, provider.requests))) - before)
        first = next(at for at, count in enumerate(asked) if count)
        assert asked[first] == 2, "a summary and one correction"
        assert asked[-2:] == [0, 0], "short messages do not repeat it"
        assert sum(isinstance(event, Notice) and "kept" in event.text for event in stage.events) == sum(
            map(bool, asked)
        )
        told = await runtime.say(Inbound("/compact", KEY))
        assert "kept" in told.text, "on request it is tried"
