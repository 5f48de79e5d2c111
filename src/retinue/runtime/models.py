"""The models of an agent: choosing and calling them in turns, and testing whether they answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager

import anyio
from msgspec import Struct, field
from msgspec.structs import replace

from retinue.config.sections.agents import AgentSettings
from retinue.core.errors import ConfigError
from retinue.core.keys import DEFAULT_AGENT, AgentId
from retinue.core.messages import AssistantMessage, said
from retinue.core.model import CacheRetention, ModelEvent, ModelFailed, ModelFinished, ModelInfo, ModelRef, ModelRequest
from retinue.providers.adapt_request import RequestOptions
from retinue.providers.credential_pool import AuthRules, CredentialPool
from retinue.providers.failover import SHORT_RETRY_DELAYS, Failover, OnNotice, Sleep
from retinue.providers.model_choice import ChosenModel, LocalServers, discover_model, known_aliases, resolve_ref
from retinue.providers.registry import Providers
from retinue.providers.vendors import find_vendor
from retinue.runtime.home import Home
from retinue.runtime.known_secrets import without_secrets
from retinue.security.secrets import Secrets

NO_MODEL = """\
There is no model to talk to yet. `retinue setup` guides you to one; or any of these will do:
- set a key, as in `export ANTHROPIC_API_KEY=…` (or OPENAI_API_KEY, GEMINI_API_KEY, OPENROUTER_API_KEY);
- store one: `retinue models auth add anthropic`;
- start Ollama on this machine, or `retinue models pull` for a small model that runs inside Retinue
  (needs the extra: `pip install 'retinue[local]'`);
- point `models.providers` at any OpenAI-compatible server; see the documentation on models."""
TEST_QUESTION = "Reply with the word ok."
MAX_TEST_TOKENS = 32
MAX_REASONING_TEST_TOKENS = 512
"""Some models reason before the answer; others only write more than needed if there is room."""


class ModelAccess(Struct, eq=False):
    """The models of one agent."""

    settings: AgentSettings
    providers: Providers
    credentials: CredentialPool
    home: Home
    servers: LocalServers = field(default_factory=LocalServers)
    sleep: Sleep = anyio.sleep
    """How to wait before a model is called again."""
    _found: ChosenModel | None = None
    _tuned: dict[ModelRef, RequestOptions] = field(default_factory=dict)

    @property
    def aliases(self) -> dict[str, str]:
        configured = {entry.alias: name for name, entry in self.settings.models.items() if entry.alias}
        return known_aliases(configured, self._providers_at_hand())

    def resolve(self, text: str) -> ModelRef:
        """Return the model with a name or alias; raise `UsageError` if there is none."""
        return resolve_ref(text, self.aliases)

    async def choose(self, wanted: ModelRef | None = None) -> ChosenModel | None:
        """Return the model to use: the requested one, else the configured one, else an available one; None if none."""
        if wanted is not None:
            return ChosenModel(wanted, "chosen for this conversation", how_to_change="/model default", pinned=True)
        if self._found is None:
            self._found = await discover_model(
                self.settings.model.primary,
                self.aliases,
                self.home.environment,
                self.home.paths.models,
                servers=self.servers,
                with_credentials=self._providers_at_hand(),
                models=self.home.config.models,
            )
        return self._found

    async def choose_for_child(self, wanted: ModelRef | None = None) -> ChosenModel | None:
        """Return the model for a sub-agent, which may have a separate model and fallbacks."""
        own = self.settings.subagents.model
        if wanted is None and own is not None and own.primary:
            how = "set agents.defaults.subagents.model"
            return ChosenModel(self.resolve(own.primary), "sub-agents use it", how, fallbacks=tuple(own.fallbacks))
        return await self.choose(wanted)

    def choose_for_pictures(self, choice: ChosenModel) -> ChosenModel:
        """Return the model for a message with images: the chosen one if it accepts images, else the configured one."""
        seeing = self.settings.image_model
        if seeing.primary is None or "image" in self.info(choice.ref).inputs:
            return choice
        how = "set agents.defaults.imageModel"
        return ChosenModel(self.resolve(seeing.primary), "it accepts images", how, fallbacks=tuple(seeing.fallbacks))

    def forget_choice(self) -> None:
        """Choose again at the next turn, because a model or credential was added."""
        self._found = None

    def info(self, ref: ModelRef) -> ModelInfo:
        """Return the facts about a model, with the context window limited as configured."""
        known = self.providers.catalog.describe(ref)
        window = min(known.window, self.settings.context_tokens or known.window)
        return replace(known, window=window, max_output=min(known.max_output, window))

    def chain(self, choice: ChosenModel) -> tuple[ModelRef, ...]:
        """Return the model and its fallbacks; a model that is pinned to the conversation has none."""
        if choice.pinned:
            return (choice.ref,)
        names = self.settings.model.fallbacks if choice.fallbacks is None else choice.fallbacks
        return (choice.ref, *map(self.resolve, names))

    def chain_beside(self, named: str | None) -> tuple[ModelRef, ...]:
        """Return the models for background work: the one named for it, else the one for all such work; may be empty."""
        if named:
            return (self.resolve(named),)
        utility = self.settings.utility_model
        return tuple(map(self.resolve, (utility.primary, *utility.fallbacks))) if utility.primary else ()

    def stream(
        self, request: ModelRequest, chain: tuple[ModelRef, ...], on_notice: OnNotice
    ) -> AsyncGenerator[ModelEvent, None]:
        """Answer with the first model of the chain that works."""
        redactor = self.home.redactor
        failover = Failover(
            self.providers, self.credentials, self.info, self.sleep, tuning=self.tuning, redact=redactor.redact
        )
        return failover.stream(without_secrets(request, redactor), chain, on_notice)

    def tuning(self, ref: ModelRef) -> RequestOptions:
        """Return the configured request options of a model; computed once, as neither changes."""
        found = self._tuned.get(ref)
        if found is None:
            found = self._tuned[ref] = self._tune(ref)
        return found

    def _tune(self, ref: ModelRef) -> RequestOptions:
        params = self.settings.params_for(str(ref))
        entry = self.settings.models.get(str(ref))
        return RequestOptions(
            params.temperature,
            params.top_p,
            params.max_tokens or self.providers.catalog.configured_limit(ref),
            CacheRetention(params.cache_retention) if params.cache_retention else None,
            entry is None or entry.streaming,
        )

    def is_ready(self, provider: str) -> bool:
        """Return whether a provider can be called now: it has a credential, or needs none."""
        try:
            needs_key = self.providers.endpoint(provider).auth != "none"
        except ConfigError:
            return False
        return not needs_key or find_vendor(provider) is None or bool(self.credentials.profiles(provider))

    def known(self) -> tuple[ModelRef, ...]:
        """Return the models that a person can choose: configured ones, and those of providers with a credential."""
        named = [ref for name in self.settings.models if (ref := ModelRef.parse(name))]
        primary = [self.resolve(self.settings.model.primary)] if self.settings.model.primary else []
        providers = dict.fromkeys((*self.home.config.models.providers, *self._providers_at_hand(), "local"))
        offered = [ref for provider in providers for ref in self.providers.catalog.listed(provider)]
        return tuple(dict.fromkeys((*primary, *named, *offered)))

    def _providers_at_hand(self) -> Iterable[str]:
        stored = [row.provider for row in self.credentials.listed() if row.origin != "environment"]
        return dict.fromkeys((*stored, *(r.provider for r in self.credentials.listed())))


def make_providers(home: Home, secrets: Secrets) -> Providers:
    """Return the providers of a home with the registered adapters."""
    return Providers(home.config.models, secrets, home.paths.models, home.registry.providers)


def open_model_access(home: Home, agent: AgentId, providers: Providers, secrets: Secrets) -> ModelAccess:
    """Return the models of an agent; the main agent's credentials are its fallback."""
    settings = home.config.agents.resolve(agent)
    config = home.config
    credentials = CredentialPool(
        home.agent_dir(agent),
        home.agent_dir(DEFAULT_AGENT),
        AuthRules(config.auth, config.models),
        secrets,
        home.clock,
    )
    return ModelAccess(settings, providers, credentials, home)


