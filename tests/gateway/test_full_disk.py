"""A gateway on a disk that cannot be written: it starts, can be read, refuses changes, and recovers by itself."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest

from retinue.storage.home_paths import HomePaths
from retinue.testing.modelserver import ModelServer
from retinue.testing.replies import says
from tests.gateway.conftest import PATIENCE, Hall, gateway_process

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of four megabytes; only root may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)], capture_output=True)
    if made.returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
async def lived_in(disk: Path) -> AsyncIterator[Hall]:
    """A home on the disk with one answered message."""
    async with ModelServer() as model:
        hall = Hall(HomePaths(disk / "home"), model)
        hall.write_config()
        model.push(says("Hello."))
        async with gateway_process(hall) as running:
            assert (await send(hall, "one")) == 200
            await wait_for_answers(hall, 1)
            await running.terminate()
        yield hall


async def send(hall: Hall, text: str) -> int:
    async with hall.http() as http:
        answer = await http.post("/rpc/chat.send", json={"message": text, "idempotencyKey": text})
        if answer.status_code != 200:
            assert "could not be written: the disk is full. Free some space" in answer.text or (
                "mounted read-only" in answer.text
            )
        return answer.status_code


async def read(hall: Hall, method: str, **params: object) -> dict[str, object]:
    async with hall.http() as http:
        answer = await http.post(f"/rpc/{method}", json=params)
        assert answer.status_code == 200, answer.text
        found: dict[str, object] = answer.json()
        return found


async def wait_for_answers(hall: Hall, number: int) -> None:
    with anyio.fail_after(PATIENCE):
        while len(hall.model.model_requests) < number or (await read(hall, "status"))["turnsRunning"]:
            await anyio.sleep(0.02)


async def test_a_gateway_on_a_full_disk_is_read_only_until_there_is_space(lived_in: Hall, disk: Path) -> None:
    filler = disk / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(disk).free))
    assert shutil.disk_usage(disk).free == 0
    async with gateway_process(lived_in):
        status = await read(lived_in, "status")
        assert "the disk is full. Free some space" in str(status["readOnly"])
        assert "accepts no messages" in str(status["readOnly"])
        history = await read(lived_in, "chat.history", sessionKey="main", limit=10)
        assert "Hello." in str(history["entries"])
        assert len((await read(lived_in, "sessions.list"))["sessions"]) == 1  # type: ignore[arg-type]
        introduction = await read(lived_in, "sessions.introduce", sessionKey="main")
        assert "accepts no messages" in str(introduction["caution"])
        assert await send(lived_in, "two") == 422
        filler.unlink()
        with anyio.fail_after(PATIENCE):
            while (await read(lived_in, "status"))["readOnly"]:
                await anyio.sleep(0.05)
        lived_in.model.push(says("Again."))
        assert await send(lived_in, "three") == 200
        await wait_for_answers(lived_in, 2)


async def test_status_and_doctor_say_what_to_free(lived_in: Hall, disk: Path) -> None:
    (lived_in.home.path / "exports").mkdir(exist_ok=True)
    (lived_in.home.path / "exports" / "old.md").write_bytes(bytes(500_000))
    (disk / "filler").write_bytes(bytes(shutil.disk_usage(disk).free))
    async with gateway_process(lived_in):
        status = await run_command(lived_in, "status")
        assert "read-only: " in status
        assert f"You can delete: {lived_in.home.path / 'exports'} (0.5 MB)" in status
        doctor = await run_command(lived_in, "doctor")
        assert "✗ gateway: The gateway is read-only." in doctor
        assert "You can delete: " in doctor


async def run_command(hall: Hall, name: str) -> str:
    argv = [sys.executable, "-m", "retinue", name, "--home", str(hall.home.path)]
    done = await anyio.run_process(argv, env=hall.environment, check=False)
    assert "Traceback" not in done.stderr.decode(), done.stderr.decode()
    return done.stdout.decode()


async def test_a_gateway_on_a_read_only_file_system_can_be_read(lived_in: Hall, disk: Path) -> None:
    """The lock file cannot contain the address then, so clients use the configured port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    lived_in.url = f"http://127.0.0.1:{port}"
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    argv = [sys.executable, "-m", "retinue", "gateway", "run", "--port", str(port), "--home", str(lived_in.home.path)]
    process = subprocess.Popen(argv, env=lived_in.environment, stdout=subprocess.DEVNULL)
    try:
        await wait_for_port(port, process)
        assert "mounted read-only" in str((await read(lived_in, "status"))["readOnly"])
        assert "Hello." in str((await read(lived_in, "chat.history", sessionKey="main", limit=10))["entries"])
        assert await send(lived_in, "two") == 422
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        with anyio.fail_after(PATIENCE):
            while (await read(lived_in, "status"))["readOnly"]:
                await anyio.sleep(0.05)
    finally:
        process.kill()
        process.wait()


async def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    with anyio.fail_after(PATIENCE):
        while True:
            assert process.poll() is None
            try:
                await (await anyio.connect_tcp("127.0.0.1", port)).aclose()
            except OSError:
                await anyio.sleep(0.02)
            else:
                return
