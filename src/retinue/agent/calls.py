"""Tool calls: prepare, authorise, execute, finish; and the hook points before and after each call.

Each call has exactly one result. A refused, failing or crashing tool gives an error result that the model can act on;
a cancelled turn records an `interrupted` result.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import anyio
from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.approval import ApprovalRequest
from retinue.core.clock import Clock
from retinue.core.errors import ToolFailed
from retinue.core.events import Emit, ToolFinished, ToolProgress, ToolStarted
from retinue.core.keys import SessionKey
from retinue.core.labels import mix
from retinue.core.messages import INVALID_ARGUMENTS, Message, Text, ToolCall, ToolResult, label_of_all
from retinue.core.sinks import Sink
from retinue.core.text import escape_surrogates
from retinue.hooks import HookBus, HookPoint, Vetoed
from retinue.tools.policy import Caller, Effect, Layers, ToolDecision, decide_tool
from retinue.tools.shell.explanation import show_compactly
from retinue.tools.sinks import SinkQuestion, require_approval, texts_in
from retinue.tools.tool import Tool, ToolContext, ToolOutput
from retinue.tools.toolset import unwrap_call

log = logging.getLogger(__name__)

SAVE_GRACE_SECONDS = 5.0
INTERRUPTED = "The call was interrupted before it finished; its effects may be partial. Check before you repeat it."
SKIPPED = "Skipped: a new message arrived before this call began."


class ToolCallPending(Struct, frozen=True):
    """A tool is about to run; a subscriber may return other arguments or veto the call."""

    session: SessionKey
    call: ToolCall
    session_id: str = ""
    workspace: str = ""


class ToolCallDone(Struct, frozen=True):
    """A tool has run; a subscriber may return another result."""

    session: SessionKey
    call: ToolCall
    result: ToolResult
    session_id: str = ""
    workspace: str = ""


BEFORE_TOOL = HookPoint[ToolCallPending]("before_tool_call", fails_closed=True)
AFTER_TOOL = HookPoint[ToolCallDone]("after_tool_call")


class TranscriptWriter(Protocol):
    """Writes the transcript of a turn. When a method returns, the record is durable."""

    async def record(self, message: Message) -> None:
        """Record a complete message."""
        ...

    async def started(self, call: ToolCall) -> None:
        """Record that a tool call is about to take effect."""
        ...


class CallEnvironment(Struct, frozen=True):
    """The dependencies of tool calls: the tools, their context, the transcript, and the receiver of events."""

    tools: Mapping[str, Tool[Any]]
    context: ToolContext
    transcript: TranscriptWriter
    emit: Emit
    clock: Clock
    cap: Callable[[str], str]
    """Shortens a long result to fit the model's context window."""
    bus: HookBus = field(default_factory=HookBus)
    layers: Callable[[str], Layers] = lambda model: Layers()
    """The policy for calls of a model: a fallback model may answer, to which its own rules apply."""
    watch: Callable[[ToolCall, ToolDecision], None] = lambda call, decision: None
    """Called with every decision before it takes effect."""
    hide: Callable[[str], str] = str
    """Removes secrets from tool results before they are recorded, shown or sent to the model."""

    def for_request(self, messages: Sequence[Message]) -> CallEnvironment:
        """Return the environment for the calls of an answer, the last of these messages.

        The label is that of what the model had read when it made the calls, so without their results.
        """
        label = mix((self.context.label, label_of_all(messages)))
        return replace(self, context=replace(self.context, label=label, request=tuple(messages)))


class _Prepared(Struct, frozen=True):
    call: ToolCall
    tool: Tool[Any]
    arguments: Any


async def run_calls(
    calls: Sequence[ToolCall], environment: CallEnvironment, *, model: str, interrupted_by_message: Callable[[], bool]
) -> list[ToolResult]:
    """Run the calls of one model answer; adjacent calls of parallel tools run concurrently.

    Each result is recorded when it is ready. The results are returned in the order of the calls.
    """
    results: dict[int, ToolResult] = {}
    batch: list[tuple[int, _Prepared]] = []

    async def run_one(index: int, prepared: _Prepared) -> None:
        results[index] = await _execute(prepared, environment)

    async def run_batch() -> None:
        async with anyio.create_task_group() as group:
            for index, prepared in batch:
                group.start_soon(run_one, index, prepared)
        batch.clear()

    for index, call in enumerate(calls):
        if interrupted_by_message():
            await run_batch()
            results[index] = await _refuse(call, SKIPPED, environment)
            continue
        prepared = await _prepare(call, environment, model)
        if isinstance(prepared, str):
            results[index] = await _refuse(call, prepared, environment)
        elif prepared.tool.parallel:
            batch.append((index, prepared))
        else:
            await run_batch()
            await run_one(index, prepared)
    await run_batch()
    return [results[index] for index in range(len(calls))]


