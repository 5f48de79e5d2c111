"""Tool calls: prepare, authorise, execute, finish.

A call always ends in exactly one result. A refused, failing or crashing tool gives an error result that the model can
act on; a cancelled turn leaves an `interrupted` result behind.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio
from msgspec import Struct, field
from msgspec.structs import replace

from retinue.agent.ledger import Ledger
from retinue.agent.points import AFTER_TOOL, BEFORE_TOOL, CallAhead, CallDone
from retinue.core.approval import ApprovalRequest
from retinue.core.clock import Clock
from retinue.core.errors import ToolFailed
from retinue.core.events import Emit, ToolFinished, ToolProgress, ToolStarted
from retinue.core.messages import INVALID_ARGUMENTS, Text, ToolCall, ToolResult
from retinue.core.trust import least
from retinue.hooks.bus import Bus, Vetoed
from retinue.tools.commands import show_exactly
from retinue.tools.policy import Caller, Decision, Effect, Layers, decide
from retinue.tools.tool import Tool, ToolContext, ToolOutput
from retinue.tools.toolset import unwrap_call

log = logging.getLogger(__name__)

SAVE_GRACE_SECONDS = 5.0
INTERRUPTED = "The call was interrupted before it finished; its effects may be partial. Check before you repeat it."
SKIPPED = "Skipped: a new message arrived before this call began."


def _no_layers(model: str) -> Layers:
    """The policy of a bench that has none."""
    return Layers()


def _no_watch(call: ToolCall, decision: Decision) -> None:
    """Decisions that nobody keeps."""


class Workbench(Struct, frozen=True):
    """What calls need: the tools, the context they run in, and where their story is kept and told."""

    tools: Mapping[str, Tool[Any]]
    context: ToolContext
    ledger: Ledger
    emit: Emit
    clock: Clock
    cap: Callable[[str], str]
    """Shortens an over-long result to what the model's window can take."""
    bus: Bus = field(default_factory=Bus)
    layers: Callable[[str], Layers] = _no_layers
    """The policy for calls of a model; another one than planned may answer, and then its own rules hold."""
    watch: Callable[[ToolCall, Decision], None] = _no_watch
    """Hears every decision before it takes effect."""
    hide: Callable[[str], str] = str
    """Takes secrets out of what tools give back, before it is recorded, shown or sent to the model."""

    def tainted(self) -> Workbench:
        """The bench for a request that holds something from outside."""
        return replace(self, context=replace(self.context, tainted=True))


class _Prepared(Struct, frozen=True):
    call: ToolCall
    tool: Tool[Any]
    arguments: Any


async def run_calls(
    calls: Sequence[ToolCall], bench: Workbench, *, model: str, interrupted_by_message: Callable[[], bool]
) -> list[ToolResult]:
    """Run the calls of one answer of a model; neighbours that may run side by side do.

    Each result is recorded when it comes; they are returned in the order of the calls.
    """
    results: dict[int, ToolResult] = {}
    batch: list[tuple[int, _Prepared]] = []

    async def run_one(index: int, prepared: _Prepared) -> None:
        results[index] = await _execute(prepared, bench)

    async def run_batch() -> None:
        async with anyio.create_task_group() as group:
            for index, prepared in batch:
                group.start_soon(run_one, index, prepared)
        batch.clear()

    for index, call in enumerate(calls):
        if interrupted_by_message():
            await run_batch()
            results[index] = await _refuse(call, SKIPPED, bench)
            continue
        prepared = await _prepare(call, bench, model)
        if isinstance(prepared, str):
            results[index] = await _refuse(call, prepared, bench)
        elif prepared.tool.parallel:
            batch.append((index, prepared))
        else:
            await run_batch()
            await run_one(index, prepared)
    await run_batch()
    return [results[index] for index in range(len(calls))]


