"""Loading the plugins of a home: which are enabled, whether they can be used, and what they register."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

import pluggy

from retinue import __version__
from retinue.config.sections.gateway import PluginEntry, PluginsSettings
from retinue.core.extension import Slot
from retinue.plugins.builtin import BUILT_IN, BUILT_IN_NAMES, CORE, BuiltInPlugin
from retinue.plugins.containment import call_contained
from retinue.plugins.discovery import (
    PluginCandidate,
    PluginPlaces,
    PluginSource,
    find_plugins,
    make_importable,
)
from retinue.plugins.hookspecs import NAME, Hooks
from retinue.plugins.manifest import PluginError, PluginManifest, unmet_requirement
from retinue.plugins.registry import PluginFacts, PluginRegistrar, PluginRegistry, PluginState
from retinue.security.secrets import resolve_references
from retinue.structs.declare import set_attributes
from retinue.structs.schema_validator import find_schema_faults

log = logging.getLogger(__name__)

NO_PLACES = PluginPlaces()


def load_registry(
    settings: PluginsSettings, places: PluginPlaces = NO_PLACES, environment: Mapping[str, str] | None = None
) -> PluginRegistry:
    """Load the built-in plugins and all enabled ones; a failure is recorded and the others still load."""
    registry = PluginRegistry()
    for plugin in BUILT_IN:
        registry.built_in.append(_load_built_in(plugin, registry, settings))
    if not settings.enabled:
        return registry
    origins: dict[str, str] = {}
    for found in find_plugins(places):
        first = origins.setdefault(found.name, found.origin)
        reason = (
            disabled_reason(found, settings)
            if first == found.origin
            else f"{first} has the same name and is found first"
        )
        if reason:
            state = PluginState.OFF
            registry.plugins.append(
                PluginFacts(found.name, found.origin, state, reason, (), found.manifest, found.source)
            )
        else:
            entry = settings.entries.get(found.name) or PluginEntry()
            registry.plugins.append(_load(found, registry, entry, environment or {}))
    return registry


def _load_built_in(plugin: BuiltInPlugin, registry: PluginRegistry, settings: PluginsSettings) -> PluginFacts:
    """Register what a built-in plugin provides, unless the configuration disables it; the core is always enabled."""
    manifest = PluginManifest(plugin.id, __version__, plugin.description)
    facts = partial(PluginFacts, plugin.id, "Retinue", manifest=manifest, source=PluginSource.BUILT_IN)
    if plugin.id != CORE and (reason := _denied_reason(plugin.id, settings)):
        return facts(PluginState.OFF, reason)
    if plugin.slot is Slot.CONTEXT_ENGINE and settings.slots.context_engine != plugin.id:
        return facts(PluginState.OFF, f"plugins.slots.{plugin.slot} is not {plugin.id}")
    added = PluginRegistry()
    plugin.register(PluginRegistrar(added, PluginManifest(plugin.id)))
    registry.add_all(added)
    return facts(PluginState.ON, brings=added.list_names())


def disabled_reason(found: PluginCandidate, settings: PluginsSettings) -> str | None:
    """Return why the configuration disables a plugin, or None if it is enabled."""
    name, entry = found.name, settings.entries.get(found.name)
    if reason := _denied_reason(name, settings):
        return reason
    if settings.allow is not None and name not in settings.allow:
        return "plugins.allow does not include it"
    browser = settings.slots.browser
    if Slot.BROWSER in found.manifest.slots and browser is not None and browser != name:
        return f"plugins.slots.browser is {browser}"
    if found.source is PluginSource.WORKSPACE and (entry is None or "enabled" not in set_attributes(entry)):
        return f"it is in a workspace; `retinue plugins enable {name}` enables it"
    return None


def _denied_reason(name: str, settings: PluginsSettings) -> str | None:
    entry = settings.entries.get(name)
    if name in settings.deny:
        return "plugins.deny includes it"
    if entry is not None and not entry.enabled:
        return f"plugins.entries.{name}.enabled is false"
    return None


def effective_config(manifest: PluginManifest, entry: PluginEntry) -> dict[str, Any]:
    """Return the settings of a plugin: the defaults of its manifest, replaced by the configured values."""
    return {**manifest.config_defaults, **entry.config}


def config_faults(manifest: PluginManifest, config: Mapping[str, Any]) -> tuple[tuple[tuple[str | int, ...], str], ...]:
    """Return what the schema of a plugin does not allow in its settings: the path of each value, and a message."""
    try:
        if manifest.config_schema is None:
            return ()
        return find_schema_faults(manifest.config_schema, resolve_references(dict(config), lambda _: "(a secret)"))
    except ValueError as error:
        raise PluginError(f"its config.schema is not a valid JSON Schema: {error}") from None


def _load(
    found: PluginCandidate, registry: PluginRegistry, entry: PluginEntry, environment: Mapping[str, str]
) -> PluginFacts:
    """Load a plugin and add what it registers."""
    facts = partial(PluginFacts, found.name, found.origin, manifest=found.manifest, source=found.source)
    added = PluginRegistry()
    try:
        if found.problem:
            raise PluginError(found.problem)
        if found.name in BUILT_IN_NAMES:  # what built-in plugins provide is trusted
            raise PluginError("a built-in plugin has this name; rename it")
        if missing := unmet_requirement(found.manifest.requires, environment):
            raise PluginError(missing)
        config = effective_config(found.manifest, entry)
        # The defaults are the author's, who checks them with `retinue plugins check`; the validator is slow to import.
        if entry.config and (faults := config_faults(found.manifest, config)):
            raise PluginError(
                f"its settings are not valid: {faults[0][1]}; `retinue config validate` lists all problems"
            )
        _register(found, PluginRegistrar(added, found.manifest, config))
        registry.add_all(added)
    except PluginError as error:
        log.warning("the plugin '%s' could not be loaded: %s", found.name, error)
        return facts(PluginState.FAILED, str(error))
    return facts(PluginState.ON, brings=added.list_names())


def _register(found: PluginCandidate, registrar: PluginRegistrar) -> None:
    registrar.register_declared()
    if found.folder is not None:
        targets = [each.target for _, _, each in found.manifest.declared if each.target]
        make_importable(found.folder, targets)
    if found.load is not None:
        call_contained(partial(_run_hook, found.name, found.load, registrar))


def _run_hook(name: str, load: Any, registrar: PluginRegistrar) -> None:
    plugins = pluggy.PluginManager(NAME)
    plugins.add_hookspecs(Hooks)
    plugins.register(load(), name)
    if not plugins.hook.retinue_register.get_hookimpls():
        raise PluginError("it has no function `retinue_register` with the decorator `hookimpl`")
    plugins.hook.retinue_register(register=registrar)
