"""The state of the gateway, its audit log and its configuration."""

from __future__ import annotations

import json
import os
from collections import deque

import anyio
import msgspec
from msgspec import UNSET

from retinue import __version__
from retinue.audit.summary import describe_read_only
from retinue.config.edit import Change, change_values
from retinue.config.explain import effective_value, explain
from retinue.config.keypath import parse_path
from retinue.config.keys import require_key, search_keys
from retinue.config.schema import Config
from retinue.core.errors import UsageError
from retinue.gateway.errors import RequestRefused
from retinue.gateway.gateway import Call
from retinue.gateway.methods.registry import MethodRegistry
from retinue.gateway.metrics import memory_megabytes
from retinue.security.redaction import redact_data
from retinue.storage.database import read_reports
from retinue.wire import codec
from retinue.wire import system as wire
from retinue.wire.frames import Nothing
from retinue.wire.protocol import ErrorCode

registry = MethodRegistry()


@registry.implements(wire.HEALTH)
async def health(call: Call, params: Nothing) -> wire.Health:
    return wire.Health(call.gateway.state.ready, call.gateway.state.draining)


@registry.implements(wire.STATUS)
async def status(call: Call, params: Nothing) -> wire.Status:
    gateway, state = call.gateway, call.gateway.state
    home, problem = gateway.runtime.home, gateway.runtime.read_only_because
    return wire.Status(
        version=__version__,
        pid=os.getpid(),
        epoch=gateway.hub.epoch,
        started_at=state.started_at,
        uptime_seconds=(home.clock.now() - state.started_at).total_seconds(),
        home=str(home.paths.path),
        address=state.address,
        connections=len(gateway.connections),
        turns_running=gateway.runtime.services.lanes.running,
        turns_waiting=gateway.runtime.services.lanes.waiting,
        sessions_active=gateway.runtime.dispatcher.active,
        memory_mb=memory_megabytes(),
        config_hash=gateway.reloader.hash,
        config_problems=list(gateway.reloader.problems),
        draining=state.draining,
        reports=tuple(text for path in gateway.runtime.home.state_files[:1] for text in read_reports(path).values()),
        read_only=describe_read_only(problem, home.paths) if problem else "",
    )


@registry.implements(wire.AUDIT_LOG)
async def read_audit(call: Call, params: wire.ReadAudit) -> wire.AuditLines:
    log = call.runtime.home.audit

    def read() -> wire.AuditLines:
        wanted = (entry for entry in log.entries() if params.kind in (None, entry.get("kind")))
        damage = [str(each) for each in log.verify()]
        return wire.AuditLines(entries=list(deque(wanted, maxlen=params.limit)), damage=damage)

    return await anyio.to_thread.run_sync(read)


@registry.implements(wire.CONFIG_GET)
async def get_config(call: Call, params: wire.GetConfig) -> wire.ConfigValue:
    reloader = call.gateway.reloader
    home = call.runtime.home
    value = redact_data(effective_value(home.loaded, params.key), home.redactor)
    return wire.ConfigValue(value=value, hash=reloader.file_hash(), problems=list(reloader.problems))


@registry.implements(wire.CONFIG_SCHEMA)
async def explain_key(call: Call, params: wire.ExplainKey) -> wire.KeyFacts:
    home = call.runtime.home
    facts = redact_data(explain(home.loaded, params.key).as_dict(), home.redactor)
    described = codec.convert(facts, wire.KeyFacts)
    # The documentation of a key is public; its value belongs to the configuration, which only the owner may read.
    return described if call.principal.is_owner else msgspec.structs.replace(described, value=None, origin="")


@registry.implements(wire.CONFIG_FIND)
async def find_keys(call: Call, params: wire.FindKeys) -> wire.FoundKeys:
    found = await anyio.to_thread.run_sync(search_keys, Config, params.query)
    return wire.FoundKeys([wire.FoundKey(key, documentation) for key, documentation in found[: params.limit]])


@registry.implements(wire.CONFIG_PATCH)
async def patch_config(call: Call, params: wire.PatchConfig) -> wire.Changed:
    home, reloader = call.runtime.home, call.gateway.reloader
    if reloader.file_hash() != params.base_hash:
        raise RequestRefused(
            ErrorCode.CONFLICT, "The configuration was changed by another program. Read it again with config.get."
        )
    for change in params.changes:
        require_key(Config, parse_path(change.key))
        if not change.unset and change.value is UNSET:
            raise UsageError(f"{change.key} has no value. Add `value` or `unset`.")
    changes = [
        Change(each.key, None if each.unset else json.dumps(each.value, ensure_ascii=False)) for each in params.changes
    ]
    edits = change_values(home.paths, changes, home.environment, who=call.principal.audited_as)
    applied = await reloader.apply()
    return msgspec.structs.replace(applied, changed=[edit.path for edit in edits if edit.changed])


@registry.implements(wire.CONFIG_APPLY)
async def apply_config(call: Call, params: Nothing) -> wire.Changed:
    return await call.gateway.reloader.apply()
