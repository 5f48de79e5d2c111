"""The model catalogue: context windows, prices, input types. The configuration overrides and extends it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.errors import ModelError
from retinue.core.messages import Usage
from retinue.core.model import ModelInfo, ModelRef, Price
from retinue.providers.local.gguf import (
    MAX_WINDOW,
    ModelFile,
    find_model_file,
    is_demo_model,
    list_model_files,
    read_model_file,
)
from retinue.providers.settings import ModelSettings, ModelsSettings
from retinue.providers.vendors import canonical_provider, settings_of

MILLION = 1_000_000
TEXT = frozenset({"text"})
SEES = frozenset({"text", "image"})


class Known(Struct, frozen=True):
    """A family of models, identified by the prefix of their names; the longest matching prefix applies."""

    prefix: str
    window: int
    max_output: int
    price: Price = field(default_factory=Price)
    inputs: frozenset[str] = SEES
    reasoning: bool = True


def _claude(prefix: str, window: int, max_output: int, read: float, write: float) -> Known:
    """Return Anthropic's prices: cache writes cost 125 % of the input price, cache reads 10 %."""
    return Known(prefix, window, max_output, Price(read, write, round(read * 0.1, 4), round(read * 1.25, 4)))


def _gpt(prefix: str, window: int, max_output: int, price: tuple[float, float, float], *, thinks: bool = True) -> Known:
    fresh, cached, written = price
    return Known(prefix, window, max_output, Price(fresh, written, cached), reasoning=thinks)


def _gemini(prefix: str, price: tuple[float, float, float] = (0, 0, 0)) -> Known:
    fresh, cached, written = price
    return Known(prefix, 1_048_576, 65_536, Price(fresh, written, cached))


FAMILIES: dict[str, tuple[Known, ...]] = {
    "anthropic": (
        Known("claude-", 200_000, 32_000),
        _claude("claude-fable-5", MILLION, 128_000, 10, 50),
        _claude("claude-opus-5-5", MILLION, 128_000, 4, 20),
        _claude("claude-opus-5", MILLION, 128_000, 5, 25),
        _claude("claude-opus-4-8", MILLION, 128_000, 5, 25),
        _claude("claude-opus-4-7", MILLION, 128_000, 5, 25),
        _claude("claude-opus-4-6", MILLION, 128_000, 5, 25),
        _claude("claude-opus-4-5", 200_000, 64_000, 5, 25),
        _claude("claude-opus-4", 200_000, 32_000, 15, 75),
        _claude("claude-sonnet-5", MILLION, 128_000, 2, 10),
        _claude("claude-sonnet-4-6", MILLION, 64_000, 3, 15),
        _claude("claude-sonnet-4", 200_000, 64_000, 3, 15),
        _claude("claude-haiku-5-5", MILLION, 128_000, 0.1, 0.5),
        _claude("claude-haiku-4-5", 200_000, 64_000, 1, 5),
    ),
    "openai": (
        Known("gpt-", 128_000, 16_384, reasoning=False),
        Known("gpt-6", 400_000, 128_000),
        _gpt("gpt-5", 400_000, 128_000, (1.25, 0.125, 10)),
        _gpt("gpt-5-mini", 400_000, 128_000, (0.25, 0.025, 2)),
        _gpt("gpt-5-nano", 400_000, 128_000, (0.05, 0.005, 0.4)),
        _gpt("gpt-5.1", 400_000, 128_000, (1.25, 0.125, 10)),
        _gpt("gpt-5.2", 400_000, 128_000, (1.75, 0.175, 14)),
        _gpt("gpt-5.4", MILLION, 128_000, (2.5, 0.25, 15)),
        _gpt("gpt-5.4-mini", 400_000, 128_000, (0.75, 0.075, 4.5)),
        _gpt("gpt-5.4-nano", 400_000, 128_000, (0.2, 0.02, 1.25)),
        _gpt("gpt-5.5", MILLION, 128_000, (5, 0.5, 30)),
        _gpt("gpt-4.1", 1_047_576, 32_768, (2, 0.5, 8), thinks=False),
        _gpt("gpt-4.1-mini", 1_047_576, 32_768, (0.4, 0.1, 1.6), thinks=False),
        _gpt("gpt-4.1-nano", 1_047_576, 32_768, (0.1, 0.025, 0.4), thinks=False),
        _gpt("gpt-4o", 128_000, 16_384, (2.5, 1.25, 10), thinks=False),
        _gpt("gpt-4o-mini", 128_000, 16_384, (0.15, 0.075, 0.6), thinks=False),
        _gpt("o3", 200_000, 100_000, (2, 0.5, 8)),
        _gpt("o4-mini", 200_000, 100_000, (1.1, 0.275, 4.4)),
        Known("gpt-oss", 131_072, 32_768, inputs=TEXT),
    ),
    "google": (
        _gemini("gemini-"),
        _gemini("gemini-2.5-pro", (1.25, 0.125, 10)),
        _gemini("gemini-2.5-flash", (0.3, 0.03, 2.5)),
        _gemini("gemini-2.5-flash-lite", (0.1, 0.01, 0.4)),
        _gemini("gemini-3-pro", (2, 0.2, 12)),
        _gemini("gemini-3.1-pro", (2, 0.2, 12)),
        _gemini("gemini-3-flash", (0.5, 0.05, 3)),
        _gemini("gemini-3.1-flash-lite", (0.25, 0.025, 1.5)),
    ),
    "mistral": (Known("", 128_000, 16_384, inputs=TEXT, reasoning=False),),
    "deepseek": (
        Known("", 128_000, 8_192, inputs=TEXT, reasoning=False),
        Known("deepseek-reasoner", 128_000, 64_000, inputs=TEXT),
    ),
    "xai": (Known("grok-", 256_000, 32_768),),
    # A self-hosted server: its context depends on how it was started, so the default is low.
    "ollama": (Known("", 32_768, 8_192, inputs=TEXT, reasoning=False),),
    "llamacpp": (Known("", 32_768, 8_192, inputs=TEXT, reasoning=False),),
}
_AGGREGATORS = frozenset({"openrouter", "groq", "together", "cerebras"})
_VENDOR_FOLDERS = {"meta-llama": "", "x-ai": "xai", "mistralai": "mistral"}


