"""`retinue hooks`: hook folders and bundled hooks."""

from __future__ import annotations

import os
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
def list_(invocation: Invocation) -> None:
    """List hooks with their state and origin."""
    found = _survey(invocation)
    rows = [(known.name, _state(known), known.source, _description(known)) for known in found]
    invocation.show([_describe(known) for known in found], lambda: table(rows, header=("hook", "state", "from", "")))


@hooks.command()
@click.argument("name")
@pass_invocation
def info(invocation: Invocation, name: str) -> None:
    """Show one hook: its events, location and description."""
    from retinue.storage.frontmatter import split_front_matter

    known = _find(invocation, name)
    _, about = split_front_matter((known.folder / "HOOK.md").read_text("utf-8", "replace"))
    rows = [
        ("state", _state(known)),
        ("from", f"{known.source}, {known.folder}"),
        ("events", ", ".join(known.hook.events) if known.hook else "-"),
        *(("problem", problem) for problem in known.problems),
    ]
    text = f"{known.name}: {_description(known)}\n\n{table(rows, indent='  ')}\n\n{about}".strip()
    invocation.show(_describe(known), text)


@hooks.command()
@click.argument("name")
@pass_invocation
def enable(invocation: Invocation, name: str) -> None:
    """Enable a hook."""
    _switch(invocation, name, on=True)


@hooks.command()
@click.argument("name")
@pass_invocation
def disable(invocation: Invocation, name: str) -> None:
    """Disable a hook."""
    _switch(invocation, name, on=False)


@hooks.command()
@pass_invocation
def check(invocation: Invocation) -> int:
    """List enabled hooks that cannot be used, with the reason; exit code 1 if there are any."""
    found = _survey(invocation)
    broken = [known for known in found if known.enabled and known.problems]
    ready = sum(known.runs for known in found)
    lines = [f"{known.name}: {problem}" for known in broken for problem in known.problems]
    summary = f"{ready} of {len(found)} hooks are enabled and ready."
    data = {"ready": ready, "hooks": len(found), "broken": [_describe(known) for known in broken]}
    invocation.show(data, "\n".join((*lines, summary)))
    return 1 if broken else 0


def _survey(invocation: Invocation) -> list[KnownHook]:
    from retinue.runtime.automation.hooks import list_hooks
    from retinue.runtime.home import load_home

    return sorted(list_hooks(load_home(invocation.home)), key=lambda known: known.name)


def _find(invocation: Invocation, name: str) -> KnownHook:
    from retinue.core.errors import UsageError

    found = _survey(invocation)
    for known in found:
        if known.name == name:
            return known
    raise UsageError(f"There is no hook '{name}'. Hooks: {', '.join(known.name for known in found)}.")


def _switch(invocation: Invocation, name: str, *, on: bool) -> None:
    from retinue.config.edit import set_value

    known = _find(invocation, name)
    key = f"hooks.internal.entries.{known.name}.enabled"
    edited = set_value(invocation.home, key, "true" if on else "false", os.environ)
    for problem in (*edited.problems, *(known.problems if on else ())):
        invocation.note(f"warning: {problem}")
    text = f"{name} is {'on' if on else 'off'}. A running gateway applies the change by itself."
    invocation.show({"name": name, "enabled": on, "changed": edited.changed}, text)


def _state(known: KnownHook) -> str:
    if not known.enabled:
        return "off"
    return "broken" if known.problems else "on"


def _description(known: KnownHook) -> str:
    return known.hook.description if known.hook else "; ".join(known.problems)


def _describe(known: KnownHook) -> dict[str, Any]:
    return {
        "name": known.name,
        "state": _state(known),
        "enabled": known.enabled,
        "source": known.source,
        "folder": str(known.folder),
        "description": known.hook.description if known.hook else "",
        "events": list(known.hook.events) if known.hook else [],
        "problems": list(known.problems),
    }
