"""`retinue gateway`: run the server, see how it is doing, and say who may use it."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.access import devices, pair, token
from retinue.cli.common import Group, Invocation, keep_logs, pass_invocation, table
from retinue.cli.terminal import is_terminal
from retinue.cli.wording import label, spell, spell_span

if TYPE_CHECKING:
    from retinue.storage.home import Home
    from retinue.storage.instance import InstanceFacts
    from retinue.wire.system import Status

START_SECONDS = 20.0
STOP_SECONDS = 40.0
STATUS_SECONDS = 2.0
PORT_VARIABLE = "RETINUE_GATEWAY_PORT"


@click.group(cls=Group)
def gateway() -> None:
    """Run the server that clients and channels talk to, and say who may use it."""


for _command in (token, pair, devices):
    gateway.add_command(_command)


@gateway.command()
@click.option("--port", type=click.IntRange(0, 65_535), envvar=PORT_VARIABLE, help="The port; 0 takes a free one.")
@pass_invocation
def run(invocation: Invocation, port: int | None) -> int:
    """Run the gateway in the foreground until it is told to end.

    SIGTERM lets running turns come to their end, SIGHUP reads the configuration again.
    """
    import anyio

    from retinue.core.errors import UsageError
    from retinue.gateway.server import run_gateway
    from retinue.security.logs import show_logs
    from retinue.storage.files import make_private_dir

    make_private_dir(invocation.home.path)
    keep_logs(invocation.home)
    if is_terminal(sys.stderr):
        show_logs()
    foundation = invocation.lay_foundation()
    if foundation.config.gateway.mode == "remote":
        raise UsageError("gateway.mode is remote: this home uses a gateway elsewhere. Set it to local to run one here.")
    ending = anyio.run(run_gateway, foundation, port)
    if ending.restart:
        # A new process: what the configuration changed is read at a start.
        os.execv(sys.executable, [sys.executable, "-m", "retinue", *sys.argv[1:]])  # noqa: S606
    return 0


@gateway.command()
@click.option("--port", type=click.IntRange(0, 65_535), envvar=PORT_VARIABLE, help="The port; 0 takes a free one.")
@pass_invocation
def start(invocation: Invocation, port: int | None) -> None:
    """Start the gateway in the background, where it does not run yet."""
    facts = start_gateway(invocation.home, port)
    invocation.show({"pid": facts.pid, "url": facts.url}, f"The gateway runs at {facts.url} (pid {facts.pid}).")


@gateway.command()
@pass_invocation
def stop(invocation: Invocation) -> int:
    """End the gateway; turns that run come to their end first."""
    from retinue.core.errors import RetinueError
    from retinue.storage.instance import find_instance

    facts = find_instance(invocation.home)
    if facts is None:
        invocation.show({"stopped": False}, "No gateway runs here.")
        return 0
    os.kill(facts.pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while find_instance(invocation.home) is not None:
        if time.monotonic() > deadline:
            raise RetinueError(f"The gateway (pid {facts.pid}) has not ended yet. Look at its log, or end it yourself.")
        time.sleep(0.02)
    invocation.show({"stopped": True, "pid": facts.pid}, f"The gateway (pid {facts.pid}) has ended.")
    return 0


@gateway.command()
@pass_invocation
def status(invocation: Invocation) -> int:
    """Say whether a gateway runs, where, and what it does. The exit code is 1 where none does."""
    from retinue.storage.instance import find_instance
    from retinue.wire import codec

    facts = find_instance(invocation.home)
    if facts is None:
        invocation.show({"running": False}, "No gateway runs here. Start one with `retinue gateway start`.")
        return 1
    found = ask_status(invocation.home)
    data: dict[str, Any] = {"running": True, "pid": facts.pid, "url": facts.url}
    if found is not None:
        data |= codec.to_plain(found)
    invocation.show(data, lambda: table(_spell_status(data, found)))
    return 0


def _spell_status(data: dict[str, Any], found: Status | None) -> list[tuple[str, str]]:
    """The facts in words; moments and spans of time as people tell them."""
    if found is None:
        return [(label(name), spell(value)) for name, value in data.items()]
    told = data | {"startedAt": found.started_at, "memoryMb": f"{found.memory_mb:.0f}"}
    told["uptime"] = spell_span(told.pop("uptimeSeconds"))
    return [(label(name), spell(value)) for name, value in told.items() if value not in ([], None)]


@gateway.command()
@click.option(
    "--format",
    "form",
    type=click.Choice(("openapi", "asyncapi")),
    default="openapi",
    show_default=True,
    help="OpenAPI describes what is served over HTTP, AsyncAPI the socket.",
)
@pass_invocation
def schema(invocation: Invocation, form: str) -> None:
    """Print the description of the protocol, from which programs make clients. It is JSON with and without --json."""
    from retinue.gateway.schema_docs import make_asyncapi, make_openapi, render_document

    document = make_openapi() if form == "openapi" else make_asyncapi()
    invocation.show(document, lambda: render_document(document).rstrip("\n"), exact=True)


@gateway.command()
@click.option("--print", "only_print", is_flag=True, help="Print the file and change nothing.")
@pass_invocation
def install(invocation: Invocation, only_print: bool) -> None:
    """Write the file with which systemd or launchd keeps the gateway running."""
    from retinue.cli.service import service_file
    from retinue.storage.files import write_atomic

    user_home = Path(os.environ.get("HOME") or Path.home())
    path, text, switch_on = service_file(invocation.home, sys.platform, user_home)
    data = {"file": str(path), "content": text, "enable": switch_on, "written": not only_print}
    if only_print:
        invocation.show(data, text.rstrip("\n"), exact=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text.encode())
    invocation.show(data, f"Wrote {path}. Switch it on with:\n  {switch_on}")


def start_gateway(home: Home, port: int | None = None) -> InstanceFacts:
    """The gateway of a home, started in the background where none runs."""
    import subprocess

    from retinue.cli.service import gateway_command
    from retinue.core.errors import RetinueError
    from retinue.storage.files import make_private_dir
    from retinue.storage.instance import find_instance

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
        process.returncode = 0  # it lives on without us, so nobody needs to wait for it
    return found


def ask_status(home: Home) -> Status | None:
    """What the running gateway says about itself; None where it does not answer in a moment."""
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
