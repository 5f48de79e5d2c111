"""Plugins of a home for inspection: problems of their settings, and which of them serves each slot."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Literal

from msgspec import Struct

from retinue.config.keypath import Step, format_key_path
from retinue.config.sections.gateway import PluginEntry
from retinue.config.sources import Located, Problem
from retinue.core.extension import ExtensionPoint, Slot
from retinue.core.keys import SessionKey
from retinue.plugins.containment import call_contained
from retinue.plugins.loading import config_faults, effective_config
from retinue.plugins.manifest import PluginError, PluginManifest
from retinue.plugins.registry import PluginFacts, PluginRegistry, PluginState
from retinue.runtime.agents.chats import find_account, list_accounts
from retinue.runtime.agents.confinement import make_sandboxes
from retinue.runtime.channels.open_channels import find_settings_faults
from retinue.runtime.home import Home
from retinue.runtime.memory.backend_choice import memory_backend
from retinue.sandbox.confinement import SandboxUnavailable

BUILT_IN = "built-in"
NONE = "none"


def check_targets(registry: PluginRegistry, facts: PluginFacts) -> Iterator[str]:
    """Yield a problem for each target of a plugin that cannot be imported, for wrong defaults, and missing skills."""
    plugin = facts.name
    if facts.manifest is not None:
        try:
            for path, message in config_faults(facts.manifest, facts.manifest.config_defaults):
                yield f"config.defaults {format_key_path(path)}: {message}"
        except PluginError as error:
            yield str(error)
    hooks = ((f"hook {spec.hook}", spec.handler) for spec in registry.hooks if spec.plugin == plugin)
    extensions = (
        (f"{point} {name}", extension.make)
        for point, named in registry.extensions.items()
        for name, extension in named.items()
        if extension.plugin == plugin
    )
    for what, target in (*extensions, *hooks):
        try:
            call_contained(target.load)
        except PluginError as error:
            yield f"{what}: {target.target}: {error}"
    for root in registry.skill_roots:
        wanted = "*.md" if root.flat else "*/SKILL.md"
        if root.plugin == plugin and not any(root.path.glob(wanted)):
            yield f"skills {root.path}: there is no {wanted} in it"


class SlotFacts(Struct, frozen=True):
    """Which implementation serves a slot, and why it is not the configured one."""

    slot: Slot
    served_by: str
    wanted: str | None = None
    reason: str = ""


def find_config_faults(home: Home) -> tuple[Problem, ...]:
    """Return an error for each value in settings of plugins and channels that is not valid, with path and line."""
    of_plugins = (
        problem
        for known in home.registry.plugins
        if known.manifest is not None and known.state is not PluginState.OFF
        for problem in _check_settings(home, known.manifest)
    )
    return (*of_plugins, *_check_channels(home))


def _check_channels(home: Home) -> Iterator[Problem]:
    """Return problems of channels: those that no plugin has, and what their own keys may not contain."""
    known = home.registry.channels
    for name in home.config.channels:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"Channels: {', '.join(sorted(known))}."
            yield _problem_at(
                home, "warning", ("channels", name), f"No enabled plugin has the channel '{name}'. {hint}"
            )
    for name, account in list_accounts(home):
        found = find_account(home, name, account)
        if found is not None and found.extension is not None:
            for path, message in find_settings_faults(found.extension, found):
                is_own = bool(path) and path[0] in found.common.other_keys
                base: tuple[Step, ...] = ("channels", name, *(("accounts", account) if is_own else ()))
                yield _problem_at(home, "error", (*base, *path), f"{message}.")


def _problem_at(home: Home, level: Literal["error", "warning"], path: tuple[Step, ...], message: str) -> Problem:
    node = _nearest(home.loaded.tree, path)
    return Problem(level, format_key_path(path), node.file, node.line, message)


def _check_settings(home: Home, manifest: PluginManifest) -> Iterator[Problem]:
    entry = home.config.plugins.entries.get(manifest.id) or PluginEntry()
    base: tuple[Step, ...] = ("plugins", "entries", manifest.id, "config")
    try:
        faults = config_faults(manifest, effective_config(manifest, entry))
    except PluginError:
        return  # the plugin itself is at fault; `retinue plugins list` says so
    for path, message in faults:
        yield _problem_at(home, "error", (*base, *path), f"{message}.")


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
        _describe(home, Slot.MEMORY, ExtensionPoint.MEMORY, memory_backend(home), BUILT_IN),
        _describe_sandbox(home, wanted.sandbox),
        _describe(home, Slot.BROWSER, None, wanted.browser, NONE),
        _describe(home, Slot.CONTEXT_ENGINE, ExtensionPoint.CONTEXT_ENGINES, wanted.context_engine, BUILT_IN),
    )


def _describe_sandbox(home: Home, wanted: str | None) -> SlotFacts:
    """Return which backend the sandbox of the default agent has, if a plugin should provide it."""
    facts = _describe(home, Slot.SANDBOX, ExtensionPoint.SANDBOX, wanted, BUILT_IN)
    if wanted is None or facts.reason or facts.served_by == BUILT_IN:
        return facts
    sandboxes, session = make_sandboxes(home), SessionKey.main(home.config.agents.default_id)
    try:
        choice = sandboxes.choose(sandboxes.confinement_of(session), session)
    except SandboxUnavailable as error:
        return SlotFacts(Slot.SANDBOX, NONE, wanted, str(error))
    problem = next((each.problem for each in choice.candidates if each.name == wanted), None)
    return facts if problem is None else SlotFacts(Slot.SANDBOX, BUILT_IN, wanted, problem)


def _describe(home: Home, slot: Slot, point: ExtensionPoint | None, wanted: str | None, default: str) -> SlotFacts:
    if wanted is None or wanted in (BUILT_IN, "builtin", "default", "legacy", NONE):
        return SlotFacts(slot, NONE if wanted == NONE else default, wanted)
    known = home.registry.extensions[point] if point else {}
    if wanted in known:
        try:
            call_contained(known[wanted].make.load)
        except PluginError as error:
            return SlotFacts(slot, default, wanted, f"the plugin '{known[wanted].plugin}' failed: {error}")
        return SlotFacts(slot, known[wanted].plugin, wanted)
    claiming = [
        each.name
        for each in (*home.registry.built_in, *home.registry.plugins)
        if each.name == wanted and each.state is PluginState.ON and slot in home.registry.claimed_slots(each.name)
    ]
    if claiming:
        return SlotFacts(slot, wanted, wanted)
    known_plugins = (*home.registry.built_in, *home.registry.plugins)
    failed = next((each.because for each in known_plugins if each.name == wanted and each.because), "")
    return SlotFacts(slot, default, wanted, failed or f"no enabled plugin provides '{wanted}'")
