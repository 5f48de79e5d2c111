"""`retinue hooks`: list, enable and disable hooks; and the commands that plugins add."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Group, Invocation, pass_invocation, table

if TYPE_CHECKING:
    from retinue.runtime.automation.hooks import KnownHook


@click.group(cls=Group)
def hooks() -> None:
    pass


@hooks.command("list")
@pass_invocation
def list_hooks(invocation: Invocation) -> None:
    """List hooks with their state and origin."""
    found = _known_hooks(invocation)
    rows = [(known.name, _hook_state(known), known.source, _hook_description(known)) for known in found]
    data = [_describe_hook(known) for known in found]
    invocation.show(data, lambda: table(rows, header=("hook", "state", "from", "")))


@hooks.command("info")
@click.argument("name")
@pass_invocation
def show_hook(invocation: Invocation, name: str) -> None:
    """Show one hook: its events, location and description."""
    from retinue.storage.frontmatter import split_front_matter

    known = _find_hook(invocation, name)
    _, about = split_front_matter((known.folder / "HOOK.md").read_text("utf-8", "replace"))
    rows = [
        ("state", _hook_state(known)),
        ("from", f"{known.source}, {known.folder}"),
        ("events", ", ".join(known.hook.events) if known.hook else "-"),
        *(("problem", problem) for problem in known.problems),
    ]
    text = f"{known.name}: {_hook_description(known)}\n\n{table(rows, indent='  ')}\n\n{about}".strip()
    invocation.show(_describe_hook(known), text)


@hooks.command("enable")
@click.argument("name")
@pass_invocation
def enable_hook(invocation: Invocation, name: str) -> None:
    """Enable a hook."""
    _switch_hook(invocation, name, on=True)


@hooks.command("disable")
@click.argument("name")
@pass_invocation
def disable_hook(invocation: Invocation, name: str) -> None:
    """Disable a hook."""
    _switch_hook(invocation, name, on=False)


@hooks.command()
@pass_invocation
def check(invocation: Invocation) -> int:
    """List enabled hooks that cannot be used, with the reason; exit code 1 if there are any."""
    found = _known_hooks(invocation)
    broken = [known for known in found if known.enabled and known.problems]
    ready = sum(known.runs for known in found)
    lines = [f"{known.name}: {problem}" for known in broken for problem in known.problems]
    summary = f"{ready} of {len(found)} hooks are enabled and ready."
    data = {"ready": ready, "hooks": len(found), "broken": [_describe_hook(known) for known in broken]}
    invocation.show(data, "\n".join((*lines, summary)))
    return 1 if broken else 0


def _known_hooks(invocation: Invocation) -> list[KnownHook]:
    from retinue.runtime.automation.hooks import list_hooks
    from retinue.runtime.home import load_home

    return sorted(list_hooks(load_home(invocation.home)), key=lambda known: known.name)


def _find_hook(invocation: Invocation, name: str) -> KnownHook:
    from retinue.core.errors import UsageError

    found = _known_hooks(invocation)
    for known in found:
        if known.name == name:
            return known
    raise UsageError(f"There is no hook '{name}'. Hooks: {', '.join(known.name for known in found)}.")


def _switch_hook(invocation: Invocation, name: str, *, on: bool) -> None:
    from retinue.config.edit import set_value

    known = _find_hook(invocation, name)
    key = f"hooks.internal.entries.{known.name}.enabled"
    edited = set_value(invocation.home, key, json.dumps(on), os.environ)
    for problem in (*edited.problems, *(known.problems if on else ())):
        invocation.note(f"warning: {problem}")
    text = f"{name} is {'on' if on else 'off'}. A running gateway applies the change by itself."
    invocation.show({"name": name, "enabled": on, "changed": edited.changed}, text)


def _hook_state(known: KnownHook) -> str:
    if not known.enabled:
        return "off"
    return "broken" if known.problems else "on"


def _hook_description(known: KnownHook) -> str:
    return known.hook.description if known.hook else "; ".join(known.problems)


def _describe_hook(known: KnownHook) -> dict[str, Any]:
    return {
        "name": known.name,
        "state": _hook_state(known),
        "enabled": known.enabled,
        "source": known.source,
        "folder": str(known.folder),
        "description": known.hook.description if known.hook else "",
        "events": list(known.hook.events) if known.hook else [],
        "problems": list(known.problems),
    }


def find_plugin_command(name: str, arguments: Sequence[str]) -> click.Command | None:
    """Return a command that a plugin adds to the command line; None if no enabled plugin has it."""
    from retinue.core.errors import RetinueError
    from retinue.core.extension import CommandExtension, ExtensionPoint
    from retinue.plugins.containment import call_contained
    from retinue.plugins.manifest import PluginError
    from retinue.runtime.home import load_home
    from retinue.storage.home_paths import locate_home

    try:
        home = load_home(locate_home(_option(arguments, "--home"), _option(arguments, "--profile")))
    except (RetinueError, OSError):
        return None  # the command is unknown; whatever is wrong with the home is reported by known commands
    found = home.registry.extensions[ExtensionPoint.CLI].get(name)
    if not isinstance(found, CommandExtension):
        return None
    try:
        command = call_contained(found.make.load)
    except PluginError as error:
        raise click.ClickException(f"The plugin '{found.plugin}' failed: {error}.") from None
    if not isinstance(command, click.Command):
        raise click.ClickException(f"{found.make.target} of the plugin '{found.plugin}' is not a click command.")
    return command


def _option(arguments: Sequence[str], name: str) -> str | None:
    """Return the value of an option, written as `--name value` or `--name=value`."""
    for index, argument in enumerate(arguments):
        if argument == name and index + 1 < len(arguments):
            return arguments[index + 1]
        if argument.startswith(f"{name}="):
            return argument.partition("=")[2]
    return None
