"""`retinue plugins`: which plugins there are, what each brings, and why one is off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Group, Invocation, pass_invocation, table

if TYPE_CHECKING:
    from retinue.plugins.registry import PluginFacts, PluginRegistry


@click.group(cls=Group)
def plugins() -> None:
    """List plugins, say why one is off, and switch them."""


@plugins.command("list")
@pass_invocation
def list_(invocation: Invocation) -> int:
    """List every plugin that is found; exit code 1 where one that should be used is not."""
    registry = invocation.lay_foundation().registry
    rows = [(known.name, known.state, known.origin, known.because) for known in registry.plugins]
    none = "No plugins are installed. docs/plugins.md tells how to write one."
    invocation.show(
        [_describe(known) for known in registry.plugins],
        lambda: table(rows, header=("plugin", "state", "from", "")) if rows else none,
    )
    return 1 if registry.problems else 0


@plugins.command()
@click.argument("name")
@pass_invocation
def info(invocation: Invocation, name: str) -> None:
    """Show one plugin: where it comes from, whether it is used, and what it registers."""
    from retinue.cli.wording import label, spell

    details = _describe(_find(invocation.lay_foundation().registry, name))
    invocation.show(details, lambda: table([(label(key), spell(value)) for key, value in details.items() if value]))


@plugins.command()
@click.argument("name")
@pass_invocation
def enable(invocation: Invocation, name: str) -> None:
    """Use a plugin."""
    _switch(invocation, name, on=True)


@plugins.command()
@click.argument("name")
@pass_invocation
def disable(invocation: Invocation, name: str) -> None:
    """Do not use a plugin any more."""
    _switch(invocation, name, on=False)


def _switch(invocation: Invocation, name: str, *, on: bool) -> None:
    """Write the wish down, and tell what became of the plugin: another key may stand against it."""
    import json
    import os

    from retinue.config.edit import set_value

    found = _find(invocation.lay_foundation().registry, name)
    key = f"plugins.entries[{json.dumps(found.name)}].enabled"
    edited = set_value(invocation.home, key, json.dumps(on), os.environ)
    after = _find(invocation.lay_foundation().registry, name)
    told = f"{name} is {after.state}" + (f": {after.because}." if after.because else ".")
    invocation.show({"name": name, "enabled": on, "changed": edited.changed, "state": after.state}, told)


def _find(registry: PluginRegistry, name: str) -> PluginFacts:
    from retinue.core.errors import UsageError

    for known in registry.plugins:
        if known.name == name:
            return known
    names = ", ".join(dict.fromkeys(known.name for known in registry.plugins)) or "none is installed"
    raise UsageError(f"There is no plugin '{name}'. Plugins: {names}.")


def _describe(known: PluginFacts) -> dict[str, Any]:
    return {
        "name": known.name,
        "state": str(known.state),
        "because": known.because,
        "from": known.origin,
        "brings": list(known.brings),
    }
