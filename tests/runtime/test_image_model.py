"""Messages with pictures are answered by a model that sees them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue.core.envelope import Inbound
from retinue.core.keys import SessionKey
from retinue.core.messages import Image
from retinue.testing.replies import Reply, refuses, says
from tests.runtime.conftest import staged

pytestmark = pytest.mark.anyio

KEY = SessionKey.parse("agent:main:main")
PICTURE = Image("image/png", "iVBORw0KGgo=")


def configured(image_model: object, **inputs: list[str]) -> dict[str, Any]:
    models = [
        {"id": name, "contextWindow": 100_000, "input": inputs.get(name, ["text"])}
        for name in ("plain", "seeing", "spare")
    ]
    return {
        "models": {"providers": {"test": {"models": models}}},
        "agents": {"defaults": {"model": "test/plain", "imageModel": image_model}},
    }


async def asked(path: Path, config: dict[str, Any], images: tuple[Image, ...], *replies: Reply) -> list[str]:
    """Which models were asked, one after the other."""
    async with staged(path, *replies, config=config) as stage, stage.open() as runtime:
        await runtime.say(Inbound("what is this?", KEY, images=images), stage.emit)
        await runtime.say(Inbound("thanks", KEY), stage.emit)
        return [request.json["model"] for request in stage.server.model_requests]


async def test_a_picture_is_shown_to_the_model_that_sees(tmp_path: Path) -> None:
    config = configured("test/seeing", seeing=["text", "image"])
    assert await asked(tmp_path, config, (PICTURE,), says("A cat."), says("Welcome.")) == ["seeing", "plain"]


async def test_words_are_answered_as_usual(tmp_path: Path) -> None:
    config = configured("test/seeing", seeing=["text", "image"])
    assert await asked(tmp_path, config, (), says("A cat."), says("Welcome.")) == ["plain", "plain"]


async def test_a_model_that_sees_pictures_itself_needs_no_other(tmp_path: Path) -> None:
    config = configured("test/seeing", plain=["text", "image"], seeing=["text", "image"])
    assert await asked(tmp_path, config, (PICTURE,), says("A cat."), says("Welcome.")) == ["plain", "plain"]


async def test_the_model_for_pictures_has_fallbacks_of_its_own(tmp_path: Path) -> None:
    chosen = {"primary": "test/seeing", "fallbacks": ["test/spare"]}
    config = configured(chosen, seeing=["text", "image"], spare=["text", "image"])
    replies = (refuses(404, "gone"), says("A cat."), says("Welcome."))
    assert await asked(tmp_path, config, (PICTURE,), *replies) == ["seeing", "spare", "plain"]
