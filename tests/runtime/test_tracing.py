"""Traces of turns, as a collector receives them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import anyio
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from retinue.core.envelope import Inbound
from retinue.core.events import TextDelta, TurnEvent
from retinue.core.keys import SessionKey
from retinue.testing.replies import Fault, Reply, calls, refuses, says
from tests.runtime.conftest import Stage

pytestmark = pytest.mark.anyio

KEY = SessionKey.parse("agent:main:main")


class Collector(HTTPServer):
    """An OTLP collector on loopback that keeps what it gets."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Post)
        self.requests: list[bytes] = []
        self.headers: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/traces"

    @property
    def spans(self) -> list[dict[str, Any]]:
        """Every span: its name, its ids, its kind and its attributes."""
        found = []
        for body in self.requests:
            message = ExportTraceServiceRequest.FromString(body)
            for group in message.resource_spans:
                assert _plain(group.resource.attributes)["service.name"] == "retinue"
                for span in (span for scope in group.scope_spans for span in scope.spans):
                    about = {"id": span.span_id, "parent": span.parent_span_id, "failed": span.status.code == 2}
                    found.append({"name": span.name, "kind": span.kind, **about, **_plain(span.attributes)})
        return found

    def span(self, beginning: str) -> dict[str, Any]:
        (found,) = [span for span in self.spans if span["name"].startswith(beginning)]
        return found


class _Post(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        self.server.requests.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.headers.append(self.headers["X-Key"])
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Keep quiet."""


def _plain(attributes: Any) -> dict[str, Any]:
    def value(of: Any) -> Any:
        kind = of.WhichOneof("value")
        return [value(item) for item in of.array_value.values] if kind == "array_value" else getattr(of, kind)

    return {attribute.key: value(attribute.value) for attribute in attributes}


@pytest.fixture
def collector(stage: Stage) -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        otel = {"enabled": True, "endpoint": server.url, "headers": {"X-Key": "the-key-of-the-collector"}}
        stage.config["diagnostics"] = {"otel": otel}
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.slow
async def test_a_turn_has_spans_for_itself_its_model_calls_and_its_tools(stage: Stage, collector: Collector) -> None:
    (stage.workspace).mkdir(parents=True, exist_ok=True)
    (stage.workspace / "note.md").write_text("the secret word is heliotrope")
    stage.server.push(calls("read", path="note.md"), says("I read it."))
    await stage.ask("Read note.md, please")
    assert sorted(span["name"] for span in collector.spans) == [
        "chat test-model",
        "chat test-model",
        "execute_tool read",
        "invoke_agent main",
    ]
    turn = collector.span("invoke_agent")
    assert turn["gen_ai.operation.name"] == "invoke_agent"
    assert turn["gen_ai.agent.id"] == "main"
    assert turn["gen_ai.conversation.id"] == "agent:main:main"
    assert turn["retinue.turn.status"] == "ok"
    assert turn["gen_ai.usage.input_tokens"] > 0
    assert not turn["failed"]
    within = [span for span in collector.spans if span["name"] != turn["name"]]
    assert all(span["parent"] == turn["id"] for span in within)
    first = next(span for span in collector.spans if span["name"] == "chat test-model")
    assert (first["kind"], first["gen_ai.operation.name"], first["gen_ai.request.model"]) == (3, "chat", "test-model")
    assert first["gen_ai.response.finish_reasons"] == ["tool_call"]
    tool = collector.span("execute_tool")
    assert (tool["gen_ai.tool.name"], tool["gen_ai.tool.type"], tool["failed"]) == ("read", "function", False)
    assert collector.headers[0] == "the-key-of-the-collector"


async def test_nothing_that_was_said_is_in_a_trace(stage: Stage, collector: Collector) -> None:
    stage.server.push(calls("read", path="heliotrope.md"), says("Heliotrope it is."))
    await stage.ask("Tell me about heliotrope")
    assert collector.requests
    assert all(b"eliotrope" not in body for body in collector.requests)
    assert collector.span("execute_tool")["error.type"] == "tool_error"


async def test_a_model_that_fails_fails_its_span_and_the_turn(stage: Stage, collector: Collector) -> None:
    stage.server.push(*[refuses(401)] * 8)
    await stage.ask("Hello")
    turn = collector.span("invoke_agent")
    assert (turn["failed"], turn["error.type"]) == (True, "failed")
    chat = next(span for span in collector.spans if span["name"].startswith("chat"))
    assert (chat["failed"], chat["error.type"]) == (True, "auth")


async def test_a_turn_that_is_stopped_leaves_no_span_open(stage: Stage, collector: Collector) -> None:
    stage.server.push(Reply(text="Once upon a time ", fault=Fault.HANG))
    speaking = anyio.Event()

    async def listen(event: TurnEvent) -> None:
        if isinstance(event, TextDelta):
            speaking.set()

    async with stage.open() as runtime, anyio.create_task_group() as tasks:
        tasks.start_soon(runtime.say, Inbound("Go on for ever", KEY), listen)
        with anyio.fail_after(60):
            await speaking.wait()
            await runtime.stop(KEY)
    assert collector.span("invoke_agent")["error.type"] == "aborted"
    assert collector.span("chat")["error.type"] == "interrupted"


@pytest.mark.slow
async def test_turns_go_on_where_nobody_collects(stage: Stage) -> None:
    stage.config["diagnostics"] = {"otel": {"enabled": True, "endpoint": "http://127.0.0.1:9/v1/traces"}}
    stage.server.push(says("Hello."))
    assert [answer.text for answer in await stage.ask("Hello")] == ["Hello."]


async def test_a_header_that_cannot_be_had_leaves_turns_untraced(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    header = {"source": "file", "path": "/nowhere/key"}
    stage.config["diagnostics"] = {"otel": {"enabled": True, "headers": {"X-Key": header}}}
    stage.server.push(says("Hello."))
    assert [answer.text for answer in await stage.ask("Hello")] == ["Hello."]
    assert "no traces are sent" in caplog.text


@pytest.mark.slow
def test_without_traces_the_sdk_is_not_imported() -> None:
    program = "import sys, retinue.runtime.open; print('opentelemetry.sdk' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
