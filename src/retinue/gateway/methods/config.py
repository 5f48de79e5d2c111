"""Read, describe and change the configuration."""

from __future__ import annotations

import json

import msgspec
from msgspec import UNSET

from retinue.config.edit import Change, change_values
from retinue.config.explain import effective_value, explain
from retinue.config.keypath import parse_path
from retinue.config.keys import require_key
from retinue.config.schema import Config
from retinue.core.errors import UsageError
from retinue.gateway.errors import RequestRefused
from retinue.gateway.gateway import Call
from retinue.gateway.methods.registry import MethodRegistry
from retinue.security.redaction import redact_data
from retinue.wire import codec
from retinue.wire import config as wire
from retinue.wire.frames import Nothing
from retinue.wire.protocol import ErrorCode

registry = MethodRegistry()


@registry.implements(wire.GET)
async def get(call: Call, params: wire.GetConfig) -> wire.ConfigValue:
    reloader = call.gateway.reloader
    home = call.runtime.home
    value = redact_data(effective_value(home.loaded, params.key), home.redactor)
    return wire.ConfigValue(value=value, hash=reloader.file_hash(), problems=list(reloader.problems))


@registry.implements(wire.SCHEMA)
async def explain_key(call: Call, params: wire.ExplainKey) -> wire.KeyFacts:
    home = call.runtime.home
    facts = redact_data(explain(home.loaded, params.key).as_dict(), home.redactor)
    described = codec.convert(facts, wire.KeyFacts)
    # The documentation of a key is public; its value belongs to the configuration, which only the owner may read.
    return described if call.principal.is_owner else msgspec.structs.replace(described, value=None, origin="")


@registry.implements(wire.PATCH)
async def patch(call: Call, params: wire.PatchConfig) -> wire.Changed:
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


@registry.implements(wire.APPLY)
async def apply(call: Call, params: Nothing) -> wire.Changed:
    return await call.gateway.reloader.apply()
