"""What people configure about models: the top-level `models` and `auth` sections."""

from __future__ import annotations

from typing import Literal

from retinue.security.secret_value import SecretValue as SecretValue
from retinue.settings import Settings, key

Api = Literal["openai-completions", "openai-responses", "anthropic-messages", "google-generative-ai", "ollama", "local"]


class CostSettings(Settings):
    """What a model costs, in US dollars per million tokens."""

    input: float = key(0.0, ge=0)
    """Price of tokens that the model reads."""
    output: float = key(0.0, ge=0)
    """Price of tokens that the model writes."""
    cache_read: float = key(0.0, ge=0)
    """Price of tokens read from the provider's cache."""
    cache_write: float = key(0.0, ge=0)
    """Price of tokens written to the provider's cache."""


class CompatSettings(Settings):
    """How an OpenAI-compatible endpoint differs from OpenAI's own; unset means: decided by the address."""

    prompt_cache_key: bool | None = key(None)
    """Whether the endpoint understands `prompt_cache_key`."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] | None = key(None)
    """The name under which the endpoint takes the output limit."""
    supports_reasoning_effort: bool | None = key(None)
    """Whether the endpoint understands `reasoning_effort`."""
    supports_usage_in_streaming: bool | None = key(None)
    """Whether the endpoint reports token counts at the end of a stream."""
    supports_tools: bool | None = key(None)
    """Whether the model can call tools."""


class ModelSettings(Settings):
    """One model of a provider; what is left out comes from the built-in catalogue."""

    id: str = key()
    """The model's name as the provider knows it."""
    name: str | None = key(None)
    """The name that people see."""
    reasoning: bool | None = key(None)
    """Whether the model can reason before it answers."""
    input: list[Literal["text", "image"]] | None = key(None)
    """What the model reads."""
    cost: CostSettings | None = key(None)
    """What the model costs."""
    context_window: int | None = key(None, ge=1024)
    """How many tokens fit into one request."""
    max_tokens: int | None = key(None, ge=1)
    """How many tokens the model can write in one answer."""
    compat: CompatSettings | None = key(None)
    """How the endpoint differs for this model."""


class ProviderSettings(Settings):
    """An endpoint that serves models."""

    base_url: str | None = key(None)
    """The address of the endpoint, as in `https://api.example.com/v1`."""
    api_key: SecretValue | None = key(None)
    """The key, or where to find it: {source: env|file|exec|keyring, …}."""
    auth: Literal["api-key", "token", "none"] | None = key(None)
    """How the key is presented; `none` sends no key at all."""
    api: Api | None = key(None)
    """Which protocol the endpoint speaks."""
    headers: dict[str, SecretValue] = key({})
    """Headers to send with every request."""
    timeout_seconds: float | None = key(None, gt=0)
    """How long the endpoint may stay silent before a call counts as failed."""
    models: list[ModelSettings] = key([])
    """Models of this endpoint, or corrections to what the catalogue says about them."""
    compat: CompatSettings | None = key(None)
    """How the endpoint differs from the protocol it speaks."""


class ModelsSettings(Settings):
    """Where models come from."""

    mode: Literal["merge", "replace"] = key("merge")
    """`merge` adds to the built-in providers; `replace` leaves only the ones configured here."""
    providers: dict[str, ProviderSettings] = key({})
    """Endpoints by provider id."""


class CooldownSettings(Settings):
    """How long a credential rests after a failure."""

    billing_backoff_hours: float = key(5.0, gt=0)
    """The first rest after a billing failure, in hours; it doubles."""
    billing_max_hours: float = key(24.0, gt=0)
    """The longest rest after billing failures, in hours."""
    auth_backoff_minutes: float = key(10.0, gt=0)
    """The first rest after a refused credential, in minutes; it doubles."""
    auth_max_minutes: float = key(60.0, gt=0)
    """The longest rest after refused credentials, in minutes."""
    failure_window_hours: float = key(24.0, gt=0)
    """Failures older than this no longer count."""


class AuthSettings(Settings):
    """Which credentials are used, and in which order."""

    order: dict[str, list[str]] = key({})
    """Profile ids by provider, in the order they are tried; without it the least recently used comes first."""
    cooldowns: CooldownSettings = key(CooldownSettings)
    """How long a credential rests after a failure."""
