"""Trying again elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue.core.errors import ConfigError
from retinue.core.events import Notice
from retinue.core.messages import Usage, said
from retinue.core.model import (
    Failure,
    ModelFailed,
    ModelFinished,
    ModelInfo,
    ModelRef,
    ModelRequest,
    ModelTextDelta,
    Price,
)
from retinue.providers.apis.openai_chat import OpenAIChat
from retinue.providers.auth_profiles import Profile
from retinue.providers.base import Endpoint, Provider
from retinue.providers.credential_pool import AuthRules, CredentialPool
from retinue.providers.failover import LONG_RETRY_DELAYS, Failover
from retinue.providers.settings import AuthSettings, ModelsSettings
from retinue.security.secrets import EnvSecret, Secrets
from retinue.testing.replies import Fault, Reply, ScriptedProvider, breaks, overflows, refuses, says
from tests.providers.support import HandClock, collect, failed, finished, plain

pytestmark = pytest.mark.anyio

OPUS, GPT, MINE = ModelRef("anthropic", "opus"), ModelRef("openai", "gpt"), ModelRef("ollama", "llama")
REQUEST = ModelRequest(OPUS, "stable", "session", (said("hi"),))


class Stage:
    """Scripted providers, real credentials, a clock turned by sleeping."""

    def __init__(self, folder: Path, **scripts: tuple[Reply, ...]) -> None:
        self.clock = HandClock()
        self.providers = {name: ScriptedProvider(*replies, id=name) for name, replies in scripts.items()}
        rules = AuthRules(AuthSettings(), ModelsSettings())
        self.credentials = CredentialPool(folder, None, rules, Secrets({}), self.clock)
        self.notices: list[str] = []
        self.pauses: list[float | None] = []
        self.naps: list[float] = []
        self.failover = Failover(self, self.credentials, self.describe, self.sleep)

    def __getitem__(self, provider: str) -> Provider:
        return self.providers[provider]

    def endpoint(self, provider: str) -> Endpoint:
        if provider not in self.providers:
            raise ConfigError(f"There is no provider '{provider}'.")
        auth: Any = "none" if provider == "ollama" else "api-key"
        return Endpoint(provider, "openai-completions", "http://127.0.0.1", plain, auth=auth)

    def describe(self, ref: ModelRef) -> ModelInfo:
        return ModelInfo(ref, price=Price(input=10, output=100), tools=ref.provider != "ollama")

    def with_keys(self, *ids: str) -> Stage:
        for name in ids:
            self.credentials.add(Profile(name, name.partition(":")[0], "api_key", f"sk-{name}-0000"))
        return self

    async def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.clock.turn(seconds=seconds)

    async def notice(self, notice: Notice) -> None:
        self.notices.append(notice.text)
        self.pauses.append(notice.wait_seconds)

    def stream(self, *chain: ModelRef) -> Any:
        return self.failover.stream(REQUEST, chain, self.notice)

    def used(self, provider: str) -> list[str]:
        return [credential.profile for credential in self.providers[provider].credentials if credential]


async def test_the_first_model_answers_and_its_cost_is_known(tmp_path: Path) -> None:
    stage = Stage(tmp_path, anthropic=(says("hi", usage=Usage(input=1_000_000, output=10_000)),)).with_keys(
        "anthropic:a"
    )
    message = (await finished(stage.stream(OPUS))).message
    assert message.text == "hi"
    assert message.usage.cost == pytest.approx(11.0)
    assert stage.notices == []


@pytest.mark.parametrize("status", [401, 402, 429])
async def test_a_refused_credential_is_rotated(tmp_path: Path, status: int) -> None:
    stage = Stage(tmp_path, anthropic=(refuses(status), says("second key"))).with_keys(
        "anthropic:a", "anthropic:b", "anthropic:c"
    )
    assert (await finished(stage.stream(OPUS))).message.text == "second key"
    assert stage.used("anthropic") == ["anthropic:a", "anthropic:b"]
    assert stage.notices == [], "the same model answered; nothing to tell"
    first = stage.credentials.profiles("anthropic")
    cooling_down = [profile.id for profile in first if stage.credentials.cooldown_until(profile, "opus")]
    assert cooling_down == ["anthropic:a"]


async def test_rotation_tries_every_credential(tmp_path: Path) -> None:
    stage = Stage(tmp_path, anthropic=(refuses(401), refuses(429), says("third key")), openai=(says("gpt"),)).with_keys(
        "anthropic:a", "anthropic:b", "anthropic:c", "openai:a"
    )
    assert (await finished(stage.stream(OPUS, GPT))).message.text == "third key"
    assert stage.used("anthropic") == ["anthropic:a", "anthropic:b", "anthropic:c"]


async def test_after_the_last_credential_the_next_model_is_asked(tmp_path: Path) -> None:
    stage = Stage(tmp_path, anthropic=(refuses(429), refuses(401), refuses(429)), openai=(says("gpt"),)).with_keys(
        "anthropic:a", "anthropic:b", "anthropic:c", "openai:a"
    )
    assert (await finished(stage.stream(OPUS, GPT))).message.text == "gpt"
    assert stage.notices == ["anthropic/opus cannot answer now (rate limit); openai/gpt answers instead."]
    assert stage.providers["openai"].requests[0].model == GPT


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (refuses(429, retry_after=20), "rate limit"),
        (refuses(529), "overloaded"),
        (refuses(500), "server error"),
    ],
)
async def test_a_retry_is_shown_before_the_pause(tmp_path: Path, reply: Reply, why: str) -> None:
    stage = Stage(tmp_path, anthropic=(reply, says("at last"))).with_keys("anthropic:a")
    shown_before: list[int] = []

    async def sleep(seconds: float) -> None:
        shown_before.append(len(stage.notices))
        await stage.sleep(seconds)

    stage.failover = Failover(stage, stage.credentials, stage.describe, sleep)
    assert (await finished(stage.stream(OPUS))).message.text == "at last"
    assert shown_before == [1]
    pause = f"{stage.naps[0]:g}"
    assert stage.notices == [f"anthropic/opus does not answer ({why}); trying again in {pause} s (retry 1 of 5)."]


async def test_a_retry_after_a_dns_error_is_shown(tmp_path: Path) -> None:
    stage = Stage(tmp_path, ollama=(says("unused"),))
    endpoint = Endpoint("ollama", "ollama", "http://no-such-host.invalid/v1", plain, auth="none")
    real = OpenAIChat(endpoint)
    stage.providers["ollama"] = real  # type: ignore[assignment]
    failure = await failed(stage.stream(MINE))
    await real.aclose()
    assert failure.reason is Failure.CONNECTION
    assert len(stage.notices) == len(LONG_RETRY_DELAYS)
    assert stage.notices[0] == "ollama/llama does not answer (no connection); trying again in 2.5 s (retry 1 of 5)."


async def test_a_model_in_cooldown_is_skipped_and_comes_back(tmp_path: Path) -> None:
    stage = Stage(tmp_path, anthropic=(refuses(429), says("opus again")), openai=(says("one"), says("two"))).with_keys(
        "anthropic:a", "openai:a"
    )
    await finished(stage.stream(OPUS, GPT))
    await finished(stage.stream(OPUS, GPT))
    assert len(stage.providers["anthropic"].requests) == 1
    assert "cooldown" in stage.notices[-1]
    stage.clock.turn(seconds=31)
    assert (await finished(stage.stream(OPUS, GPT))).message.text == "opus again"


async def test_a_chain_at_rest_still_makes_one_real_call(tmp_path: Path) -> None:
    stage = Stage(tmp_path, anthropic=(refuses(401),), openai=(refuses(429), says("the soonest"))).with_keys(
        "anthropic:a", "openai:a"
    )
    failure = await failed(stage.stream(OPUS, GPT))
    assert failure.reason is Failure.AUTH
    assert (await finished(stage.stream(OPUS, GPT))).message.text == "the soonest"


async def test_a_passing_failure_is_tried_again_after_a_pause(tmp_path: Path) -> None:
    stage = Stage(tmp_path, anthropic=(refuses(529), refuses(529), says("at last"))).with_keys("anthropic:a")
    assert (await finished(stage.stream(OPUS))).message.text == "at last"
    assert stage.naps == list(LONG_RETRY_DELAYS[:2])


async def test_a_call_that_timed_out_is_repeated_once_if_no_other_model_is_left(tmp_path: Path) -> None:
    late = refuses(408)
    stage = Stage(tmp_path, anthropic=(late, says("at last"))).with_keys("anthropic:a")
    assert (await finished(stage.stream(OPUS))).message.text == "at last"
    stage = Stage(tmp_path, anthropic=(late, late, says("never"))).with_keys("anthropic:a")
    assert (await failed(stage.stream(OPUS))).reason is Failure.TIMEOUT
    stage = Stage(tmp_path, anthropic=(late, says("never")), openai=(says("gpt"),)).with_keys("anthropic:a", "openai:a")
    assert (await finished(stage.stream(OPUS, GPT))).message.text == "gpt"


async def test_with_another_model_at_hand_patience_is_short(tmp_path: Path) -> None:
    stage = Stage(tmp_path, anthropic=(refuses(529), refuses(529)), openai=(says("gpt"),)).with_keys(
        "anthropic:a", "openai:a"
    )
    assert (await finished(stage.stream(OPUS, GPT))).message.text == "gpt"
    assert stage.naps == [1.0]


async def test_the_providers_wish_to_wait_is_honoured_within_reason(tmp_path: Path) -> None:
    stage = Stage(tmp_path, anthropic=(refuses(429, retry_after=20), says("ok"))).with_keys("anthropic:a")
    assert (await finished(stage.stream(OPUS))).message.text == "ok"
    assert stage.naps == [20.0]
    stage = Stage(tmp_path / "b", anthropic=(refuses(429, retry_after=900), says("ok"))).with_keys("anthropic:a")
    assert (await failed(stage.stream(OPUS))).retry_after == 900
    assert stage.naps == []


async def test_another_credential_is_better_than_waiting(tmp_path: Path) -> None:
    stage = Stage(tmp_path, anthropic=(refuses(429, retry_after=20), says("ok"))).with_keys(
        "anthropic:a", "anthropic:b"
    )
    assert (await finished(stage.stream(OPUS))).message.text == "ok"
    assert stage.naps == []


async def test_words_that_were_shown_are_not_answered_twice(tmp_path: Path) -> None:
    stage = Stage(tmp_path, anthropic=(breaks(Fault.CUT, "The answer is"), says("x")), openai=(says("y"),)).with_keys(
        "anthropic:a", "openai:a"
    )
    events = await collect(stage.stream(OPUS, GPT))
    assert events[0] == ModelTextDelta("The answer is")
    assert isinstance(events[-1], ModelFailed)
    assert len(stage.providers["anthropic"].requests) == 1
    assert stage.providers["openai"].requests == []


async def test_reasoning_alone_does_not_bind(tmp_path: Path) -> None:
    thought_then_cut = Reply(thinking="hm", fault=Fault.CUT)
    stage = Stage(tmp_path, anthropic=(thought_then_cut, says("done"))).with_keys("anthropic:a")
    assert (await finished(stage.stream(OPUS))).message.text == "done"


@pytest.mark.parametrize(("reply", "reason"), [(overflows(), Failure.OVERFLOW), (refuses(400), Failure.FORMAT)])
async def test_a_bad_request_comes_back_at_once(tmp_path: Path, reply: Reply, reason: Failure) -> None:
    stage = Stage(tmp_path, anthropic=(reply, says("x")), openai=(says("y"),)).with_keys(
        "anthropic:a", "anthropic:b", "openai:a"
    )
    assert (await failed(stage.stream(OPUS, GPT))).reason is reason
    assert len(stage.providers["anthropic"].requests) == 1
    assert stage.providers["openai"].requests == []
    assert all(
        not stage.credentials.cooldown_until(profile, "opus") for profile in stage.credentials.profiles("anthropic")
    )


async def test_when_all_fail_every_attempt_is_told(tmp_path: Path) -> None:
    stage = Stage(
        tmp_path, anthropic=(refuses(401, "bad key"), refuses(401, "bad too")), openai=(refuses(404, "gone"),)
    ).with_keys("anthropic:a", "anthropic:b", "openai:a")
    failure = await failed(stage.stream(OPUS, GPT))
    assert failure.reason is Failure.AUTH
    assert failure.detail.splitlines() == [
        "no model could answer:",
        "- anthropic/opus (anthropic:a): the credential was refused: 401: bad key",
        "- anthropic/opus (anthropic:b): the credential was refused: 401: bad too",
        "- openai/gpt (openai:a): no such model: 404: gone",
    ]


async def test_a_missing_credential_says_what_to_do_and_the_next_model_answers(tmp_path: Path) -> None:
    stage = Stage(tmp_path, anthropic=(), ollama=(says("local"),))
    assert (await finished(stage.stream(OPUS, MINE))).message.text == "local"
    failure = await failed(stage.stream(OPUS))
    assert failure.reason is Failure.AUTH
    assert "ANTHROPIC_API_KEY" in failure.detail


async def test_a_secret_that_cannot_be_had_is_a_failed_attempt(tmp_path: Path) -> None:
    stage = Stage(tmp_path, anthropic=(says("second"),)).with_keys("anthropic:b")
    stage.credentials.add(Profile("anthropic:a", "anthropic", "api_key", EnvSecret("env", "GONE")))
    assert (await finished(stage.stream(OPUS))).message.text == "second"


async def test_an_unknown_provider_in_the_chain_is_told(tmp_path: Path) -> None:
    stage = Stage(tmp_path, ollama=(says("local"),))
    assert (await finished(stage.stream(ModelRef("typo", "x"), MINE))).message.text == "local"
    assert "typo" in (await failed(stage.stream(ModelRef("typo", "x")))).detail


async def test_closing_the_stream_closes_the_providers(tmp_path: Path) -> None:
    stage = Stage(tmp_path, ollama=(breaks(Fault.HANG, "words"),))
    events = stage.stream(MINE)
    assert await anext(events) == ModelTextDelta("words")
    await events.aclose()


async def test_empty_answers_are_asked_for_again(tmp_path: Path) -> None:
    stage = Stage(tmp_path, ollama=(says(""), says("now")))
    last = (await collect(stage.stream(MINE)))[-1]
    assert isinstance(last, ModelFinished)
    assert last.message.text == "now"
