"""State files that were truncated, overwritten, emptied or replaced: it starts, keeps them and says what it did."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.faults.scene import Scene
from tests.faults.server import RuleServer

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

FILES = {
    "transcript": "agents/main/sessions/*.jsonl",
    "index": "agents/main/sessions/sessions.json",
    "usage": "agents/main/sessions/usage/*.jsonl",
    "lease": "agents/main/sessions/leases/*.lease",
    "credentials": "agents/main/agent/auth-profiles.json",
    "configuration": "retinue.json",
    "good copy": "retinue.json.last-good",
    "database": "state.sqlite",
    "database log": "state.sqlite-wal",
    "shared memory": "state.sqlite-shm",
    "workspace state": "workspace/.retinue/workspace-state.json",
}
MADE_ANEW = {"usage", "lease", "good copy", "shared memory", "database log"}
"""What holds nothing of its own: it is made again without a word. The log's valid part is in the database by then."""

NOISE = random.Random(7).randbytes(3_000)


def flip(share: float) -> Callable[[bytes], bytes]:
    """Turn one bit over, somewhere in the file."""

    def damage(data: bytes) -> bytes:
        at = int(share * (len(data) - 1)) if data else 0
        return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :] if data else b""

    return damage


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda _: b"",
    "cut in half": lambda data: data[: len(data) // 2],
    "filled with NULs": lambda data: bytes(len(data)),
    "garbage": lambda _: NOISE,
    "garbage at the end": lambda data: data + NOISE,
    "two on a line": lambda data: data.rstrip(b"\n") + b"{}",
    **{f"a bit flipped at {tenth}0 %": flip(tenth / 10) for tenth in (0, 3, 8)},
}
OBVIOUS = ("cut in half", "filled with NULs", "garbage")
"""Damage that cannot pass for something valid."""


@pytest.fixture
async def lived_in(tmp_path: Path) -> AsyncIterator[Scene]:
    """A home with some history. A process was killed last, so the database has its log."""
    async with RuleServer() as server:
        scene = Scene(tmp_path / "lived-in", server)
        with scene.ending_clients():
            await scene.say("main", "main-first")
            talker = scene.start("main", "main-next", "--messages", "50")
            await talker.wait_for("answered", 2)
            await talker.kill()
            yield scene


def file_of(scene: Scene, name: str) -> Path:
    (found,) = scene.home.path.glob(FILES[name])
    return found


async def restart(scene: Scene, name: str) -> str:
    """Say something on a home with a damaged file; returns everything that was told."""
    spoken = await scene.command("agent", "-m", "Please do <main-after>.", "--no-stream")
    log = (scene.home.path / "logs" / "retinue.log").read_text()
    told = spoken.complaint + log
    assert "Traceback" not in told
    assert spoken.process.exitcode == 0, (name, spoken.complaint)
    assert spoken.lines == ["done"]
    return told


def copy(scene: Scene, name: str) -> Scene:
    shutil.copytree(scene.home.path, scene.path.parent / name / "home")
    return Scene(scene.path.parent / name, scene.server)


@pytest.mark.parametrize("name", FILES)
async def test_a_damaged_file_stops_nothing(lived_in: Scene, name: str) -> None:
    for what, damage in DAMAGES.items():
        scene = copy(lived_in, what)
        file = file_of(scene, name)
        file.write_bytes(damage(file.read_bytes()))
        if name == "configuration" and (what == "emptied" or "flipped" in what):
            continue  # what is left may be a valid configuration of something else
        with scene.ending_clients():
            told = await restart(scene, what)
            if what in OBVIOUS and name not in MADE_ANEW | {"database"}:
                assert file.name in told or "index" in told, (what, told)


@pytest.mark.parametrize("name", FILES)
async def test_a_folder_in_the_place_of_a_file_stops_nothing_and_is_kept(lived_in: Scene, name: str) -> None:
    file = file_of(lived_in, name)
    file.unlink()
    file.mkdir()
    (file / "precious").write_text("bytes")
    told = await restart(lived_in, name)
    assert [path.read_text() for path in lived_in.home.path.rglob("precious")] == ["bytes"]
    if name not in MADE_ANEW:
        assert file.name in told or "index" in told


@pytest.mark.parametrize("what", [*OBVIOUS, "emptied", "a bit flipped at 00 %"])
async def test_a_damaged_database_is_kept_and_the_person_is_told(lived_in: Scene, what: str) -> None:
    await lived_in.sweep("main")  # ends cleanly, so that everything is in the one file
    file = file_of(lived_in, "database")
    damaged = DAMAGES[what](file.read_bytes())
    file.write_bytes(damaged)
    told = await lived_in.command("agent", "-m", "Please do <main-after>.", "--no-stream")
    assert told.lines == ["done"]
    assert "state.sqlite could not be used" in told.complaint
    assert file.with_name("state.sqlite.corrupt-1").read_bytes() == damaged


