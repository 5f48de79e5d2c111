"""Sub-agents from the command line, in a process of its own without a gateway."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

from retinue.testing.modelserver import ModelServer, Received
from retinue.testing.replies import Reply, calls, says
from tests.cli.test_chat import RETINUE, SECONDS, chat, configure, environment, say

pytestmark = pytest.mark.slow


class Delegating(ModelServer):
    """Hands a question on, and lets the sub-agent wait for the gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = anyio.Event()

    async def reply_to(self, request: Received) -> Reply:
        content = request.json["messages"][-1]["content"]
        text = content if isinstance(content, str) else content[-1]["text"]
        if text.startswith("[Sub-agent task]"):
            await self.gate.wait()
            return says("The answer is 42.")
        if text.startswith("[Sub-agent "):
            return says("My sub-agent found 42.")
        if text.startswith("{"):
            return says("I handed it on.")
        return calls("tool_call", name="sessions_spawn", arguments={"task": "Find the answer."})


@pytest.fixture
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as made:
        yield made


@pytest.fixture
def model(portal: BlockingPortal) -> Iterator[Delegating]:
    with portal.wrap_async_context_manager(Delegating()) as server:
        yield server


@pytest.fixture
def home(tmp_path: Path, model: Delegating) -> Path:
    configure(tmp_path / "home", model.port)
    return tmp_path / "home"


def start_agent(home: Path, *options: str) -> subprocess.Popen[str]:
    argv = [RETINUE, "agent", "-m", "What is the answer?", *options]
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, env=environment(home), stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)


def children(home: Path) -> list[dict[str, Any]]:
    argv = [RETINUE, "subagents", "list", "--all", "--json"]
    done = subprocess.run(argv, env=environment(home), capture_output=True, text=True, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def wait_for(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    assert any(words in line for line in process.stderr)


def test_one_question_waits_for_its_sub_agents_and_prints_what_is_said_about_them(
    home: Path, model: Delegating, portal: BlockingPortal
) -> None:
    with start_agent(home) as process:
        wait_for(process, "waiting for 1 sub-agent; Ctrl-C leaves them")
        portal.call(model.gate.set)
        out, _ = process.communicate(timeout=SECONDS)
    assert (process.returncode, out) == (0, "I handed it on.\nMy sub-agent found 42.\n")
    with start_agent(home, "--json") as process:
        out, _ = process.communicate(timeout=SECONDS)
    said = json.loads(out)
    assert [said["text"], *(later["text"] for later in said.get("later", ()))][-1] == "My sub-agent found 42."
    assert [child["state"] for child in children(home)] == ["completed", "completed"]


def test_who_leaves_is_told_what_was_interrupted_and_the_next_turn_goes_on(
    home: Path, model: Delegating, portal: BlockingPortal
) -> None:
    with start_agent(home) as process:
        wait_for(process, "waiting for 1 sub-agent")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SECONDS)
    assert "a sub-agent is interrupted; the next turn of this session, or the gateway, resumes the work" in err
    assert [child["state"] for child in children(home)] == ["running"]
    portal.call(model.gate.set)
    with start_agent(home) as process:
        process.communicate(timeout=SECONDS)
    # The result may join the new question, which is then not handed on again.
    assert {child["state"] for child in children(home)} == {"completed"}


def test_a_chat_shows_what_came_of_a_sub_agent_and_what_is_left(
    home: Path, model: Delegating, portal: BlockingPortal
) -> None:
    with chat(home) as child:
        say(child, "What is the answer?", "I handed it on.")
        portal.call(model.gate.set)
        child.expect("By itself")
        child.expect("My sub-agent found 42.")
        model.gate = anyio.Event()
        say(child, "And now?", "I handed it on.")
        deadline = time.monotonic() + SECONDS
        while children(home)[0]["startedAt"] is None:
            assert time.monotonic() < deadline
        child.send("/quit\r")
        child.expect("A sub-agent is interrupted and will resume")
