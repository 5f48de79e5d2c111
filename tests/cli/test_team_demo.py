"""The trial of a team on one machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from retinue.storage.home_paths import HomePaths
from retinue.testing.modelserver import ModelServer
from retinue.testing.replies import says

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def test_the_demo_answers_and_leaves_nothing_behind(tmp_path: Path) -> None:
    home = HomePaths(tmp_path / "home")
    async with ModelServer(then=says("Hello from the team.")) as model:
        provider = {
            "baseUrl": f"{model.url}/v1",
            "api": "openai-completions",
            "apiKey": "secret-key-0123456789",
            "models": [{"id": "test-model", "contextWindow": 100_000}],
        }
        home.path.mkdir()
        home.config_file.write_text(
            json.dumps(
                {
                    "models": {"providers": {"test": provider}},
                    "agents": {"defaults": {"model": "test/test-model", "sandbox": {"mode": "off"}}},
                }
            )
        )
        environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        retinue = [sys.executable, "-m", "retinue"]
        with subprocess.Popen(
            [*retinue, "team", "demo", "--workers", "1", "--json", "--home", str(home.path)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        ) as demo:
            try:
                assert demo.stdout is not None
                started = json.loads(await _read_document(demo))
                front = started["gateways"][0]["home"]
                answered = await _run([*retinue, "agent", "-m", "hi", "--json", "--home", front], environment)
                status = await _run([*retinue, "cluster", "status", "--json", "--home", front], environment)
            finally:
                demo.send_signal(signal.SIGINT)
                assert demo.wait(60) == 0
    assert answered["text"] == "Hello from the team."
    assert sorted(worker["role"] for worker in status["workers"]) == ["front", "worker"]
    assert not Path(front).exists()
    assert (home.path / "workspace").is_dir()


async def _read_document(process: subprocess.Popen[str]) -> str:
    """Read the JSON document that a program prints before it goes on."""

    def read() -> str:
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            try:
                json.loads("".join(lines))
            except ValueError:
                continue
            return "".join(lines)
        raise AssertionError(f"the program ended: {lines}")

    return await anyio.to_thread.run_sync(read)


async def _run(argv: list[str], environment: dict[str, str]) -> Any:
    done = await anyio.run_process(argv, env=environment)
    return json.loads(done.stdout)
