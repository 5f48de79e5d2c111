"""The configuration, as an agent may read and change it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct

from retinue.config.agent_editable_keys import check_change
from retinue.config.edit import Change, change_values
from retinue.config.explain import effective_value, explain
from retinue.core.errors import ConfigError, UsageError
from retinue.core.keys import AgentId
from retinue.runtime.home import Home
from retinue.runtime.services import GatewayControl

LATER = "No gateway runs in this process; the change takes effect at the next start."


class ConfigTool(Struct, frozen=True):
    """The configuration of a home for agents; without a gateway in this process, changes are only written."""

    home: Home
    process: GatewayControl | None = None

    def get(self, key: str | None) -> dict[str, Any]:
        return {"value": effective_value(self.home.loaded, key), "hash": self._hash()}

    def schema(self, key: str) -> dict[str, Any]:
        return explain(self.home.loaded, key).as_dict()

    def check(self, changes: Mapping[str, Any], base_hash: str | None) -> None:
        for key, value in changes.items():
            check_change(key, value)
        if base_hash != self._hash():
            raise ConfigError("The configuration has changed since `get`. Call `get` again and use its hash.")

    async def patch(self, changes: Mapping[str, Any], base_hash: str | None, agent: AgentId) -> dict[str, Any]:
        self.check(changes, base_hash)
        wanted = [
            Change(key, None if value is None else json.dumps(value, ensure_ascii=False))
            for key, value in changes.items()
        ]
        home, environment = self.home.paths, self.home.environment
        edits = change_values(home, wanted, environment, who=f"agent {agent}")
        return {**await self.apply(), "changed": [edit.path for edit in edits if edit.changed]}

    async def apply(self) -> dict[str, Any]:
        if self.process is None:
            return {"hash": self._hash(), "note": LATER}
        return dict(await self.process.apply())

    async def restart(self, reason: str) -> dict[str, Any]:
        if self.process is None:
            raise UsageError("No gateway runs in this process, so there is nothing to restart.")
        self.process.restart(f"the agent asked for it: {reason[:200] or 'no reason given'}")
        return {"restarting": True, "note": "The gateway restarts when the turn has ended."}

    def _hash(self) -> str:
        with suppress(OSError):
            return hashlib.sha256(self.home.paths.config_file.read_bytes()).hexdigest()
        return hashlib.sha256(b"").hexdigest()
