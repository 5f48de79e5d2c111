"""The history has the delivered text or, on request, the text of the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retinue.core.events import MessageFinished, TurnEvent
from retinue.core.messages import AssistantMessage, Text, Thinking, ToolCall
from retinue.dispatch.reply import VisibleEvents, VisibleStream, show_message
from retinue.testing.replies import Reply, calls, refuses, says
from tests.gateway.conftest import Hall, RawSocket, open_hall, raw_socket

pytestmark = pytest.mark.anyio

WRITTEN = "[[reply_to_current]] Here it is.\nMEDIA:chart.png\nLook at the end."


async def ask(raw: RawSocket, message: str) -> dict[str, Any]:
    accepted = await raw.result("agent", message=message, idempotencyKey=message)
    outbound: dict[str, Any] = (await raw.result("agent.wait", runId=accepted["runId"]))["outbound"]
    return outbound


def words(entry: dict[str, Any]) -> str:
    content = entry["message"]["content"]
    return "".join(part["text"] for part in content if part["type"] == "text")


@pytest.mark.parametrize("method", ["chat.history", "sessions.history"])
async def test_history_has_the_words_that_were_delivered(hall: Hall, method: str) -> None:
    hall.model.push(says(WRITTEN))
    async with raw_socket(hall) as raw:
        outbound = await ask(raw, "the chart, please")
        answer = (await raw.result(method))["entries"][-1]
        assert words(answer) == outbound["text"] == "Here it is.\nLook at the end."
        assert answer["delivery"] == {"media": ["chart.png"], "toCurrent": True}


async def test_what_the_model_wrote_is_there_for_the_asking(hall: Hall) -> None:
    hall.model.push(says(WRITTEN))
    async with raw_socket(hall) as raw:
        await ask(raw, "the chart, please")
        answer = (await raw.result("chat.history", raw=True))["entries"][-1]
        assert words(answer) == WRITTEN
        assert "delivery" not in answer


async def test_silence_has_no_words_and_still_counts(hall: Hall) -> None:
    hall.model.push(says("NO_REPLY"))
    async with raw_socket(hall) as raw:
        await ask(raw, "just so you know")
        history = await raw.result("chat.history")
        assert [words(entry) for entry in history["entries"]] == ["just so you know", ""]
        assert history["entries"][-1]["delivery"] == {"silent": True}
        assert history["total"] == 2


async def test_an_acknowledgement_is_hidden_only_where_a_heartbeat_asked_for_it(hall: Hall) -> None:
    hall.model.push(says("HEARTBEAT_OK"), says("HEARTBEAT_OK"))
    hall.home.path.joinpath("workspace", "HEARTBEAT.md").write_text("- look after the plants\n")
    async with raw_socket(hall) as raw:
        await ask(raw, "say the word")
        await raw.result("heartbeat.run")
        history = await raw.result("chat.history")
        shown = [(entry.get("source", "chat"), words(entry)) for entry in history["entries"]]
        assert ("chat", "HEARTBEAT_OK") in shown
        assert ("heartbeat", "") in shown
        assert ("heartbeat", "HEARTBEAT_OK") not in shown


async def test_what_a_person_typed_is_not_taken_for_directives(hall: Hall) -> None:
    async with raw_socket(hall) as raw:
        await ask(raw, "what does [[reply_to_current]] mean?")
        history = await raw.result("chat.history")
        assert words(history["entries"][0]) == "what does [[reply_to_current]] mean?"


async def test_the_event_at_the_end_of_a_message_shows_no_directives_either(hall: Hall) -> None:
    hall.model.push(Reply(text=WRITTEN))
    async with raw_socket(hall) as raw:
        await raw.result("chat.send", message="hi", idempotencyKey="a")
        events = await raw.until("turn_finished")
    told = json.dumps([event["payload"] for event in events])
    assert "Here it is." in told
    assert "reply_to_current" not in told
    assert "MEDIA:" not in told


async def test_words_keep_their_place_between_calls() -> None:
    call = ToolCall("1", "read", {"path": "notes.md"})
    message = AssistantMessage((Thinking("hm"), Text("Before [[reply_to:7]]"), call, Text(" after NO_REPLY")))
    shown, reply = show_message(message, VisibleStream())
    assert shown.content == (Thinking("hm"), Text("Before"), call, Text(" after"))
    assert reply.reply_to == "7"


async def test_a_message_of_calls_alone_stays_as_it_is() -> None:
    message = AssistantMessage((ToolCall("1", "read", {"path": "notes.md"}),))
    seen: list[TurnEvent] = []

    async def keep(event: TurnEvent) -> None:
        seen.append(event)

    await VisibleEvents(keep).emit(MessageFinished(message))
    assert seen == [MessageFinished(message)]


async def test_sessions_are_listed_page_by_page(hall: Hall) -> None:
    async with raw_socket(hall) as raw:
        for number in range(7):
            name = f"room-{number}"
            accepted = await raw.result("agent", message="hi", sessionKey=name, idempotencyKey=name)
            await raw.result("agent.wait", runId=accepted["runId"])
        seen: list[str] = []
        sizes, cursor = [], None
        while True:
            page = await raw.result("sessions.list", limit=3, **({"cursor": cursor} if cursor else {}))
            seen += [row["key"] for row in page["sessions"]]
            sizes.append(len(page["sessions"]))
            cursor = page.get("nextCursor")
            if cursor is None:
                break
        assert sizes == [3, 3, 1]
        assert seen == [f"agent:main:room-{number}" for number in range(6, -1, -1)]


async def test_the_history_says_how_a_turn_ended_and_what_was_denied(hall: Hall) -> None:
    hall.model.push(calls("exec", command="rm -rf /tmp/nowhere"), says("I may not."), refuses(400, "too strange"))
    async with raw_socket(hall) as raw:
        await ask(raw, "clean up")  # nobody watches, so it is denied
        await ask(raw, "and now?")
        noted = [entry["notes"] for entry in (await raw.result("chat.history"))["entries"] if "notes" in entry]
    denied, failed = noted
    assert denied[0]["kind"] == "decided"
    assert denied[0]["text"].startswith("Denied: ")
    assert "no person is available" in denied[0]["text"]
    assert failed[0]["kind"] == "failed"
    assert "too strange" in failed[0]["text"]


async def test_the_history_has_messages_that_stayed_unanswered_before_the_first_answer(tmp_path: Path) -> None:
    budget = {"defaults": {"budget": {"perDay": {"tokens": 1}}}}
    async with open_hall(tmp_path, agents=budget) as hall, hall.serving(), raw_socket(hall) as raw:
        await ask(raw, "hello")  # uses up the budget
        accepted = await raw.result("agent", message="first", sessionKey="room", idempotencyKey="first")
        await raw.result("agent.wait", runId=accepted["runId"])
        history = await raw.result("chat.history", sessionKey="room")
        earlier = await raw.result("chat.history")
    assert (history["entries"], history["total"]) == ([], 0)
    [note] = history["notes"]
    assert (note["kind"], note["text"]) == ("unanswered", "first")
    assert "budget" in note["why"]
    assert earlier["notes"] == []


async def test_a_message_that_the_budget_refuses_ends_with_an_event(tmp_path: Path) -> None:
    budget = {"defaults": {"budget": {"perDay": {"tokens": 1}}}}
    async with open_hall(tmp_path, agents=budget) as hall, hall.serving(), raw_socket(hall) as raw:
        await ask(raw, "hello")  # uses up the budget
        await raw.result("sessions.subscribe", sessionKey="room")
        sent = await raw.result("agent", message="first", sessionKey="room", idempotencyKey="first")
        [end] = await raw.until("turn_finished")
        outbound = (await raw.result("agent.wait", runId=sent["runId"]))["outbound"]
    assert end["payload"]["runs"] == [sent["runId"]]
    assert end["payload"]["event"]["status"] == "failed"
    assert end["payload"]["event"]["error"] == outbound["error"]
    assert "budget" in outbound["error"]
