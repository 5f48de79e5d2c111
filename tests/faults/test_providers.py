"""Models that misbehave: every turn ends, the session goes on, and other sessions do not notice."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from retinue.core.envelope import Inbound, Outbound
from retinue.core.events import TurnStatus
from retinue.core.keys import DEFAULT_AGENT, SessionKey
from retinue.runtime.open import Runtime
from retinue.storage.home_paths import HomePaths
from retinue.testing.modelserver import ModelServer, Received
from retinue.testing.replies import Fault, Reply, breaks, calls, refuses, says
from tests.faults.server import find_orphans
from tests.runtime.conftest import Stage

pytestmark = pytest.mark.anyio

BAD, GOOD = (SessionKey.parse(f"agent:main:{name}") for name in ("bad", "good"))
IN_THE_BAD_SESSION = "this is the bad session"
ANSWER = "An answer of some length, sent in pieces."
ERROR_BODY = {"error": {"message": "the engine is on fire", "type": "server_error"}, "type": "error"}
PATIENCE = 3.0
"""Seconds after which silence is a failure; long enough for a good answer on a busy machine."""
NO_COOLDOWN = (
    "refused for this session",
    "an empty body",
    "unfinished",
    "an endless tool loop",
    "an answer longer than the window",
)
"""Faults that say nothing about the credential."""


class TwoFacedServer(ModelServer):
    """Answers well, except where a conversation mentions the bad session while `fault` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.fault: Reply | None = None

    async def reply_to(self, request: Received) -> Reply:
        bad = self.fault is not None and IN_THE_BAD_SESSION.encode() in request.body
        return self.fault if bad and self.fault else says(ANSWER)


@dataclass
class Faulty:
    """A runtime whose model fails in one session."""

    server: TwoFacedServer
    runtime: Runtime
    waits: list[float] = field(default_factory=list)

    async def say(self, text: str, key: SessionKey) -> Outbound:
        return await self.runtime.say(Inbound(text, key))

    @property
    def resting(self) -> bool:
        """Whether the credential is left alone for a while."""
        credentials = self.runtime.agent(DEFAULT_AGENT).access.credentials
        return any(credentials.cooldown_until(profile, "test-model") for profile in credentials.profiles("test"))


@asynccontextmanager
async def faulty(path: Path, api: str, *, timeout: float = 60.0) -> AsyncIterator[Faulty]:
    async with TwoFacedServer() as server:
        provider = {"timeoutSeconds": timeout}
        stage = Stage(HomePaths(path / "home"), server, api=api, config={"models": {"providers": {"test": provider}}})
        async with stage.open() as runtime:
            made = Faulty(server, runtime)

            async def no_wait(seconds: float) -> None:
                made.waits.append(seconds)

            runtime.agent(DEFAULT_AGENT).access.sleep = no_wait
            yield made


SILENCES: dict[str, Reply] = {
    "a hang at once": breaks(Fault.HANG),
    "a hang in the middle": breaks(Fault.HANG, ANSWER, pieces=3),
    "dripping without content": breaks(Fault.DRIP),
}
FLOODS: dict[str, Reply] = {
    "an answer longer than the window": says("many words " * 200_000),
    "an answer cut off after too many words": breaks(Fault.CUT, "many words " * 40_000),
}
FAULTS: dict[str, Reply] = {
    "bad UTF-8": breaks(Fault.BAD_UTF8, ANSWER, pieces=2),
    "a broken event": breaks(Fault.BAD_JSON, ANSWER, pieces=2),
    "a broken first event": breaks(Fault.BAD_JSON),
    "unfinished": breaks(Fault.UNFINISHED, ANSWER),
    "a line without end": breaks(Fault.FLOOD),
    "a rate limit": refuses(429, "slow down", retry_after=1),
    "a long rate limit": refuses(429, "slow down", retry_after=86_400),
    "an internal error": refuses(500, "oops"),
    "overload": refuses(529, "overloaded"),
    "a gateway's page": Reply(status=502, body=b"<html>Bad Gateway</html>"),
    "success with an error in it": Reply(body=json.dumps(ERROR_BODY).encode()),
    "success with a page in it": Reply(body=b"<html>Welcome to the hotel's wireless network</html>"),
    "an empty body": Reply(body=b""),
    "no words at all": says(""),
    "refused for this session": refuses(400, "messages.3: this content is not allowed"),
    "an endless tool loop": calls("ls", path="."),
    "a tool that does not exist, for ever": calls("no_such_tool"),
}


@pytest.mark.parametrize("api", ["openai-completions", "anthropic-messages"])
@pytest.mark.parametrize("name", [*FAULTS, *(pytest.param(name, marks=pytest.mark.slow) for name in SILENCES | FLOODS)])
async def test_a_fault_ends_the_turn_with_a_clear_error_and_touches_nothing_else(
    tmp_path: Path, name: str, api: str
) -> None:
    async with faulty(tmp_path, api, timeout=PATIENCE if name in SILENCES else 60.0) as made:
        made.server.fault = (FAULTS | SILENCES | FLOODS)[name]
        failed = await made.say(f"{IN_THE_BAD_SESSION}: first", BAD)
        assert failed.status is TurnStatus.FAILED
        assert (failed.error or "").startswith("No answer: ")
        beside = await made.say("still there?", GOOD)
        if name in NO_COOLDOWN:
            assert not made.resting
        made.server.fault = None
        after = await made.say(f"{IN_THE_BAD_SESSION}: second", BAD)
    assert [reply.text for reply in (beside, after)] == [ANSWER] * 2
    assert sum(made.waits) < 120
    assert len(made.server.model_requests[-1].body) < 300_000
    for text in ("first", "second"):
        assert f"{IN_THE_BAD_SESSION}: {text}" in made.server.model_requests[-1].body.decode()


@pytest.mark.parametrize("api", ["openai-completions", "anthropic-messages"])
@pytest.mark.parametrize("pieces", range(9))
async def test_a_connection_lost_at_any_piece_of_an_answer_ends_the_turn(tmp_path: Path, pieces: int, api: str) -> None:
    async with faulty(tmp_path, api) as made:
        made.server.fault = breaks(Fault.CUT, ANSWER, pieces=pieces)
        failed = await made.say(f"{IN_THE_BAD_SESSION}: first", BAD)
        assert failed.status is TurnStatus.FAILED
        beside = await made.say("still there?", GOOD)
        made.server.fault = None
        after = await made.say(f"{IN_THE_BAD_SESSION}: second", BAD)
    assert [reply.text for reply in (beside, after)] == [ANSWER] * 2


@pytest.mark.parametrize("pieces", range(1, 8))
async def test_a_connection_lost_in_the_middle_of_a_call_runs_nothing_and_leaves_no_orphan(
    tmp_path: Path, pieces: int
) -> None:
    async with faulty(tmp_path, "anthropic-messages") as made:
        whole = calls("write", path="made.txt", content="x" * 40)
        made.server.fault = Reply(calls=whole.calls, fault=Fault.CUT, pieces=pieces)
        failed = await made.say(f"{IN_THE_BAD_SESSION}: first", BAD)
        assert failed.status is TurnStatus.FAILED
        made.server.fault = None
        await made.say(f"{IN_THE_BAD_SESSION}: second", BAD)
        assert list(find_orphans(made.server.model_requests[-1].json["messages"])) == []
        assert not (made.runtime.home.paths.workspace / "made.txt").exists()
