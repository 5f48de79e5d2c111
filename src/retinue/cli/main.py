"""The entry point. `--version` and `--help` import only click; each command is loaded when it runs."""

from __future__ import annotations

import gc
import importlib
import inspect
import io
import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import click

from retinue import __version__
from retinue.cli.common import Group, Invocation, keep_logs
from retinue.cli.terminal import echo
from retinue.core.errors import RetinueError, StorageError, UsageError, first_cause

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS = {
    "up": ("retinue.cli.up:up", "Set up what is missing and start the assistant."),
    "setup": ("retinue.cli.setup:setup", "Choose a model, name yourself and the agent, and do a first thing together."),
    "chat": ("retinue.cli.chat:chat", "Chat with an agent in the terminal."),
    "agent": ("retinue.cli.agent:agent", "Send one message to an agent and print the answer."),
    "demo": ("retinue.cli.demo:demo", "Play a recorded minute of what Retinue does with a capable model."),
    "why": ("retinue.cli.support:why", "Explain a turn: what was read, recalled, asked and spent, and the cache."),
    "gateway": ("retinue.cli.gateway:gateway", "Run the gateway server; manage tokens and devices."),
    "page": ("retinue.cli.page:page", "Show whether the control page was built, and its size."),
    "status": ("retinue.cli.status:status", "Show the state of the gateway, agents, queue and jobs."),
    "doctor": ("retinue.cli.status:doctor", "Check the installation and report problems with their fixes."),
    "report": ("retinue.cli.support:report", "Write a support bundle without secrets."),
    "logs": ("retinue.cli.logs:logs", "Show log records."),
    "channels": ("retinue.cli.channels:channels", "Connect chat services; approve the people who write there."),
    "agents": ("retinue.cli.agents:agents", "List agents and bindings; explain how a message is routed."),
    "init": ("retinue.cli.workspace:init", "Create the home folder and the default agent's workspace."),
    "prompt": ("retinue.cli.prompt:prompt", "Show the system prompt of an agent and its size."),
    "config": ("retinue.cli.config:config", "Read, change, validate and explain the configuration."),
    "workspace": ("retinue.cli.workspace:workspace", "List, inspect, seed and trust the agents' workspaces."),
    "skills": ("retinue.cli.skills:skills", "List, install, review, publish and serve skills."),
    "memory": ("retinue.cli.memory:memory", "Index, search and read an agent's notes."),
    "sessions": ("retinue.cli.sessions:sessions", "List, show, export, reset, check and prune sessions."),
    "usage": ("retinue.cli.usage:usage", "Sum up the tokens and costs of model calls."),
    "subagents": ("retinue.cli.agents:subagents", "List, show and cancel sub-agents."),
    "heartbeat": (
        "retinue.cli.automation:heartbeat",
        "Show heartbeats and run one now. Heartbeats run only while the gateway is running.",
    ),
    "cron": ("retinue.cli.automation:cron", "Schedule jobs for agents. Jobs run only while the gateway is running."),
    "webhooks": (
        "retinue.cli.automation:webhooks",
        "List and revoke webhooks of agents; create their tokens.",
    ),
    "hooks": ("retinue.cli.extensions:hooks", "List, enable and disable hooks; explain why one is disabled."),
    "plugins": ("retinue.cli.plugins:plugins", "List, install, update, remove, enable, check and write plugins."),
    "mcp": ("retinue.cli.mcp:mcp", "Add, test, list and remove MCP servers, whose tools agents use."),
    "models": ("retinue.cli.models:models", "List, test, choose and download models; store credentials."),
    "tools": ("retinue.cli.tools:tools", "List a session's tools and explain policy decisions."),
    "sandbox": ("retinue.cli.tools:sandbox", "Show how commands are sandboxed; list and prune sandboxes."),
    "approvals": ("retinue.cli.security:approvals", "Approve or deny what agents request; list and edit allow rules."),
    "security": ("retinue.cli.security:security", "Audit settings, labels and rights; read the audit log."),
    "import": ("retinue.cli.import_homes:import_homes", "Import a home of OpenClaw, or what Claude Code knows."),
    "update": ("retinue.cli.update:update", "Update Retinue to a newer version, or undo the last update."),
    "export": ("retinue.cli.export_home:export_home", "Export everything in open formats, without secrets."),
    "backup": ("retinue.cli.backup:backup", "Make, list, verify, restore and prune backups of the home."),
    "storage": ("retinue.cli.storage:storage", "Show, migrate and fill the PostgreSQL database of the home."),
    "cluster": ("retinue.cli.cluster:cluster", "Show the gateways that share a PostgreSQL database."),
    "team": ("retinue.cli.team_demo:team", "Try a team: PostgreSQL and several gateways on this machine."),
    "teams": ("retinue.cli.teams:teams", "Create teams in a PostgreSQL database; keep their secrets."),
    "members": (
        "retinue.cli.members:members",
        "Invite, list and deactivate the members of a team; create their tokens.",
    ),
    "roles": ("retinue.cli.members:roles", "List roles, and give them to members of a team."),
    "completion": ("retinue.cli.support:completion", "Print the completion script for bash, zsh or fish."),
}
"""Every command with its target and its summary.

This is the only place for a summary: `--help` needs nothing else, and the help of the command begins with it. The
docstring of a command holds the details that follow.
"""

