"""`retinue update`: install a newer version, or undo the last update."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from retinue import __version__
from retinue.cli.common import Command, Invocation, ask_is_possible, keep_logs, pass_invocation

if TYPE_CHECKING:
    from retinue.runtime.updates.environment import UpdateEnvironment


@click.command(cls=Command)
@click.option("--check", is_flag=True, help="Only show whether there is a newer version.")
@click.option("--to", "version", metavar="VERSION", help="Install this version instead of the newest.")
@click.option("--roll-back", is_flag=True, help="Undo the last update: the previous version, and the home before it.")
@click.option("--prove", is_flag=True, hidden=True, help="Check that this version works with the home.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@pass_invocation
def update(invocation: Invocation, check: bool, version: str | None, roll_back: bool, prove: bool, yes: bool) -> int:
    """The home is backed up, and the new version is installed beside the present one and tried on a copy of the home.

    Only if it works there, it replaces the present version, in one step; otherwise everything stays as it is. A running
    gateway is restarted. See docs/upgrading.md.
    """
    from retinue.core.errors import UsageError
    from retinue.runtime.updates.environment import find_environment, find_newer

    if prove:
        return _prove(invocation)
    home = invocation.load_home()
    if home.is_in_command:
        raise UsageError("A command that an agent runs cannot update Retinue. Do it yourself.")
    environment = find_environment()
    if roll_back:
        return _roll_back(invocation, yes=yes)
    newer = find_newer(f"retinue=={version}" if version else "retinue")
    if newer is None or check:
        text = f"Version {newer} is available; this is {__version__}. `retinue update` installs it."
        none = f"Version {__version__} is the newest."
        invocation.show({"version": __version__, "available": newer}, text if newer else none)
        return 0
    if not yes and not invocation.as_json and ask_is_possible():
        click.confirm(f"Update from {__version__} to {newer}?", default=True, abort=True, err=True)
    keep_logs(invocation.home)
    from retinue.runtime.updates.run import UpdateSteps, prove_with
    from retinue.runtime.updates.run import update as run_update

    extras = _extras()
    wanted = f"retinue[{','.join(extras)}]=={newer}" if extras else f"retinue=={newer}"
    gateway = _GatewayOfHome(invocation, environment)
    steps = UpdateSteps(
        lambda: environment.build(["--upgrade", wanted]),
        prove_with(environment.python(), environment.python(environment.new)),
        gateway.stop,
        gateway.start,
    )
    done = run_update(home, environment, newer, steps, invocation.note)
    data = {"before": done.before, "after": done.after, "backup": done.backup, "gatewayRestarted": gateway.was_running}
    invocation.show(
        data,
        f"Updated from {done.before} to {done.after}. `retinue update --roll-back` undoes it (backup {done.backup}).",
    )
    return 0


def _extras() -> list[str]:
    """Return the extras whose packages are all installed, so that an update keeps them."""
    import re
    from importlib.metadata import PackageNotFoundError, distribution, requires

    wanted: dict[str, list[str]] = {}
    for line in requires("retinue") or ():
        found = re.fullmatch(r"([A-Za-z0-9._-]+)[^;]*;.*extra == [\"']([a-z]+)[\"'].*", line)
        if found and found[1].lower() != "retinue":
            wanted.setdefault(found[2], []).append(found[1])

    def has_all(names: list[str]) -> bool:
        try:
            return all(distribution(name) for name in names)
        except PackageNotFoundError:
            return False

    return sorted(extra for extra, names in wanted.items() if has_all(names))


def _prove(invocation: Invocation) -> int:
    import anyio

    from retinue.runtime.updates.prove import prove

    found: dict[str, Any] = anyio.run(prove, invocation.load_home())
    invocation.show(found, "\n".join(found["problems"]) or f"Version {found['version']} works.")
    return 1 if found["problems"] else 0


def _roll_back(invocation: Invocation, *, yes: bool) -> int:
    from retinue.runtime.automation.backups import open_repository
    from retinue.runtime.updates.environment import find_environment
    from retinue.runtime.updates.run import UpdateSteps, roll_back

    home = invocation.load_home()
    if not yes and not invocation.as_json and ask_is_possible():
        question = (
            "Restore the previous version, and the home as it was before the update? The present home is moved aside."
        )
        click.confirm(question, abort=True, err=True)
    environment = find_environment()
    gateway = _GatewayOfHome(invocation, environment)
    steps = UpdateSteps(lambda: None, lambda _copy: None, gateway.stop, gateway.start)
    done = roll_back(invocation.home, environment, open_repository(home), steps)
    data = {"before": done.before, "after": done.after, "backup": done.backup, "gatewayRestarted": gateway.was_running}
    invocation.show(data, f"Version {done.after} is back, with the home of the backup {done.backup}.")
    return 0


class _GatewayOfHome:
    """Stops and starts the gateway, with the version that is in the environment at that moment."""

    def __init__(self, invocation: Invocation, environment: UpdateEnvironment) -> None:
        self._home = invocation.home
        self._python = str(environment.python())
        self._note = invocation.note
        self._address = ""
        self.was_running = False

    def stop(self) -> bool:
        """Stop the gateway after its turns have ended; return whether one was running."""
        from retinue.storage.process_locks import find_instance

        facts = find_instance(self._home)
        if facts is None:
            return False
        self.was_running = True
        self._address = facts.url or self._address
        self._note("stopping the gateway")
        self._run("stop")
        return True

    def start(self) -> None:
        """Start the gateway at the address that it had."""
        from urllib.parse import urlsplit

        self._note("starting the gateway")
        port = urlsplit(self._address).port
        self._run("start", *(("--port", str(port)) if port else ()))

    def _run(self, action: str, *options: str) -> None:
        import subprocess

        from retinue.runtime.updates.environment import UpdateFailed

        command = [self._python, "-m", "retinue", "gateway", action, "--home", str(self._home.path), *options]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=180
        )
        if done.returncode:
            raise UpdateFailed(f"`retinue gateway {action}` failed: {done.stderr.strip()[-500:]}")
