"""The guided first run: its steps, the checks of the answers, and what the answers change.

The terminal (`cli/setup.py`) and the page (`gateway/methods/setup.py`) ask the questions; both use these functions. The
progress is read from the home itself, so an interrupted setup continues at its first open step.
"""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import Literal

import anyio
from msgspec import Struct
from msgspec.structs import replace

from retinue.config.edit import Change, change_values
from retinue.core.codec import from_plain, load_json, to_plain
from retinue.core.errors import ConfigError, UsageError, WorkspaceError
from retinue.core.keys import AgentId
from retinue.core.messages import said
from retinue.core.model import Failure, ModelFailed, ModelFinished, ModelRef, ModelRequest
from retinue.providers.adapt_request import adapt_request
from retinue.providers.auth_profiles import Profile
from retinue.providers.base import Credential
from retinue.providers.detect import KEY_PAGES, Detected, detect_models
from retinue.providers.local.gguf import is_demo_model
from retinue.providers.local.pull import PulledModel
from retinue.providers.settings import ProviderSettings
from retinue.providers.vendors import VENDORS, canonical_provider, find_vendor
from retinue.runtime.agents.prompting import machine_timezone
from retinue.runtime.agents.workspace import open_workspace, seed_agent
from retinue.runtime.home import Home
from retinue.runtime.models import (
    MAX_REASONING_TEST_TOKENS,
    MAX_TEST_TOKENS,
    TEST_QUESTION,
    ModelAccess,
    make_access,
    open_access,
)
from retinue.security.secrets import Secret, Secrets, describe_secret
from retinue.storage.files import make_private_dir, write_atomic
from retinue.workspace.profile import ProfileAnswers, read_fact, read_temper, write_profile

StepId = Literal["model", "you", "agent", "first"]
STEP_TITLES: dict[StepId, str] = {
    "model": "Which model answers?",
    "you": "What should the agent call you?",
    "agent": "What is the agent's name, and its temper?",
    "first": "One useful thing together",
}
"""The steps in their order; every one can be skipped."""
STATE_FILE = "setup.json"
CHECK_SECONDS = 60.0
"""How long a person waits for the test of a key."""
MAX_STATE_BYTES = 65_536


class FirstTask(Struct, frozen=True):
    """A first message that is worth its answer for anybody."""

    title: str
    message: str


FIRST_TASKS: tuple[FirstTask, ...] = (
    FirstTask(
        "Remember three things about me",
        "Ask me for three things you should always know about me, one question in one message. When I have answered, "
        "write them to your memory and tell me where they are.",
    ),
    FirstTask(
        "Show me what you can do here",
        "Look at the tools and skills you have here. Name five concrete things you could do for me this week, one line "
        "each, and ask which one to start with.",
    ),
    FirstTask(
        "Plan my day",
        "Help me to plan today. Ask me for what is on my list and how much time I have, in one message; then make a "
        "short plan and keep it in your notes.",
    ),
)
WITHOUT_TOOLS = FirstTask("Say hello", "Hello! Who are you, in one sentence?")


class SetupStep(Struct, frozen=True):
    """A step, and what is known about it; an open step is neither done nor skipped."""

    id: StepId
    title: str
    done: bool
    skipped: bool
    detail: str = ""

    @property
    def is_open(self) -> bool:
        return not self.done and not self.skipped


class SetupView(Struct, frozen=True):
    """What a face of the setup shows: the steps, what this machine offers, and the choices of each question."""

    steps: tuple[SetupStep, ...]
    found: Detected
    model: str | None
    is_demo: bool
    first_tasks: tuple[FirstTask, ...] = FIRST_TASKS

    @property
    def next_step(self) -> SetupStep | None:
        return next((step for step in self.steps if step.is_open), None)


class _Stored(Struct, frozen=True, forbid_unknown_fields=False):
    """The content of the state file: what cannot be read from the home itself."""

    skipped: tuple[str, ...] = ()
    completed: tuple[str, ...] = ()


class KeyAnswer(Struct, frozen=True):
    """A key for a provider; `model` and `base_url` only where the provider's own are not wanted."""

    provider: str
    secret: Secret
    model: str | None = None
    base_url: str | None = None

    def __repr__(self) -> str:
        return f"KeyAnswer({self.provider!r}, {self.model!r}, {self.base_url!r})"


class KeyCheck(Struct, frozen=True):
    """The result of trying a key; `usable` also if only the connection is missing."""

    ok: bool
    usable: bool
    model: str
    message: str
    seconds: float = 0.0


async def view_setup(home: Home, agent: AgentId) -> SetupView:
    """Return the progress of the setup, and what this machine offers."""
    async with open_access(home, agent) as access:
        found = await detect_models(access.credentials.listed(), home.config.models, home.paths.models)
        choice = await access.choose()
        model = str(choice.ref) if choice else None
        is_demo = choice is not None and access.info(choice.ref).is_demo
    return SetupView(_steps(home, agent, model), found, model, is_demo)