SECTIONS = {
    "Start": ("up", "setup", "init", "chat", "agent", "demo", "completion"),
    "Diagnosis": ("status", "doctor", "why", "logs", "usage", "report"),
    "Agents": ("agents", "workspace", "prompt", "memory", "skills", "sessions", "subagents"),
    "Automation": ("heartbeat", "cron", "webhooks", "hooks"),
    "Connections": ("models", "gateway", "page", "channels", "mcp", "plugins"),
    "Safety": ("approvals", "tools", "sandbox", "security"),
    "Configuration and data": ("config", "import", "export", "backup", "update", "storage"),
    "Teams": ("teams", "members", "roles", "cluster", "team"),
}
"""The commands as `--help` lists them, by what they are for."""


class LazyGroup(Group):
    """A group that imports a command only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return _find_plugin_command(cmd_name)
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        summary, details = COMMANDS[cmd_name][1], command.callback.__doc__ if command.callback else None
        command.help = f"{summary}\n\n{inspect.cleandoc(details)}" if details else summary
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        is_word = bool(args) and not args[0].startswith("-")
        if is_word and args[0] not in COMMANDS and _find_plugin_command(args[0]) is None:
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f"Did you mean '{near[0]}'?" if near else "`retinue --help` lists the commands."
            ctx.fail(f"There is no command '{args[0]}'. {hint}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete command names without importing the commands."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=summary) for name, (_, summary) in COMMANDS.items() if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for heading, names in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), COMMANDS[name][1]) for name in names])


def _find_plugin_command(name: str) -> click.Command | None:
    """Return the command of a plugin; the home comes from the options, which are not parsed yet."""
    from retinue.cli.extensions import find_plugin_command

    return find_plugin_command(name, sys.argv[1:])


@click.group(
    cls=LazyGroup,
    name="retinue",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    help="Retinue, a personal agent that lives in a folder of Markdown files.",
)
@click.version_option(__version__, prog_name="retinue")
def cli() -> None: ...


def main() -> NoReturn:
    """Run the command line and end the process with its exit code.

    Importing creates many objects that are never freed; collecting among them would cost a tenth of a second.
    """
    gc.disable()
    sys.excepthook = _report_crash
    _allow_any_letter()
    sys.exit(run(sys.argv[1:]))


def _allow_any_letter() -> None:
    """Replace characters that the terminal's encoding lacks instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _report_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of a bug without secrets."""
    import traceback

    from retinue.security.redaction import redact_everything

    sys.stderr.write(redact_everything("".join(traceback.format_exception(kind, error, trace))))


def run(arguments: list[str]) -> int:
    """Run one command line; errors become a message and an exit code: 1 failure, 2 wrong usage, 130 interrupted."""
    invocation = Invocation()
    try:
        result: Any = cli.main(arguments, prog_name="retinue", standalone_mode=False, obj=invocation)
    except (click.Abort, KeyboardInterrupt):
        _report_interrupt(invocation)
        return 130
    except (click.ClickException, RetinueError, OSError, ExceptionGroup) as error:
        return _end(first_cause(error), invocation, as_json="--json" in arguments)
    return result if isinstance(result, int) else 0


def _end(error: Exception, invocation: Invocation, *, as_json: bool) -> int:
    """Report why a command failed; returns the exit code."""
    match error:
        case click.ClickException():
            if as_json:
                _print_json("UsageError", f"{error.format_message()}{_point_to_help(error)}")
            else:
                echo(_redact(f"error: {error.format_message()}{_point_to_help(error)}"), err=True)
            return error.exit_code
        case RetinueError():
            _report(invocation, error)
            return 2 if isinstance(error, UsageError) else 1
        case OSError():
            _drop_output()
            _log(error, invocation)
            _report(invocation, _explain(error))
            return 1
        case _:
            raise error


def _report_interrupt(invocation: Invocation) -> None:
    if invocation.as_json:
        _print_json("Interrupted", "The command was interrupted.")
    else:
        invocation.note("Interrupted.")


def _point_to_help(error: click.ClickException) -> str:
    """Return where the usage is explained; nothing if the message says so itself."""
    if "--help" in error.format_message():
        return ""
    command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "retinue"
    return f" `{command} --help` shows the usage."


def _log(error: OSError, invocation: Invocation) -> None:
    """Log the traceback of a system error, since the message does not show its location."""
    import logging

    try:
        keep_logs(invocation.home)
    except (RetinueError, OSError):
        return
    logging.getLogger(__name__).error("a command failed", exc_info=error)


def _drop_output() -> None:
    """Discard remaining output if standard output cannot take it."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _explain(error: OSError) -> RetinueError:
    """Convert a system error into an error with a readable message."""
    from pathlib import Path

    from retinue.storage.files.errors import explain

    if isinstance(error.filename, str):
        folder, name = os.path.split(error.filename)
        return explain(error, name, Path(folder))
    return StorageError(f"System error: {(error.strerror or str(error)).lower()}.")


def _report(invocation: Invocation, error: RetinueError) -> None:
    if invocation.as_json:
        _print_json(type(error).__name__, str(error))
    else:
        echo(_redact(f"error: {error}"), err=True)


def _print_json(kind: str, message: str) -> None:
    import json

    click.echo(json.dumps({"error": {"kind": kind, "message": _redact(message)}}, ensure_ascii=False))


def _redact(text: str) -> str:
    from retinue.security.redaction import redact_everything

    return redact_everything(text)
