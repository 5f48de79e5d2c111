"""Sub-agents: list, start and end them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from retinue.core.envelope import Inbound
from retinue.dispatch.subagents import Child, SpawnOrder, describe_child
from retinue.gateway.gateway import Call
from retinue.gateway.methods.registry import MethodRegistry
from retinue.security.untrusted_text import literal
from retinue.sessions.session import person_of
from retinue.toolkit.sessions import CallingSession
from retinue.wire import subagents as wire

registry = MethodRegistry()


@registry.implements(wire.LIST)
async def list_subagents(call: Call, params: wire.ListSubagents) -> wire.SubagentList:
    store = call.gateway.background.subagents.store
    if params.session_key is None and params.agent is None:
        found = store.all(params.limit)
    else:
        found = store.of_parent(call.session(params.session_key, params.agent))[: params.limit]
    return wire.SubagentList([_row(call, child) for child in found])


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


@registry.implements(wire.GET)
async def get_subagent(call: Call, params: wire.OfSubagent) -> wire.OneSubagent:
    return wire.OneSubagent(_row(call, call.gateway.background.subagents.store.get(params.run_id)))


@registry.implements(wire.CANCEL)
async def cancel_subagent(call: Call, params: wire.OfSubagent) -> wire.CancelledSubagent:
    subagents = call.gateway.background.subagents
    cancelled = subagents.cancel(subagents.store.get(params.run_id))
    return wire.CancelledSubagent(_row(call, subagents.store.get(params.run_id)), cancelled)


def _row(call: Call, child: Child) -> dict[str, Any]:
    hide = call.runtime.shared.tools.hide
    return describe_child(child) | {"task": hide(child.task), "text": hide(child.text)}