def is_offered(home: Home) -> bool:
    """Return whether a new user should be guided; who wrote a model into the configuration has set Retinue up."""
    return not home.config.agents.defaults.model.primary or (home.paths.path / STATE_FILE).exists()


def key_providers(likely: tuple[str, ...]) -> tuple[str, ...]:
    """Return the providers that take keys, the likely ones first."""
    return tuple(dict.fromkeys((*likely, *(vendor.id for vendor in VENDORS if vendor.variables))))


def is_skipped(home: Home, step: StepId) -> bool:
    """Return whether the person left out a step."""
    return step in _load(home).skipped


def _steps(home: Home, agent: AgentId, model: str | None) -> tuple[SetupStep, ...]:
    stored = _load(home)
    user, name, temper = _read_profile(home, agent)
    known: dict[StepId, str] = {
        "model": model or "",
        "you": user or "",
        "agent": ", ".join(filter(None, (name, temper))) if name else "",
        "first": "",
    }
    done = {step for step, detail in known.items() if detail} | ({"first"} & {*stored.completed})
    return tuple(
        SetupStep(step, title, step in done, step in stored.skipped, known[step]) for step, title in STEP_TITLES.items()
    )


def _read_profile(home: Home, agent: AgentId) -> tuple[str | None, str | None, str | None]:
    try:
        with open_workspace(home, agent) as workspace:
            return read_fact(workspace.root, "USER.md", "Name"), workspace.identity().name, read_temper(workspace.root)
    except WorkspaceError:
        return None, None, None


def mark_step(home: Home, step: StepId, *, skipped: bool = False) -> None:
    """Record that a step is over, or that the person does not want it."""
    stored = _load(home)
    done = frozenset(stored.completed) - {step} if skipped else {*stored.completed, step}
    left_out = {*stored.skipped, step} if skipped else frozenset(stored.skipped) - {step}
    _save(home, _Stored(tuple(sorted(left_out)), tuple(sorted(done))))


def restart_setup(home: Home) -> None:
    """Ask again for what was skipped."""
    _save(home, replace(_load(home), skipped=()))


def _load(home: Home) -> _Stored:
    try:
        data = (home.paths.path / STATE_FILE).read_bytes()[:MAX_STATE_BYTES]
        return from_plain(load_json(data), _Stored)
    except (OSError, ValueError):
        return _Stored()


def _save(home: Home, stored: _Stored) -> None:
    make_private_dir(home.paths.path)
    write_atomic(home.paths.path / STATE_FILE, (json.dumps(to_plain(stored), indent=2) + "\n").encode())


async def check_key(home: Home, agent: AgentId, answer: KeyAnswer) -> KeyCheck:
    """Try a key with one short request, without storing it."""
    async with open_access(_at_address(home, answer), agent) as access:
        ref = _model_of(answer, access)
        # Resolving registers the key with the redactor, so that no message shows it.
        value = Secrets(home.environment, home.redactor).resolve(answer.secret)
        home.redactor.hide(value)
        started = home.clock.monotonic()
        outcome = await _ask(access, ref, Credential(f"{ref.provider}:new", value))
        seconds = home.clock.monotonic() - started
        name = vendor.name if (vendor := find_vendor(ref.provider)) else ref.provider
        if isinstance(outcome, ModelFinished):
            return KeyCheck(True, True, str(ref), f"The key works: {ref} answered in {seconds:.1f} s.", seconds)
        message, usable = explain_failure(outcome, name, ref)
        return KeyCheck(False, usable, str(ref), home.redactor.redact(message), seconds)


async def _ask(access: ModelAccess, ref: ModelRef, credential: Credential) -> ModelFinished | ModelFailed:
    info = access.info(ref)
    room = MAX_REASONING_TEST_TOKENS if info.reasoning else MAX_TEST_TOKENS
    request = ModelRequest(ref, "This is a test of the connection.", "", (said(TEST_QUESTION),), max_output=room)
    stream = access.providers[ref.provider].stream(adapt_request(request, info), credential)
    with anyio.move_on_after(CHECK_SECONDS):
        async with aclosing(stream) as events:  # type: ignore[type-var]
            async for event in events:
                if isinstance(event, ModelFinished | ModelFailed):
                    return event
    return ModelFailed(Failure.TIMEOUT, f"no answer within {CHECK_SECONDS:g} seconds")


