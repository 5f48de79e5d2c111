"""`retinue gateway sign-in`: sign in to the gateway of a team with a code that a browser approves."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Command, Invocation, pass_invocation

if TYPE_CHECKING:
    import httpx2

TOKEN_FILE = "team-token"  # noqa: S105 - the name of a file
REQUEST_SECONDS = 15.0


@click.command("sign-in", cls=Command)
@click.argument("url")
@click.option("--name", metavar="NAME", help="Name of this device in lists (default: the name of the machine).")
@pass_invocation
def sign_in(invocation: Invocation, url: str, name: str | None) -> None:
    """Sign in as a member of the team at the gateway URL, and let `chat` and `agent` use it.

    Prints a code and an address. Open the address in a browser in which you are signed in, and enter the code.
    """
    import platform

    import httpx2

    from retinue.cli.connect import check_url
    from retinue.config.edit import Change, change_values
    from retinue.storage.files import write_atomic
    from retinue.storage.files.descriptors import make_private_dir

    address = check_url(url).rstrip("/")
    with httpx2.Client(base_url=address, timeout=REQUEST_SECONDS) as client:
        found = _wait_for_token(invocation, client, name or platform.node() or "a device")
    invocation.keep_quiet(found["token"])
    file = invocation.home.credentials / TOKEN_FILE
    make_private_dir(file.parent)
    write_atomic(file, f"{found['token']}\n".encode())
    values = {"mode": "remote", "remote.url": address, "remote.token": {"source": "file", "path": str(file)}}
    changes = [Change(f"gateway.{key}", json.dumps(value)) for key, value in values.items()]
    for edited in change_values(invocation.home, changes, os.environ):
        for problem in edited.problems:
            invocation.note(str(problem))
    data = {"login": found["login"], "url": address, "tokenFile": str(file)}
    invocation.show(
        data, f"Signed in as {found['login']}. `retinue chat` and `retinue agent` use {address} from now on."
    )


def _wait_for_token(invocation: Invocation, client: httpx2.Client, name: str) -> dict[str, Any]:
    """Show a code until a member approves it or it expires."""
    import time

    from retinue.core.errors import RetinueError

    begun = _ask(client, "device", {"client": name})
    invocation.note(f"Open {begun['address']} and enter the code {begun['code']} below your account.")
    ends = time.monotonic() + begun["expiresSeconds"]
    while time.monotonic() < ends:
        found = _ask(client, "device/token", {"device": begun["device"]})
        if found["token"] is not None:
            return found
        time.sleep(begun["intervalSeconds"])
    raise RetinueError("The code was not approved in time. Run the command again.")


def _ask(client: httpx2.Client, path: str, body: dict[str, str]) -> dict[str, Any]:
    import httpx2

    from retinue.core.errors import RetinueError

    try:
        response = client.post(f"/auth/{path}", json=body)
        found = response.json()
    except (httpx2.HTTPError, ValueError) as error:
        raise RetinueError(f"{client.base_url} does not answer as a gateway ({type(error).__name__}).") from None
    if response.status_code == 404:
        raise RetinueError(
            f"The gateway at {client.base_url} serves no team. Use a token: retinue gateway token create"
        )
    if response.status_code != 200:
        raise RetinueError(str(found.get("error", {}).get("message", response.status_code)))
    return dict(found)
