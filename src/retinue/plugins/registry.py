"""The registry of what plugins provide, the built-in ones included, and the state of each plugin."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.envelope import Capabilities
from retinue.core.extension import (
    ChannelExtension,
    CommandExtension,
    Extension,
    ExtensionPoint,
    HookSpec,
    Lazy,
    RouteExtension,
    SkillRoot,
    Slot,
)
from retinue.plugins.discovery import PluginSource
from retinue.plugins.hookspecs import HOOK_NAMES
from retinue.plugins.manifest import BundleProgram, PluginError, PluginManifest, ToolMetadata
from retinue.wire.protocol import Scope

log = logging.getLogger(__name__)

NO_CAPABILITIES = Capabilities()
_CHANNEL = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


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
    manifest: PluginManifest | None = None
    source: PluginSource = PluginSource.INSTALLED


class PluginServer(Struct, frozen=True):
    """An MCP server of a bundle: its settings, in the form of `mcp.servers`."""

    name: str
    plugin: str
    settings: Mapping[str, Any]


class PluginProgram(Struct, frozen=True):
    """A hook program of a bundle."""

    plugin: str
    program: BundleProgram


class PluginRegistry(Struct):
    """Everything that plugins registered, by extension point and name."""

    extensions: dict[ExtensionPoint, dict[str, Extension]] = field(
        default_factory=lambda: {point: {} for point in ExtensionPoint}
    )
    skill_roots: list[SkillRoot] = field(default_factory=list)
    hooks: list[HookSpec] = field(default_factory=list)
    servers: dict[str, PluginServer] = field(default_factory=dict)
    """The MCP servers of bundles, in the form of `mcp.servers`."""
    programs: list[PluginProgram] = field(default_factory=list)
    """The hook programs of bundles."""
    plugins: list[PluginFacts] = field(default_factory=list)
    """Every plugin that was found, in the order of loading."""
    built_in: list[PluginFacts] = field(default_factory=list)

    @property
    def tools(self) -> dict[str, Extension]:
        return self.extensions[ExtensionPoint.TOOLS]

    @property
    def providers(self) -> dict[str, Extension]:
        return self.extensions[ExtensionPoint.PROVIDERS]

    @property
    def engines(self) -> dict[str, Extension]:
        return self.extensions[ExtensionPoint.CONTEXT_ENGINES]

    @property
    def channels(self) -> Mapping[str, ChannelExtension]:
        named = self.extensions[ExtensionPoint.CHANNELS].items()
        return {name: each for name, each in named if isinstance(each, ChannelExtension)}

    def add_all(self, added: PluginRegistry) -> None:
        """Add everything that one plugin registered, or nothing if a name is taken."""
        for point, named in added.extensions.items():
            for name in named.keys() & self.extensions[point].keys():
                raise DuplicateRegistration(f"it registers '{name}', which already exists")
        for point, named in added.extensions.items():
            self.extensions[point] |= named
        for name in added.servers.keys() & self.servers.keys():
            raise DuplicateRegistration(f"it brings the MCP server '{name}', which another plugin brings")
        self.servers |= added.servers
        self.programs += added.programs
        self.skill_roots += added.skill_roots
        self.hooks += added.hooks

    def list_names(self) -> tuple[str, ...]:
        """Return everything that is registered, as text."""
        return (
            *(f"{point} {name}" for point, named in self.extensions.items() for name in named),
            *(f"skills {root.path}" for root in self.skill_roots),
            *(f"hook {spec.hook}" for spec in self.hooks),
            *(f"mcp server {name}" for name in self.servers),
            *(f"hook program {each.program.event}" for each in self.programs),
        )

    def switch_off(self, plugin: str, because: str) -> None:
        """Remove everything that a plugin registered, since it failed, and record the reason."""
        log.warning("the plugin '%s' was switched off: %s", plugin, because)
        for named in self.extensions.values():
            for name in [name for name, extension in named.items() if extension.plugin == plugin]:
                del named[name]
        for name in [name for name, server in self.servers.items() if server.plugin == plugin]:
            del self.servers[name]
        self.programs[:] = [each for each in self.programs if each.plugin != plugin]
        self.skill_roots[:] = [root for root in self.skill_roots if root.plugin != plugin]
        self.hooks[:] = [spec for spec in self.hooks if spec.plugin != plugin]
        for listed in (self.plugins, self.built_in):
            for index, known in enumerate(listed):
                if known.name == plugin and known.state is PluginState.ON:
                    listed[index] = replace(known, state=PluginState.FAILED, because=because, brings=())

    def metadata_of(self, plugin: str, tool: str) -> ToolMetadata:
        """Return what a plugin's manifest says about one of its tools; unknown effects count as effects."""
        for known in self.plugins:
            if known.name == plugin and known.manifest is not None:
                return known.manifest.tools.get(tool) or ToolMetadata()
        return ToolMetadata()

    def claimed_slots(self, plugin: str) -> frozenset[Slot]:
        """Return the slots that a plugin has something for."""
        points = {
            ExtensionPoint.MEMORY: Slot.MEMORY,
            ExtensionPoint.SANDBOX: Slot.SANDBOX,
            ExtensionPoint.CONTEXT_ENGINES: Slot.CONTEXT_ENGINE,
        }
        found = {slot for point, slot in points.items() if self._has(point, plugin)}
        manifest = next((known.manifest for known in self.plugins if known.name == plugin), None)
        return frozenset(found | (manifest.slots if manifest is not None else frozenset()))

    def _has(self, point: ExtensionPoint, plugin: str) -> bool:
        return any(extension.plugin == plugin for extension in self.extensions[point].values())

    @property
    def problems(self) -> tuple[str, ...]:
        """Sentences about plugins that are enabled but could not be loaded."""
        failed = (plugin for plugin in (*self.built_in, *self.plugins) if plugin.state is PluginState.FAILED)
        return tuple(f"Plugin '{plugin.name}' could not be loaded: {plugin.because}" for plugin in failed)


