"""`retinue plugins`: list, install, update, remove, enable, disable, check and write plugins."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Group, Invocation, ask_is_possible, pass_invocation, table

if TYPE_CHECKING:
    from retinue.plugins.install import PluginSourceFiles
    from retinue.plugins.manifest import PluginManifest
    from retinue.plugins.registry import PluginFacts, PluginRegistry
    from retinue.runtime.home import Home


@click.group(cls=Group)
def plugins() -> None:
    pass


@plugins.command("list")
@pass_invocation
def list_plugins(invocation: Invocation) -> int:
    """List the plugins found; exit code 1 if an enabled one cannot be loaded."""
    registry = _probe_plugins(invocation)
    listed = (*registry.built_in, *registry.plugins)
    rows = [(known.name, known.state, known.origin, known.because) for known in listed]
    none = "" if registry.plugins else "\n\nNo others are installed. See docs/plugins.md for how to write one."
    invocation.show(
        [_describe_plugin(registry, known) for known in listed],
        lambda: table(rows, header=("plugin", "state", "from", "")) + none,
    )
    return 1 if registry.problems else 0


@plugins.command("info")
@click.argument("name")
@pass_invocation
def show_plugin(invocation: Invocation, name: str) -> None:
    """Show one plugin: its origin, state and what it registers."""
    from retinue.cli.terminal import format_value, label

    registry = _probe_plugins(invocation)
    details = _describe_plugin(registry, _find_plugin(registry, name))
    invocation.show(
        details, lambda: table([(label(key), format_value(value)) for key, value in details.items() if value])
    )


@plugins.command("enable")
@click.argument("name")
@pass_invocation
def enable_plugin(invocation: Invocation, name: str) -> None:
    """Enable a plugin."""
    _switch_plugin(invocation, name, on=True)


@plugins.command("disable")
@click.argument("name")
@pass_invocation
def disable_plugin(invocation: Invocation, name: str) -> None:
    """Disable a plugin."""
    _switch_plugin(invocation, name, on=False)


@plugins.command("install")
@click.argument("source")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_invocation
def install_plugin(invocation: Invocation, source: str, *, yes: bool) -> int:
    """Install a plugin into the home: a folder, a wheel, a git URL, or a package of the index.

    It shows what the plugin registers and asks for before any code of it runs. Packages that it needs are installed
    into an environment of its own. Retinue restarts no gateway: run `retinue gateway restart` if one runs.
    """
    from retinue.plugins.install import install, open_source

    home = invocation.load_home()
    with open_source(source) as found:
        if not _consent(invocation, found, yes=yes):
            return 1
        install(found, home.paths.plugins, progress=invocation.note)
    return _report_installed(invocation, found.manifest.id, "installed")


@plugins.command("update")
@click.argument("name")
@click.option("--from", "source", help="Another source than that of the installation.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_invocation
def update_plugin(invocation: Invocation, name: str, source: str | None, *, yes: bool) -> int:
    """Install a plugin again from its source. Its settings and data stay."""
    from retinue.core.errors import UsageError
    from retinue.plugins.install import install, open_source, read_record

    home = invocation.load_home()
    folder = _installed(home, name)
    before = next((known.manifest for known in home.registry.plugins if known.name == name), None)
    with open_source(source or read_record(folder).requested) as found:
        if found.manifest.id != name:
            raise UsageError(f"The source has the plugin '{found.manifest.id}', not '{name}'. Nothing was changed.")
        if not _consent(invocation, found, yes=yes, before=before):
            return 1
        install(found, home.paths.plugins, replace=True, progress=invocation.note)
    return _report_installed(invocation, name, "updated")


@plugins.command("remove")
@click.argument("name")
@pass_invocation
def remove_plugin(invocation: Invocation, name: str) -> None:
    """Remove an installed plugin. Its settings and data stay."""
    from retinue.plugins.install import remove

    home = invocation.load_home()
    folder = _installed(home, name)
    remove(folder)
    data = home.paths.path / "plugin-data" / name
    kept = f" Its data stays in {data}." if data.exists() else ""
    invocation.show({"id": name, "removed": True, "folder": str(folder)}, f"{name} is removed.{kept}")


@plugins.command("check")
@click.argument("plugin")
@pass_invocation
def check_plugin(invocation: Invocation, plugin: str) -> int:
    """Check a plugin, by its name or folder: manifest, requirements, settings, and that each target can be imported.

    This runs code of the plugin. Exit code 1 if there are problems.
    """
    from retinue.runtime.inspect.plugins import check_targets

    registry, known = _find_to_check(invocation, plugin)
    problems = [known.because] if known.because else list(check_targets(registry, known))
    notes = list(known.manifest.bundle.notes) if known.manifest is not None else []
    data = {**_describe_plugin(registry, known), "problems": problems, "notes": notes}
    for note in notes:
        invocation.note(f"not used: {note}")
    text = "\n".join(problems) if problems else f"{known.name} has no problems. It registers {', '.join(known.brings)}."
    invocation.show(data, text)
    return 1 if problems else 0


@plugins.command("new")
@click.argument("name")
@click.option("--dir", "folder", type=click.Path(path_type=Path), help="The folder to write. Default: the name.")
@pass_invocation
def new_plugin(invocation: Invocation, name: str, folder: Path | None) -> None:
    """Write a new plugin: a package with a manifest, one tool, and a test that passes."""
    from retinue import __version__
    from retinue.plugins.scaffold import write_plugin

    place = folder or Path(name)
    written = write_plugin(name, place, __version__)
    text = "\n".join(
        (
            f"Wrote {len(written)} files to {place}. Next:",
            f"  cd {place} && python -m pytest    run its test",
            "  retinue plugins check .           find problems",
            "  retinue plugins install .         install it into your home",
        )
    )
    invocation.show({"id": name, "folder": str(place.resolve()), "files": [str(each) for each in written]}, text)


def _consent(
    invocation: Invocation, source: PluginSourceFiles, *, yes: bool, before: PluginManifest | None = None
) -> bool:
    """Show what a plugin registers and asks for; return whether the owner wants it."""
    from retinue.core.errors import UsageError
    from retinue.plugins.manifest import describe_rights, list_declared

    manifest = source.manifest
    new = set(list_declared(manifest)) - set(list_declared(before)) if before is not None else set()
    lines = [f"{manifest.id} {manifest.version or '(no version)'}: {manifest.description or 'no description'}"]
    lines += ["It registers:"]
    lines += [f"  {each}{'  (new)' if each in new else ''}" for each in list_declared(manifest)] or ["  nothing"]
    lines += ["It asks for:", *(f"  {each}" for each in describe_rights(manifest))]
    lines += [f"  packages: {', '.join(source.requires)}"] if source.requires else []
    lines += ["  its code runs with all your permissions, outside the sandbox"]
    if yes:
        return True
    invocation.note("\n".join(lines))
    if not ask_is_possible():
        raise UsageError("Nothing was installed. Repeat the command with --yes to accept this.")
    return click.confirm("Install it?", err=True)


def _report_installed(invocation: Invocation, name: str, what: str) -> int:
    registry = _probe_plugins(invocation)
    known = _find_plugin(registry, name)
    reason = f": {known.because}" if known.because else ""
    text = f"{name} is {what}; it is {known.state}{reason}. Restart a running gateway to use it there."
    invocation.show(_describe_plugin(registry, known), text)
    return 1 if known.because else 0


def _installed(home: Home, name: str) -> Path:
    from retinue.core.errors import UsageError
    from retinue.plugins.install import installed_folder

    folder = installed_folder(home.paths.plugins, name)
    if folder is None:
        found = sorted(each.parent.name for each in home.paths.plugins.glob("*/install.json"))
        raise UsageError(
            f"'{name}' was not installed with `retinue plugins install`. Installed: {', '.join(found) or 'none'}. "
            "Other plugins are removed as they were added: their package, or plugins.load.paths."
        )
    return folder


def _find_to_check(invocation: Invocation, plugin: str) -> tuple[PluginRegistry, PluginFacts]:
    """Return a plugin of the home, or the one in a folder or file, as if plugins.load.paths named it."""
    path = Path(plugin)
    if not path.exists():
        registry = _probe_plugins(invocation)
        return registry, _find_plugin(registry, plugin)
    from retinue.config.sections.gateway import PluginsSettings
    from retinue.core.errors import UsageError
    from retinue.plugins.discovery import PluginPlaces
    from retinue.plugins.loading import load_registry

    registry = load_registry(PluginsSettings(), PluginPlaces((path.resolve(),)), os.environ)
    here = [known for known in registry.plugins if Path(known.origin).is_relative_to(path.resolve())]
    if not here:
        raise UsageError(f"There is no plugin in {path}.")
    return registry, here[0]


def _switch_plugin(invocation: Invocation, name: str, *, on: bool) -> None:
    """Record the setting and report the plugin's state, which another key may override."""
    from retinue.config.edit import set_value
    from retinue.core.errors import UsageError
    from retinue.plugins.builtin import CORE

    found = _find_plugin(_probe_plugins(invocation), name)
    if found.name == CORE and not on:
        raise UsageError(f"'{name}' has Retinue's own tools and models and is always on. `tools.deny` removes tools.")
    key = f"plugins.entries[{json.dumps(found.name)}].enabled"
    edited = set_value(invocation.home, key, json.dumps(on), os.environ)
    after = _find_plugin(_probe_plugins(invocation), name)
    text = f"{name} is {after.state}" + (f": {after.because}." if after.because else ".")
    invocation.show({"name": name, "enabled": on, "changed": edited.changed, "state": after.state}, text)


def _probe_plugins(invocation: Invocation) -> PluginRegistry:
    """Return the registry of the home after making all tools, so that it shows what fails only then."""
    from retinue.runtime.inspect.explain import every_tool

    home = invocation.load_home()
    every_tool(home)
    return home.registry


def _find_plugin(registry: PluginRegistry, name: str) -> PluginFacts:
    from retinue.core.errors import UsageError

    listed = (*registry.plugins, *registry.built_in)
    for known in listed:
        if known.name == name:
            return known
    names = ", ".join(dict.fromkeys(known.name for known in listed))
    raise UsageError(f"There is no plugin '{name}'. Plugins: {names}.")


def _describe_plugin(registry: PluginRegistry, known: PluginFacts) -> dict[str, Any]:
    manifest = known.manifest
    return {
        "id": known.name,
        "version": manifest.version if manifest else "",
        "description": manifest.description if manifest else "",
        "state": str(known.state),
        "reason": known.because,
        "source": str(known.source),
        "from": known.origin,
        "registers": list(known.brings),
        "slots": sorted(registry.claimed_slots(known.name)),
    }
