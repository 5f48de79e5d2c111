"""Traces for OpenTelemetry: a span for each turn, and within it one for each model call and each tool call.

Only this module imports the SDK; it is imported only if traces are configured. A trace contains
no text of messages, files or tool arguments: only names, counts and outcomes, by the GenAI conventions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

import anyio
import anyio.to_thread
from msgspec import Struct, field
from msgspec.structs import replace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace import Tracer as SpanMaker

from retinue import __version__
from retinue.agent.loop import LoopParts, Turn
from retinue.config.sections.gateway import OtelSettings
from retinue.core.events import Emit, ToolFinished, ToolStarted, TurnEvent, TurnFinished, TurnStatus
from retinue.core.messages import AssistantMessage, StopReason, ToolCall, Usage
from retinue.core.model import ModelEvent, ModelFailed, ModelFinished, ModelRef, ModelRequest

EXPORT_SECONDS = 5.0
CLOSING_SECONDS = 6.0
Value = str | bool | int | float | tuple[str, ...]
SpanFacts = Mapping[str, Value]
PROVIDERS = {"google": "gcp.gemini", "vertex": "gcp.vertex_ai", "xai": "x_ai", "mistral": "mistral_ai"}
"""Names that differ between the conventions and Retinue."""
FINISHES = {
    StopReason.END: "stop",
    StopReason.TOOL_CALLS: "tool_call",
    StopReason.LENGTH: "length",
    StopReason.REFUSED: "content_filter",
    StopReason.ABORTED: "error",
    StopReason.ERROR: "error",
}


@asynccontextmanager
async def open_otel(settings: OtelSettings, exporter: SpanExporter) -> AsyncIterator[OtelTracer]:
    """Return a tracer while the block runs. A thread sends the spans; the last ones are sent at the end."""
    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(settings.sample_rate)),
        resource=Resource.create({"service.name": settings.service_name, "service.version": __version__}),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield OtelTracer(provider.get_tracer("retinue", __version__))
    finally:
        with anyio.move_on_after(CLOSING_SECONDS, shield=True):
            await anyio.to_thread.run_sync(provider.shutdown, abandon_on_cancel=True)


def make_exporter(settings: OtelSettings, headers: Mapping[str, str]) -> SpanExporter:
    """Return the exporter that sends spans to the configured collector."""
    return OTLPSpanExporter(endpoint=settings.endpoint, headers=headers, timeout=EXPORT_SECONDS)


class OtelTracer(Struct, frozen=True):
    """Creates a trace for every turn."""

    spans: SpanMaker

    @contextmanager
    def turn(self, turn: Turn, name: str) -> Iterator[OtelTurn]:
        span = self.spans.start_span(
            f"invoke_agent {name}", Context(), SpanKind.INTERNAL, dict(describe_turn(turn, name))
        )
        trace = OtelTurn(self.spans, span, str(turn.session))
        try:
            yield trace
        finally:
            trace.close()


class OtelTurn(Struct):
    """One turn: its span, and its child spans that have not ended."""

    spans: SpanMaker
    span: Span
    session: str
    _open: dict[str, Span] = field(default_factory=dict)
    _ended: bool = False

    def watch(self, parts: LoopParts) -> LoopParts:
        def stream(request: ModelRequest) -> AsyncIterator[ModelEvent]:
            return _WatchedCall(parts.stream(request), self._begin_call(request))

        emit = self._traced_emit(parts.emit)
        return replace(
            parts, stream=stream, emit=emit, calls=replace(parts.calls, emit=self._traced_emit(parts.calls.emit))
        )

    def end(self, finished: TurnFinished) -> None:
        self.span.set_attributes(dict(describe_end(finished)))
        if finished.status is not TurnStatus.OK:
            _fail(self.span, str(finished.status))
        self._ended = True

    def close(self) -> None:
        """End all spans; a turn without an end was interrupted, and so were its calls."""
        for span in self._open.values():
            _fail(span, "interrupted")
            span.end()
        if not self._ended:
            _fail(self.span, "interrupted")
        self.span.end()

    def _begin_call(self, request: ModelRequest) -> Span:
        return self.spans.start_span(
            f"chat {request.model.model}",
            set_span_in_context(self.span, Context()),
            SpanKind.CLIENT,
            dict(describe_request(request, self.session)),
        )

    def _traced_emit(self, emit: Emit) -> Emit:
        async def on_event(event: TurnEvent) -> None:
            match event:
                case ToolStarted(call):
                    self._open[call.id] = self.spans.start_span(
                        f"execute_tool {call.name}",
                        set_span_in_context(self.span, Context()),
                        SpanKind.INTERNAL,
                        dict(describe_call(call)),
                    )
                case ToolFinished(call, result) if call.id in self._open:
                    span = self._open.pop(call.id)
                    if result.is_error:
                        _fail(span, "tool_error")
                    span.end()
            await emit(event)

        return on_event


class _WatchedCall:
    """The events of a model call, which end its span. The consumer may stop at the last event."""

    def __init__(self, events: AsyncIterator[ModelEvent], span: Span) -> None:
        self._events = events
        self._span = span

    def __aiter__(self) -> _WatchedCall:
        return self

    async def __anext__(self) -> ModelEvent:
        try:
            event = await anext(self._events)
        except BaseException as error:  # Cancellation ends the call too.
            if self._span.is_recording():
                _fail(self._span, "empty" if isinstance(error, StopAsyncIteration) else "interrupted")
                self._span.end()
            raise
        match event:
            case ModelFinished(message):
                self._span.set_attributes(dict(describe_answer(message)))
                self._span.end()
            case ModelFailed(reason):
                _fail(self._span, str(reason))
                self._span.end()
        return event


def _fail(span: Span, kind: str) -> None:
    """Mark a span as failed; the text of an error may contain private data, so only its kind is recorded."""
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))


def describe_turn(turn: Turn, name: str) -> SpanFacts:
    """Return the attributes of a turn at its start."""
    ref = ModelRef.parse(turn.model)
    return {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.id": turn.session.agent,
        "gen_ai.agent.name": name,
        "gen_ai.conversation.id": str(turn.session),
        "retinue.run.id": turn.run,
        **(_describe_model(ref) if ref else {}),
    }


def describe_end(finished: TurnFinished) -> SpanFacts:
    """Return the attributes of a turn at its end."""
    return {"retinue.turn.status": str(finished.status), **_describe_usage(finished.usage)}


def describe_request(request: ModelRequest, session: str) -> SpanFacts:
    """Return the attributes of a model call at its start."""
    limit: dict[str, Value] = {"gen_ai.request.max_tokens": request.max_output} if request.max_output else {}
    if request.temperature is not None:
        limit["gen_ai.request.temperature"] = request.temperature
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.conversation.id": session,
        "gen_ai.request.stream": True,
        **_describe_model(request.model),
        **limit,
    }


def describe_answer(message: AssistantMessage) -> SpanFacts:
    """Return the attributes of an answer, which a fallback model may have given."""
    ref = ModelRef.parse(message.model)
    return {
        "gen_ai.response.model": ref.model if ref else message.model,
        "gen_ai.response.finish_reasons": (FINISHES[message.stop],),
        **_describe_usage(message.usage),
    }


def describe_call(call: ToolCall) -> SpanFacts:
    """Return the attributes of a tool call at its start."""
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.name,
        "gen_ai.tool.call.id": call.id,
        "gen_ai.tool.type": "function",
    }


def _describe_model(ref: ModelRef) -> dict[str, Value]:
    return {
        "gen_ai.provider.name": PROVIDERS.get(ref.provider, ref.provider),
        "gen_ai.request.model": ref.model,
    }


def _describe_usage(usage: Usage) -> dict[str, Value]:
    return {
        "gen_ai.usage.input_tokens": usage.prompt,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
    }