class PluginRegistrar:
    """The registrar of one plugin: what it registers is marked with its name, and checked against its manifest."""

    def __init__(
        self,
        registry: PluginRegistry,
        manifest: PluginManifest,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.config: Mapping[str, Any] = config or {}
        self._registry = registry
        self._manifest = manifest

    def register_declared(self) -> None:
        """Register what the manifest declares with a target."""
        for point, name, declared in self._manifest.declared:
            if not declared.target:
                continue
            if point is ExtensionPoint.HOOKS:
                self.hook(name, declared.target, priority=declared.priority)
            elif point in (ExtensionPoint.COMMANDS, ExtensionPoint.CLI):
                extension = CommandExtension(
                    name,
                    self._manifest.id,
                    Lazy(declared.target),
                    summary=declared.summary,
                    usage=declared.usage,
                    owner_only=declared.owner_only,
                )
                self._add(point, extension)
            elif point is ExtensionPoint.CHANNELS:
                able = replace(Capabilities(max_text=declared.max_text), **dict.fromkeys(declared.capabilities, True))
                self.channel(name, declared.target, settings=declared.settings, capabilities=able)
            elif point is ExtensionPoint.LIFECYCLE:
                if name not in ("init", "shutdown"):
                    raise PluginError(f"its manifest declares the lifecycle step '{name}'; use init or shutdown")
                self._add(point, self._extension(f"{self._manifest.id}.{name}", declared.target))
            elif point in (ExtensionPoint.HTTP, ExtensionPoint.METHODS):
                self._add_route(point, name, declared.target, declared.scope, declared.verbs)
            else:
                self._add(point, self._extension(name, declared.target))
        bundle = self._manifest.bundle
        self._registry.skill_roots += [SkillRoot(path, self._manifest.id) for path in self._manifest.skills]
        self._registry.skill_roots += [SkillRoot(path, self._manifest.id, flat=True) for path in bundle.commands]
        for name, server in bundle.servers.items():
            if name in self._registry.servers:
                raise DuplicateRegistration(f"it brings the MCP server '{name}' twice")
            self._registry.servers[name] = PluginServer(name, self._manifest.id, server)
        self._registry.programs += [PluginProgram(self._manifest.id, program) for program in bundle.programs]

    def tools(self, family: str, make: str) -> None:
        self._add(ExtensionPoint.TOOLS, self._extension(family, make))

    def provider(self, api: str, make: str) -> None:
        self._add(ExtensionPoint.PROVIDERS, self._extension(api, make))

    def embeddings(self, provider: str, make: str) -> None:
        self._add(ExtensionPoint.EMBEDDINGS, self._extension(provider, make))

    def embedding_batches(self, provider: str, make: str) -> None:
        self._add(ExtensionPoint.EMBEDDING_BATCHES, self._extension(provider, make))

    def channel(
        self,
        channel: str,
        make: str,
        *,
        settings: str | Mapping[str, Any] | None = None,
        capabilities: Capabilities = NO_CAPABILITIES,
    ) -> None:
        if not _CHANNEL.fullmatch(channel):
            raise PluginError(f"the channel '{channel}' must have lower-case letters, digits and '-'")
        if isinstance(settings, str) and not _is_target(settings):
            raise PluginError(f"'{settings}' is not a target; write package.module:attribute")
        described = Lazy(settings) if isinstance(settings, str) else settings
        extension = ChannelExtension(
            channel, self._manifest.id, Lazy(make), capabilities=capabilities, settings=described
        )
        self._add(ExtensionPoint.CHANNELS, extension)

    def command(self, name: str, run: str, *, summary: str, usage: str = "", owner_only: bool = False) -> None:
        extension = CommandExtension(
            name, self._manifest.id, Lazy(run), summary=summary, usage=usage, owner_only=owner_only
        )
        self._add(ExtensionPoint.COMMANDS, extension)

    def cli(self, name: str, command: str, *, summary: str) -> None:
        self._add(ExtensionPoint.CLI, CommandExtension(name, self._manifest.id, Lazy(command), summary=summary))

    def route(self, path: str, handle: str, *, scope: str, verbs: Sequence[str] = ("GET",)) -> None:
        self._add_route(ExtensionPoint.HTTP, path, handle, scope, tuple(verbs))

    def method(self, name: str, call: str, *, scope: str) -> None:
        self._add_route(ExtensionPoint.METHODS, name, call, scope, ())

    def service(self, name: str, run: str) -> None:
        self._add(ExtensionPoint.SERVICES, self._extension(name, run))

    def skills(self, path: Path) -> None:
        self._require(ExtensionPoint.SKILLS, str(path))
        self._registry.skill_roots.append(SkillRoot(path, self._manifest.id))

    def hook(self, name: str, handler: str, *, priority: int = 0) -> None:
        self._require(ExtensionPoint.HOOKS, name)
        if name not in HOOK_NAMES:
            near = get_close_matches(name, HOOK_NAMES, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"hooks: {', '.join(HOOK_NAMES)}"
            raise PluginError(f"there is no hook '{name}'; {hint}")
        self._registry.hooks.append(HookSpec(name, self._manifest.id, Lazy(handler), priority))

    def memory(self, name: str, make: str) -> None:
        self._add(ExtensionPoint.MEMORY, self._extension(name, make))

    def sandbox(self, name: str, make: str) -> None:
        self._add(ExtensionPoint.SANDBOX, self._extension(name, make))

    def context_engine(self, name: str, make: str) -> None:
        self._add(ExtensionPoint.CONTEXT_ENGINES, self._extension(name, make))

    def search_engine(self, name: str, engine: str) -> None:
        self._add(ExtensionPoint.SEARCH_ENGINES, self._extension(name, engine))

    def prompt(self, name: str, contribute: str) -> None:
        self._add(ExtensionPoint.PROMPT, self._extension(name, contribute))

    def lifecycle(self, *, init: str | None = None, shutdown: str | None = None) -> None:
        for name, target in (("init", init), ("shutdown", shutdown)):
            if target is not None:
                self._add(ExtensionPoint.LIFECYCLE, self._extension(f"{self._manifest.id}.{name}", target))

    def _extension(self, name: str, target: str) -> Extension:
        return Extension(name, self._manifest.id, Lazy(target))

    def _add_route(self, point: ExtensionPoint, name: str, target: str, scope: str, verbs: tuple[str, ...]) -> None:
        if scope not in tuple(Scope):
            raise PluginError(f"the scope of '{name}' must be one of {', '.join(Scope)}")
        address = name if point is ExtensionPoint.HTTP else f"{self._manifest.id}.{name}"
        extension = RouteExtension(address, self._manifest.id, Lazy(target), scope=scope, verbs=verbs)
        self._add(point, extension, key=f"{self._manifest.id}/{name.strip('/')}" if verbs else address)

    def _add(self, point: ExtensionPoint, extension: Extension, *, key: str = "") -> None:
        self._require(point, extension.name)
        if not _is_target(extension.make.target):
            raise PluginError(f"'{extension.make.target}' is not a target; write package.module:attribute")
        table = self._registry.extensions[point]
        if (key or extension.name) in table:
            raise DuplicateRegistration(f"it registers '{extension.name}' twice")
        table[key or extension.name] = extension

    def _require(self, point: ExtensionPoint, name: str) -> None:
        """Raise `PluginError` if the manifest does not declare what the plugin registers."""
        declared = self._manifest.capabilities
        if declared is None or (point is ExtensionPoint.LIFECYCLE and self._manifest.entry):
            return
        if point not in declared:
            raise PluginError(f"it registers {point} '{name}', which its manifest does not declare")
        names = declared[point]
        short = name.removeprefix(f"{self._manifest.id}.")
        if names and point is not ExtensionPoint.SKILLS and name not in names and short not in names:
            raise PluginError(f"it registers {point} '{name}', but its manifest declares only {', '.join(names)}")


def _is_target(text: str) -> bool:
    module, _, attribute = text.partition(":")
    return bool(attribute) and all(part.isidentifier() for part in (*module.split("."), *attribute.split(".")))
