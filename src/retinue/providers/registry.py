"""The provider registry: opens the adapter of each endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from retinue.core.errors import ConfigError
from retinue.core.extension import Extension, Lazy
from retinue.providers.base import Endpoint, OwnedProvider, Timeouts
from retinue.providers.catalog import ModelCatalog
from retinue.providers.settings import CompatSettings, ModelsSettings, ProviderSettings
from retinue.providers.vendors import Vendor, find_vendor, known_providers, settings_of
from retinue.security.secrets import Secrets

ADAPTERS: dict[str, str] = {
    "openai-completions": "retinue.providers.apis.openai_chat:make_provider",
    "openai-responses": "retinue.providers.apis.openai_responses:make_provider",
    "anthropic-messages": "retinue.providers.apis.anthropic:make_provider",
    "google-generative-ai": "retinue.providers.apis.google:make_provider",
    "ollama": "retinue.providers.apis.openai_chat:make_provider",
    "local": "retinue.providers.local.llama_cpp:make_provider",
}
"""Adapters by protocol, as dotted names, so that they are imported only when used."""
BUILT_IN_ADAPTERS = {api: Extension(api, "retinue", Lazy(target)) for api, target in ADAPTERS.items()}

LOCAL_IDLE_SECONDS = 900.0
"""A local model may process a long prompt for minutes before its first token."""


class Providers:
    """Opens the adapter of a provider on first use, and closes all of them at the end."""

    def __init__(
        self,
        settings: ModelsSettings,
        secrets: Secrets,
        models_dir: Path | None = None,
        adapters: Mapping[str, Extension] | None = None,
    ) -> None:
        self._settings = settings
        self._secrets = secrets
        self._models_dir = models_dir
        self._adapters = BUILT_IN_ADAPTERS if adapters is None else adapters
        self._open: dict[str, OwnedProvider] = {}
        self._endpoints: dict[str, Endpoint] = {}
        self.catalog = ModelCatalog(settings, models_dir)

    def __getitem__(self, provider: str) -> OwnedProvider:
        """Return the provider with that id; raise `ConfigError` if it is unknown."""
        found = self._open.get(provider)
        if found is None:
            endpoint = self.endpoint(provider)
            adapter = self._adapters.get(endpoint.api)
            if adapter is None:
                raise ConfigError(
                    f"The API '{endpoint.api}' is not supported. Supported: {', '.join(sorted(self._adapters))}."
                )
            found = self._open[provider] = _make_provider(adapter, endpoint)
        return found

    def endpoint(self, provider: str) -> Endpoint:
        """Return the endpoint of a provider, from the configuration and built-in defaults."""
        found = self._endpoints.get(provider)
        if found is None:
            found = self._endpoints[provider] = self._describe(provider)
        return found

    def _describe(self, provider: str) -> Endpoint:
        found = settings_of(self._settings, provider)
        configured = found or ProviderSettings()
        vendor = find_vendor(provider) if self._settings.mode == "merge" or configured.api is None else None
        if found is None and (vendor is None or self._settings.mode == "replace"):
            raise ConfigError(
                f"There is no provider '{provider}'. Known: {', '.join(self.known())}. "
                f"Add others under `models.providers` with a `baseUrl` and an `api`."
            )
        api = configured.api or (vendor.api if vendor else "openai-completions")
        base_url = configured.base_url or (vendor.base_url if vendor else "")
        return Endpoint(
            provider=provider,
            api=api,
            base_url=_address(provider, api, base_url),
            describe=self.catalog.describe,
            headers={name: self._secrets.resolve(value) for name, value in configured.headers.items()},
            auth=configured.auth or _default_auth(vendor, configured),
            timeouts=_timeouts(api, configured),
            compat=configured.compat or CompatSettings(),
            model_compat={model.id: model.compat for model in configured.models if model.compat},
            models_dir=self._models_dir,
        )

    def known(self) -> tuple[str, ...]:
        """Return the ids of all providers that can be used."""
        return known_providers(self._settings)

    async def aclose(self) -> None:
        open_now, self._open = self._open, {}
        for provider in open_now.values():
            await provider.aclose()


def _make_provider(adapter: Extension, endpoint: Endpoint) -> OwnedProvider:
    try:
        opened: OwnedProvider = adapter.make.load()(endpoint)
    except ConfigError:
        raise
    except Exception as error:  # border: a plugin is foreign code
        raise ConfigError(
            f"The plugin '{adapter.plugin}' cannot open the API '{adapter.name}': {type(error).__name__}: {error}"
        ) from error
    return opened


def _address(provider: str, api: str, base_url: str) -> str:
    if api == "local":
        return ""
    if not base_url:
        raise ConfigError(f"The provider '{provider}' has no address. Set `models.providers.{provider}.baseUrl`.")
    from retinue.providers.http_client import check_endpoint

    checked = check_endpoint(base_url)
    # Ollama's OpenAI-compatible endpoint is below its own.
    return checked if api != "ollama" or checked.endswith("/v1") else f"{checked}/v1"


def _default_auth(vendor: Vendor | None, settings: ProviderSettings) -> Literal["api-key", "none"]:
    """Return the default auth mode: self-hosted servers need no key unless one is configured."""
    self_hosted = vendor is not None and not vendor.variables and not settings.api_key
    return "none" if self_hosted else "api-key"


def _timeouts(api: str, settings: ProviderSettings) -> Timeouts:
    usual = LOCAL_IDLE_SECONDS if api in ("ollama", "local") else Timeouts().idle
    return Timeouts(idle=settings.timeout_seconds or usual)
