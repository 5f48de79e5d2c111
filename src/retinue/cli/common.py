"""What all commands share: the options `--home`, `--profile`, `--json` and `--quiet`, and how results are printed.

Declare commands with the `Group` and `Command` classes here (a group's own decorators do), take the `Invocation`
with `@pass_invocation`, and print through it: `show` for the result, `note` for remarks.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from retinue.cli.terminal import echo, is_terminal, width

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager

    from retinue.runtime.foundation import Foundation
    from retinue.security.redaction import Redactor
    from retinue.storage.database import Database
    from retinue.storage.home import Home


F = TypeVar("F", bound="Callable[..., Any]")

TOKEN_VARIABLE = "RETINUE_GATEWAY_TOKEN"  # noqa: S105 - the name of a variable
MOST_HELP = 200
"""Characters of a command's first sentence in the help of its group."""


class Invocation:
    """One run of the command line: where the home is and how to print."""

    def __init__(self) -> None:
        self.home_option: str | None = None
        self.profile: str | None = None
        self.as_json = False
        self.quiet = False
        self.gateway_url: str | None = None
        self.gateway_token: str | None = None
        self._redactor: Redactor | None = None

    def keep_quiet(self, secret: str) -> None:
        """Show a secret that the person typed nowhere, whatever goes wrong."""
        from retinue.security.redaction import Redactor

        self._redactor = self._redactor or Redactor()
        self._redactor.hide(secret)

    @property
    def home(self) -> Home:
        from retinue.core.errors import UsageError
        from retinue.storage.home import locate_home

        home = locate_home(self.home_option, self.profile)
        if os.path.isfile(home.path):  # noqa: PTH113 - unlike Path.is_file, false where it may not be looked at
            raise UsageError(f"The home must be a folder, and {home.path} is a file. Name another with --home.")
        return home

    def lay_foundation(self) -> Foundation:
        """What everything of the home stands on; problems of its configuration are told."""
        from retinue.runtime.foundation import lay_foundation

        foundation = lay_foundation(self.home)
        for problem in foundation.loaded.problems:
            self.note(str(problem))
        return foundation

    def show(self, data: Any, text: str | Callable[[], str], *, exact: bool = False) -> None:
        """Print the result: `data` as JSON with `--json`, else the text, with its lines as they are where `exact`."""
        from retinue.security.redaction import redact_data, redact_everything

        if self.as_json:
            import json

            echo(json.dumps(redact_data(data), ensure_ascii=False, indent=2, default=str), exact=True)
            return
        echo(redact_everything(text if isinstance(text, str) else text()), exact=exact)

    def note(self, text: str) -> None:
        """Tell the person something that is not the result; goes to standard error, silenced by `--quiet`."""
        from retinue.security.redaction import redact_everything

        if not self.quiet:
            echo(redact_everything(text), err=True)


def open_state(foundation: Foundation) -> AbstractContextManager[Database]:
    """The database of the home, for somebody who only looks or changes one thing."""
    from contextlib import closing

    from retinue.storage.database import DATABASE_NAME, Database

    return closing(Database(foundation.home.path / DATABASE_NAME, durable=foundation.durable, newer="aside"))


def keep_logs(home: Home) -> None:
    """Send what the program and its libraries log to a file in the home, without secrets, and never to the terminal.

    Where there is no home yet it goes nowhere.
    """
    import logging

    from retinue.security.log_file import LogFile
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

    def invoke(self, ctx: click.Context) -> Any:
        """Run it; what is logged goes to the log file where one is kept, and never between the lines of a result."""
        import logging

        logging.lastResort = logging.NullHandler()
        return super().invoke(ctx)


class Group(click.Group):
    """A group whose commands all take the common options."""

    command_class = Command

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(common_options())

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their whole first sentences, which click would cut off."""
        listed = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(MOST_HELP)) for name, each in listed if each])


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


def which_gateway(command: F) -> F:
    """The options that name a gateway elsewhere; the invocation keeps what they say."""
    url = "Talk to the gateway there (default: that of gateway.remote, where gateway.mode is remote)."
    token = f"What lets you in there; better in {TOKEN_VARIABLE}, which others do not see."
    for names, variable, about in (
        (("--token", "gateway_token"), TOKEN_VARIABLE, token),
        (("--url", "gateway_url"), None, url),
    ):
        command = click.option(
            *names,
            metavar=names[0][2:].upper(),
            envvar=variable,
            help=about,
            expose_value=False,
            callback=_store(names[1]),
        )(command)
    return command


def table(rows: Iterable[Sequence[object]], *, header: Sequence[str] | None = None, indent: str = "") -> str:
    """Rows as aligned columns; the last column is not padded."""
    lines = [[str(cell) for cell in row] for row in ((header, *rows) if header else rows)]
    if not lines:
        return ""
    widths = [max(width(row[i]) for row in lines if i < len(row)) for i in range(max(map(len, lines)))]
    return "\n".join(
        (indent + "  ".join(cell + " " * (widths[i] - width(cell)) for i, cell in enumerate(row))).rstrip()
        for row in lines
    )


def ask_is_possible() -> bool:
    """Whether a person sits at a terminal that we may ask."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"


def read_piped() -> str:
    """What was piped in; nothing where standard input is a terminal, or closed."""
    return "" if sys.stdin is None or is_terminal(sys.stdin) else sys.stdin.read()
