"""What the plugins registered, and how they are found."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TypeVar

import pluggy

from retinue.core.errors import RetinueError
from retinue.core.extension import EngineFactory, HookSpec, Lazy, ProviderFactory, SkillRoot, ToolFactory
from retinue.plugins import builtin
from retinue.plugins.hookspecs import NAME, Hooks

log = logging.getLogger(__name__)

T = TypeVar("T")


class DoublyRegistered(RetinueError):
    """Two plugins registered the same name."""


@dataclass(slots=True)
class Registry:
    """Everything that can be used, by name."""

    tools: dict[str, ToolFactory] = field(default_factory=dict)
    providers: dict[str, ProviderFactory] = field(default_factory=dict)
    skill_roots: list[SkillRoot] = field(default_factory=list)
    hooks: list[HookSpec] = field(default_factory=list)
    engines: dict[str, EngineFactory] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _PluginRegistrar:
    """A registry as one plugin sees it: what it adds carries the plugin's name."""

    registry: Registry
    plugin: str

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
            raise DoublyRegistered(f"Plugin '{self.plugin}' registers '{name}', which exists already.")
        table[name] = value


@cache
def _installed() -> tuple[EntryPoint, ...]:
    """The plugins that are installed; what comes later is seen by the next process, as all code is."""
    return tuple(sorted(entry_points(group=NAME), key=lambda entry: entry.name))


def load_registry() -> Registry:
    """Ask the built-in plugin, then every installed one; a failing plugin is reported and the others load."""
    registry = Registry()
    builtin.retinue_register(_PluginRegistrar(registry, "retinue"))
    for entry in _installed():
        try:
            plugins = pluggy.PluginManager(NAME)
            plugins.add_hookspecs(Hooks)
            plugins.register(entry.load(), entry.name)
            plugins.hook.retinue_register(register=_PluginRegistrar(registry, entry.name))
        except Exception as error:  # border: a plugin is foreign code
            log.exception("plugin failed to register: %s", entry.name)
            registry.problems.append(f"Plugin '{entry.name}' could not be loaded: {error}")
    return registry
