"""`retinue logs`: show log records."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Command, Invocation, pass_invocation
from retinue.cli.terminal import echo

if TYPE_CHECKING:
    from pathlib import Path

    from retinue.audit.log_reader import LogRecord


POLL_SECONDS = 0.2
LEVELS = ("debug", "info", "warning", "error", "critical")


@click.command(cls=Command)
@click.option("--follow", "-f", is_flag=True, help="Follow new records until Ctrl-C.")
@click.option(
    "--lines", "-n", type=click.IntRange(0, 100_000), default=50, show_default=True, help="Maximum number of records."
)
@click.option("--level", type=click.Choice(LEVELS, case_sensitive=False), help="Minimum level.")
@click.option("--session", metavar="KEY", help="Only records of this session (or a part of its key) or run.")
@pass_invocation
def logs(invocation: Invocation, follow: bool, lines: int, level: str | None, session: str | None) -> None:
    """The most recent record is last. With --json and --follow, one JSON object is printed per line."""
    from retinue.audit.log_reader import LogFollower, make_filter, read_last
    from retinue.runtime.home import load_home
    from retinue.storage.files.errors import explained

    path, wanted = load_home(invocation.home).log_file, make_filter(level, session)
    with explained(path.name, path.parent):
        exists = _can_be_read(path)
    if not follow:
        found = read_last(path, lines, wanted)
        none = f"No matching records in {path}." if exists else f"There is no log yet at {path}."
        invocation.show([_describe(record) for record in found], lambda: "\n".join(map(_format, found)) or none)
        return
    if not exists:
        invocation.note(f"There is no log yet at {path}; waiting for it.")
    follower = LogFollower(path)
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
    """Return whether the log exists; raises `OSError` if it cannot be read."""
    try:
        path.open("rb").close()
    except FileNotFoundError:
        return False
    return True


def _print(invocation: Invocation, record: LogRecord) -> None:
    from retinue.security.redaction import redact_data, redact_everything

    if invocation.as_json:
        import json

        echo(json.dumps(redact_data(_describe(record)), ensure_ascii=False), exact=True)
    else:
        echo(redact_everything(_format(record)))


def _describe(record: LogRecord) -> dict[str, Any]:
    return {
        "time": record.time,
        "level": record.level,
        "logger": record.logger,
        "agent": record.agent,
        "session": record.session,
        "run": record.run,
        "message": record.message,
    }


def _format(record: LogRecord) -> str:
    """Remove terminal control sequences from a record."""
    from retinue.tools.shell.explanation import show_exactly

    return show_exactly(record.raw.replace("\t", "    "))
