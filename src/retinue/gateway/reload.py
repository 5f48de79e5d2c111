"""Apply a changed configuration at run time."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup

from retinue.config.explain import plain_config
from retinue.config.keypath import Step, format_key_path, parse_path
from retinue.config.keys import find_key
from retinue.config.schema import Config
from retinue.config.sources import Located
from retinue.gateway.auth.authenticator import Authenticator, auth_settings_of
from retinue.gateway.connection import Connections
from retinue.gateway.event_hub import EventHub
from retinue.runtime.home import Home, load_home
from retinue.runtime.open import ReplacedServices, Runtime, swap_configuration
from retinue.storage.files.file_info import Stamp, stamp_path
from retinue.wire import codec
from retinue.wire.frames import ConfigChanged
from retinue.wire.protocol import GATEWAY_STREAM
from retinue.wire.system import Changed
from retinue.workspace.state import TRUST_FILE as TRUSTED

log = logging.getLogger(__name__)

RETIRE_POLL_SECONDS = 5.0


class Reloader:
    """Reads the configuration again and replaces the runtime's parts. An invalid configuration changes nothing."""

    def __init__(
        self,
        runtime: Runtime,
        auth: Authenticator,
        connections: Connections,
        hub: EventHub,
        tasks: TaskGroup,
        restart: Callable[[str], None],
    ) -> None:
        self._runtime = runtime
        self._auth = auth
        self._connections = connections
        self._hub = hub
        self._tasks = tasks
        self._restart = restart
        self._lock = anyio.Lock()
        self._stamps = self._stamp_files()
        self._seen: tuple[dict[Path, Stamp], float] | None = None
        """The stamps of changed files as last seen, and since when they have them."""
        self.hash = self.file_hash()
        self.problems: tuple[str, ...] = tuple(map(str, self._home.loaded.problems))

    @property
    def _home(self) -> Home:
        return self._runtime.home

    def file_hash(self) -> str:
        """The hash of the configuration file now; the hash of an empty file if there is none."""
        with suppress(OSError):
            return hashlib.sha256(self._home.paths.config_file.read_bytes()).hexdigest()
        return hashlib.sha256(b"").hexdigest()

    async def apply(self) -> Changed:
        """Read the file and apply it; running turns keep the configuration they started with."""
        async with self._lock:
            self._stamps = self._stamp_files()
            before = self._home
            fresh = load_home(before.paths, environment=before.inherited, clock=before.clock)
            self.hash = self.file_hash()
            self.problems = tuple(map(str, fresh.loaded.problems))
            if fresh.loaded.errors:
                log.error("the configuration was not applied: %s", "; ".join(self.problems))
                self._publish(applied=False, needs_restart=[])
                return Changed(hash=self.hash, changed=[], needs_restart=[], problems=list(self.problems))
            changed = sorted(changed_keys(before.config, fresh.config))
            waiting = [name for name in changed if needs_restart(name)]
            if changed or fresh.trusted_workspaces != before.trusted_workspaces:
                self._swap(fresh)
                log.info("a new configuration was applied; changed: %s", ", ".join(changed) or "trusted workspaces")
            self._publish(applied=True, needs_restart=waiting)
        mode = self._home.config.gateway.reload.mode
        if (mode == "restart" and changed) or (mode == "hybrid" and waiting):
            self._restart(f"the configuration changed: {', '.join(waiting or changed)}")
        return Changed(hash=self.hash, changed=changed, needs_restart=waiting, problems=list(self.problems))

    async def apply_for_agent(self) -> dict[str, Any]:
        """The same for an agent; its turn continues with the configuration it started with."""
        return codec.to_plain(await self.apply())

    def _swap(self, fresh: Home) -> None:
        """Replace the configuration, and close connections that only the old authentication settings allowed."""
        retired = swap_configuration(self._runtime, fresh)
        before, after = self._auth.settings, fresh.config.gateway
        self._auth.settings = after
        self._connections.close_if(
            lambda principal: auth_settings_of(principal, before) != auth_settings_of(principal, after),
            "the authentication settings changed",
        )
        self._tasks.start_soon(_close_when_unused, retired)

    def _publish(self, *, applied: bool, needs_restart: list[str]) -> None:
        payload = ConfigChanged(
            applied=applied, hash=self.hash, needs_restart=needs_restart, problems=list(self.problems)
        )
        self._hub.publish(GATEWAY_STREAM, "config.changed", payload)

    async def apply_if_changed(self) -> None:
        """Apply the file if it or an included file has changed since it was read; called periodically."""
        settings = self._home.config.gateway.reload
        seen, now = self._stamp_files(), self._home.clock.monotonic()
        if settings.mode == "off" or seen == self._stamps:
            self._seen = None
            return
        if self._seen is None or self._seen[0] != seen:
            self._seen = seen, now
        if now - self._seen[1] >= settings.debounce_ms / 1000:
            await self.apply()

    def _stamp_files(self) -> dict[Path, Stamp]:
        loaded = self._home.loaded
        home = self._home.paths
        files = {home.config_file, home.path / TRUSTED, *_files_of(loaded.tree)}
        return {file: stamp_path(file) for file in files}


async def _close_when_unused(retired: ReplacedServices) -> None:
    while True:
        await anyio.sleep(RETIRE_POLL_SECONDS)
        if not retired.in_use:
            await retired.close()
            return


def changed_keys(before: Config, after: Config) -> set[str]:
    """The keys whose values differ."""
    old, new = dict(_leaves(plain_config(before))), dict(_leaves(plain_config(after)))
    return {format_key_path(path) for path in old.keys() | new.keys() if old.get(path) != new.get(path)}


def needs_restart(name: str) -> bool:
    """Whether a key, or a section around it, takes effect only after a restart."""
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
