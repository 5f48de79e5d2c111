"""`retinue up`: set up what is missing and start the assistant."""

from __future__ import annotations

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
    from retinue.runtime.home import load_home
    from retinue.storage.files import make_private_dir

    make_private_dir(invocation.home.path)
    keep_logs(invocation.home)
    home = load_home(invocation.home)
    settings = home.config.gateway
    if settings.mode == "local":
        _ensure_workspace(invocation, home, agent_id)
        anyio.run(_ensure_model, invocation, home)
    if ask_is_possible() and not invocation.as_json:
        if settings.mode == "local":
            _ensure_gateway(invocation, settings.control_ui.base_path.rstrip("/"))
        return anyio.run(hold_chat, invocation, ConnectOptions("retinue up"), agent_id, session)
    question = read_piped().strip() or FIRST_QUESTION
    invocation.note(f"> {question}")
    return anyio.run(ask_once, invocation, TurnRequest(question, agent_id, session), ConnectOptions("retinue up"))


def _ensure_workspace(invocation: Invocation, home: Home, agent_id: str | None) -> None:
    from retinue.runtime.agents.workspace import locate_workspace, seed_agent

    agent = home.agent_id(agent_id)
    if seed_agent(home, agent).created:
        invocation.note(f"Created a workspace for agent '{agent}' at {locate_workspace(home, agent)}")


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


async def _ensure_model(invocation: Invocation, home: Home) -> None:
    """Print the selected model; if there is none, download the small built-in one."""
    from retinue.cli.models import SMALLEST, pull_showing
    from retinue.core.errors import RetinueError
    from retinue.runtime.open import open_runtime

    async with open_runtime(home) as runtime:
        access = runtime.model_access(home.agent_id(None))
        choice = await access.choose()
        if choice is None:
            invocation.note(f"No model was found, so a small one is downloaded to start with ({SMALLEST}, 94 MB) …")
            try:
                await pull_showing(invocation, SMALLEST)
            except RetinueError as error:
                invocation.note(f"That did not work: {error}")
                return
            access.forget_choice()
            choice = await access.choose()
        if choice is not None and not ask_is_possible():
            invocation.note(f"Model: {choice.ref} ({choice.because}). Change it: {choice.how_to_change}")
