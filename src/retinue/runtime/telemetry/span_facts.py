"""The attributes of spans for turns, model calls and tool calls, by the GenAI conventions.

Only names, counts and outcomes: a trace contains no text of messages, files or tool arguments.
"""

from __future__ import annotations

from collections.abc import Mapping

from retinue.agent.loop import Turn
from retinue.core.events import TurnFinished
from retinue.core.messages import AssistantMessage, StopReason, ToolCall, Usage
from retinue.core.model import ModelRef, ModelRequest

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
