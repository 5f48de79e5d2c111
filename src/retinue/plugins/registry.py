"""The registry of what plugins provide, the built-in plugin included, and the state of each plugin."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import pluggy
from msgspec import Struct, field
from msgspec.structs import replace

from retinue.config.sections.gateway import PluginEntry, PluginsSettings
from retinue.core.extension import EngineFactory, HookSpec, Lazy, ProviderFactory, Registrar, SkillRoot, ToolFactory
from retinue.plugins.discovery import PluginCandidate, PluginError, find_plugins
from retinue.plugins.hookspecs import NAME, Hooks
from retinue.providers.registry import ADAPTERS

log = logging.getLogger(__name__)

T = TypeVar("T")


TOOL_FAMILIES = {
    "files": "retinue.toolkit.files.read_write:make_tools",
    "patch": "retinue.toolkit.files.patch:make_tools",
    "lookup": "retinue.toolkit.files.search:make_tools",
    "shell": "retinue.toolkit.processes.tools:make_exec_tool",
    "process": "retinue.toolkit.processes.tools:make_process_tool",
    "web": "retinue.toolkit.web.tools:make_tools",
    "memory": "retinue.toolkit.memory:make_tools",
    "status": "retinue.toolkit.sessions:make_status_tool",
    "sessions": "retinue.toolkit.sessions:make_tools",
    "cron": "retinue.toolkit.cron:make_tools",
    "message": "retinue.toolkit.message:make_tools",
    "owner": "retinue.toolkit.owner:make_tools",
    "gateway": "retinue.toolkit.gateway:make_tools",
    "plan": "retinue.toolkit.sessions:make_plan_tool",
    "image": "retinue.toolkit.files.read_write:make_image_tool",
}
"""The built-in tools by family, in the order in which the prompt lists them."""


BUILT_IN = ""
"""The name of the plugin with everything that is built in; no other plugin can have it."""


class DuplicateRegistration(PluginError):
    """A name was registered twice."""


class PluginState(StrEnum):
    """The state of a plugin."""

    ON = "on"
    OFF = "off"
    FAILED = "failed"


class PluginFacts(Struct, frozen=True):
    """A plugin that was found: its origin, its state and the reason for it."""

    name: str
    origin: str
    state: PluginState
    because: str = ""
    brings: tuple[str, ...] = ()
    """What it registered, as text."""


class PluginRegistry(Struct):
    """Everything that plugins registered, by name."""

    tools: dict[str, ToolFactory] = field(default_factory=dict)
    providers: dict[str, ProviderFactory] = field(default_factory=dict)
    skill_roots: list[SkillRoot] = field(default_factory=list)
    hooks: list[HookSpec] = field(default_factory=list)
    engines: dict[str, EngineFactory] = field(default_factory=dict)
    plugins: list[PluginFacts] = field(default_factory=list)
    """Every plugin that was found, in the order of loading."""

    def add_all(self, added: PluginRegistry) -> None:
        """Add everything that one plugin registered, or nothing if a name is taken."""
        for mine, theirs in (
            (self.tools, added.tools),
            (self.providers, added.providers),
            (self.engines, added.engines),
        ):
            for name in theirs:
                if name in mine:
                    raise DuplicateRegistration(f"it registers '{name}', which already exists")
        self.tools |= added.tools
        self.providers |= added.providers
        self.engines |= added.engines
        self.skill_roots += added.skill_roots
        self.hooks += added.hooks

    def list_names(self) -> tuple[str, ...]:
        """Return everything that is registered, as text."""
        return (
            *(f"tools {family}" for family in self.tools),
            *(f"provider {api}" for api in self.providers),
            *(f"skills {root.path}" for root in self.skill_roots),
            *(f"hook {spec.hook}" for spec in self.hooks),
            *(f"context engine {engine}" for engine in self.engines),
        )

    @property
    def problems(self) -> tuple[str, ...]:
        """Sentences about plugins that are enabled but could not be loaded."""
        failed = (plugin for plugin in self.plugins if plugin.state is PluginState.FAILED)
        return tuple(f"Plugin '{plugin.name}' could not be loaded: {plugin.because}" for plugin in failed)


class _PluginRegistrar(Struct, frozen=True):
    """The registrar of one plugin: what it registers is marked with the plugin's name."""

    registry: PluginRegistry
    plugin: str
    config: Mapping[str, Any] = field(default_factory=dict)

    def tools(self, factory: ToolFactory) -> None:
        self._add(self.registry.tools, factory.family, replace(factory, plugin=self.plugin))

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
            raise DuplicateRegistration(f"it registers '{name}' twice")
        table[name] = value


def register_builtin(register: Registrar) -> None:
    """Register Retinue's own tools and providers, in the same way as a plugin does."""
    for family, target in TOOL_FAMILIES.items():
        register.tools(ToolFactory(family, Lazy(target)))
    for api, target in ADAPTERS.items():
        register.provider(ProviderFactory(api, Lazy(target)))


def load_registry(settings: PluginsSettings, paths: Iterable[Path] = ()) -> PluginRegistry:
    """Load the built-in plugin and all enabled plugins; a failure is recorded and the others still load."""
    registry = PluginRegistry()
    register_builtin(_PluginRegistrar(registry, BUILT_IN))
    if not settings.enabled:
        return registry
    origins: dict[str, str] = {}
    for found in find_plugins(paths):
        first = origins.setdefault(found.name, found.origin)
        reason = (
            disabled_reason(found.name, settings)
            if first == found.origin
            else f"{first} has the same name and is found first"
        )
        if reason:
            registry.plugins.append(PluginFacts(found.name, found.origin, PluginState.OFF, reason))
        else:
            registry.plugins.append(_load(found, registry, settings.entries.get(found.name) or PluginEntry()))
    return registry


def disabled_reason(name: str, settings: PluginsSettings) -> str | None:
    """Return why the configuration disables a plugin, or None if it is enabled."""
    entry = settings.entries.get(name)
    if name in settings.deny:
        return "plugins.deny includes it"
    if entry is not None and not entry.enabled:
        return f"plugins.entries.{name}.enabled is false"
    if settings.allow is not None and name not in settings.allow:
        return "plugins.allow does not include it"
    return None


def _load(found: PluginCandidate, registry: PluginRegistry, entry: PluginEntry) -> PluginFacts:
    """Load a plugin and add what it registers."""
    try:
        plugins = pluggy.PluginManager(NAME)
        plugins.add_hookspecs(Hooks)
        plugins.register(found.load(), found.name)
        if not plugins.hook.retinue_register.get_hookimpls():
            raise PluginError("it has no function `retinue_register` with the decorator `hookimpl`")
        added = PluginRegistry()
        plugins.hook.retinue_register(register=_PluginRegistrar(added, found.name, entry.config))
        registry.add_all(added)
    except Exception as error:  # border: a plugin is foreign code
        log.exception("plugin failed to register: %s", found.name)
        return PluginFacts(found.name, found.origin, PluginState.FAILED, str(error) or type(error).__name__)
    return PluginFacts(found.name, found.origin, PluginState.ON, brings=added.list_names())
