"""`retinue logs`: what the program wrote down about its work."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Command, Invocation, pass_invocation
from retinue.cli.terminal import echo

if TYPE_CHECKING:
    from pathlib import Path

    from retinue.audit.logbook import Record

POLL_SECONDS = 0.2
LEVELS = ("debug", "info", "warning", "error", "critical")


@click.command(cls=Command)
@click.option("--follow", "-f", is_flag=True, help="Go on with what is written from now on, until Ctrl-C.")
@click.option("--lines", "-n", type=click.IntRange(0, 100_000), default=50, show_default=True, help="How many records.")
@click.option("--level", type=click.Choice(LEVELS, case_sensitive=False), help="Only this level and worse ones.")
@click.option("--session", metavar="KEY", help="Only records of this session (a part of its key will do) or run.")
@pass_invocation
def logs(invocation: Invocation, follow: bool, lines: int, level: str | None, session: str | None) -> None:
    """Show the newest records of the log. With --json and --follow, one JSON object per line."""
    from retinue.audit.logbook import Follower, make_filter, read_last
    from retinue.runtime.foundation import lay_foundation
    from retinue.storage.file_errors import explained

    path, wanted = lay_foundation(invocation.home).log_file, make_filter(level, session)
    with explained(path.name, path.parent):
        exists = _can_be_read(path)
    if not follow:
        found = read_last(path, lines, wanted)
        none = f"Nothing in {path}." if exists else f"There is no log yet at {path}."
        invocation.show([_describe(record) for record in found], lambda: "\n".join(map(_spell, found)) or none)
        return
    if not exists:
        invocation.note(f"There is no log yet at {path}; waiting for it.")
    follower = Follower(path)
    try:
        for record in read_last(path, lines, wanted):
            _print(invocation, record)
        while True:
            for record in filter(wanted, follower.poll()):
                _print(invocation, record)
            time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        return  # how following ends
    finally:
        follower.close()


def _can_be_read(path: Path) -> bool:
    """Whether there is a log; raises `OSError` where there is one that may not be read."""
    try:
        path.open("rb").close()
    except FileNotFoundError:
        return False
    return True


def _print(invocation: Invocation, record: Record) -> None:
    from retinue.security.redaction import redact_data, redact_everything

    if invocation.as_json:
        import json

        echo(json.dumps(redact_data(_describe(record)), ensure_ascii=False), exact=True)
    else:
        echo(redact_everything(_spell(record)))


def _describe(record: Record) -> dict[str, Any]:
    return {
        "time": record.time,
        "level": record.level,
        "logger": record.logger,
        "agent": record.agent,
        "session": record.session,
        "run": record.run,
        "message": record.message,
    }


def _spell(record: Record) -> str:
    """The record without anything that would change how the terminal shows the rest."""
    from retinue.tools.shell.explanation import show_exactly

    return show_exactly(record.raw.replace("\t", "    "))
