"""What all commands share: the options `--home`, `--profile`, `--json` and `--quiet`, and how results are printed.

Declare commands with the `Group` and `Command` classes here (a group's own decorators do), take the `Invocation`
with `@pass_invocation`, and print through it: `show` for the result, `note` for remarks.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from retinue.security.redaction import Redactor
    from retinue.storage.home import Home


class Invocation:
    """One run of the command line: where the home is and how to print."""

    def __init__(self) -> None:
        self.home_option: str | None = None
        self.profile: str | None = None
        self.as_json = False
        self.quiet = False
        self._redactor: Redactor | None = None

    def keep_quiet(self, secret: str) -> None:
        """Show a secret that the person typed nowhere, whatever goes wrong."""
        from retinue.security.redaction import Redactor

        self._redactor = self._redactor or Redactor()
        self._redactor.hide(secret)

    @property
    def home(self) -> Home:
        from retinue.storage.home import locate_home

        return locate_home(self.home_option, self.profile)

    def show(self, data: Any, text: str | Callable[[], str]) -> None:
        """Print the result: `data` as JSON with `--json`, else the text."""
        from retinue.security.redaction import redact_data, redact_everything

        if self.as_json:
            import json

            click.echo(json.dumps(redact_data(data), ensure_ascii=False, indent=2, default=str))
            return
        click.echo(redact_everything(text if isinstance(text, str) else text()))

    def note(self, text: str) -> None:
        """Tell the person something that is not the result; goes to standard error, silenced by `--quiet`."""
        from retinue.security.redaction import redact_everything

        if not self.quiet:
            click.echo(redact_everything(text), err=True)


def keep_logs(home: Home) -> None:
    """Send what the program and its libraries log to a file in the home, without secrets, and never to the terminal.

    Where there is no home yet it goes nowhere.
    """
    import logging

    from retinue.security.logfile import LogFile
    from retinue.security.logs import LOG, ErrandFilter, TextFormatter

    everything = logging.getLogger()
    if any(handler.name == LOG for handler in everything.handlers):
        return
    handler: logging.Handler = logging.NullHandler()
    if home.path.is_dir():
        try:
            home.log_file.parent.mkdir(mode=0o700, exist_ok=True)
            handler = LogFile(home.log_file)
        except OSError:
            pass
    handler.name = LOG
    handler.addFilter(ErrandFilter())
    handler.setFormatter(TextFormatter())
    everything.addHandler(handler)
    logging.getLogger("retinue").setLevel(logging.INFO)
    logging.captureWarnings(True)


pass_invocation = click.make_pass_decorator(Invocation, ensure=True)


def _store(attribute: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def keep(context: click.Context, _parameter: click.Parameter, value: Any) -> None:
        if value is not None and value is not False:
            setattr(context.ensure_object(Invocation), attribute, value)

    return keep


def common_options() -> list[click.Option]:
    """The options of every command; given again further right they win."""
    return [
        click.Option(
            ["--home", "home_option"],
            metavar="DIR",
            help="State folder (default: RETINUE_HOME, else ~/.retinue).",
            expose_value=False,
            callback=_store("home_option"),
        ),
        click.Option(
            ["--profile"],
            metavar="NAME",
            help="Use the home of this profile, ~/.retinue-NAME.",
            expose_value=False,
            callback=_store("profile"),
        ),
        click.Option(
            ["--json", "as_json"],
            is_flag=True,
            help="Print the result as JSON.",
            expose_value=False,
            callback=_store("as_json"),
        ),
        click.Option(
            ["--quiet", "-q"],
            is_flag=True,
            help="Print no remarks, only the result.",
            expose_value=False,
            callback=_store("quiet"),
        ),
    ]


class Command(click.Command):
    """A command that takes the common options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(common_options())


class Group(click.Group):
    """A group whose commands all take the common options."""

    command_class = Command

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(common_options())


Group.group_class = Group


which_agent = click.option("--agent", "agent_id", metavar="ID", help="Which agent (default: the default agent).")
which_session = click.option("--session", metavar="KEY", help="Which session (default: the agent's main one).")
added_skills = click.option(
    "--skill",
    "skills",
    metavar="PATH",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="Add a skill for this run.",
)


def table(rows: Iterable[Sequence[object]], *, header: Sequence[str] | None = None, indent: str = "") -> str:
    """Rows as aligned columns; the last column is not padded."""
    lines = [[str(cell) for cell in row] for row in ([header] if header else [])] if header else []
    lines += [[str(cell) for cell in row] for row in rows]
    if not lines:
        return ""
    widths = [max(_width(row[i]) for row in lines if i < len(row)) for i in range(max(map(len, lines)))]
    return "\n".join(
        (indent + "  ".join(cell + " " * (widths[i] - _width(cell)) for i, cell in enumerate(row))).rstrip()
        for row in lines
    )


def _width(text: str) -> int:
    """Columns that a text takes in a terminal, near enough for tables: wide characters count double."""
    return len(text) + sum(1 for char in text if ord(char) > 0x2E7F and not 0xFE00 <= ord(char) <= 0xFE0F)


def ask_is_possible() -> bool:
    """Whether a person sits at a terminal that we may ask."""
    return sys.stdin.isatty() and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
