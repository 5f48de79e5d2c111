"""What a plugin can register, as values; nothing is imported before it is used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct


class Lazy(Struct, frozen=True):
    """A reference to an object by its name, such as `package.module:attribute`; it is imported on first use."""

    target: str

    def load(self) -> Any:
        module, _, attribute = self.target.partition(":")
        return getattr(importlib.import_module(module), attribute)


class ToolFactory(Struct, frozen=True):
    """A family of tools: `make` takes a `ToolParts` and returns the tools.

    `plugin` is set when it is registered; it is empty for built-in tools.
    """

    family: str
    make: Lazy
    plugin: str = ""


class ProviderFactory(Struct, frozen=True):
    """A model API: `make` takes an endpoint and returns its provider."""

    api: str
    make: Lazy


class HookSpec(Struct, frozen=True):
    """A subscription of a plugin to a hook by its name; subscribers with a higher priority are called first."""

    hook: str
    plugin: str
    handler: Lazy
    priority: int = 0


class EngineFactory(Struct, frozen=True):
    """A context engine: `make` takes no arguments and returns it."""

    id: str
    make: Lazy


class SkillRoot(Struct, frozen=True):
    """A folder of skills of a plugin."""

    path: Path
    plugin: str


class Registrar(Protocol):
    """Registers what a plugin provides. Registering a name twice is an error."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The plugin's settings, `plugins.entries.<name>.config`, unchanged."""
        ...

    def tools(self, factory: ToolFactory) -> None: ...

    def provider(self, factory: ProviderFactory) -> None: ...

    def skills(self, path: Path) -> None: ...

    def hook(self, name: str, handler: Lazy, *, priority: int = 0) -> None: ...

    def context_engine(self, factory: EngineFactory) -> None: ...
