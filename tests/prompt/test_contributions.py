"""Which models get a tuned prompt, and how owners are shown."""

from __future__ import annotations

import pytest

from retinue.context.prompt.build import SESSION as SESSION_SECTIONS
from retinue.context.prompt.build import STABLE as STABLE_SECTIONS
from retinue.context.prompt.build import build_system_prompt
from retinue.context.prompt.contributions import contribute_for_gpt5, contribute_for_small_models
from retinue.context.prompt.inputs import OwnerDisplay, show_owners, tag_sender
from retinue.core.errors import ConfigError
from retinue.core.model import ModelInfo, ModelRef
from tests.prompt.scenarios import SCENARIOS, SESSION, STABLE


def model(provider: str, name: str, window: int = 200_000) -> ModelInfo:
    return ModelInfo(ModelRef(provider, name), window=window)


@pytest.mark.parametrize(
    "info", [model("openai", "gpt-5"), model("openai", "gpt-5.2-codex"), model("openrouter", "openai/GPT-5-mini")]
)
def test_the_gpt_5_family_gets_a_contract(info: ModelInfo) -> None:
    contribution = contribute_for_gpt5(info)
    assert contribution is not None
    assert contribution.source == f"provider:{info.ref.provider}"
    assert contribution.stable_prefix.startswith("## Working Contract")
    assert not contribution.omit


@pytest.mark.parametrize("info", [model("local", "qwen3-4b"), model("ollama", "x", 128_000), model("lab", "x", 16_000)])
def test_local_and_small_models_get_a_shorter_prompt(info: ModelInfo) -> None:
    contribution = contribute_for_small_models(info)
    assert contribution is not None
    assert "documentation" in contribution.omit
    assert contribution.dynamic_suffix


@pytest.mark.parametrize(
    "info", [model("anthropic", "claude-sonnet"), model("openai", "gpt-4.1"), model("x", "gpt-50")]
)
def test_other_models_read_the_common_text(info: ModelInfo) -> None:
    assert contribute_for_gpt5(info) is None
    assert contribute_for_small_models(info) is None


def test_the_prompt_of_a_small_model_is_smaller() -> None:
    small = SCENARIOS["small-local"].prompt
    assert len(small.text) < len(build_system_prompt(STABLE, SESSION).text)


def test_what_is_left_out_exists() -> None:
    known = {section.name for section in STABLE_SECTIONS} | {section.name for section in SESSION_SECTIONS}
    contribution = contribute_for_small_models(model("local", "x"))
    assert contribution is not None
    assert contribution.omit <= known
    assert not contribution.omit & {"identity", "tooling", "safety", "runtime"}


def test_owners_are_shown_raw_once_each() -> None:
    assert show_owners(["http:ada", " http:ada ", "", "x"], OwnerDisplay.RAW).labels == ("http:ada", "x")


def test_hashed_owners_are_tags_that_need_the_secret() -> None:
    shown = show_owners(["http:ada"], OwnerDisplay.HASH, "secret").labels
    assert shown == ("37447962af38",)
    assert shown == (tag_sender("http:ada", "secret"),)
    assert shown != show_owners(["http:ada"], OwnerDisplay.HASH, "other").labels


def test_a_hash_without_a_secret_is_refused() -> None:
    with pytest.raises(ConfigError, match="ownerDisplaySecret"):
        show_owners(["http:ada"], OwnerDisplay.HASH)
