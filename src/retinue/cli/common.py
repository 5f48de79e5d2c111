"""What all commands share: common options, printing of results, and lookup of a session by name.

Declare commands with the `Group` and `Command` classes here (a group's own decorators do), take the `Invocation`
with `@pass_invocation`, and print through it: `show` for the result, `note` for remarks.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from retinue.cli.terminal import echo, is_terminal, width

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime

    from rich.progress import Progress, TaskID

    from retinue.core.keys import SessionKey
    from retinue.runtime.home import Home
    from retinue.security.redaction import Redactor
    from retinue.sessions.protocol import StoredSessions
    from retinue.sessions.session import Session
    from retinue.storage.database import Database
    from retinue.storage.home_paths import HomePaths


F = TypeVar("F", bound="Callable[..., Any]")

TOKEN_VARIABLE = "RETINUE_GATEWAY_TOKEN"  # noqa: S105 - the name of a variable
MAX_HELP_CHARS = 200
"""Maximum length of a command summary in the help of its group."""


class Invocation:
    """One run of the command line: the home and how to print."""

    def __init__(self) -> None:
        self.home_option: str | None = None
        self.profile: str | None = None
        self.as_json = False
        self.quiet = False
        self.gateway_url: str | None = None
        self.gateway_token: str | None = None
        self._redactor: Redactor | None = None

    def keep_quiet(self, secret: str) -> None:
        """Redact a secret that the person typed from all output."""
        from retinue.security.redaction import Redactor

        self._redactor = self._redactor or Redactor()
        self._redactor.hide(secret)

    @property
    def home(self) -> HomePaths:
        from retinue.core.errors import UsageError
        from retinue.storage.home_paths import locate_home

        home = locate_home(self.home_option, self.profile)
        if os.path.isfile(home.path):  # noqa: PTH113 - unlike Path.is_file, false where it may not be looked at
            raise UsageError(f"The home must be a folder, and {home.path} is a file. Name another with --home.")
        return home

    def load_home(self) -> Home:
        """Load the home; configuration problems are printed."""
        from retinue.runtime.home import load_home

        home = load_home(self.home)
        for problem in home.loaded.problems:
            self.note(str(problem))
        return home

    def show(self, data: Any, text: str | Callable[[], str], *, exact: bool = False) -> None:
        """Print the result: `data` with `--json`, otherwise the text; `exact` keeps its lines unwrapped."""
        from retinue.security.redaction import redact_data, redact_everything

        if self.as_json:
            import json

            echo(json.dumps(redact_data(data), ensure_ascii=False, indent=2, default=str), exact=True)
            return
        echo(redact_everything(text if isinstance(text, str) else text()), exact=exact)

    def note(self, text: str) -> None:
        """Print a remark on standard error; `--quiet` suppresses it."""
        from retinue.security.redaction import redact_everything

        if not self.quiet:
            echo(redact_everything(text), err=True)


def open_state(home: Home) -> AbstractContextManager[Database]:
    """Open the state database of the home for one query or change."""
    from contextlib import closing

    return closing(home.open_state())


def keep_logs(home: HomePaths) -> None:
    """Send log records to a file in the home, without secrets and never to the terminal.

    If there is no home yet, records are discarded.
    """
    import logging

    from retinue.security.logs import LOG, LogFile, RepeatFilter, RunContextFilter, TextFormatter

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
    handler.addFilter(RunContextFilter())
    handler.addFilter(RepeatFilter())
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
    """Add the common options to a command; the rightmost value wins."""
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
            help="Print only the result.",
            expose_value=False,
            callback=_store("quiet"),
        ),
    ]


@contextmanager
def _named_in_errors(context: click.Context) -> Iterator[None]:
    """Let errors of the parser know the command, so that they point to its help."""
    try:
        yield
    except click.UsageError as error:
        error.ctx = error.ctx or context
        raise


class Command(click.Command):
    """A command with the common options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(common_options())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with _named_in_errors(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; log records go to the log file and never into the output."""
        import logging

        logging.lastResort = logging.NullHandler()
        return super().invoke(ctx)


class Group(click.Group):
    """A group whose commands all have the common options."""

    command_class = Command

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(common_options())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with _named_in_errors(ctx):
            return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their complete summaries, which click would truncate."""
        listed = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(MAX_HELP_CHARS)) for name, each in listed if each])


