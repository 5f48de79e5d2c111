"""Plugins of a home for inspection: problems of their settings, and which of them serves each slot."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from retinue.config.keypath import Step, format_key_path
from retinue.config.sections.gateway import PluginEntry
from retinue.config.sources import Located, Problem
from retinue.core.extension import ExtensionPoint, Slot
from retinue.plugins.loading import config_faults, effective_config
from retinue.plugins.manifest import PluginError, PluginManifest
from retinue.plugins.registry import PluginState
from retinue.runtime.home import Home

BUILT_IN = "built-in"
NONE = "none"


class SlotFacts(Struct, frozen=True):
    """Which implementation serves a slot, and why it is not the configured one."""

    slot: Slot
    served_by: str
    wanted: str | None = None
    reason: str = ""


def find_config_faults(home: Home) -> tuple[Problem, ...]:
    """Return an error for each value in a plugin's settings that its schema does not allow, with path and line."""
    return tuple(
        problem
        for known in home.registry.plugins
        if known.manifest is not None and known.state is not PluginState.OFF
        for problem in _check_settings(home, known.manifest)
    )


def _check_settings(home: Home, manifest: PluginManifest) -> Iterator[Problem]:
    entry = home.config.plugins.entries.get(manifest.id) or PluginEntry()
    base: tuple[Step, ...] = ("plugins", "entries", manifest.id, "config")
    try:
        faults = config_faults(manifest, effective_config(manifest, entry))
    except PluginError:
        return  # the plugin itself is at fault; `retinue plugins list` says so
    for path, message in faults:
        node = _nearest(home.loaded.tree, (*base, *path))
        yield Problem("error", format_key_path((*base, *path)), node.file, node.line, f"{message}.")


def _nearest(node: Located, path: tuple[Step, ...]) -> Located:
    """Return the value at a path, or the closest one around it: a missing value has no line."""
    for step in path:
        below = node.child(step)
        if below is None:
            return node
        node = below
    return node


def list_slots(home: Home) -> tuple[SlotFacts, ...]:
    """Return which implementation serves each slot."""
    wanted = home.config.plugins.slots
    return (
        _describe(home, Slot.MEMORY, ExtensionPoint.MEMORY, wanted.memory, BUILT_IN),
        _describe(home, Slot.SANDBOX, ExtensionPoint.SANDBOX, wanted.sandbox, BUILT_IN),
        _describe(home, Slot.BROWSER, None, wanted.browser, NONE),
        _describe(home, Slot.CONTEXT_ENGINE, ExtensionPoint.CONTEXT_ENGINES, wanted.context_engine, BUILT_IN),
    )


def _describe(home: Home, slot: Slot, point: ExtensionPoint | None, wanted: str | None, default: str) -> SlotFacts:
    if wanted is None or wanted in (BUILT_IN, "default", "legacy", NONE):
        return SlotFacts(slot, NONE if wanted == NONE else default, wanted)
    known = home.registry.extensions[point] if point else {}
    if wanted in known:
        return SlotFacts(slot, known[wanted].plugin, wanted)
    claiming = [
        each.name
        for each in home.registry.plugins
        if each.name == wanted and each.state is PluginState.ON and slot in home.registry.claimed_slots(each.name)
    ]
    if claiming:
        return SlotFacts(slot, wanted, wanted)
    failed = next((each.because for each in home.registry.plugins if each.name == wanted and each.because), "")
    return SlotFacts(slot, default, wanted, failed or f"no enabled plugin provides '{wanted}'")
