"""The doubles that tests everywhere stand on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from retinue.core.messages import said
from retinue.core.model import Failure, ModelRef, ModelRequest
from retinue.providers.base import Timeouts
from retinue.testing.modelserver import ModelServer
from retinue.testing.replies import Fault, Reply, ScriptedProvider, breaks, calls, refuses, says
from tests.providers.support import ADAPTERS, KEY, failed, finished

pytestmark = pytest.mark.anyio

REQUEST = ModelRequest(ModelRef("scripted", "m"), "", "", (said("hi"),))


async def test_a_scripted_provider_plays_its_script_and_remembers() -> None:
    model = ScriptedProvider(calls("exec", command="ls"), says("done", thinking="hm"))
    first = (await finished(model.stream(REQUEST))).message
    assert [(call.name, dict(call.arguments)) for call in first.calls] == [("exec", {"command": "ls"})]
    second = (await finished(model.stream(REQUEST, KEY))).message
    assert second.text == "done"
    assert model.requests == [REQUEST, REQUEST]
    assert model.credentials == [None, KEY]
    assert (await failed(model.stream(REQUEST))).reason is Failure.FORMAT


async def test_a_scripted_answer_may_depend_on_the_question() -> None:
    def echo(request: ModelRequest) -> Reply:
        return says(f"you said {request.messages[-1].text}")

    assert (await finished(ScriptedProvider(echo).stream(REQUEST))).message.text == "you said hi"


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (breaks(Fault.CUT, "a"), Failure.CONNECTION),
        (breaks(Fault.HANG), Failure.TIMEOUT),
        (breaks(Fault.BAD_JSON), Failure.SERVER),
        (refuses(429), Failure.RATE_LIMIT),
    ],
)
async def test_a_scripted_provider_fails_like_a_real_one(reply: Reply, reason: Failure) -> None:
    model = ScriptedProvider(reply, timeouts=Timeouts(idle=0.05))
    assert (await failed(model.stream(REQUEST))).reason is reason


async def test_the_server_lists_its_models_in_both_ways() -> None:
    import httpx2

    async with ModelServer(models=("a", "b")) as server, httpx2.AsyncClient() as client:
        tags = (await client.get(f"{server.url}/api/tags")).json()
        assert [model["name"] for model in tags["models"]] == ["a", "b"]
        listed = (await client.get(f"{server.url}/v1/models")).json()
        assert [model["id"] for model in listed["data"]] == ["a", "b"]
        assert (await client.get(f"{server.url}/other")).status_code == 404


@pytest.mark.slow
async def test_the_server_is_a_program_too(tmp_path: Path) -> None:
    script, record = tmp_path / "script.json", tmp_path / "requests.jsonl"
    replies = ["hello", {"call": {"name": "exec", "arguments": {"command": "ls"}}}, {"fail": 429, "message": "slow"}]
    script.write_text(json.dumps({"replies": replies, "then": {"say": "bye"}}))
    command = [sys.executable, "-m", "retinue.testing.modelserver", "--script", str(script), "--record", str(record)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        adapter = ADAPTERS[2]
        provider = adapter.make(adapter.endpoint(f"http://127.0.0.1:{port}"))
        assert (await finished(provider.stream(adapter.request(), KEY))).message.text == "hello"
        assert (await finished(provider.stream(adapter.request(), KEY))).message.calls[0].name == "exec"
        assert (await failed(provider.stream(adapter.request(), KEY))).reason is Failure.RATE_LIMIT
        for _ in range(2):
            assert (await finished(provider.stream(adapter.request(), KEY))).message.text == "bye"
        await provider.aclose()
        process.terminate()
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert [line["path"] for line in lines] == ["/v1/messages"] * 5
    assert json.loads(lines[0]["body"])["system"][0]["text"] == "You are Ada."