def explain_failure(failure: ModelFailed, name: str, ref: ModelRef) -> tuple[str, bool]:
    """Return what went wrong and what to do, and whether the key may be used all the same."""
    page = KEY_PAGES.get(ref.provider)
    at = f" at {page}" if page else ""
    match failure.reason:
        case Failure.AUTH:
            return f"{name} refuses this key. Copy it again, completely, or create a new one{at}.", False
        case Failure.BILLING:
            return f"{name} accepts the key, but the account has no credit. Add credit{at}, then go on.", True
        case Failure.RATE_LIMIT | Failure.OVERLOADED:
            return f"{name} accepts the key but is busy or limits requests now. It can be used; try again later.", True
        case Failure.CONNECTION | Failure.TIMEOUT:
            how = "The key can be stored now and is used as soon as the connection works."
            return f"{name} cannot be reached ({failure.detail}). Check the network connection. {how}", True
        case Failure.NOT_FOUND:
            how = "Name another model with --model, or later with `retinue models set`."
            return f"{name} accepts the key but does not offer {ref.model} to it. {how}", True
        case _:
            return f"{name} did not answer the test: {failure.detail} Try again, or choose another model.", False


def use_key(home: Home, agent: AgentId, answer: KeyAnswer, who: str) -> str:
    """Store a key and make its model the default; return the model."""
    access = make_access(_at_address(home, answer), agent)
    ref = _model_of(answer, access)
    if isinstance(answer.secret, str):
        home.redactor.hide(answer.secret)
    profile = Profile(f"{ref.provider}:default", ref.provider, "api_key", answer.secret)
    access.credentials.add(profile)
    details = {"profile": profile.id, "agent": agent, "where": describe_secret(answer.secret)}
    home.audit.record("credential_added", who, details)
    use_model(home, ref, who, base_url=answer.base_url)
    return str(ref)


def use_model(home: Home, ref: ModelRef, who: str, *, base_url: str | None = None) -> None:
    """Make a model the default, at an address if its provider is not built in."""
    changes = [Change("agents.defaults.model.primary", json.dumps(str(ref)))]
    written = home.config.agents.defaults.model
    if written.primary and not written.fallbacks:
        changes = [Change("agents.defaults.model", json.dumps({"primary": str(ref)}))]
    vendor = find_vendor(ref.provider)
    if base_url and (vendor is None or vendor.base_url != base_url):
        changes.insert(0, Change(f"models.providers.{ref.provider}.baseUrl", json.dumps(base_url)))
        if vendor is None:
            changes.insert(1, Change(f"models.providers.{ref.provider}.api", json.dumps("openai-completions")))
    change_values(home.paths, changes, home.environment, who=who)
    mark_step(home, "model")


def use_pulled(home: Home, pulled: PulledModel, who: str) -> None:
    """Make a downloaded model the default; the demo model is not configured, so that any real one replaces it."""
    ref = ModelRef("local", pulled.path.stem)
    if is_demo_model(ref.model):
        mark_step(home, "model")
    else:
        use_model(home, ref, who)


def use_profile(home: Home, agent: AgentId, answers: ProfileAnswers) -> tuple[str, ...]:
    """Write the answers about the person and the agent into the workspace; return the changed files."""
    if answers.user_name and answers.time_zone is None:
        answers = replace(answers, time_zone=machine_timezone(home) or None)
    seed_agent(home, agent)
    with open_workspace(home, agent) as workspace:
        if not workspace.trusted:
            raise UsageError(
                f"{workspace.root.path} is not trusted, so the setup does not write to it. If you know its content: "
                "retinue workspace trust"
            )
        changed = write_profile(workspace.root, answers)
    if answers.user_name:
        mark_step(home, "you")
    if answers.agent_name or answers.temper:
        mark_step(home, "agent")
    return changed


def _at_address(home: Home, answer: KeyAnswer) -> Home:
    """Return the home with the address of the answer, which is not in the configuration yet."""
    if not answer.base_url:
        return home
    provider = canonical_provider(answer.provider)
    models = home.config.models
    known = models.providers.get(provider) or ProviderSettings()
    changed = replace(models, providers={**models.providers, provider: replace(known, base_url=answer.base_url)})
    return replace(home, loaded=replace(home.loaded, config=replace(home.config, models=changed)))


def _model_of(answer: KeyAnswer, access: ModelAccess) -> ModelRef:
    provider = canonical_provider(answer.provider)
    if provider not in access.providers.known():
        known = ", ".join(access.providers.known())
        raise UsageError(f"There is no provider '{provider}'. Known: {known}. Others need an address: --base-url.")
    if answer.model:
        named = ModelRef.parse(answer.model)
        return named if named and canonical_provider(named.provider) == provider else ModelRef(provider, answer.model)
    vendor = find_vendor(provider)
    configured = access.providers.catalog.listed(provider)
    if vendor is not None and vendor.default_model:
        return ModelRef(provider, vendor.default_model)
    if configured:
        return configured[0]
    raise UsageError(f"Name a model of '{provider}' with --model, as in --model {provider}/<name>.")


def check_server(address: str) -> str:
    """Return the address of a model server that a person typed; raise `UsageError` if it cannot be one."""
    from retinue.providers.http_client import check_endpoint

    try:
        return check_endpoint(address if "://" in address else f"http://{address}")
    except ConfigError as error:
        raise UsageError(str(error)) from error
