"""`retinue workspace history|diff|restore`: what turns changed in a workspace, and how to undo it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Command, Invocation, pass_invocation, table, which_agent

if TYPE_CHECKING:
    from retinue.core.keys import AgentId
    from retinue.storage.checkpoints.store import Checkpoint, CheckpointStore, Direction, FileChange

SIGNS = {"added": "+", "removed": "-", "modified": "~"}
PATHS_SHOWN = 4
_which_checkpoint = click.argument("number", metavar="ID", type=int)


@click.command(cls=Command)
@which_agent
@click.option("--limit", metavar="N", type=click.IntRange(min=1), default=20, show_default=True, help="How many turns.")
@pass_invocation
def history(invocation: Invocation, agent_id: str | None, limit: int) -> None:
    """List the turns that changed files of the workspace, the newest first."""
    _, store = _open(invocation, agent_id)
    found = store.history()[:limit]
    none = "No recorded turn changed files of the workspace."
    invocation.show([_describe(each) for each in found], lambda: table(map(_row, found)) or none)


@click.command(cls=Command)
@click.argument("number", metavar="[ID]", type=int, required=False)
@click.argument("path", required=False)
@which_agent
@pass_invocation
def diff(invocation: Invocation, number: int | None, path: str | None, agent_id: str | None) -> None:
    """Show what a turn changed, in all files or in one. Without ID it is the last turn that changed files."""
    from retinue.core.errors import UsageError

    _, store = _open(invocation, agent_id)
    if number is None:
        newest = store.history()[:1]
        if not newest:
            raise UsageError("No recorded turn changed files of the workspace.")
        number = newest[0].id
    checkpoint = store.get(number)
    changes = [change for change in checkpoint.changes if path in (None, change.path)]
    if not changes:
        raise UsageError(
            f"The turn did not change '{path}'. It changed: {', '.join(c.path for c in checkpoint.changes)}."
        )
    found = {change.path: _diff_of(store, change) for change in changes}
    invocation.show({**_describe(checkpoint), "diffs": found}, lambda: "".join(found.values()).rstrip("\n"), exact=True)


@click.command(cls=Command)
@_which_checkpoint
@click.option("--redo", is_flag=True, help="Repeat the changes of an undone turn instead.")
@which_agent
@pass_invocation
def restore(invocation: Invocation, number: int, redo: bool, agent_id: str | None) -> int:
    """Restore the files as they were before a turn: it and all later turns are undone, the newest first.

    Files that were changed by other means since are left as they are, and the exit code is 1.
    """
    from retinue.core.errors import UsageError
    from retinue.runtime.agents.workspace import open_workspace
    from retinue.runtime.turns.checkpoint import describe_restored, restore_turn
    from retinue.storage.auditlog import CLI

    agent, store = _open(invocation, agent_id)
    home = invocation.load_home()
    if home.is_in_command:
        raise UsageError("A command that an agent runs cannot restore files. Do it yourself.")
    chosen = store.get(number)
    if chosen.undone != redo:
        raise UsageError(f"The turn {number} is {'not undone' if redo else 'undone already'}.")
    later = [each for each in store.history() if each.id >= number and not each.undone]
    direction: Direction = "redo" if redo else "undo"
    with open_workspace(home, agent) as workspace:
        turns = [chosen] if redo else later
        done = [restore_turn(workspace, direction, CLI, number=each.id) for each in turns]
    data = [{**_describe(each.checkpoint), "restored": list(each.paths), "kept": dict(each.kept)} for each in done]
    invocation.show(data, lambda: "\n".join(describe_restored(each, direction) for each in done))
    return 1 if any(each.kept for each in done) else 0


def _open(invocation: Invocation, agent_id: str | None) -> tuple[AgentId, CheckpointStore]:
    from retinue.runtime.turns.checkpoint import open_checkpoints

    home = invocation.load_home()
    agent = home.agent_id(agent_id)
    return agent, open_checkpoints(home, agent)


def _describe(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "id": checkpoint.id,
        "at": checkpoint.at.isoformat(),
        "session": checkpoint.session,
        "run": checkpoint.run,
        "undone": checkpoint.undone,
        "interrupted": checkpoint.interrupted,
        "files": [{"path": change.path, "change": _kind_of(change)} for change in checkpoint.changes],
    }


def _kind_of(change: FileChange) -> str:
    return "added" if change.before is None else "removed" if change.after is None else "modified"


def _row(checkpoint: Checkpoint) -> tuple[str, ...]:
    from retinue.cli.terminal import format_time

    shown = [f"{SIGNS[_kind_of(change)]}{change.path}" for change in checkpoint.changes[:PATHS_SHOWN]]
    more = len(checkpoint.changes) - len(shown)
    marks = "undone" if checkpoint.undone else "interrupted" if checkpoint.interrupted else ""
    paths = " ".join(shown) + (f" and {more} more" if more > 0 else "")
    return str(checkpoint.id), format_time(checkpoint.at), checkpoint.session, marks, paths


def _diff_of(store: CheckpointStore, change: FileChange) -> str:
    """Return a change as a unified diff."""
    from difflib import unified_diff

    sides = []
    for version in (change.before, change.after):
        data = store.read(version)
        if data is not None and b"\0" in data:
            return f"Binary file {change.path} was {_kind_of(change)}.\n"
        if version is not None and not version.is_kept:
            return f"{change.path} was {_kind_of(change)}; it was too large to keep.\n"
        text = f"link to {version.target}\n" if version and version.target else (data or b"").decode("utf-8", "replace")
        sides.append(text.splitlines(keepends=True))
    names = [change.path if version else "/dev/null" for version in (change.before, change.after)]
    return "".join(f"{line.rstrip(chr(10))}\n" for line in unified_diff(sides[0], sides[1], names[0], names[1]))
