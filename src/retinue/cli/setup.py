"""`retinue setup`: the guided first run in the terminal, and the same steps as options for scripts."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import click
from msgspec import Struct

from retinue.cli.common import Command, Invocation, ask_is_possible, keep_logs, pass_invocation, table, which_agent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from retinue.core.keys import AgentId
    from retinue.core.model import ModelRef
    from retinue.providers.detect import KeyGuess
    from retinue.runtime.commands.setup import FirstTask, KeyAnswer, KeyCheck, SetupView, StepId
    from retinue.runtime.home import Home
    from retinue.security.secrets import Secret

SKIP_WORDS = frozenset({"skip", "s", "-"})
MAX_SERVED = 3
"""How many models of a server are offered."""
MAX_ATTEMPTS = 5
"""How often a question is asked again before the step is left for later."""


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
        view = anyio.run(_view, home, agent)
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

    home = _reload(invocation)
    if wanted.again:
        restart_setup(home)
    ok = await _apply_options(invocation, agent, wanted)
    task = await Guide(invocation, agent).ask_open_steps() if guided else None
    if task is not None:
        code = await do_together(invocation, agent, task)
        invocation.note("\nGo on talking: retinue chat")
        return code
    view = await _view(_reload(invocation), agent)
    invocation.show(_describe(view), lambda: _format_steps(view))
    return 0 if ok else 1


def _reload(invocation: Invocation) -> Home:
    """Load the home again after a change; its problems were printed before."""
    from retinue.runtime.home import load_home

    return load_home(invocation.home)


async def _view(home: Home, agent: AgentId) -> SetupView:
    from retinue.runtime.commands.setup import view_setup

    return await view_setup(home, agent)


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
        ok = await _download(invocation, wanted.pull or _demo_name(), ask=False)
    elif wanted.key_env or wanted.key_stdin or wanted.provider or wanted.model:
        ok = await _use_options(invocation, agent, wanted)
    elif wanted.yes:
        home = _reload(invocation)
        view = await _view(home, agent)
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
        use_profile(_reload(invocation), agent, answers)
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
    use_model(_reload(invocation), model, CLI, base_url=base_url)
    return True


async def _try_and_use(invocation: Invocation, agent: AgentId, answer: KeyAnswer) -> bool:
    from retinue.runtime.commands.setup import check_key, use_key
    from retinue.storage.auditlog import CLI

    home = _reload(invocation)
    check = await check_key(home, agent, answer)
    invocation.note(check.message)
    if check.usable:
        use_key(home, agent, answer, CLI)
    return check.usable


async def _download(invocation: Invocation, name: str, *, ask: bool) -> bool:
    """Download a model and use it; returns False, with the reason printed, if that is not possible."""
    from retinue.cli.models import ensure_engine, pull_showing
    from retinue.core.errors import RetinueError
    from retinue.runtime.commands.setup import use_pulled
    from retinue.storage.auditlog import CLI

    try:
        if not ensure_engine(invocation, ask=ask):
            return False
        pulled = await pull_showing(invocation, name)
    except RetinueError as error:
        invocation.note(f"That did not work: {error}")
        return False
    use_pulled(_reload(invocation), pulled, CLI)
    return True


def _demo_name() -> str:
    from retinue.cli.models import SMALLEST

    return SMALLEST


async def do_together(invocation: Invocation, agent: AgentId, task: FirstTask) -> int:
    """Send the first message and print the answer; the chat continues from it."""
    from retinue.cli.agent import TurnRequest, ask_once
    from retinue.cli.connect import ConnectOptions

    invocation.note(f"\n> {task.message}\n")
    return await ask_once(invocation, TurnRequest(task.message, str(agent), None), ConnectOptions("retinue setup"))


@contextmanager
def _plain_interrupts() -> Iterator[None]:
    """Let Ctrl+C end a question at once: the event loop would only note it until the question is answered."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Guide:
    """Asks for the open steps, one after the other."""

    def __init__(self, invocation: Invocation, agent: AgentId) -> None:
        self._invocation = invocation
        self._agent = agent

    async def ask_open_steps(self) -> FirstTask | None:
        """Ask; returns the first task that the person chose."""
        from retinue.runtime.commands.setup import mark_step

        view = await _view(self._home(), self._agent)
        steps = [step for step in view.steps if step.is_open or (step.id == "model" and view.is_demo)]
        if not steps:
            return None
        self._say(
            f"Setup: {len(steps)} short step{'s' if len(steps) > 1 else ''}. Enter takes the answer in [brackets], "
            "`skip` leaves a step out, Ctrl+C stops; `retinue setup` continues where you stopped.\n"
        )
        for number, step in enumerate(steps, 1):
            self._say(f"{number} of {len(steps)}  {step.title}")
            match step.id:
                case "model":
                    done = await self._ask_model(view)
                case "you":
                    done = self._ask_user()
                case "agent":
                    done = self._ask_agent()
                case _:
                    return await self._ask_first_task()
            if not done:
                mark_step(self._home(), cast("StepId", step.id), skipped=True)
                self._say("   Skipped. `retinue setup --again` asks for it again.")
        return None

    def _home(self) -> Home:
        return _reload(self._invocation)

    def _say(self, text: str) -> None:
        self._invocation.note(text)

    def _ask(self, question: str, default: str = "", *, hidden: bool = False) -> str:
        """Ask one question on standard error; `skip` and an empty answer without a default return an empty text."""
        with _plain_interrupts():
            answer = click.prompt(
                f"   {question}", default=default, show_default=bool(default), hide_input=hidden, err=True
            )
        text = str(answer).strip()
        return "" if text.lower() in SKIP_WORDS else text

    def _choose(self, options: Sequence[str], question: str) -> int | str:
        """Show numbered options; returns the index of the chosen one, or the text if it is none of them."""
        for number, option in enumerate(options, 1):
            self._say(f"   {number}  {option}")
        answer = self._ask(question, "1")
        return int(answer) - 1 if answer.isdecimal() and 0 < int(answer) <= len(options) else answer

    async def _ask_model(self, view: SetupView) -> bool:
        for _ in range(MAX_ATTEMPTS):
            actions = self._model_actions(view)
            chosen = self._choose([title for title, _ in actions], "Number, or `skip`")
            if chosen == "":
                return False
            if await (self._use_key(chosen) if isinstance(chosen, str) else actions[chosen][1]()):
                self._say("")
                return True
        return False

    def _model_actions(self, view: SetupView) -> list[tuple[str, Callable[[], Awaitable[bool]]]]:
        """Return the ways to a model: what this machine has comes first."""
        from retinue.core.model import ModelRef

        actions: list[tuple[str, Callable[[], Awaitable[bool]]]] = []
        for key in view.found.keys:
            ref = ModelRef.parse(key.model)
            if ref is not None:
                actions.append((f"{key.model}: there is a key, {key.where}", partial(self._use_ref, ref, None)))
        for server in view.found.servers:
            for model in server.models[:MAX_SERVED]:
                ref = ModelRef(server.provider, model)
                title = f"{model}, served by {server.name} at {server.base_url}"
                actions.append((title, partial(self._use_ref, ref, server.base_url)))
        return [
            *actions,
            ("Paste a key (Anthropic, OpenAI, Google, OpenRouter and others)", self._paste_key),
            ("Type the address of a model server", self._ask_address),
            ("Download a small model that runs inside Retinue", self._ask_download),
            ("Only look around with the tiny demo model (98 MB; a few words, no tools)", self._take_demo),
        ]

    async def _use_ref(self, ref: ModelRef, base_url: str | None) -> bool:
        from retinue.runtime.commands.setup import use_model
        from retinue.storage.auditlog import CLI

        use_model(self._home(), ref, CLI, base_url=base_url)
        self._say(f"   {ref} is used.")
        return True

    async def _paste_key(self) -> bool:
        from retinue.providers.detect import KEY_PAGES

        self._say(f"   A key is created at, for example, {KEY_PAGES['anthropic']} or {KEY_PAGES['openrouter']}.")
        key = self._ask("Key (not shown)", hidden=True)
        return await self._use_key(key) if key else False

    async def _use_key(self, key: str) -> bool:
        """Try a key at once and say what came out."""
        from retinue.providers.detect import recognise_key
        from retinue.runtime.commands.setup import KeyAnswer, check_key, use_key
        from retinue.storage.auditlog import CLI

        self._invocation.keep_quiet(key)
        if not key.isascii() or not key.isprintable() or " " in key or len(key) < 8:
            self._say("   That is neither a number of the list nor a key. Keys have no spaces.")
            return False
        guess = recognise_key(key)
        provider = guess.providers[0] if guess.sure else self._ask_provider(guess)
        if not provider:
            return False
        answer = KeyAnswer(provider, key)
        self._say(f"   Trying it with {provider} …")
        check = await check_key(self._home(), self._agent, answer)
        self._say(f"   {check.message}")
        if not check.usable or not self._keep_anyway(check):
            return False
        use_key(self._home(), self._agent, answer, CLI)
        return True

    def _keep_anyway(self, check: KeyCheck) -> bool:
        with _plain_interrupts():
            return check.ok or click.confirm("   Store it and go on?", default=True, err=True)

    def _ask_provider(self, guess: KeyGuess) -> str:
        from retinue.providers.vendors import VENDORS, canonical_provider, find_vendor

        known = [vendor.id for vendor in VENDORS if vendor.variables]
        for _ in range(MAX_ATTEMPTS):
            answer = self._ask(f"Whose key is it? ({', '.join(known)})", guess.providers[0] if guess.providers else "")
            if not answer or find_vendor(answer):
                return canonical_provider(answer) if answer else ""
            self._say(f"   '{answer}' is not known. Other services need an address: choose the model server.")
        return ""

    async def _ask_address(self) -> bool:
        from retinue.core.errors import RetinueError
        from retinue.core.model import ModelRef
        from retinue.providers.detect import DETECT_SECONDS
        from retinue.providers.model_choice import list_served_models
        from retinue.runtime.commands.setup import check_server

        address = self._ask("Address, such as http://127.0.0.1:8000/v1")
        if not address:
            return False
        try:
            base_url = check_server(address)
        except RetinueError as error:
            self._say(f"   {error}")
            return False
        models = await list_served_models(base_url, DETECT_SECONDS)
        if not models:
            self._say(f"   No model server answers at {base_url}. Start it, check the port, and try again.")
            return False
        chosen = self._choose(models[:9], "Model")
        name = models[chosen] if isinstance(chosen, int) else chosen
        return bool(name) and await self._use_ref(ModelRef("server", name), base_url)

    async def _ask_download(self) -> bool:
        from retinue.cli.models import download_rows
        from retinue.providers.local.pull import PULLABLE

        offered = [entry for entry in PULLABLE if not entry.is_demo]
        rows = table(download_rows(offered)).splitlines()
        chosen = self._choose(rows, "Number, or `skip`")
        if isinstance(chosen, str):
            return False
        return await _download(self._invocation, offered[chosen].name, ask=True)

    async def _take_demo(self) -> bool:
        return await _download(self._invocation, _demo_name(), ask=True)

    def _ask_user(self) -> bool:
        from retinue.runtime.commands.setup import use_profile
        from retinue.workspace.profile import ProfileAnswers

        name = self._ask("Your name, or `skip`")
        if not name:
            return False
        changed = use_profile(self._home(), self._agent, ProfileAnswers(user_name=name))
        self._say(f"   Written to {', '.join(changed)}.\n")
        return True

    def _ask_agent(self) -> bool:
        from retinue.runtime.commands.setup import use_profile
        from retinue.workspace.profile import TEMPERS, ProfileAnswers

        name = self._ask("A name for the agent, or `skip`")
        if not name:
            return False
        self._say("   Its temper:")
        words = list(TEMPERS)
        chosen = self._choose([f"{word}: {TEMPERS[word]}" for word in words], "Number, or your own words")
        temper = words[chosen] if isinstance(chosen, int) else chosen
        answers = ProfileAnswers(agent_name=name, temper=temper or None)
        changed = use_profile(self._home(), self._agent, answers)
        self._say(f"   Written to {', '.join(changed)}.\n")
        return True

    async def _ask_first_task(self) -> FirstTask | None:
        from retinue.runtime.commands.setup import FIRST_TASKS, FirstTask, mark_step

        view = await _view(self._home(), self._agent)
        if view.model is None or view.is_demo:
            self._say("   A capable model is needed for this; `retinue demo` shows a recording of what one does.\n")
            return None
        chosen = self._choose([task.title for task in FIRST_TASKS], "Number, your own request, or `skip`")
        mark_step(self._home(), "first", skipped=chosen == "")
        if isinstance(chosen, int):
            return FIRST_TASKS[chosen]
        return FirstTask(chosen, chosen) if chosen else None
