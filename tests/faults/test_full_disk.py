"""A disk that is full: an explicit error, no torn line, and everything goes on when there is space again."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from retinue.core.keys import DEFAULT_AGENT
from tests.faults.scene import Client, Scene
from tests.faults.server import RuleServer

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


def assert_explicit(spoken: Client) -> None:
    """A client says that it answered, or why it could not; it does not crash."""
    last = spoken.lines[-1] if spoken.lines else ""
    assert "Traceback" not in spoken.complaint, spoken.complaint
    if not last.endswith(" ok"):
        assert "full" in last or "limit" in last or "space" in last, (spoken.lines, spoken.complaint)


def assert_no_torn_line(scene: Scene) -> None:
    for transcript in scene.home.sessions(DEFAULT_AGENT).glob("*.jsonl"):
        assert transcript.read_bytes().endswith(b"\n")
        assert not list(transcript.parent.glob("*.torn.*"))


async def test_files_that_may_not_grow_cost_an_error_and_no_data(scene: Scene, tmp_path: Path) -> None:
    await scene.say("main", "main-before")
    sizes = [path.stat().st_size for path in scene.home.path.rglob("*") if path.is_file()]
    failed = 0
    for number, limit in enumerate(range(2_000, max(sizes) + 60_000, 4_500)):
        shutil.copytree(scene.home.path, tmp_path / f"{limit}" / "home")
        full = Scene(tmp_path / f"{limit}", scene.server)
        with full.ending_clients():
            spoken = await full.say("main", f"main-{number}", "--largest-file", str(limit))
            assert_explicit(spoken)
            assert_no_torn_line(full)
            failed += spoken.process.exitcode != 0
            await full.sweep("main")
            assert full.evidence().violations == []
    assert 3 < failed < number
    assert scene.server.violations == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two megabytes; only root may make one."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], capture_output=True)
    if made.returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


async def test_a_disk_that_fills_up_costs_an_error_and_no_data(small_disk: Path, tmp_path: Path) -> None:
    async with RuleServer() as server:
        scene = Scene(small_disk, server, beside=tmp_path)
        filler = small_disk / "filler"
        failed = 0
        with scene.ending_clients():
            await scene.say("main", "main-before")
            for number in range(12):
                free = shutil.disk_usage(small_disk).free
                filler.write_bytes(bytes(max(0, free - number * 4_096)))
                spoken = await scene.say("main", f"main-{number}")
                assert_explicit(spoken)
                assert_no_torn_line(scene)
                failed += not (spoken.lines and spoken.lines[-1].endswith(" ok"))
                filler.unlink()
            await scene.sweep("main")
            assert scene.evidence().violations == []
        assert failed > 2
        assert server.violations == []
