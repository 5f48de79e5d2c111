"""How an agent reaches its models: which one, with which credentials, and what else is tried."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

import anyio
from msgspec import Struct, field
from msgspec.structs import replace

from retinue.config.sections.agents import AgentSettings
from retinue.core.errors import ConfigError
from retinue.core.keys import DEFAULT_AGENT, AgentId
from retinue.core.model import CacheRetention, ModelEvent, ModelFailed, ModelInfo, ModelRef, ModelRequest
from retinue.providers.credentials import AuthRules, Credentials
from retinue.providers.failover import Failover, OnFallback, Sleep
from retinue.providers.fit import Tuning
from retinue.providers.registry import Providers
from retinue.providers.resolve import Choice, LocalServers, discover_model, known_aliases, resolve_ref
from retinue.providers.vendors import find_vendor
from retinue.runtime.discretion import without_secrets
from retinue.runtime.foundation import Foundation
from retinue.security.redaction import Redactor
from retinue.security.secrets import Secrets

NO_MODEL = """\
There is no model to talk to yet. Any of these will do:
- set a key, as in `export ANTHROPIC_API_KEY=…` (or OPENAI_API_KEY, GEMINI_API_KEY, OPENROUTER_API_KEY);
- store one: `retinue models auth add anthropic`;
- start Ollama on this machine, or `retinue models pull` for a small model that runs inside Retinue
  (needs the extra: `pip install 'retinue[local]'`);
