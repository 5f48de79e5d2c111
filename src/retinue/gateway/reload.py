"""Taking over a changed configuration while everything runs."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskGroup

from retinue.config.explain import plain_config
from retinue.config.keypath import Step, parse_path, spell_path
from retinue.config.keys import find_key
from retinue.config.schema import Config
from retinue.config.sections.gateway import GatewaySettings
from retinue.config.sources import Located
from retinue.gateway.gate import grounds_of
from retinue.runtime.home import Home, load_home
from retinue.runtime.reload import Retired, swap_configuration
from retinue.storage.files.file_info import Stamp, stamp_path
from retinue.wire.config import Changed
from retinue.wire.events import ConfigChanged
from retinue.wire.protocol import GATEWAY_STREAM, CloseCode
from retinue.workspace.trust import FILE_NAME as TRUSTED

if TYPE_CHECKING:
    from retinue.gateway.gateway import Gateway

log = logging.getLogger(__name__)

RETIRE_POLL_SECONDS = 5.0


class Reloader:
    """Reads the configuration again and swaps the runtime's parts. One that cannot be used changes nothing."""

    def __init__(self, gateway: Gateway, tasks: TaskGroup, restart: Callable[[str], None]) -> None:
        self._gateway = gateway
        self._tasks = tasks
        self._restart = restart
        self._lock = anyio.Lock()
        self._stamps = self._look()
        self._seen: tuple[dict[Path, Stamp], float] | None = None
        """Files that changed, as they were seen last, and since when they are as they are."""
        self.hash = self.file_hash()
        self.problems: tuple[str, ...] = tuple(map(str, self._home.loaded.problems))

    @property
    def _home(self) -> Home:
        return self._gateway.runtime.home

    def file_hash(self) -> str:
        """The hash of the configuration file as it is now; that of nothing where there is none."""
        with suppress(OSError):
            return hashlib.sha256(self._home.paths.config_file.read_bytes()).hexdigest()
        return hashlib.sha256(b"").hexdigest()

    async def apply(self) -> Changed:
        """Read the file and take over what it says; turns that run keep what they began with."""
        async with self._lock:
            self._stamps = self._look()
            before = self._home
            fresh = load_home(before.paths, environment=before.inherited, clock=before.clock)
            self.hash = self.file_hash()
            self.problems = tuple(map(str, fresh.loaded.problems))
            if fresh.loaded.errors:
                log.error("the configuration was not taken over: %s", "; ".join(self.problems))
                self._tell(applied=False, needs_restart=[])
                return Changed(hash=self.hash, changed=[], needs_restart=[], problems=list(self.problems))
            changed = sorted(changed_keys(before.config, fresh.config))
            waiting = [name for name in changed if needs_restart(name)]
            if changed or fresh.vouched != before.vouched:
                self._swap(fresh)
                log.info("a new configuration holds; changed: %s", ", ".join(changed) or "trusted workspaces")
            self._tell(applied=True, needs_restart=waiting)
        self._consider_restart(changed, waiting)
        return Changed(hash=self.hash, changed=changed, needs_restart=waiting, problems=list(self.problems))

    async def apply_for_agent(self) -> dict[str, Any]:
        """The same for an agent, whose turn goes on with what it began with."""
        return (await self.apply()).model_dump(by_alias=True)

    def _swap(self, fresh: Home) -> None:
        retired = swap_configuration(self._gateway.runtime, fresh)
        self._renew_gate(fresh.config.gateway)
        self._tasks.start_soon(_close_when_unused, retired)

    def _renew_gate(self, settings: GatewaySettings) -> None:
        """Let people in by the new rules, and throw out those whom only the old ones let in."""
        gate = self._gateway.gate
        before, gate.settings = gate.settings, settings
        for connection in self._gateway.connections.values():
            if grounds_of(connection.principal, before) != grounds_of(connection.principal, settings):
                connection.close(CloseCode.REVOKED, "the configuration changed who may come in")

    def _consider_restart(self, changed: list[str], waiting: list[str]) -> None:
        mode = self._home.config.gateway.reload.mode
        if (mode == "restart" and changed) or (mode == "hybrid" and waiting):
            self._restart(f"the configuration changed: {', '.join(waiting or changed)}")

    def _tell(self, *, applied: bool, needs_restart: list[str]) -> None:
        payload = ConfigChanged(
            applied=applied, hash=self.hash, needs_restart=needs_restart, problems=list(self.problems)
        )
        self._gateway.hub.publish(GATEWAY_STREAM, "config.changed", payload)

    async def notice_changes(self) -> None:
        """Apply the file if it, or one that it includes, is not the one that was read; called now and then."""
        settings = self._home.config.gateway.reload
        seen, now = self._look(), self._home.clock.monotonic()
        if settings.mode == "off" or seen == self._stamps:
            self._seen = None
            return
        if self._seen is None or self._seen[0] != seen:
            self._seen = seen, now
        if now - self._seen[1] >= settings.debounce_ms / 1000:
            await self.apply()

    def _look(self) -> dict[Path, Stamp]:
        loaded = self._home.loaded
        home = self._home.paths
        files = {home.config_file, home.path / TRUSTED, *_files_of(loaded.tree)}
        return {file: stamp_path(file) for file in files}


async def _close_when_unused(retired: Retired) -> None:
    while True:
        await anyio.sleep(RETIRE_POLL_SECONDS)
        if not retired.in_use:
            await retired.close()
            return


def changed_keys(before: Config, after: Config) -> set[str]:
    """The keys whose value is another one now."""
    old, new = dict(_leaves(plain_config(before))), dict(_leaves(plain_config(after)))
    return {spell_path(path) for path in old.keys() | new.keys() if old.get(path) != new.get(path)}


def needs_restart(name: str) -> bool:
    """Whether a key, or a section around it, takes effect only at a start."""
    path = parse_path(name)
    keys = (find_key(Config, path[: length + 1]) for length in range(len(path)))
    return any(key is not None and key.reload == "restart" for key in keys)


def _leaves(value: Any, path: tuple[Step, ...] = ()) -> Iterator[tuple[tuple[Step, ...], Any]]:
    if isinstance(value, dict) and value:
        for name, below in value.items():
            yield from _leaves(below, (*path, name))
    elif isinstance(value, list) and value:
        for index, below in enumerate(value):
            yield from _leaves(below, (*path, index))
    else:
        yield path, value


def _files_of(tree: Located) -> Iterator[Path]:
    yield tree.file
    below = tree.value
    if isinstance(below, dict):
        for child in below.values():
            yield from _files_of(child)
    elif isinstance(below, list):
        for child in below:
            yield from _files_of(child)
