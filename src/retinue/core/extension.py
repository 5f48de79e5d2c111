"""What a plugin can add, as values; nothing is imported until it is used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct


class Lazy(Struct, frozen=True):
    """Something by its dotted name, as in `package.module:attribute`, imported on first use."""

    target: str

    def load(self) -> Any:
        module, _, attribute = self.target.partition(":")
        return getattr(importlib.import_module(module), attribute)


class ToolFactory(Struct, frozen=True):
    """A family of tools: `make` takes the runtime's parts and returns the tools that it can offer with them."""

    family: str
    make: Lazy


class ProviderFactory(Struct, frozen=True):
    """A way to talk to models: `make` takes an endpoint and returns the provider for it."""

    api: str
    make: Lazy


class HookSpec(Struct, frozen=True):
    """A plugin's wish to be called at a hook, by the hook's name; a higher priority is asked first."""

    hook: str
    plugin: str
    handler: Lazy
    priority: int = 0


class EngineFactory(Struct, frozen=True):
    """A way to decide what of a history the model reads: `make` takes nothing and returns the engine."""

    id: str
    make: Lazy


class SkillRoot(Struct, frozen=True):
    """A folder of skills that a plugin brings."""

    path: Path
    plugin: str


class Registrar(Protocol):
    """What a plugin gets to register its things with. Registering a name twice is an error."""

    @property
    def config(self) -> Mapping[str, Any]:
        """What the owner configured for the plugin, as it is written: `plugins.entries.<name>.config`."""
        ...

    def tools(self, factory: ToolFactory) -> None: ...

    def provider(self, factory: ProviderFactory) -> None: ...

    def skills(self, path: Path) -> None: ...

    def hook(self, name: str, handler: Lazy, *, priority: int = 0) -> None: ...

    def context_engine(self, factory: EngineFactory) -> None: ...