async def _prepare(call: ToolCall, bench: Workbench, model: str) -> _Prepared | str:
    """The call ready to run, or why it cannot; a `tool_call` is judged as the call inside it."""
    if INVALID_ARGUMENTS in call.arguments:
        return (
            f"The arguments of `{call.name}` were not valid JSON. Write them again: {call.arguments[INVALID_ARGUMENTS]}"
        )
    inner = unwrap_call(call)
    tool = bench.tools.get(inner.name)
    if tool is None:
        known = ", ".join(sorted(bench.tools)) or "none"
        return f"There is no tool `{inner.name}`. Available: {known}."
    decision = authorise(tool, bench.layers(model), bench.context)
    bench.watch(inner, decision)
    if decision.denied:
        return f"`{tool.name}` is not allowed: {decision.because}."
    try:
        ahead, _ = await bench.bus.fire(BEFORE_TOOL, CallAhead(bench.context.session, inner))
        arguments = tool.parse(ahead.call.arguments)
        if decision.effect is Effect.ASK and not tool.asks:
            await _consult(ahead.call, decision, bench.context)
        return _Prepared(call, tool, arguments)
    except (ToolFailed, Vetoed) as refusal:
        return str(refusal)


def authorise(tool: Tool[Any], layers: Layers, context: ToolContext) -> Decision:
    """Whether a tool may be called in a context, with what is only known now: who asked, and what was lifted."""
    caller = Caller(context.owner, context.elevated)
    return decide(tool.name, replace(layers, caller=caller), owner_only=tool.owner_only)


async def _consult(call: ToolCall, decision: Decision, context: ToolContext) -> None:
    arguments = json.dumps(dict(call.arguments), ensure_ascii=False, indent=2, default=str)
    request = ApprovalRequest(
        id=call.id,
        tool=call.name,
        title=f"Use the tool {call.name}",
        detail=f"Asked because {decision.because}.\n\n{show_exactly(arguments)}",
        agent=context.agent,
        session=context.session,
    )
    answer = await context.ask(request)
    if not answer.allowed:
        raise ToolFailed(f"`{call.name}` was not run: {answer.because}. (It needs approval: {decision.because}.)")


async def _execute(prepared: _Prepared, bench: Workbench) -> ToolResult:
    call = prepared.call

    async def report(text: str) -> None:
        await bench.emit(ToolProgress(call.id, bench.hide(text)))

    context = replace(bench.context, call_id=call.id, report=report)
    await bench.ledger.started(call)
    await bench.emit(ToolStarted(call))
    began = bench.clock.monotonic()
    try:
        output = await _run(prepared, context)
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + SAVE_GRACE_SECONDS):
            await bench.ledger.record(_error(call, INTERRUPTED))
        raise
    finished = _finish(call, output, bench)
    done, _ = await bench.bus.fire(AFTER_TOOL, CallDone(bench.context.session, call, finished))
    content = tuple(
        Text(_spell_out(bench.hide(part.text))) if isinstance(part, Text) else part for part in done.result.content
    )
    trust = least([finished.trust, done.result.trust])
    result = replace(done.result, call_id=call.id, tool=call.name, content=content, trust=trust)
    await bench.ledger.record(result)
    await bench.emit(ToolFinished(call, result, bench.clock.monotonic() - began))
    return result


async def _run(prepared: _Prepared, context: ToolContext) -> ToolOutput:
    try:
        return await prepared.tool.run(prepared.arguments, context)
    except ToolFailed as failure:
        return ToolOutput.of(str(failure), is_error=True)
    except Exception:  # border: a tool is foreign code
        log.exception("tool crashed: %s", prepared.tool.name)
        return ToolOutput.of(f"`{prepared.tool.name}` crashed; the error was logged.", is_error=True)


def _finish(call: ToolCall, output: ToolOutput, bench: Workbench) -> ToolResult:
    # Hidden before it is cut, or half a secret could be left at the cut.
    content = tuple(
        Text(bench.cap(bench.hide(part.text))) if isinstance(part, Text) else part for part in output.content
    )
    return ToolResult(call.id, call.name, content or (Text("(no output)"),), output.is_error, output.trust)


def _spell_out(text: str) -> str:
    """The text with half a surrogate pair, as a file's name may hold it, spelled out: no model can be sent one."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


async def _refuse(call: ToolCall, why: str, bench: Workbench) -> ToolResult:
    result = _error(call, why)
    await bench.ledger.record(result)
    await bench.emit(ToolFinished(call, result, 0.0))
    return result


def _error(call: ToolCall, text: str) -> ToolResult:
    return ToolResult(call.id, call.name, (Text(text),), is_error=True)
