"""All methods of the protocol with their implementations; a new noun is a module and an entry here."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from retinue.core.extension import ExtensionPoint
from retinue.gateway.gateway import Gateway
from retinue.gateway.methods import (
    agents,
    approvals,
    automation,
    inspection,
    messages,
    running,
    sessions,
    setup,
    skills,
    subagents,
    system,
    workspace,
)
from retinue.gateway.methods.registry import MethodBinding
from retinue.gateway.plugins import plugin_methods
from retinue.plugins.registry import PluginRegistry
from retinue.wire.methods import METHODS

_NOUNS = (
    *(system, messages, sessions, agents, approvals, automation, setup, subagents),
    *(inspection, workspace, skills, running),
)


def methods_with_plugins(registry: PluginRegistry) -> Mapping[str, MethodBinding]:
    """Return the built-in methods and those of plugins, `<plugin>.<name>`."""
    added = registry.extensions[ExtensionPoint.METHODS]
    return {**plugin_methods(added.values()), **all_methods()} if added else all_methods()


def gateway_methods(gateway: Gateway) -> Mapping[str, MethodBinding]:
    """Return the methods of a gateway: also those of plugins, and of a team."""
    found = methods_with_plugins(gateway.runtime.home.registry)
    if gateway.members is None:
        return found
    from retinue.gateway.methods import team  # a home without a team does not import it

    return {**found, **team.registry.bindings}


@cache
def all_methods() -> Mapping[str, MethodBinding]:
    """Return the implementation of each method; raise `ValueError` if one is missing."""
    found: dict[str, MethodBinding] = {}
    for noun in _NOUNS:
        twice = found.keys() & noun.registry.bindings.keys()
        if twice:
            raise ValueError(f"two modules implement these methods: {sorted(twice)}")
        found |= noun.registry.bindings
    if found.keys() != METHODS.keys():
        raise ValueError(f"these methods are declared or implemented, but not both: {found.keys() ^ METHODS.keys()}")
    return found
