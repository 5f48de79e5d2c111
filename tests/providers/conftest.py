"""A real model for the tests that need one."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from retinue.core.errors import ModelError
from retinue.providers.local.pull import pull_model


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with SmolLM2, pulled once; as `tiny` it is a model like any other, and not the demo."""
    folder = tmp_path_factory.mktemp("models")

    async def get() -> None:
        await pull_model("smollm2-135m", folder, lambda _: None)

    try:
        anyio.run(get)
    except ModelError as error:
        pytest.skip(f"the model cannot be pulled here: {error}")
    (folder / "tiny.gguf").hardlink_to(folder / "smollm2-135m.gguf")
    return folder
