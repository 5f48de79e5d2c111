"""`retinue gateway`: run the gateway server, install it as a service, and control access to it."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Group, Invocation, keep_logs, pass_invocation, table
from retinue.cli.gateway_access import devices, pair, token
from retinue.cli.sign_in import sign_in
from retinue.cli.terminal import format_span, format_value, is_terminal, label

if TYPE_CHECKING:
    from retinue.storage.home_paths import HomePaths
    from retinue.storage.postgres import Role
    from retinue.storage.process_locks import InstanceFacts
    from retinue.wire.system import Status


START_SECONDS = 20.0
STOP_SECONDS = 40.0
STATUS_SECONDS = 2.0
PORT_VARIABLE = "RETINUE_GATEWAY_PORT"


LINGERING = (
    "A user's services stop when the user logs out. To keep it running, also after a restart of the machine:\n"
    "  loginctl enable-linger"
)


@click.group(cls=Group)
def gateway() -> None:
    pass


for _command in (token, pair, devices, sign_in):
    gateway.add_command(_command)


@gateway.command()
@click.option("--port", type=click.IntRange(0, 65_535), envvar=PORT_VARIABLE, help="Port; 0 selects a free one.")
@click.option(
    "--role",
    type=click.Choice(("all", "front", "worker")),
    default="all",
    show_default=True,
    help="In a team: front accepts messages and runs jobs and channels, worker runs turns.",
)
@pass_invocation
def run(invocation: Invocation, port: int | None, role: Role) -> int:
    """Run the gateway in the foreground until it receives SIGTERM or SIGINT.

    SIGTERM waits for running turns, SIGHUP reloads the configuration.
    """
    from importlib.util import find_spec

    import anyio

    from retinue.core.errors import UsageError
    from retinue.gateway.server import run_gateway
    from retinue.gateway.shutdown import ShutdownGuard, ShutdownRequest
    from retinue.security.logs import show_logs
    from retinue.storage.files import make_private_dir

    make_private_dir(invocation.home.path)
    keep_logs(invocation.home)
    if is_terminal(sys.stderr):
        show_logs()
    home = invocation.load_home()
    if home.config.gateway.mode == "remote":
        raise UsageError("gateway.mode is remote: this home uses a remote gateway. Set it to local to run one here.")
    if role != "all" and home.config.storage.url is None:
        raise UsageError(f"--role {role} needs a database that other gateways share. Set `storage.url`.")
    has_uvloop = find_spec("uvloop") is not None  # a third less time for each turn; not available on every system
    guard = ShutdownGuard()  # it stays until the process has ended
    ending = ShutdownRequest(guard)
    try:
        serve = partial(run_gateway, home, port, ending, role=role)
        anyio.run(serve, backend_options={"use_uvloop": has_uvloop})
    except BaseException:
        if not ending.requested.is_set():
            guard.close()
        raise
    if ending.restart:
        # A new process, so that the whole configuration is read again.
        os.execv(sys.executable, [sys.executable, "-m", "retinue", *sys.argv[1:]])  # noqa: S606
    return 0


@gateway.command()
@click.option("--port", type=click.IntRange(0, 65_535), envvar=PORT_VARIABLE, help="Port; 0 selects a free one.")
@pass_invocation
def start(invocation: Invocation, port: int | None) -> None:
    """Start the gateway in the background if it is not running."""
    from retinue.gateway.auth.request_source import address_for_others

    home = invocation.load_home()
    facts = start_gateway(invocation.home, port)
    elsewhere = address_for_others(home.config.gateway, facts.url)
    others = f"\nOther devices reach it at {elsewhere}. Let one in: retinue gateway pair" if elsewhere else ""
    invocation.show(
        {"pid": facts.pid, "url": facts.url, "networkUrl": elsewhere},
        f"The gateway runs at {facts.url} (pid {facts.pid}).{others}",
    )


@gateway.command()
@pass_invocation
def stop(invocation: Invocation) -> int:
    """Stop the gateway after running turns have ended."""
    from retinue.core.errors import RetinueError
    from retinue.storage.process_locks import find_instance

    facts = find_instance(invocation.home)
    if facts is None:
        invocation.show({"stopped": False}, "The gateway is not running.")
        return 0
    os.kill(facts.pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while find_instance(invocation.home) is not None:
        if time.monotonic() > deadline:
            raise RetinueError(
                f"The gateway (pid {facts.pid}) has not stopped yet. Check its log, or kill the process."
            )
        time.sleep(0.02)
    invocation.show({"stopped": True, "pid": facts.pid}, f"The gateway (pid {facts.pid}) has stopped.")
    return 0


@gateway.command()
@pass_invocation
def status(invocation: Invocation) -> int:
    """Show whether the gateway runs, and its state. The exit code is 1 if it does not."""
    from retinue.storage.process_locks import find_instance
    from retinue.wire import codec

    facts = find_instance(invocation.home)
    if facts is None:
        invocation.show({"running": False}, "The gateway is not running. Start it with `retinue gateway start`.")
        return 1
    found = ask_status(invocation.home)
    data: dict[str, Any] = {"running": True, "pid": facts.pid, "url": facts.url}
    if found is not None:
        data |= codec.to_plain(found)
    invocation.show(data, lambda: table(_format_status(data, found)))
    return 0


def _format_status(data: dict[str, Any], found: Status | None) -> list[tuple[str, str]]:
    """Format the facts; times and durations in a readable form."""
    if found is None:
        return [(label(name), format_value(value)) for name, value in data.items()]
    told = data | {"startedAt": found.started_at, "memoryMb": f"{found.memory_mb:.0f}"}
    told["uptime"] = format_span(told.pop("uptimeSeconds"))
    return [(label(name), format_value(value)) for name, value in told.items() if value not in ([], None)]


@gateway.command()
@click.option(
    "--format",
    "form",
    type=click.Choice(("openapi", "asyncapi")),
    default="openapi",
    show_default=True,
    help="OpenAPI describes HTTP, AsyncAPI the WebSocket.",
)
@pass_invocation
def schema(invocation: Invocation, form: str) -> None:
    """Print the OpenAPI or AsyncAPI document of the gateway (always JSON)."""
    from retinue.gateway.schema_docs import make_asyncapi, make_openapi, render_document

    document = make_openapi() if form == "openapi" else make_asyncapi()
    invocation.show(document, lambda: render_document(document).rstrip("\n"), exact=True)


@gateway.command()
@click.option("--print", "only_print", is_flag=True, help="Print the file and change nothing.")
@pass_invocation
def install(invocation: Invocation, only_print: bool) -> None:
    """Write a service file for systemd or launchd."""
    from retinue.cli.gateway import service_file
    from retinue.storage.files import write_atomic

    user_home = Path(os.environ.get("HOME") or Path.home())
    path, text, switch_on = service_file(invocation.home, sys.platform, user_home)
    data = {"file": str(path), "content": text, "enable": switch_on, "written": not only_print}
    if only_print:
        invocation.show(data, text.rstrip("\n"), exact=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text.encode())
    lingering = "" if sys.platform == "darwin" else f"\n{LINGERING}"
    invocation.show(data, f"Wrote {path}. Enable the service with:\n  {switch_on}{lingering}")


def start_gateway(home: HomePaths, port: int | None = None) -> InstanceFacts:
    """Return the running gateway of a home; start one in the background if needed."""
    import subprocess

    from retinue.cli.gateway import gateway_command
    from retinue.core.errors import RetinueError
    from retinue.storage.files import make_private_dir
    from retinue.storage.process_locks import find_instance

    make_private_dir(home.path / "logs")
    output = home.path / "logs" / "gateway.out"
    with output.open("ab") as file:
        output.chmod(0o600)
        began = output.stat().st_size
        found = find_instance(home)
        if found is None:
            command = gateway_command(home) + (["--port", str(port)] if port is not None else [])
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True, cwd=home.path
            )
        else:
            process = None
    deadline = time.monotonic() + START_SECONDS
    while (found := find_instance(home)) is None or not found.url:
        failed = process is not None and process.poll() is not None
        if failed or time.monotonic() > deadline:
            told = output.read_bytes()[began:].decode("utf-8", "replace").strip()
            raise RetinueError(f"The gateway did not start: {told[-2_000:] or f'see {output}'}")
        time.sleep(0.01)
    if process is not None:
        process.returncode = 0  # it continues after this process ends, so nothing waits for it
    return found


def ask_status(home: HomePaths) -> Status | None:
    """Ask the running gateway for its status; None if it does not answer quickly."""
    import anyio

    from retinue.client import open_local_client
    from retinue.core.errors import RetinueError
    from retinue.wire import system
    from retinue.wire.frames import Nothing

    async def ask() -> Status | None:
        async with open_local_client(home) as client:
            return await client.call(system.STATUS, Nothing(), patience=STATUS_SECONDS) if client else None

    try:
        return anyio.run(ask)
    except RetinueError:
        return None


def service_name(home: HomePaths) -> str:
    return f"retinue-gateway-{home.profile}" if home.profile else "retinue-gateway"


def gateway_command(home: HomePaths) -> list[str]:
    """Return the command that runs the gateway of a home with this Python."""
    return [sys.executable, "-m", "retinue", "gateway", "run", "--home", str(home.path)]


def service_file(home: HomePaths, system: str, user_home: Path) -> tuple[Path, str, str]:
    """Return the path and content of the service file, and the command that enables it."""
    name = service_name(home)
    if system == "darwin":
        label = f"retinue.{name}"
        path = user_home / "Library" / "LaunchAgents" / f"{label}.plist"
        return path, launchd_plist(home, label), f"launchctl load -w {path}"
    path = user_home / ".config" / "systemd" / "user" / f"{name}.service"
    return path, systemd_unit(home), f"systemctl --user daemon-reload && systemctl --user enable --now {name}"


def systemd_unit(home: HomePaths) -> str:
    """Render a user unit. The gateway drains on SIGTERM, so the stop timeout is longer than the drain."""
    command = " ".join(_quote_for_systemd(word) for word in gateway_command(home))
    return f"""\
[Unit]
Description=Retinue gateway ({home.path})
After=network-online.target

[Service]
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=2
TimeoutStopSec=40
UMask=0077

[Install]
WantedBy=default.target
"""


def launchd_plist(home: HomePaths, label: str) -> str:
    from xml.sax.saxutils import escape

    words = "".join(f"\n    <string>{escape(word)}</string>" for word in gateway_command(home))
    return f"""\
<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key><string>{escape(label)}</string>
  <key>ProgramArguments</key>
  <array>{words}
  </array>
  <key>RunAtLoad</key><true/>
  <key>KeepAlive</key><dict><key>SuccessfulExit</key><false/></dict>
  <key>ExitTimeOut</key><integer>40</integer>
  <key>Umask</key><integer>63</integer>
</dict>
</plist>
"""


def _quote_for_systemd(word: str) -> str:
    quoted = shlex.quote(word).replace("%", "%%")
    return quoted.replace("$", "$$")
