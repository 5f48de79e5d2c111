"""The configuration: reading, explaining and changing it."""

from __future__ import annotations

import json

from retinue.config.edit import Change, change_values
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
    home = call.runtime.home
    value = redact_data(effective_value(home.loaded, params.key), home.redactor)
    return wire.ConfigValue(value=value, hash=reloader.file_hash(), problems=list(reloader.problems))


@registry.carries_out(wire.SCHEMA)
async def explain_key(call: Call, params: wire.ExplainKey) -> wire.KeyFacts:
    home = call.runtime.home
    facts = redact_data(explain(home.loaded, params.key).as_dict(), home.redactor)
    told = wire.KeyFacts.model_validate(facts)
    # What a key means anybody may know; what somebody set it to is the configuration, which `config.get` has.
    return told if call.principal.is_owner else told.model_copy(update={"value": None, "origin": ""})


@registry.carries_out(wire.PATCH)
async def patch(call: Call, params: wire.PatchConfig) -> wire.Changed:
    home, reloader = call.runtime.home, call.gateway.reloader
    if reloader.file_hash() != params.base_hash:
        raise Refused(
            ErrorCode.CONFLICT, "The configuration was changed by somebody else. Read it again with config.get."
        )
    for change in params.changes:
        require_key(Config, parse_path(change.key))
        if not change.unset and "value" not in change.model_fields_set:
            raise UsageError(f"{change.key} has no value. Give one, or `unset`.")
    changes = [Change(each.key, None if each.unset else _spell(each.value)) for each in params.changes]
    edits = change_values(home.paths, changes, home.environment, who=call.principal.audited_as)
    applied = await reloader.apply()
    return applied.model_copy(update={"changed": [edit.path for edit in edits if edit.changed]})


def _spell(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


@registry.carries_out(wire.APPLY)
async def apply(call: Call, params: Nothing) -> wire.Changed:
    return await call.gateway.reloader.apply()
