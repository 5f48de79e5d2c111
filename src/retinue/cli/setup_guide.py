"""The guided first run in the terminal: questions for the open steps of the setup."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, cast

import click

from retinue.cli.common import Invocation, table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from retinue.core.keys import AgentId
    from retinue.core.model import ModelRef
    from retinue.providers.detect import KeyGuess
    from retinue.runtime.commands.setup import FirstTask, KeyCheck, SetupView, StepId
    from retinue.runtime.home import Home

SKIP_WORDS = frozenset({"skip", "s", "-"})
MAX_SERVED = 3
"""How many models of a server are offered."""
MAX_ATTEMPTS = 5
"""How often a question is asked again before the step is left for later."""


def reload_home(invocation: Invocation) -> Home:
    """Load the home again after a change; its problems were printed before."""
    from retinue.runtime.home import load_home

    return load_home(invocation.home)


async def view_home(home: Home, agent: AgentId) -> SetupView:
    """Return the steps of the setup and what this machine has."""
    from retinue.runtime.commands.setup import view_setup

    return await view_setup(home, agent)


async def download_model(invocation: Invocation, name: str, *, ask: bool) -> bool:
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
    use_pulled(reload_home(invocation), pulled, CLI)
    return True


def demo_name() -> str:
    """Return the name of the demo model."""
    from retinue.cli.models import SMALLEST

    return SMALLEST


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

        view = await view_home(self._home(), self._agent)
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
        return reload_home(self._invocation)

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
        return await download_model(self._invocation, offered[chosen].name, ask=True)

    async def _take_demo(self) -> bool:
        return await download_model(self._invocation, demo_name(), ask=True)

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

        view = await view_home(self._home(), self._agent)
        if view.model is None or view.is_demo:
            self._say("   A capable model is needed for this; `retinue demo` shows a recording of what one does.\n")
            return None
        chosen = self._choose([task.title for task in FIRST_TASKS], "Number, your own request, or `skip`")
        mark_step(self._home(), "first", skipped=chosen == "")
        if isinstance(chosen, int):
            return FIRST_TASKS[chosen]
        return FirstTask(chosen, chosen) if chosen else None
