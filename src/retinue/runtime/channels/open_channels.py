"""Opening the channels of accounts with their settings; each is made once and again when its settings change."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from retinue.channels.channel import Channel, ChannelParts, DeliveryFailed, MenuCommand, ServiceChannel
from retinue.core.errors import ConfigError
from retinue.core.extension import ChannelExtension, Lazy
from retinue.dispatch.commands.table import COMMANDS
from retinue.plugins.containment import call_contained
from retinue.plugins.manifest import PluginError
from retinue.runtime.agents.chats import AccountSettings, find_account, max_media_bytes
from retinue.security.secrets import Secret, resolve_references
from retinue.settings import Settings
from retinue.structs.declare import to_plain
from retinue.structs.decode import DecodeError, decode
from retinue.structs.schema_validator import find_schema_faults

if TYPE_CHECKING:
    from collections.abc import Callable

    from retinue.runtime.home import Home
    from retinue.runtime.turns.sessions import Sessions

_SHARED_KEYS = ("token", "webhookUrl", "webhookSecret")
"""Keys of every account that many services have too, with a meaning of their own."""
AccountName = tuple[str, str]
SettingsFaults = tuple[tuple[tuple[str | int, ...], str], ...]


class OpenChannels:
    """The channels of the accounts that are in use."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._open: dict[AccountName, tuple[AccountSettings, Channel]] = {}
        self._lock = anyio.Lock()

    async def find(self, channel: str, account: str) -> Channel:
        """Return the channel of an account; raise `DeliveryFailed` or `ConfigError` if there is none."""
        found = find_account(self._sessions.home, channel, account)
        if found is None or found.extension is None:
            raise DeliveryFailed(f"channels.{channel} has no account '{account}' that is enabled.")
        async with self._lock:
            known = self._open.get((channel, account))
            if known is None or known[0] != found:
                await _close(known)
                made = await anyio.to_thread.run_sync(self._make, found.extension, found)
                known = self._open[channel, account] = found, made
        return known[1]

    async def close(self) -> None:
        """Close all channels."""
        opened, self._open = self._open, {}
        for known in opened.values():
            await _close(known)

    def _make(self, extension: ChannelExtension, found: AccountSettings) -> Channel:
        home = self._sessions.home
        try:
            return make_channel(home, found, self._sessions.shared.secrets.resolve)
        except PluginError as error:
            message = f"its channel '{extension.name}' cannot be opened for the account '{found.name}': {error}"
            home.registry.switch_off(extension.plugin, message)
            raise DeliveryFailed(f"The plugin '{extension.plugin}' failed: {message}.") from None


def make_channel(home: Home, found: AccountSettings, resolve: Callable[[Secret], str]) -> Channel:
    """Return the channel of an account, not connected yet.

    Raises `ConfigError` if its settings are not valid, and `PluginError` if its plugin fails.
    """
    extension = found.extension
    assert extension is not None
    parts = ChannelParts(
        extension.name,
        found.name,
        found.common,
        read_settings(extension, found, resolve),
        found.capabilities,
        max_media_bytes(found.channel, home.config.agents.defaults),
        _data_folder(home, extension, found),
        home.clock,
        resolve,
        _menu(home),
    )
    try:
        return call_contained(partial(_call_maker, extension, parts))
    except PluginError as error:
        if isinstance(error.__cause__, ConfigError):
            raise error.__cause__ from None
        raise


async def _close(known: tuple[AccountSettings, Channel] | None) -> None:
    if known is not None and isinstance(known[1], ServiceChannel):
        await known[1].close()


def _menu(home: Home) -> tuple[MenuCommand, ...]:
    """Return the commands for the menu of a service; none if the configuration switches them off."""
    if home.config.commands.native is False or not home.config.commands.text:
        return ()
    return tuple(MenuCommand(each.name, each.summary) for each in COMMANDS)


def read_settings(extension: ChannelExtension, found: AccountSettings, resolve: Callable[[Secret], str]) -> Any:
    """Return the channel's own keys as its plugin wants them; raise `ConfigError` if they are not valid."""
    keys = own_keys(found)
    if faults := find_settings_faults(extension, found):
        path, message = faults[0]
        where = ".".join(map(str, ("channels", extension.name, *path)))
        raise ConfigError(f"{where}: {message}. `retinue config validate` lists all problems.")
    if isinstance(extension.settings, Lazy):
        return decode(_settings_class(extension.settings), keys)
    return {name: resolve_references(value, resolve) for name, value in keys.items()}


def find_settings_faults(extension: ChannelExtension, found: AccountSettings) -> SettingsFaults:
    """Return what is wrong with a channel's own keys: the path of each value, and a message."""
    keys = own_keys(found)
    if isinstance(extension.settings, Lazy):
        try:
            decode(_settings_class(extension.settings), keys)
        except DecodeError as error:
            return tuple((fault.path, fault.message) for fault in error.faults)
        except PluginError as error:
            return (((), str(error)),)
        return ()
    if extension.settings is None:
        return ()
    shown = {name: resolve_references(value, lambda _: "(secret)") for name, value in keys.items()}
    return find_schema_faults(extension.settings, shown)


def own_keys(found: AccountSettings) -> Mapping[str, Any]:
    """Return the keys that only this kind of channel has, those of the account before those of the channel."""
    common = to_plain(found.common, only_set=True)
    shared = {name: common[name] for name in _SHARED_KEYS if name in common}
    return {**found.channel.other_keys, **shared, **found.common.other_keys}


def _settings_class(target: Lazy) -> type[Settings]:
    loaded = call_contained(target.load)
    if not isinstance(loaded, type) or not issubclass(loaded, Settings):
        raise PluginError(f"{target.target} is not a class of settings")
    return loaded


def _call_maker(extension: ChannelExtension, parts: ChannelParts) -> Channel:
    made = extension.make.load()(parts)
    if not callable(getattr(made, "send", None)) or not callable(getattr(made, "show_typing", None)):
        raise PluginError(f"{extension.make.target} did not return a channel")
    channel: Channel = made
    return channel


def _data_folder(home: Home, extension: ChannelExtension, found: AccountSettings) -> Path:
    return home.paths.path / "channel-data" / extension.name / found.name
