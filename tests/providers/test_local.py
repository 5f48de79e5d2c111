"""A real model in this process: slow, and only where the extra `local` and the package index are at hand."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from retinue.core.messages import StopReason, said
from retinue.core.model import Failure, ModelRef, ModelRequest, ModelTextDelta
from retinue.providers.base import Endpoint
from retinue.providers.catalog import ModelCatalog
from retinue.providers.local.demo import DEMO_NOTE, MAX_DEMO_TOKENS
from retinue.providers.local.llama_cpp import LlamaCppProvider
from tests.providers.support import EXEC, collect, failed, finished

pytestmark = pytest.mark.anyio
needs_engine = pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="the extra 'local' is missing")

REF = ModelRef("local", "tiny")
DEMO = ModelRef("local", "smollm2-135m")


def provider(folder: Path, idle_seconds: float = 600.0) -> LlamaCppProvider:
    describe = ModelCatalog(models_dir=folder).describe
    return LlamaCppProvider(Endpoint("local", "local", "", describe, models_dir=folder), idle_seconds=idle_seconds)


def request(text: str, max_output: int = 12) -> ModelRequest:
    return ModelRequest(REF, "You are terse.", "", (said(text),), (EXEC,), max_output=max_output, temperature=0.0)


@pytest.fixture
async def smol(models: Path) -> AsyncIterator[LlamaCppProvider]:
    opened = provider(models)
    yield opened
    await opened.aclose()


@pytest.mark.slow
@needs_engine
async def test_a_pulled_model_answers_in_pieces(smol: LlamaCppProvider) -> None:
    assert smol.loaded is None
    events = await collect(smol.stream(request("Say hello.")))
    assert sum(isinstance(event, ModelTextDelta) for event in events) > 1
    message = (await finished(smol.stream(request("Say hello.")))).message
    assert message.text.strip()
    assert message.usage.output > 0
    assert message.stop in (StopReason.END, StopReason.LENGTH)
    assert message.usage.cache_read > 0, "the second call finds the first one's prompt in its cache"
    assert smol.loaded == "tiny"


@pytest.mark.slow
@needs_engine
async def test_the_catalogue_is_honest_about_it(models: Path) -> None:
    info = ModelCatalog(models_dir=models).describe(REF)
    assert (info.window, info.tools, info.reasoning) == (8_192, False, False)


@pytest.mark.slow
@needs_engine
async def test_a_prompt_that_is_too_long_is_an_overflow(smol: LlamaCppProvider) -> None:
    failure = await failed(smol.stream(request("word " * 9_000)))
    assert failure.reason is Failure.OVERFLOW


@pytest.mark.slow
@needs_engine
async def test_the_demo_model_answers_a_long_prompt_shortly_and_says_what_it_is(smol: LlamaCppProvider) -> None:
    asked = replace(request("Tell a long story. " * 2_000, max_output=2_000), model=DEMO, stable="prompt " * 5_000)
    message = (await finished(smol.stream(asked))).message
    assert message.text.endswith(DEMO_NOTE)
    assert message.usage.output <= MAX_DEMO_TOKENS


@pytest.mark.slow
@needs_engine
async def test_leaving_stops_the_engine_and_the_next_call_works(smol: LlamaCppProvider) -> None:
    events = smol.stream(request("Tell a very long story.", max_output=2_000))
    await anext(events)
    await events.aclose()
    with anyio.move_on_after(0.2):
        await collect(smol.stream(request("Tell another very long story.", max_output=2_000)))
    assert (await finished(smol.stream(request("Say hello.")))).message.text


@pytest.mark.slow
@needs_engine
async def test_an_idle_model_leaves_memory(models: Path) -> None:
    smol = provider(models, idle_seconds=0.05)
    await finished(smol.stream(request("Hi", max_output=2)))
    with anyio.fail_after(30):
        while smol.loaded:
            await anyio.sleep(0.02)
    assert (await finished(smol.stream(request("Hi", max_output=2)))).message.usage.output > 0
    await smol.aclose()


@needs_engine
async def test_a_model_that_is_not_there_says_how_to_get_one(tmp_path: Path) -> None:
    failure = await failed(provider(tmp_path).stream(request("hi")))
    assert failure.reason is Failure.NOT_FOUND
    assert "retinue models pull" in failure.detail


@needs_engine
async def test_a_damaged_model_file_is_a_failure_not_a_crash(tmp_path: Path) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF" + b"\x07" * 500)
    assert (await failed(provider(tmp_path).stream(request("hi")))).reason is Failure.NOT_FOUND
