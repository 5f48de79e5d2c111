"""`retinue plugins`: list, enable and disable plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Group, Invocation, pass_invocation, table

if TYPE_CHECKING:
    from retinue.plugins.registry import PluginFacts, PluginRegistry


@click.group(cls=Group)
def plugins() -> None:
    pass


@plugins.command("list")
@pass_invocation
def list_(invocation: Invocation) -> int:
    """List the plugins found; exit code 1 if an enabled one cannot be loaded."""
    registry = invocation.load_home().registry
    rows = [(known.name, known.state, known.origin, known.because) for known in registry.plugins]
    none = "No plugins are installed. See docs/plugins.md for how to write one."
    invocation.show(
        [_describe(known) for known in registry.plugins],
        lambda: table(rows, header=("plugin", "state", "from", "")) if rows else none,
    )
    return 1 if registry.problems else 0


@plugins.command()
@click.argument("name")
@pass_invocation
def info(invocation: Invocation, name: str) -> None:
    """Show one plugin: its origin, state and what it registers."""
    from retinue.cli.formatting import format_value, label

    details = _describe(_find(invocation.load_home().registry, name))
    invocation.show(
        details, lambda: table([(label(key), format_value(value)) for key, value in details.items() if value])
    )


@plugins.command()
@click.argument("name")
@pass_invocation
def enable(invocation: Invocation, name: str) -> None:
    """Enable a plugin."""
    _switch(invocation, name, on=True)


@plugins.command()
@click.argument("name")
@pass_invocation
def disable(invocation: Invocation, name: str) -> None:
    """Disable a plugin."""
    _switch(invocation, name, on=False)


def _switch(invocation: Invocation, name: str, *, on: bool) -> None:
    """Record the setting and report the plugin's state, which another key may override."""
    import json
    import os

    from retinue.config.edit import set_value

    found = _find(invocation.load_home().registry, name)
    key = f"plugins.entries[{json.dumps(found.name)}].enabled"
    edited = set_value(invocation.home, key, json.dumps(on), os.environ)
    after = _find(invocation.load_home().registry, name)
    told = f"{name} is {after.state}" + (f": {after.because}." if after.because else ".")
    invocation.show({"name": name, "enabled": on, "changed": edited.changed, "state": after.state}, told)


def _find(registry: PluginRegistry, name: str) -> PluginFacts:
    from retinue.core.errors import UsageError

    for known in registry.plugins:
        if known.name == name:
            return known
    names = ", ".join(dict.fromkeys(known.name for known in registry.plugins)) or "none installed"
    raise UsageError(f"There is no plugin '{name}'. Plugins: {names}.")


def _describe(known: PluginFacts) -> dict[str, Any]:
    return {
        "name": known.name,
        "state": str(known.state),
        "because": known.because,
        "from": known.origin,
        "brings": list(known.brings),
    }