def cost_of(usage: Usage, price: Price) -> float:
    """Return the cost of a call in US dollars."""
    return (
        usage.input * price.input
        + usage.output * price.output
        + usage.cache_read * (price.cache_read or price.input)
        + usage.cache_write * (price.cache_write or price.input)
    ) / MILLION


class ModelCatalog:
    """Describes any model, known or unknown."""

    def __init__(self, settings: ModelsSettings | None = None, models_dir: Path | None = None) -> None:
        self._settings = settings or ModelsSettings()
        self._models_dir = models_dir

    def describe(self, ref: ModelRef) -> ModelInfo:
        """Return the facts of a model; an unknown one gets a context window of 200,000 tokens."""
        known = self._from_file(ref) if canonical_provider(ref.provider) == "local" else _from_families(ref)
        configured = self._configured(ref)
        return _corrected(known, configured) if configured else known

    def listed(self, provider: str) -> tuple[ModelRef, ...]:
        """Return the named models of a provider, configured ones first."""
        settings, provider = settings_of(self._settings, provider), canonical_provider(provider)
        names = [model.id for model in settings.models] if settings else []
        if provider == "local" and self._models_dir:
            names += [path.stem.lower() for path in list_model_files(self._models_dir)]
        elif self._settings.mode == "merge":
            names += [known.prefix for known in FAMILIES.get(provider, ()) if not known.prefix.endswith("-")]
        return tuple(ModelRef(provider, name) for name in dict.fromkeys(filter(None, names)))

    def display_name(self, ref: ModelRef) -> str:
        configured = self._configured(ref)
        return configured.name if configured and configured.name else str(ref)

    def configured_limit(self, ref: ModelRef) -> int | None:
        """Return the configured maximum of output tokens; None if the provider's own applies."""
        configured = self._configured(ref)
        return configured.max_tokens if configured else None

    def _configured(self, ref: ModelRef) -> ModelSettings | None:
        settings = settings_of(self._settings, ref.provider)
        return next((model for model in settings.models if model.id == ref.model), None) if settings else None

    def _from_file(self, ref: ModelRef) -> ModelInfo:
        info = ModelInfo(ref, window=4_096, max_output=2_048, tools=False, is_demo=is_demo_model(ref.model))
        path = find_model_file(self._models_dir, ref.model) if self._models_dir else None
        if path is None:
            return info
        try:
            facts = _read_cached(path, path.stat().st_mtime_ns)
        except (ModelError, OSError):
            return info
        window = min(facts.window or info.window, MAX_WINDOW)
        return replace(info, window=window, max_output=max(512, window // 4), tools=facts.calls_tools)


@lru_cache(maxsize=16)
def _read_cached(path: Path, mtime_ns: int) -> ModelFile:
    return read_model_file(path)


def _from_families(ref: ModelRef) -> ModelInfo:
    vendor, name = canonical_provider(ref.provider), ref.model.lower()
    if vendor in _AGGREGATORS and "/" in name:
        folder, _, name = name.partition("/")
        vendor = _VENDOR_FOLDERS.get(folder, folder)
    if vendor == "anthropic":
        name = name.replace(".", "-")
    matching = [known for known in FAMILIES.get(vendor, ()) if name.startswith(known.prefix)]
    known = max(matching, key=lambda family: len(family.prefix), default=None)
    if known is None:
        return ModelInfo(ref)
    return ModelInfo(ref, known.window, known.max_output, known.inputs, reasoning=known.reasoning, price=known.price)


def _corrected(info: ModelInfo, settings: ModelSettings) -> ModelInfo:
    cost = settings.cost
    tools = settings.compat.supports_tools if settings.compat else None
    window = settings.context_window or info.window
    return replace(
        info,
        window=window,
        max_output=settings.max_tokens or min(info.max_output, window),
        inputs=frozenset(settings.input) if settings.input else info.inputs,
        reasoning=info.reasoning if settings.reasoning is None else settings.reasoning,
        reasoning_tags=settings.reasoning_tags,
        tools=info.tools if tools is None else tools,
        price=Price(cost.input, cost.output, cost.cache_read, cost.cache_write) if cost else info.price,
    )
