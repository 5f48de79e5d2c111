"""The hooks of a running Retinue: every hook point by name, and the subscribed plugins."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from retinue.agent.hook_points import AFTER_TOOL, BEFORE_TOOL, TURN_END
from retinue.config.sections.gateway import PluginEntry
from retinue.context.points import AFTER_COMPACTION, BEFORE_COMPACTION, BEFORE_MODEL, BEFORE_PROMPT
from retinue.core.extension import HookSpec
from retinue.dispatch.points import COMMAND, MESSAGE_RECEIVED, MESSAGE_SENDING, SESSION_END, SESSION_START
from retinue.hooks.bus import DEFAULT_TIMEOUT_SECONDS, HookBus, HookPoint, HookQuery, Subscriber
from retinue.runtime.automation.hook_folders import ON_BY_ITSELF, bundled_on, load_hook_folders
from retinue.runtime.home import Home
from retinue.workspace.points import BOOTSTRAP

if TYPE_CHECKING:
    from retinue.runtime.turns.sessions import Sessions

log = logging.getLogger(__name__)

POINTS: dict[str, HookPoint[Any] | HookQuery[Any, Any]] = {
    point.name: point
    for point in (
        BOOTSTRAP,
        BEFORE_MODEL,
        BEFORE_PROMPT,
        BEFORE_TOOL,
        AFTER_TOOL,
        COMMAND,
        MESSAGE_RECEIVED,
        MESSAGE_SENDING,
        BEFORE_COMPACTION,
        AFTER_COMPACTION,
        SESSION_START,
        SESSION_END,
        TURN_END,
    )
}
"""All hook points that a plugin can subscribe to."""


def open_bus(home: Home) -> HookBus:
    """Return a bus with the hooks of plugins and of hook folders; one that cannot be loaded is logged and skipped."""
    bus = HookBus()
    for spec in home.registry.hooks:
        point = POINTS.get(spec.hook)
        if point is None:
            log.warning("plugin %s: there is no hook '%s'; hooks: %s", spec.plugin, spec.hook, ", ".join(POINTS))
            continue
        try:
            handler = spec.handler.load()
        except Exception:  # boundary: a plugin may raise anything
            log.exception("the hook of plugin %s at %s could not be loaded", spec.plugin, spec.hook)
            continue
        bus.subscribe(point, handler, _subscriber(spec, home.config.plugins.entries.get(spec.plugin)))
    folders = load_hook_folders(home)
    if folders.hooks:
        folders.listen(bus)
    return bus


def attach_bundled(sessions: Sessions) -> None:
    """Subscribe the enabled bundled hooks; they need the sessions, which are created after the bus."""
    names = [name for name in bundled_on(sessions.home) if name not in ON_BY_ITSELF]
    if names:
        from retinue.runtime.automation.bundled_hooks import BUNDLED_HOOKS

        for name in names:
            BUNDLED_HOOKS[name](sessions)


def _subscriber(spec: HookSpec, entry: PluginEntry | None) -> Subscriber:
    """Return the plugin with its permissions from the configuration."""
    rules = (entry or PluginEntry()).hooks
    granted = {"prompt": rules.allow_prompt_injection, "model": rules.allow_model_override}
    milliseconds = rules.timeouts.get(spec.hook, rules.timeout_ms)
    return Subscriber(
        spec.plugin,
        spec.priority,
        frozenset(name for name, given in granted.items() if given),
        milliseconds / 1000 if milliseconds else DEFAULT_TIMEOUT_SECONDS,
    )