- point `models.providers` at any OpenAI-compatible server; see the documentation on models."""


class ModelAccess(Struct, eq=False):
    """One agent's way to its models."""

    settings: AgentSettings
    providers: Providers
    credentials: Credentials
    foundation: Foundation
    servers: LocalServers = field(default_factory=LocalServers)
    sleep: Sleep = anyio.sleep
    """How to wait before a model is asked again."""
    _found: Choice | None = None

    @property
    def aliases(self) -> dict[str, str]:
        configured = {entry.alias: name for name, entry in self.settings.models.items() if entry.alias}
        return known_aliases(configured, self._providers_at_hand())

    def resolve(self, text: str) -> ModelRef:
        """The model that a person means; raises `UsageError` where it is none."""
        return resolve_ref(text, self.aliases)

    async def choose(self, wanted: ModelRef | None = None) -> Choice | None:
        """The model to use: the one wanted, else the configured one, else what can be found; None for none at all."""
        if wanted is not None:
            return Choice(wanted, "chosen for this conversation", how_to_change="/model default", pinned=True)
        if self._found is None:
            self._found = await discover_model(
                self.settings.model.primary,
                self.aliases,
                self.foundation.environment,
                self.foundation.home.models,
                servers=self.servers,
                with_credentials=self._providers_at_hand(),
            )
        return self._found

    async def choose_for_child(self, wanted: ModelRef | None = None) -> Choice | None:
        """The same for a sub-agent, which may have a model of its own with its own fallbacks."""
        own = self.settings.subagents.model
        if wanted is None and own is not None and own.primary:
            how = "set agents.defaults.subagents.model"
            return Choice(self.resolve(own.primary), "sub-agents use it", how, fallbacks=tuple(own.fallbacks))
        return await self.choose(wanted)

    def choose_for_pictures(self, choice: Choice) -> Choice:
        """The model for a message with pictures: the chosen one where it sees them, else the one configured for it."""
        seeing = self.settings.image_model
        if seeing.primary is None or "image" in self.info(choice.ref).inputs:
            return choice
        how = "set agents.defaults.imageModel"
        return Choice(self.resolve(seeing.primary), "it sees pictures", how, fallbacks=tuple(seeing.fallbacks))

    def forget_choice(self) -> None:
        """Look again at the next turn, after something was added."""
        self._found = None

    def info(self, ref: ModelRef) -> ModelInfo:
        """What is known of a model, with no more of its window than the configuration lets it use."""
        known = self.providers.catalog.describe(ref)
        window = min(known.window, self.settings.context_tokens or known.window)
        return replace(known, window=window, max_output=min(known.max_output, window))

    def chain(self, choice: Choice) -> tuple[ModelRef, ...]:
        """The model and what is tried after it; a model that is pinned to the conversation has no fallbacks."""
        if choice.pinned:
            return (choice.ref,)
        names = self.settings.model.fallbacks if choice.fallbacks is None else choice.fallbacks
        return (choice.ref, *map(self.resolve, names))

    def chain_beside(self, named: str | None) -> tuple[ModelRef, ...]:
        """Who works beside the conversation: the model named for it, else the one for all such work; maybe nobody."""
        if named:
            return (self.resolve(named),)
        utility = self.settings.utility_model
        return tuple(map(self.resolve, (utility.primary, *utility.fallbacks))) if utility.primary else ()

    def stream(
        self, request: ModelRequest, chain: tuple[ModelRef, ...], on_fallback: OnFallback
    ) -> AsyncGenerator[ModelEvent, None]:
        """Answer with the first model of the chain that can."""
        failover = Failover(self.providers, self.credentials, self.info, self.sleep, tuning=self.tuning)
        redactor = self.foundation.redactor

        async def tell(text: str) -> None:
            await on_fallback(redactor.redact(text))

        return _redacted(failover.stream(without_secrets(request, redactor), chain, tell), redactor)

    def tuning(self, ref: ModelRef) -> Tuning:
        """How the configuration wants a model asked."""
        params = self.settings.params_for(str(ref))
        entry = self.settings.models.get(str(ref))
        return Tuning(
            params.temperature,
            params.top_p,
            params.max_tokens,
            CacheRetention(params.cache_retention) if params.cache_retention else None,
            entry is None or entry.streaming,
        )

    def is_ready(self, provider: str) -> bool:
        """Whether a provider could be asked now: it has a credential, or is taken to need none."""
        try:
            needs_key = self.providers.endpoint(provider).auth != "none"
        except ConfigError:
            return False
        return not needs_key or find_vendor(provider) is None or bool(self.credentials.profiles(provider))

    def known(self) -> tuple[ModelRef, ...]:
        """Models a person can choose: configured ones, and those of providers with a credential."""
        named = [ref for name in self.settings.models if (ref := ModelRef.parse(name))]
        primary = [self.resolve(self.settings.model.primary)] if self.settings.model.primary else []
        providers = dict.fromkeys((*self.foundation.config.models.providers, *self._providers_at_hand(), "local"))
        offered = [ref for provider in providers for ref in self.providers.catalog.listed(provider)]
        return tuple(dict.fromkeys((*primary, *named, *offered)))

    def _providers_at_hand(self) -> Iterable[str]:
        stored = [row.provider for row in self.credentials.listed() if row.origin != "environment"]
        return dict.fromkeys((*stored, *(r.provider for r in self.credentials.listed())))


async def _redacted(events: AsyncGenerator[ModelEvent, None], redactor: Redactor) -> AsyncGenerator[ModelEvent, None]:
    """The same events; an endpoint that repeats a secret in its complaint does not get it any further."""
    async with aclosing(events) as stream:
        async for event in stream:
            yield replace(event, detail=redactor.redact(event.detail)) if isinstance(event, ModelFailed) else event


def open_model_access(foundation: Foundation, agent: AgentId, providers: Providers, secrets: Secrets) -> ModelAccess:
    """An agent's way to its models; the main agent's credentials stand behind its own."""
    settings = foundation.config.agents.resolve(agent)
    config = foundation.config
    credentials = Credentials(
        foundation.agent_dir(agent),
        foundation.agent_dir(DEFAULT_AGENT),
        AuthRules(config.auth, config.models),
        secrets,
        foundation.clock,
    )
    return ModelAccess(settings, providers, credentials, foundation)
