"""The built-in providers, which need only a key."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from retinue.providers.settings import ModelsSettings, ProviderSettings

OLLAMA_URL = "http://127.0.0.1:11434"
LLAMACPP_URL = "http://127.0.0.1:8080"


class Vendor(Struct, frozen=True):
    """The defaults of a provider: its address, its API, and the variables of its key."""

    id: str
    name: str
    api: str
    base_url: str
    default_model: str
    variables: tuple[str, ...] = ()


# Environment keys are checked in this order.
VENDORS: tuple[Vendor, ...] = (
    Vendor(
        "anthropic",
        "Anthropic",
        "anthropic-messages",
        "https://api.anthropic.com",
        "claude-sonnet-5-5",
        ("ANTHROPIC_API_KEY",),
    ),
    Vendor("openai", "OpenAI", "openai-responses", "https://api.openai.com/v1", "gpt-5.4", ("OPENAI_API_KEY",)),
    Vendor(
        "google",
        "Google",
        "google-generative-ai",
        "https://generativelanguage.googleapis.com",
        "gemini-3.8-flash",
        ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    ),
    Vendor(
        "openrouter",
        "OpenRouter",
        "openai-completions",
        "https://openrouter.ai/api/v1",
        "openrouter/auto",
        ("OPENROUTER_API_KEY",),
    ),
    Vendor(
        "mistral",
        "Mistral",
        "openai-completions",
        "https://api.mistral.ai/v1",
        "mistral-large-latest",
        ("MISTRAL_API_KEY",),
    ),
    Vendor(
        "groq",
        "Groq",
        "openai-completions",
        "https://api.groq.com/openai/v1",
        "openai/gpt-oss-120b",
        ("GROQ_API_KEY",),
    ),
    Vendor(
        "deepseek", "DeepSeek", "openai-completions", "https://api.deepseek.com", "deepseek-chat", ("DEEPSEEK_API_KEY",)
    ),
    Vendor("xai", "xAI", "openai-completions", "https://api.x.ai/v1", "grok-4", ("XAI_API_KEY",)),
    Vendor(
        "together",
        "Together",
        "openai-completions",
        "https://api.together.xyz/v1",
        "openai/gpt-oss-120b",
        ("TOGETHER_API_KEY",),
    ),
    Vendor(
        "cerebras",
        "Cerebras",
        "openai-completions",
        "https://api.cerebras.ai/v1",
        "gpt-oss-120b",
        ("CEREBRAS_API_KEY",),
    ),
    Vendor("ollama", "Ollama", "ollama", OLLAMA_URL, ""),
    Vendor("llamacpp", "llama.cpp", "openai-completions", f"{LLAMACPP_URL}/v1", ""),
    Vendor("local", "Models in this process", "local", "", ""),
)

BUILT_IN_ALIASES: Mapping[str, str] = {
    "opus": "anthropic/claude-opus-5-5",
    "sonnet": "anthropic/claude-sonnet-5-5",
    "haiku": "anthropic/claude-haiku-5-5",
    "gpt": "openai/gpt-5.4",
    "gpt-mini": "openai/gpt-5.4-mini",
    "gpt-nano": "openai/gpt-5.4-nano",
    "gemini": "google/gemini-3.1-pro-preview",
    "gemini-flash": "google/gemini-3.8-flash",
    "gemini-flash-lite": "google/gemini-3.1-flash-lite",
}
"""Short names of models of the built-in providers."""

_BY_ID = {vendor.id: vendor for vendor in VENDORS}
# Alternative names of providers.
_OTHER_NAMES = {"gemini": "google", "claude": "anthropic", "x-ai": "xai", "embedded": "local", "llama.cpp": "llamacpp"}


def find_vendor(provider: str) -> Vendor | None:
    return _BY_ID.get(canonical_provider(provider))


def canonical_provider(provider: str) -> str:
    """Return the canonical id of a provider."""
    lowered = provider.strip().lower()
    return _OTHER_NAMES.get(lowered, lowered)


def settings_of(models: ModelsSettings, provider: str) -> ProviderSettings | None:
    """Return the configuration of a provider under any of its names, ignoring case."""
    wanted = canonical_provider(provider)
    return models.providers.get(provider) or next(
        (found for name, found in models.providers.items() if canonical_provider(name) == wanted), None
    )


def known_providers(models: ModelsSettings) -> tuple[str, ...]:
    """Return the ids of all providers that can be used."""
    built_in = (vendor.id for vendor in VENDORS) if models.mode == "merge" else ()
    return tuple(dict.fromkeys((*models.providers, *built_in)))


def is_known_provider(models: ModelsSettings, provider: str) -> bool:
    """Return whether a provider is configured or built in, under any of its names."""
    built_in = models.mode == "merge" and find_vendor(provider) is not None
    return built_in or settings_of(models, provider) is not None
