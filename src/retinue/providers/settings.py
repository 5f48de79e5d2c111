"""Settings of models: the top-level `models` and `auth` sections."""

from __future__ import annotations

from typing import Literal

from retinue.security.secrets import SecretValue as SecretValue
from retinue.settings import Settings, key


class CostSettings(Settings):
    """Prices of a model, in US dollars per million tokens."""

    input: float = key(0.0, ge=0)
    """Price of input tokens."""
    output: float = key(0.0, ge=0)
    """Price of output tokens."""
    cache_read: float = key(0.0, ge=0)
    """Price of tokens read from the provider's cache."""
    cache_write: float = key(0.0, ge=0)
    """Price of tokens written to the provider's cache."""


class CompatSettings(Settings):
    """How an OpenAI-compatible endpoint differs from OpenAI's own. Unset values are derived from the address."""

    prompt_cache_key: bool | None = key(None)
    """Whether the endpoint supports `prompt_cache_key`."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] | None = key(None)
    """The name of the endpoint's field for the output limit."""
    supports_reasoning_effort: bool | None = key(None)
    """Whether the endpoint supports `reasoning_effort`."""
    supports_usage_in_streaming: bool | None = key(None)
    """Whether the endpoint reports token counts at the end of a stream."""
    supports_tools: bool | None = key(None)
    """Whether the model can call tools."""


class ModelSettings(Settings):
    """One model of a provider; missing values come from the built-in catalogue."""

    id: str = key()
    """The model's name as the provider knows it."""
    name: str | None = key(None)
    """The display name."""
    reasoning: bool | None = key(None)
    """Whether the model can reason before it answers."""
    reasoning_tags: bool = key(False)
    """Whether the prompt tells the model to reason in `<think>` and to answer in `<final>`, which alone is shown."""
    input: list[Literal["text", "image"]] | None = key(None)
    """The input types of the model."""
    cost: CostSettings | None = key(None)
    """Prices of the model."""
    context_window: int | None = key(None, ge=1024)
    """Context window of the model, in tokens."""
    max_tokens: int | None = key(None, ge=1)
    """Maximum number of output tokens."""
    compat: CompatSettings | None = key(None)
    """How the endpoint differs for this model."""


class OAuthSettings(Settings):
    """How to sign in to a provider with OAuth 2, without a client secret."""

    authorization_url: str = key()
    """The page where a person signs in."""
    token_url: str = key()
    """The address that returns and renews tokens."""
    device_url: str | None = key(None)
    """The address that returns device codes, for `retinue models auth login --device`."""
    client_id: str = key()
    """The id of the application at the provider."""
    scopes: list[str] = key([])
    """What the token allows."""


class ProviderSettings(Settings):
    """An endpoint that serves models."""

    base_url: str | None = key(None)
    """The address of the endpoint, as in `https://api.example.com/v1`."""
    api_key: SecretValue | None = key(None)
    """The API key, or a reference to it: {source: env|file|exec|keyring, …}."""
    auth: Literal["api-key", "token", "none"] | None = key(None)
    """How the key is sent; `none` sends no key."""
    api: str | None = key(None)
    """The protocol of the endpoint: openai-completions, openai-responses, anthropic-messages, google-generative-ai,
    ollama, local, or one that a plugin provides."""
    oauth: OAuthSettings | None = key(None)
    """How to sign in with `retinue models auth login`."""
    headers: dict[str, SecretValue] = key({})
    """Headers sent with every request."""
    timeout_seconds: float | None = key(None, gt=0)
    """Maximum seconds without data before a call fails."""
    models: list[ModelSettings] = key([])
    """Models of this endpoint, or corrections of the catalogue."""
    compat: CompatSettings | None = key(None)
    """How the endpoint differs from its protocol."""


class ModelsSettings(Settings):
    """Sources of models."""

    mode: Literal["merge", "replace"] = key("merge")
    """`merge` adds to the built-in providers; `replace` uses only the providers configured here."""
    providers: dict[str, ProviderSettings] = key({})
    """Endpoints by provider id."""


class CooldownSettings(Settings):
    """Cooldowns of credentials after failures."""

    billing_backoff_hours: float = key(5.0, gt=0)
    """The first cooldown after a billing failure, in hours; it doubles."""
    billing_max_hours: float = key(24.0, gt=0)
    """The longest cooldown after billing failures, in hours."""
    auth_backoff_minutes: float = key(10.0, gt=0)
    """The first cooldown after a refused credential, in minutes; it doubles."""
    auth_max_minutes: float = key(60.0, gt=0)
    """The longest cooldown after refused credentials, in minutes."""
    failure_window_hours: float = key(24.0, gt=0)
    """Failures older than this many hours are ignored."""


class AuthSettings(Settings):
    """Which credentials are used, and in which order."""

    order: dict[str, list[str]] = key({})
    """Profile ids by provider, in the order to try. Default: the least recently used first."""
    cooldowns: CooldownSettings = key(CooldownSettings)
    """Cooldowns of credentials after failures."""