Group.group_class = Group


which_agent = click.option("--agent", "agent_id", metavar="ID", help="Agent (default: the default agent).")
which_session = click.option("--session", metavar="KEY", help="Session (default: the agent's main session).")
agent_of_session = click.option("--agent", metavar="ID", help="Agent of a session that is named without one.")


def which_gateway(command: F) -> F:
    """Add the options for a remote gateway; the invocation stores their values."""
    url = "Use the gateway at this address (default: gateway.remote, if gateway.mode is remote)."
    token = f"Token for that gateway; prefer {TOKEN_VARIABLE}, which other processes cannot see."
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
    """Format rows as aligned columns; the last column is not padded."""
    lines = [[str(cell) for cell in row] for row in ((header, *rows) if header else rows)]
    if not lines:
        return ""
    widths = [max(width(row[i]) for row in lines if i < len(row)) for i in range(max(map(len, lines)))]
    return "\n".join(
        (indent + "  ".join(cell + " " * (widths[i] - width(cell)) for i, cell in enumerate(row))).rstrip()
        for row in lines
    )


def ask_is_possible() -> bool:
    """Return whether standard input and output are a terminal with a person."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"


def read_piped() -> str:
    """Return piped input; empty if standard input is a terminal or closed. Text over the limit of messages is cut."""
    from retinue.core.envelope import MAX_MESSAGE_CHARS

    return "" if sys.stdin is None or is_terminal(sys.stdin) else sys.stdin.read(MAX_MESSAGE_CHARS + 1)


def find_session(invocation: Invocation, home: Home, text: str, agent: str | None) -> tuple[Session, StoredSessions]:
    """Resolve a session name; raises `UsageError` if there is no such session, and creates nothing."""
    from retinue.core.errors import UsageError
    from retinue.runtime.agents.workspace import open_sessions

    key = home.session_key(text, agent)
    store = open_sessions(home, key.agent)
    found = store.find(key) if store.exists else None
    print_store_notes(invocation, store)
    if found is None:
        raise UsageError(f"There is no session '{key}'. {_near(key, list_sessions_of(store))}")
    return found, store


def _near(key: SessionKey, known: tuple[Session, ...]) -> str:
    from difflib import get_close_matches

    if not known:
        return f"The agent '{key.agent}' has no sessions yet."
    # The common prefix of all keys would make any two of them similar.
    start = f"agent:{key.agent}:"
    by_name = {str(session.key).removeprefix(start): str(session.key) for session in known}
    near = [by_name[name] for name in get_close_matches(str(key).removeprefix(start), by_name)]
    return f"Did you mean {' or '.join(near)}?" if near else f"Most recent: {', '.join([*by_name.values()][:5])}."


def list_sessions_of(store: StoredSessions) -> tuple[Session, ...]:
    """List sessions without creating a folder for an agent that has none."""
    return store.list() if store.exists else ()


def print_store_notes(invocation: Invocation, store: StoredSessions) -> None:
    for note in store.notes:
        invocation.note(note)


class ProgressBar:
    """Show a progress bar on the terminal for long work."""

    def __init__(self, invocation: Invocation) -> None:
        self._visible = not invocation.quiet and not invocation.as_json and is_terminal(sys.stderr)
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> ProgressBar:
        return self

    def show(self, what: str, done: int, total: int) -> None:
        if not self._visible:
            return
        if self._progress is None:
            from rich.console import Console
            from rich.progress import Progress

            self._progress = Progress(console=Console(stderr=True), transient=True)
            self._progress.start()
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=total)
        self._progress.update(self._tasks[what], completed=done, total=total)

    def __exit__(self, *_error: object) -> None:
        if self._progress is not None:
            self._progress.stop()


def parse_since(text: str, now: datetime) -> datetime:
    """Parse a time, or an age such as 12h before now."""
    import datetime as time
    import re

    from retinue.core.errors import UsageError
    from retinue.settings import parse_duration

    if re.fullmatch(r"\d+(?:\.\d+)?\s*[a-z]+", text):
        return now - parse_duration(text)
    try:
        return time.datetime.fromisoformat(text).astimezone()
    except ValueError:
        raise UsageError(
            f"'{text}' is not a valid time. Use 2026-03-01, 2026-03-01T12:00, or an age such as 12h."
        ) from None
