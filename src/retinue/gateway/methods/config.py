"""The configuration: reading, explaining and changing it."""

from __future__ import annotations

import json

from retinue.config.edit import set_value, unset_value
from retinue.config.explain import effective_value, explain
from retinue.config.keypath import parse_path
from retinue.config.keys import require_key
from retinue.config.schema import Config
from retinue.core.errors import UsageError
from retinue.gateway.gate import Refused
from retinue.gateway.gateway import Call
from retinue.gateway.registry import Registry
from retinue.security.redaction import redact_data
from retinue.wire import config as wire
from retinue.wire.frames import Nothing
from retinue.wire.protocol import ErrorCode

registry = Registry()


@registry.carries_out(wire.GET)
async def get(call: Call, params: wire.GetConfig) -> wire.ConfigValue:
    reloader = call.gateway.reloader
    foundation = call.runtime.foundation
    value = redact_data(effective_value(foundation.loaded, params.key), foundation.redactor)
    return wire.ConfigValue(value=value, hash=reloader.file_hash(), problems=list(reloader.problems))


@registry.carries_out(wire.SCHEMA)
async def explain_key(call: Call, params: wire.ExplainKey) -> wire.KeyFacts:
    foundation = call.runtime.foundation
    facts = redact_data(explain(foundation.loaded, params.key).as_dict(), foundation.redactor)
    return wire.KeyFacts.model_validate(facts)


@registry.carries_out(wire.PATCH)
async def patch(call: Call, params: wire.PatchConfig) -> wire.Changed:
    foundation, reloader = call.runtime.foundation, call.gateway.reloader
    if reloader.file_hash() != params.base_hash:
        raise Refused(
            ErrorCode.CONFLICT, "The configuration was changed by somebody else. Read it again with config.get."
        )
    for change in params.changes:
        require_key(Config, parse_path(change.key))
        if not change.unset and "value" not in change.model_fields_set:
            raise UsageError(f"{change.key} has no value. Give one, or `unset`.")
    done = []
    who = f"gateway:{call.principal.name} ({call.principal.token_id})"
    for change in params.changes:
        if change.unset:
            edited = unset_value(foundation.home, change.key, foundation.environment, who=who)
        else:
            text = json.dumps(change.value, ensure_ascii=False)
            edited = set_value(foundation.home, change.key, text, foundation.environment, who=who)
        done += [edited.path] if edited.changed else []
    applied = await reloader.apply()
    return applied.model_copy(update={"changed": done})


@registry.carries_out(wire.APPLY)
async def apply(call: Call, params: Nothing) -> wire.Changed:
    return await call.gateway.reloader.apply()