@pytest.mark.parametrize("what", [what for what in DAMAGES if what not in ("garbage at the end", "two on a line")])
async def test_a_log_that_lost_changes_is_kept_and_the_person_is_told(lived_in: Scene, what: str) -> None:
    file = file_of(lived_in, "database log")
    damaged = DAMAGES[what](file.read_bytes())
    file.write_bytes(damaged)
    told = await lived_in.command("agent", "-m", "Please do <main-after>.", "--no-stream")
    assert told.lines == ["done"]
    assert "The log of state.sqlite is damaged" in told.complaint
    assert file.with_name("state.sqlite-wal.corrupt-1").read_bytes() == damaged


async def test_a_whole_log_is_no_news(lived_in: Scene) -> None:
    told = await lived_in.command("agent", "-m", "Please do <main-after>.", "--no-stream")
    assert told.lines == ["done"]
    assert "damaged" not in told.complaint
    assert not list(lived_in.home.path.glob("*.corrupt*"))


@pytest.mark.parametrize("name", ["sessionId", "inputTokens", "updatedAt", "size", "main"])
async def test_an_index_that_was_changed_but_can_be_read_is_noticed(lived_in: Scene, name: str) -> None:
    file = file_of(lived_in, "index")
    content = file.read_bytes()
    at = content.index(name.encode()) + len(name) + 4
    digit = next(place for place in range(at, len(content)) if chr(content[place]).isalnum())
    damaged = content[:digit] + bytes([content[digit] ^ 0x01]) + content[digit + 1 :]
    file.write_bytes(damaged)
    told = await lived_in.command("agent", "-m", "Please do <main-after>.", "--no-stream")
    assert told.lines == ["done"]
    assert "index" in told.complaint
    assert any(path.read_bytes() == damaged for path in file.parent.glob("sessions.json.corrupt*"))


@pytest.mark.parametrize("what", OBVIOUS)
async def test_damaged_bytes_of_a_session_are_kept_and_the_person_is_told(lived_in: Scene, what: str) -> None:
    for name in ("transcript", "index"):
        scene = copy(lived_in, name)
        file = file_of(scene, name)
        damaged = DAMAGES[what](file.read_bytes())
        file.write_bytes(damaged)
        with scene.ending_clients():
            told = await scene.command("agent", "-m", "Please do <main-after>.", "--no-stream")
            assert told.lines == ["done"]
            assert file.name in told.complaint or "index" in told.complaint
        kept = sorted(path for path in file.parent.glob(f"{file.name}*"))
        assert all(line in b"".join(path.read_bytes() for path in kept) for line in damaged.split(b"\n"))


@pytest.mark.parametrize("what", OBVIOUS)
async def test_credentials_that_cannot_be_read_are_told(lived_in: Scene, what: str) -> None:
    file = file_of(lived_in, "credentials")
    damaged = DAMAGES[what](file.read_bytes())
    file.write_bytes(damaged)
    told = await lived_in.command("agent", "-m", "Please do <main-after>.", "--no-stream")
    assert told.lines == ["done"]
    assert "auth-profiles.json are not used" in told.complaint
    assert damaged in [path.read_bytes() for path in file.parent.iterdir()]


async def test_a_broken_configuration_is_left_alone_and_the_last_good_one_is_used(lived_in: Scene) -> None:
    lived_in.home.config_file.write_bytes(NOISE)
    told = await lived_in.command("agent", "-m", "Please do <main-after>.", "--no-stream")
    assert told.lines == ["done"]
    assert "last configuration that was valid is used" in told.complaint
    assert lived_in.home.config_file.read_bytes() == NOISE


async def test_an_emptied_configuration_is_told(lived_in: Scene) -> None:
    lived_in.home.config_file.write_bytes(b"")
    told = await lived_in.command("agent", "-m", "hello", "--no-stream")
    assert "The file is empty" in told.complaint
    assert "There is no model to talk to yet" in told.complaint


async def test_files_of_a_newer_version_stop_nothing_and_are_kept(lived_in: Scene) -> None:
    await lived_in.sweep("main")
    database = file_of(lived_in, "database")
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA user_version = 99")
    newer = database.read_bytes()
    transcript = file_of(lived_in, "transcript")
    lines = transcript.read_bytes().replace(b'"version":3', b'"version":99', 1)
    lines += b'{"type":"hologram","id":"zz","parentId":null,"timestamp":"2031-01-01T00:00:00Z","depth":3}\n'
    transcript.write_bytes(lines)
    told = await lived_in.command("agent", "-m", "Please do <main-after>.", "--no-stream")
    assert told.lines == ["done"]
    assert "newer" in told.complaint
    assert database.with_name("state.sqlite.newer-1").read_bytes() == newer
    assert any(path.read_bytes().startswith(lines) for path in transcript.parent.glob("*.jsonl*"))