class Trial(Struct, frozen=True):
    """The result of a test: the answer, or None; the failed attempts by name; and the duration."""

    answer: AssistantMessage | None
    failures: tuple[tuple[str, ModelFailed], ...]
    seconds: float


def make_access(home: Home, agent: AgentId) -> ModelAccess:
    """Return an agent's models without opening its workspace, sessions or tools."""
    secrets = Secrets(home.environment, home.redactor)
    return open_model_access(home, agent, make_providers(home, secrets), secrets)


@asynccontextmanager
async def open_access(home: Home, agent: AgentId) -> AsyncIterator[ModelAccess]:
    """Open the models of an agent for calls; their connections are closed at the end of the block."""
    access = make_access(home, agent)
    try:
        yield access
    finally:
        await access.providers.aclose()


async def try_models(access: ModelAccess, chain: tuple[ModelRef, ...], on_notice: OnNotice) -> Trial:
    """Call the models of a chain as a turn would, but without its retries."""
    clock = access.home.clock
    failover = Failover(
        access.providers,
        access.credentials,
        access.info,
        anyio.sleep,
        retries=SHORT_RETRY_DELAYS,
        tuning=access.tuning,
    )
    reasons = any(access.info(ref).reasoning for ref in chain)
    room = MAX_REASONING_TEST_TOKENS if reasons else MAX_TEST_TOKENS
    request = ModelRequest(chain[0], "This is a test of the connection.", "", (said(TEST_QUESTION),), max_output=room)
    failures: list[tuple[str, ModelFailed]] = []
    answer: AssistantMessage | None = None
    started = clock.monotonic()
    async with aclosing(failover.stream(request, chain, on_notice, failures)) as events:
        async for event in events:
            if isinstance(event, ModelFinished):
                answer = event.message
    return Trial(answer, tuple(failures), clock.monotonic() - started)
