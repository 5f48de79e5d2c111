"""`retinue up`: set up what is missing and start the assistant."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click

from retinue.cli.common import (
    Command,
    Invocation,
    ask_is_possible,
    keep_logs,
    pass_invocation,
    read_piped,
    which_agent,
    which_session,
)

if TYPE_CHECKING:
    from retinue.core.keys import AgentId
    from retinue.runtime.commands.setup import FirstTask
    from retinue.runtime.home import Home

FIRST_QUESTION = "Hello! Who are you, in one sentence?"


@click.command(cls=Command)
@which_agent
@which_session
@pass_invocation
def up(invocation: Invocation, agent_id: str | None, session: str | None) -> int:
    """Without a terminal it sends one message, prints the answer and exits."""
    from retinue.cli.agent import TurnRequest, ask_once
    from retinue.cli.chat import hold_chat
    from retinue.cli.connect import ConnectOptions
    from retinue.cli.setup import do_together
    from retinue.runtime.home import load_home
    from retinue.storage.files import make_private_dir

    make_private_dir(invocation.home.path)
    keep_logs(invocation.home)
    home = load_home(invocation.home)
    settings = home.config.gateway
    in_terminal = ask_is_possible() and not invocation.as_json
    if in_terminal:
        _say_how_to_call(invocation)
    task = None
    if settings.mode == "local":
        is_new = _ensure_workspace(invocation, home, agent_id)
        ready, task = anyio.run(_ensure_model, invocation, home.agent_id(agent_id), in_terminal, is_new)
        if not ready:
            return 1
    if in_terminal:
        if settings.mode == "local":
            _ensure_gateway(invocation, settings.control_ui.base_path.rstrip("/"))
        if task is not None:
            anyio.run(do_together, invocation, home.agent_id(agent_id), task)
        return anyio.run(hold_chat, invocation, ConnectOptions("retinue up"), agent_id, session)
    question = read_piped().strip() or FIRST_QUESTION
    invocation.note(f"> {question}")
    return anyio.run(ask_once, invocation, TurnRequest(question, agent_id, session), ConnectOptions("retinue up"))


def _say_how_to_call(invocation: Invocation) -> None:
    """Say how to call this program if the shell does not find it by its name, which all hints use."""
    import shutil

    folder = Path(sys.executable).parent
    if shutil.which("retinue") is None and (folder / "retinue").exists():
        invocation.note(f"Hints name the command `retinue`. To call it so in this shell: export PATH={folder}:$PATH")


def _ensure_workspace(invocation: Invocation, home: Home, agent_id: str | None) -> bool:
    """Create what the workspace lacks; returns whether it is new."""
    from retinue.runtime.agents.workspace import locate_workspace, seed_agent

    agent = home.agent_id(agent_id)
    if not seed_agent(home, agent).created:
        return False
    invocation.note(f"Created a workspace for agent '{agent}' at {locate_workspace(home, agent)}")
    return True


def _ensure_gateway(invocation: Invocation, prefix: str) -> None:
    """Start the gateway if none runs and print how to open its page; the chat also works without it."""
    from retinue.cli.gateway import start_gateway
    from retinue.cli.gateway_access import make_pairing_code
    from retinue.core.errors import RetinueError, UsageError

    try:
        url = start_gateway(invocation.home).url
    except RetinueError as error:
        invocation.note(f"{error}\nThe chat continues without it.")
        return
    try:
        how = f"sign in with {make_pairing_code(invocation.home, ('admin',))}; it can be used once within ten minutes"
    except UsageError as error:
        # The page is there all the same; only another code is not to be had right now.
        how = f"no new code: {error} Until then the page can request access"
    page = f"{url}{prefix}/" if prefix else url
    invocation.note(f"The same chat in a browser: {page}\n  ({how})")


async def _ensure_model(
    invocation: Invocation, agent: AgentId, in_terminal: bool, is_new: bool
) -> tuple[bool, FirstTask | None]:
    """Find a model; in a terminal a new user is guided, otherwise the demo model is used if it can run.

    Returns whether to go on, and the first task that the person chose.
    """
    from retinue.cli.setup_guide import Guide
    from retinue.runtime.commands.setup import is_skipped
    from retinue.runtime.models import open_access

    async with open_access(invocation.load_home(), agent) as access:
        choice = await access.choose()
    if in_terminal:
        # Who wrote a model into the configuration has set Retinue up.
        begins = is_new and not access.settings.model.primary
        if begins or (choice is None and not is_skipped(access.home, "model")):
            return True, await Guide(invocation, agent).ask_open_steps()
        return True, None
    if choice is None and not await _get_demo_model(invocation):
        return False, None
    async with open_access(invocation.load_home(), agent) as access:
        choice = await access.choose()
    if choice is not None:
        invocation.note(f"Model: {choice.ref} ({choice.because}). Change it: {choice.how_to_change}")
    return choice is not None, None


async def _get_demo_model(invocation: Invocation) -> bool:
    """Download the demo model, but only if it could run afterwards."""
    import shlex

    from retinue.cli.models import SMALLEST, pull_showing
    from retinue.core.errors import RetinueError
    from retinue.providers.local import engine

    if not engine.has_engine():
        install = shlex.join(engine.installer_command())
        invocation.note(
            "No model was found. Add one: retinue setup --yes --provider ID --key-env VAR\n"
            f"Or install what runs local models, and start again: {install}"
        )
        return False
    invocation.note(f"No model was found, so the demo model is downloaded ({SMALLEST}, 98 MB) …")
    try:
        await pull_showing(invocation, SMALLEST)
    except RetinueError as error:
        invocation.note(f"That did not work: {error}\nAdd a model: retinue setup --yes --provider ID --key-env VAR")
        return False
    return True
