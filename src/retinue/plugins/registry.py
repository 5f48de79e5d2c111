"""What the plugins registered, and which of them were asked."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import pluggy
from msgspec import Struct, field

from retinue.config.sections.gateway import PluginEntry, PluginsSettings
from retinue.core.extension import EngineFactory, HookSpec, Lazy, ProviderFactory, SkillRoot, ToolFactory
from retinue.plugins import builtin
from retinue.plugins.discovery import Candidate, PluginError, find_plugins
from retinue.plugins.hookspecs import NAME, Hooks

log = logging.getLogger(__name__)

T = TypeVar("T")


class DoublyRegistered(PluginError):
    """Two plugins registered the same name."""


class PluginState(StrEnum):
    """What became of a plugin."""

    ON = "on"
    OFF = "off"
    FAILED = "failed"


class PluginFacts(Struct, frozen=True):
    """A plugin that was found: where it comes from, what became of it, and why."""

    name: str
    origin: str
    state: PluginState
    because: str = ""
    brings: tuple[str, ...] = ()
    """What it registered, in words."""


class Registry(Struct):
    """Everything that can be used, by name."""

    tools: dict[str, ToolFactory] = field(default_factory=dict)
    providers: dict[str, ProviderFactory] = field(default_factory=dict)
    skill_roots: list[SkillRoot] = field(default_factory=list)
    hooks: list[HookSpec] = field(default_factory=list)
    engines: dict[str, EngineFactory] = field(default_factory=dict)
    plugins: list[PluginFacts] = field(default_factory=list)
    """Every plugin that was found, in the order in which they were asked."""

    def take_over(self, added: Registry) -> None:
        """Add what one plugin registered, all of it or nothing."""
        for mine, theirs in (
            (self.tools, added.tools),
            (self.providers, added.providers),
            (self.engines, added.engines),
        ):
            for name in theirs:
                if name in mine:
                    raise DoublyRegistered(f"it registers '{name}', which exists already")
        self.tools |= added.tools
        self.providers |= added.providers
        self.engines |= added.engines
        self.skill_roots += added.skill_roots
        self.hooks += added.hooks

    def list_names(self) -> tuple[str, ...]:
        """Everything that is registered, in words."""
        return (
            *(f"tools {family}" for family in self.tools),
            *(f"provider {api}" for api in self.providers),
            *(f"skills {root.path}" for root in self.skill_roots),
            *(f"hook {spec.hook}" for spec in self.hooks),
            *(f"context engine {engine}" for engine in self.engines),
        )

    @property
    def problems(self) -> tuple[str, ...]:
        """Why plugins that should be used are not, in sentences."""
        failed = (plugin for plugin in self.plugins if plugin.state is PluginState.FAILED)
        return tuple(f"Plugin '{plugin.name}' could not be loaded: {plugin.because}" for plugin in failed)


class _PluginRegistrar(Struct, frozen=True):
    """A registry as one plugin sees it: what it adds carries the plugin's name."""

    registry: Registry
    plugin: str
    config: Mapping[str, Any] = field(default_factory=dict)

    def tools(self, factory: ToolFactory) -> None:
        self._add(self.registry.tools, factory.family, factory)

    def provider(self, factory: ProviderFactory) -> None:
        self._add(self.registry.providers, factory.api, factory)

    def skills(self, path: Path) -> None:
        self.registry.skill_roots.append(SkillRoot(path, self.plugin))

    def hook(self, name: str, handler: Lazy, *, priority: int = 0) -> None:
        self.registry.hooks.append(HookSpec(name, self.plugin, handler, priority))

    def context_engine(self, factory: EngineFactory) -> None:
        self._add(self.registry.engines, factory.id, factory)

    def _add(self, table: dict[str, T], name: str, value: T) -> None:
        if name in table:
            raise DoublyRegistered(f"it registers '{name}' twice")
        table[name] = value


def load_registry(settings: PluginsSettings, paths: Iterable[Path] = ()) -> Registry:
    """Ask the built-in plugin, then every one that the owner lets in; a failing plugin is told and the others load."""
    registry = Registry()
    builtin.retinue_register(_PluginRegistrar(registry, "retinue"))
    if not settings.enabled:
        return registry
    origins: dict[str, str] = {}
    for found in find_plugins(paths):
        first = origins.setdefault(found.name, found.origin)
        reason = (
            why_off(found.name, settings) if first == found.origin else f"{first} has the same name and comes first"
        )
        if reason:
            registry.plugins.append(PluginFacts(found.name, found.origin, PluginState.OFF, reason))
        else:
            registry.plugins.append(_ask(found, registry, settings.entries.get(found.name) or PluginEntry()))
    return registry


def why_off(name: str, settings: PluginsSettings) -> str | None:
    """Why the owner does not want a plugin to be used; None where it is."""
    entry = settings.entries.get(name)
    if name in settings.deny:
        return "plugins.deny names it"
    if entry is not None and not entry.enabled:
        return f"plugins.entries.{name}.enabled is false"
    if settings.allow is not None and name not in settings.allow:
        return "plugins.allow does not name it"
    return None


def _ask(found: Candidate, registry: Registry, entry: PluginEntry) -> PluginFacts:
    """Let a plugin register its things."""
    try:
        plugins = pluggy.PluginManager(NAME)
        plugins.add_hookspecs(Hooks)
        plugins.register(found.load(), found.name)
        if not plugins.hook.retinue_register.get_hookimpls():
            raise PluginError("it has no function `retinue_register` with the mark `hookimpl`")
        added = Registry()
        plugins.hook.retinue_register(register=_PluginRegistrar(added, found.name, entry.config))
        registry.take_over(added)
    except Exception as error:  # border: a plugin is foreign code
        log.exception("plugin failed to register: %s", found.name)
        return PluginFacts(found.name, found.origin, PluginState.FAILED, str(error) or type(error).__name__)
    return PluginFacts(found.name, found.origin, PluginState.ON, brings=added.list_names())
