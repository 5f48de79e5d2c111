"""Sub-agents: list, start and end them."""

from __future__ import annotations

from datetime import timedelta

from retinue.core.envelope import Inbound
from retinue.dispatch.subagents import Child, SpawnOrder
from retinue.gateway.gateway import Call
from retinue.gateway.methods.registry import MethodRegistry
from retinue.security.untrusted_text import literal
from retinue.sessions.session import person_of
from retinue.toolkit.sessions import CallingSession
from retinue.wire import subagents as wire

registry = MethodRegistry()


@registry.implements(wire.LIST)
async def list_subagents(call: Call, params: wire.ListSubagents) -> wire.SubagentRows:
    store = call.gateway.background.subagents.store
    if params.session_key is None and params.agent is None:
        found = store.all(params.limit)
    else:
        found = store.of_parent(call.session(params.session_key, params.agent))[: params.limit]
    return wire.SubagentRows([_row(call, child) for child in found])


@registry.implements(wire.START)
async def start_subagent(call: Call, params: wire.StartSubagent) -> wire.StartedSubagent:
    principal, parent = call.principal, call.session(params.session_key, params.agent)
    order = SpawnOrder(
        task=params.task,
        label=literal(params.label, 60),
        agent=call.runtime.home.agent_id(params.target) if params.target else None,
        model=params.model,
        timeout=timedelta(seconds=params.timeout_seconds) if params.timeout_seconds else None,
    )
    session = call.runtime.agent(parent.agent).store.peek(parent)
    asked = Inbound(params.task, parent, sender=principal.sender, owner=principal.is_owner)
    # What another program than the owner's writes is untrusted for whoever works on it.
    caller = CallingSession(parent, principal.is_owner, not principal.is_owner, person_of(session, asked))
    spawned = await call.gateway.background.subagents.spawn(order, caller)
    return wire.StartedSubagent(_row(call, spawned.child), list(spawned.notes))


@registry.implements(wire.CANCEL)
async def cancel_subagent(call: Call, params: wire.OfSubagent) -> wire.CancelledSubagent:
    subagents = call.gateway.background.subagents
    child = subagents.store.get(params.run_id)
    return wire.CancelledSubagent(child.run, subagents.cancel(child))


def _row(call: Call, child: Child) -> wire.SubagentRow:
    hide = call.runtime.shared.tools.hide
    return wire.SubagentRow(
        run_id=child.run,
        session_key=child.session.text,
        parent=child.parent.text,
        label=child.label,
        task=hide(child.task),
        state=child.standing,
        asked_at=child.asked_at,
        started_at=child.started_at,
        ended_at=child.ended_at,
        text=hide(child.text),
        untrusted=child.foreign,
    )