async def _prepare(call: ToolCall, environment: CallEnvironment, model: str) -> _Prepared | str:
    """Return the call ready to run, or why it cannot run; a `tool_call` is judged as the call inside it."""
    if INVALID_ARGUMENTS in call.arguments:
        return (
            f"The arguments of `{call.name}` were not valid JSON. Send them again: {call.arguments[INVALID_ARGUMENTS]}"
        )
    inner = unwrap_call(call)
    tool = environment.tools.get(inner.name)
    if tool is None:
        known = ", ".join(sorted(environment.tools)) or "none"
        return f"There is no tool `{inner.name}`. Available: {known}."
    decision = authorise(tool, environment.layers(model), environment.context)
    environment.watch(inner, decision)
    if decision.denied:
        return f"`{tool.name}` is not allowed: {decision.because}."
    try:
        ahead, _ = await environment.bus.fire(
            BEFORE_TOOL, ToolCallPending(environment.context.session, inner, *_where(environment.context))
        )
        arguments = tool.parse(ahead.call.arguments)
        if decision.effect is Effect.ASK and not tool.asks:
            await _ask_approval(ahead.call, decision, environment.context)
        elif tool.plugin and not tool.read_only and environment.context.asks_at(Sink.PLUGIN_TOOLS):
            await _ask_about_plugin(ahead.call, tool, environment.context)
        return _Prepared(call, tool, arguments)
    except (ToolFailed, Vetoed) as refusal:
        return str(refusal)


def authorise(tool: Tool[Any], layers: Layers, context: ToolContext) -> ToolDecision:
    """Decide whether a tool may be called in a context, including the layers that depend on the caller."""
    caller = Caller(context.owner, context.elevated, context.unattended)
    return decide_tool(tool.name, replace(layers, caller=caller), owner_only=tool.owner_only)


def _where(context: ToolContext) -> tuple[str, str]:
    """Return the session id and the workspace, as hook events have them."""
    return context.session_id, str(context.workspace.path)


async def _ask_approval(call: ToolCall, decision: ToolDecision, context: ToolContext) -> None:
    arguments = json.dumps(dict(call.arguments), ensure_ascii=False, indent=2, default=str)
    request = ApprovalRequest(
        id=call.id,
        tool=call.name,
        title=f"Use the tool {call.name}",
        detail=show_compactly(arguments),
        agent=context.agent,
        session=context.session,
        explanation=(f"Asked because {decision.because}.",),
    )
    answer = await context.ask(request)
    if not answer.allowed:
        raise ToolFailed(f"`{call.name}` was not run: {answer.because}. (It needs approval: {decision.because}.)")


async def _ask_about_plugin(call: ToolCall, tool: Tool[Any], context: ToolContext) -> None:
    """Ask before a tainted request calls a tool of a plugin that may have effects; raise `ToolFailed` if refused."""
    arguments = json.dumps(dict(call.arguments), ensure_ascii=False, indent=2, default=str)
    title = f"Use the tool {call.name} of the plugin {tool.plugin}, which may change or send something"
    clues = tuple(texts_in(call.arguments))
    question = SinkQuestion(Sink.PLUGIN_TOOLS, call.name, title, arguments, clues=clues)
    await require_approval(question, replace(context, call_id=call.id))


async def _execute(prepared: _Prepared, environment: CallEnvironment) -> ToolResult:
    call = prepared.call

    async def report(text: str) -> None:
        await environment.emit(ToolProgress(call.id, environment.hide(text)))

    context = replace(environment.context, call_id=call.id, report=report)
    await environment.transcript.started(call)
    await environment.emit(ToolStarted(call))
    began = environment.clock.monotonic()
    try:
        output = await _run_tool(prepared, context)
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + SAVE_GRACE_SECONDS):
            await environment.transcript.record(_error(call, INTERRUPTED))
        raise
    # Secrets are removed before the text is shortened, or half a secret could remain at the cut.
    shortened = tuple(
        Text(environment.cap(environment.hide(part.text))) if isinstance(part, Text) else part
        for part in output.content
    )
    finished = ToolResult(call.id, call.name, shortened or (Text("(no output)"),), output.is_error, output.label)
    done, _ = await environment.bus.fire(
        AFTER_TOOL, ToolCallDone(environment.context.session, call, finished, *_where(environment.context))
    )
    content = tuple(
        Text(escape_surrogates(environment.hide(part.text))) if isinstance(part, Text) else part
        for part in done.result.content
    )
    label = mix([finished.label, done.result.label])
    result = replace(done.result, call_id=call.id, tool=call.name, content=content, label=label)
    await environment.transcript.record(result)
    await environment.emit(ToolFinished(call, result, environment.clock.monotonic() - began))
    return result


async def _run_tool(prepared: _Prepared, context: ToolContext) -> ToolOutput:
    try:
        return await prepared.tool.run(prepared.arguments, context)
    except ToolFailed as failure:
        return ToolOutput.of(str(failure), is_error=True)
    except Exception:  # boundary: a tool may raise anything
        log.exception("tool crashed: %s", prepared.tool.name)
        return ToolOutput.of(f"`{prepared.tool.name}` crashed; the error was logged.", is_error=True)


async def _refuse(call: ToolCall, why: str, environment: CallEnvironment) -> ToolResult:
    result = _error(call, why)
    await environment.transcript.record(result)
    await environment.emit(ToolFinished(call, result, 0.0))
    return result


def _error(call: ToolCall, text: str) -> ToolResult:
    return ToolResult(call.id, call.name, (Text(text),), is_error=True)
