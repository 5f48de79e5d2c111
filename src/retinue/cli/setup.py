"""`retinue setup`: the guided first run in the terminal, and the same steps as options for scripts."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from retinue.cli.common import Command, Invocation, ask_is_possible, keep_logs, pass_invocation, table, which_agent
from retinue.cli.setup_guide import Guide, demo_name, download_model, reload_home, view_home

if TYPE_CHECKING:
    from retinue.core.keys import AgentId
    from retinue.runtime.commands.setup import FirstTask, KeyAnswer, SetupView
    from retinue.security.secrets import Secret


class Options(Struct, frozen=True):
    """The answers that were given as options."""

    yes: bool = False
    provider: str | None = None
    key_env: str | None = None
    key_stdin: bool = False
    base_url: str | None = None
    model: str | None = None
    pull: str | None = None
    demo: bool = False
    user_name: str | None = None
    agent_name: str | None = None
    temper: str | None = None
    again: bool = False
    status: bool = False

    @property
    def names_a_model(self) -> bool:
        return bool(self.provider or self.key_env or self.key_stdin or self.model or self.pull or self.demo)

    @property
    def names_a_profile(self) -> bool:
        return bool(self.user_name or self.agent_name or self.temper)


@click.command(cls=Command)
@click.option("--yes", "-y", is_flag=True, help="Ask nothing: use the options, and what is found on this machine.")
@click.option("--provider", metavar="ID", help="Provider of the key, such as anthropic (default: by its shape).")
@click.option("--key-env", metavar="VAR", help="Environment variable that holds the key; only its name is stored.")
@click.option("--key-stdin", is_flag=True, help="Read the key from standard input.")
@click.option("--base-url", metavar="URL", help="Address of the model server.")
@click.option("--model", metavar="REF", help="Model to use (default: the provider's usual one).")
@click.option("--pull", metavar="NAME", help="Download this model and use it; `retinue models pull --list` lists them.")
@click.option("--demo", is_flag=True, help="Use the tiny demo model.")
@click.option("--user-name", metavar="NAME", help="Your name.")
@click.option("--agent-name", metavar="NAME", help="The agent's name.")
@click.option("--temper", metavar="TEXT", help="plain, warm, thorough, playful, or your own words.")
@click.option("--again", is_flag=True, help="Ask for the steps that were skipped, too.")
@click.option("--status", is_flag=True, help="Only show which steps are done.")
@which_agent
@pass_invocation
def setup(invocation: Invocation, /, agent_id: str | None, **options: Any) -> int:
    """Every step can be skipped, and an interrupted setup continues where it stopped."""
    import anyio

    from retinue.core.errors import UsageError
    from retinue.storage.files import make_private_dir

    wanted = Options(**options)
    if not wanted.status:
        make_private_dir(invocation.home.path)
        keep_logs(invocation.home)
    home = invocation.load_home()
    agent = home.agent_id(agent_id)
    if wanted.status:
        view = anyio.run(view_home, home, agent)
        invocation.show(_describe(view), lambda: _format_steps(view))
        return 0
    if home.is_in_command:
        raise UsageError("A command that an agent runs cannot change the model or the profile. Run it in a terminal.")
    guided = ask_is_possible() and not wanted.yes and not invocation.as_json
    if not guided and not wanted.yes and not (wanted.names_a_model or wanted.names_a_profile):
        raise click.UsageError(
            "There is no terminal to ask in. Add --yes and the answers as options, as in: "
            "retinue setup --yes --provider anthropic --key-env ANTHROPIC_API_KEY"
        )
    return anyio.run(run_setup, invocation, agent, wanted, guided)


async def run_setup(invocation: Invocation, agent: AgentId, wanted: Options, guided: bool) -> int:
    """Apply the options, then ask for the open steps."""
    from retinue.runtime.commands.setup import restart_setup

    home = reload_home(invocation)
    if wanted.again:
        restart_setup(home)
    ok = await _apply_options(invocation, agent, wanted)
    task = await Guide(invocation, agent).ask_open_steps() if guided else None
    if task is not None:
        code = await do_together(invocation, agent, task)
        invocation.note("\nGo on talking: retinue chat")
        return code
    view = await view_home(reload_home(invocation), agent)
    invocation.show(_describe(view), lambda: _format_steps(view))
    return 0 if ok else 1


def _describe(view: SetupView) -> dict[str, Any]:
    from msgspec import to_builtins

    next_step = view.next_step
    return {
        "complete": next_step is None,
        "next": next_step.id if next_step else None,
        "model": view.model,
        "demo": view.is_demo,
        "steps": to_builtins(view.steps),
        "found": to_builtins(view.found),
    }


def _format_steps(view: SetupView) -> str:
    marks = {True: "done", False: "open"}
    rows = [
        (f"  {step.title}", "skipped" if step.skipped and not step.done else marks[step.done], step.detail)
        for step in view.steps
    ]
    demo = "\nThis is the demo model. A real one: retinue setup --again" if view.is_demo else ""
    rest = "Start: retinue up" if view.model else "Without a model nothing answers. Go on: retinue setup"
    return f"{table(rows)}{demo}\n{rest}"


async def _apply_options(invocation: Invocation, agent: AgentId, wanted: Options) -> bool:
    """Do what the options ask for; return False if a model was named and cannot be used."""
    from retinue.runtime.commands.setup import mark_step, use_model, use_profile
    from retinue.storage.auditlog import CLI
    from retinue.workspace.profile import ProfileAnswers

    ok = True
    if wanted.demo or wanted.pull:
        ok = await download_model(invocation, wanted.pull or demo_name(), ask=False)
    elif wanted.key_env or wanted.key_stdin or wanted.provider or wanted.model:
        ok = await _use_options(invocation, agent, wanted)
    elif wanted.yes:
        home = reload_home(invocation)
        view = await view_home(home, agent)
        first = view.found.first_choice()
        if first is not None and not home.config.agents.defaults.model.primary:
            server = next((each for each in view.found.servers if each.provider == first.provider), None)
            use_model(home, first, CLI, base_url=server.base_url if server else None)
        elif view.model is not None:
            mark_step(home, "model")
        else:
            invocation.note(NO_MODEL_FOUND)
            ok = False
    if wanted.names_a_profile:
        answers = ProfileAnswers(wanted.user_name, wanted.agent_name, wanted.temper)
        use_profile(reload_home(invocation), agent, answers)
    return ok


NO_MODEL_FOUND = (
    "There is no key in the environment and no model server on this machine. Name one: --provider ID --key-env VAR, "
    "--pull NAME for a download, or --demo."
)


async def _use_options(invocation: Invocation, agent: AgentId, wanted: Options) -> bool:
    from retinue.core.errors import UsageError
    from retinue.core.model import ModelRef
    from retinue.providers.detect import recognise_key
    from retinue.runtime.commands.setup import KeyAnswer, check_server, use_model
    from retinue.security.secrets import EnvSecret
    from retinue.storage.auditlog import CLI

    base_url = check_server(wanted.base_url) if wanted.base_url else None
    value = ""
    if wanted.key_env:
        value = os.environ.get(wanted.key_env, "")
        if not value:
            raise UsageError(f"{wanted.key_env} is not set. Set it, or pipe the key in with --key-stdin.")
    elif wanted.key_stdin:
        value = sys.stdin.read().strip()
        if not value:
            raise UsageError("There is no key on standard input.")
    named = ModelRef.parse(wanted.model) if wanted.model else None
    provider = wanted.provider or (named.provider if named else None)
    if value:
        invocation.keep_quiet(value)
        guess = recognise_key(value)
        provider = provider or (guess.providers[0] if guess.sure else None)
        if provider is None:
            raise UsageError("The provider of this key is not clear from its shape. Name it: --provider ID.")
        secret: Secret = EnvSecret("env", wanted.key_env) if wanted.key_env else value
        answer = KeyAnswer(provider, secret, wanted.model, base_url)
        return await _try_and_use(invocation, agent, answer)
    if provider is None:
        raise UsageError("Name the provider: --provider ID, or --model provider/name.")
    model = named or (ModelRef(provider, wanted.model) if wanted.model else None)
    if model is None:
        raise UsageError(f"Give the key of '{provider}' with --key-env or --key-stdin, or name a model with --model.")
    use_model(reload_home(invocation), model, CLI, base_url=base_url)
    return True


async def _try_and_use(invocation: Invocation, agent: AgentId, answer: KeyAnswer) -> bool:
    from retinue.runtime.commands.setup import check_key, use_key
    from retinue.storage.auditlog import CLI

    home = reload_home(invocation)
    check = await check_key(home, agent, answer)
    invocation.note(check.message)
    if check.usable:
        use_key(home, agent, answer, CLI)
    return check.usable


async def do_together(invocation: Invocation, agent: AgentId, task: FirstTask) -> int:
    """Send the first message and print the answer; the chat continues from it."""
    from retinue.cli.agent import TurnRequest, ask_once
    from retinue.cli.connect import ConnectOptions

    invocation.note(f"\n> {task.message}\n")
    return await ask_once(invocation, TurnRequest(task.message, str(agent), None), ConnectOptions("retinue setup"))
