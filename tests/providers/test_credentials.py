"""Which credential speaks for a provider, and what happens to one that failed."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.errors import UsageError
from retinue.core.model import Failure, ModelFailed
from retinue.providers.auth_profiles import FILE_NAME, Cooldown, Profile, ProfileFile, next_cooldown
from retinue.providers.credential_pool import AuthRules, CredentialPool
from retinue.providers.settings import AuthSettings, CooldownSettings, ModelsSettings
from retinue.security.secrets import EnvSecret, Secrets
from retinue.structs.decode import decode
from tests.providers.support import HandClock

RULES = CooldownSettings()


def rest_lengths(reason: Failure, times: int) -> list[timedelta]:
    clock = HandClock()
    previous: Cooldown | None = None
    lengths = []
    for _ in range(times):
        previous = next_cooldown(previous, "m", reason, clock.now(), RULES)
        assert previous is not None
        lengths.append(previous.until - clock.now())
        clock.time = previous.until
    return lengths


def test_rests_grow_by_reason() -> None:
    assert rest_lengths(Failure.RATE_LIMIT, 4) == [timedelta(seconds=s) for s in (30, 60, 300, 300)]
    assert rest_lengths(Failure.AUTH, 4) == [timedelta(minutes=m) for m in (10, 20, 40, 60)]
    assert rest_lengths(Failure.BILLING, 4) == [timedelta(hours=h) for h in (5, 10, 20, 24)]


@pytest.mark.parametrize("reason", [Failure.FORMAT, Failure.OVERFLOW, Failure.EMPTY])
def test_a_bad_request_cools_nothing(reason: Failure) -> None:
    assert next_cooldown(None, "m", reason, HandClock().now(), RULES) is None


def test_old_failures_no_longer_count() -> None:
    clock = HandClock()
    first = next_cooldown(None, "m", Failure.RATE_LIMIT, clock.now(), RULES)
    clock.turn(hours=25)
    second = next_cooldown(first, "m", Failure.RATE_LIMIT, clock.now(), RULES)
    assert second is not None
    assert second.until - clock.now() == timedelta(seconds=30)


@given(st.integers(1, 200), st.sampled_from(sorted(set(Failure) - {Failure.FORMAT, Failure.OVERFLOW, Failure.EMPTY})))
def test_no_rest_is_longer_than_a_day(count: int, reason: Failure) -> None:
    now = HandClock().now()
    rest = next_cooldown(Cooldown("m", reason, now, count, now), "m", reason, now, RULES)
    assert rest is not None
    assert timedelta(0) < rest.until - now <= timedelta(hours=24)


def test_the_providers_own_wish_prolongs_the_rest() -> None:
    now = HandClock().now()
    rest = next_cooldown(None, "m", Failure.RATE_LIMIT, now, RULES, retry_after=120)
    assert rest is not None
    assert rest.until - now == timedelta(seconds=120)


class CredentialHome:
    """A home with two agents, as the tests need it."""

    def __init__(self, folder: Path) -> None:
        self.main = folder / "main"
        self.agent = folder / "helper"
        self.clock = HandClock()
        self.environment: dict[str, str] = {}

    def credentials(self, order: dict[str, list[str]] | None = None, models: Any = None) -> CredentialPool:
        rules = AuthRules(AuthSettings(order=order or {}), decode(ModelsSettings, {"providers": models or {}}))
        return CredentialPool(self.agent, self.main, rules, Secrets(self.environment), self.clock)


@pytest.fixture
def home(tmp_path: Path) -> CredentialHome:
    return CredentialHome(tmp_path)


def key(profile_id: str, secret: str = "sk-0000000000") -> Profile:
    return Profile(profile_id, profile_id.partition(":")[0], "api_key", secret)


def ids(profiles: tuple[Profile, ...]) -> list[str]:
    return [profile.id for profile in profiles]


def limit(reason: Failure = Failure.RATE_LIMIT) -> ModelFailed:
    return ModelFailed(reason, "no")


def test_an_agents_own_profiles_come_before_mains_then_config_then_environment(home: CredentialHome) -> None:
    ProfileFile(home.main).add(key("openai:main"))
    home.environment["OPENAI_API_KEY"] = "sk-env-000000"
    credentials = home.credentials(models={"openai": {"apiKey": "sk-config-0000"}})
    credentials.add(key("openai:own"))
    credentials.add(key("anthropic:own"))
    assert ids(credentials.profiles("openai")) == ["openai:own", "openai:main", "openai:config", "openai:env"]


def test_the_least_recently_used_comes_first(home: CredentialHome) -> None:
    credentials = home.credentials()
    credentials.add(key("openai:a"))
    credentials.add(key("openai:b"))
    credentials.succeeded(credentials.profiles("openai")[0], "m")
    assert ids(credentials.profiles("openai")) == ["openai:b", "openai:a"]
    home.clock.turn(seconds=1)
    credentials.succeeded(credentials.profiles("openai")[0], "m")
    assert ids(credentials.profiles("openai")) == ["openai:a", "openai:b"]


def test_a_configured_order_wins(home: CredentialHome) -> None:
    credentials = home.credentials(order={"openai": ["openai:c", "openai:b"]})
    for name in "abc":
        credentials.add(key(f"openai:{name}"))
    assert ids(credentials.profiles("openai")) == ["openai:c", "openai:b", "openai:a"]


def test_an_expired_token_goes_to_the_end(home: CredentialHome) -> None:
    credentials = home.credentials()
    now = home.clock.now()
    credentials.add(Profile("anthropic:a", "anthropic", "token", "tok-000000", expires=now + timedelta(hours=1)))
    credentials.add(key("anthropic:b"))
    assert ids(credentials.profiles("anthropic")) == ["anthropic:a", "anthropic:b"]
    home.clock.turn(hours=2)
    assert ids(credentials.profiles("anthropic")) == ["anthropic:b", "anthropic:a"]


def test_a_rest_is_for_one_profile_and_one_model_and_survives_a_restart(home: CredentialHome) -> None:
    credentials = home.credentials()
    credentials.add(key("openai:a"))
    credentials.add(key("openai:b"))
    first, second = credentials.profiles("openai")
    credentials.failed(first, "gpt-5.4", limit())
    again = home.credentials()
    assert again.cooldown_until(first, "gpt-5.4") == home.clock.now() + timedelta(seconds=30)
    assert again.cooldown_until(first, "gpt-4.1") is None
    assert again.cooldown_until(second, "gpt-5.4") is None
    home.clock.turn(seconds=31)
    assert again.cooldown_until(first, "gpt-5.4") is None


def test_a_rest_noted_by_a_clock_that_went_wrong_does_not_last(home: CredentialHome) -> None:
    credentials = home.credentials()
    credentials.add(key("openai:a"))
    (profile,) = credentials.profiles("openai")
    home.clock.turn(days=3_000)
    credentials.failed(profile, "m", limit())
    assert credentials.cooldown_until(profile, "m") is not None
    home.clock.turn(days=-3_000)
    assert credentials.cooldown_until(profile, "m") is None
    assert [row.active_cooldowns for row in credentials.listed()] == [()]


def test_reasons_are_counted_apart_and_success_clears_them(home: CredentialHome) -> None:
    credentials = home.credentials()
    credentials.add(key("openai:a"))
    (profile,) = credentials.profiles("openai")
    credentials.failed(profile, "m", limit())
    credentials.failed(profile, "m", limit(Failure.AUTH))
    credentials.failed(profile, "other", limit())
    assert credentials.cooldown_until(profile, "m") == home.clock.now() + timedelta(minutes=10)
    credentials.succeeded(profile, "m")
    assert credentials.cooldown_until(profile, "m") is None
    assert credentials.cooldown_until(profile, "other") is not None


def test_a_bad_session_never_closes_the_door_for_others(home: CredentialHome) -> None:
    credentials = home.credentials()
    credentials.add(key("openai:a"))
    (profile,) = credentials.profiles("openai")
    for reason in (Failure.FORMAT, Failure.OVERFLOW):
        credentials.failed(profile, "m", limit(reason))
    assert credentials.cooldown_until(profile, "m") is None


def test_a_list_never_shows_a_key(home: CredentialHome) -> None:
    home.environment["GEMINI_API_KEY"] = "AIza-very-secret"
    credentials = home.credentials()
    credentials.add(key("openai:a", "sk-very-secret-000"))
    credentials.add(Profile("openai:b", "openai", "api_key", EnvSecret("env", "MY_KEY")))
    listed = credentials.listed()
    assert [summary.id for summary in listed] == ["openai:a", "openai:b", "google:env"]
    assert "secret" not in repr(listed)
    assert "secret" not in repr(credentials.profiles("openai"))
    assert listed[1].where == "environment variable MY_KEY"


def test_the_file_is_private_and_keeps_what_it_does_not_know(home: CredentialHome) -> None:
    home.agent.mkdir()
    path = home.agent / FILE_NAME
    foreign = {"type": "oauth", "provider": "openai", "access": "x"}
    path.write_text(json.dumps({"version": 1, "profiles": {"openai:me": foreign}, "extra": [1]}))
    credentials = home.credentials()
    credentials.add(key("openai:a"))
    content = json.loads(path.read_text())
    assert content["profiles"]["openai:me"] == foreign
    assert content["extra"] == [1]
    assert path.stat().st_mode & 0o777 == 0o600
    assert ids(credentials.profiles("openai")) == ["openai:a"]


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe", b"[]", b'{"profiles": 3, "usageStats": "x"}'])
def test_a_damaged_file_costs_only_itself_and_its_bytes_are_kept(
    home: CredentialHome, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    home.agent.mkdir()
    path = home.agent / FILE_NAME
    path.write_bytes(damage)
    credentials = home.credentials()
    with caplog.at_level(logging.WARNING):
        assert credentials.profiles("openai") == ()
        if damage.startswith(b'{"'):
            path.unlink()
        credentials.add(key("openai:a"))
    assert ids(credentials.profiles("openai")) == ["openai:a"]
    kept = [file.read_bytes() for file in home.agent.iterdir() if ".corrupt-" in file.name]
    assert kept == ([] if damage.startswith(b'{"') else [damage])


@pytest.mark.slow
def test_two_processes_do_not_lose_each_others_changes(home: CredentialHome) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from retinue.providers.auth_profiles import Profile, ProfileFile\n"
        "for n in range(20): ProfileFile(Path(sys.argv[1])).add("
        "Profile(f'openai:{sys.argv[2]}{n}', 'openai', 'api_key', 'sk-00000000'))\n"
    )
    workers = [subprocess.Popen([sys.executable, "-c", code, str(home.agent), name]) for name in ("a", "b")]
    assert [worker.wait(60) for worker in workers] == [0, 0]
    assert len(ProfileFile(home.agent).profiles()) == 40


def test_what_another_process_changes_is_seen_at_the_next_look(home: CredentialHome) -> None:
    seen = ProfileFile(home.agent)
    assert seen.profiles() == ()
    ProfileFile(home.agent).add(key("openai:work"))
    assert [profile.id for profile in seen.profiles()] == ["openai:work"]
    ProfileFile(home.agent).remove("openai:work")
    ProfileFile(home.agent).add(key("openai:home"))
    assert [profile.id for profile in seen.profiles()] == ["openai:home"]
    (home.agent / FILE_NAME).unlink()
    assert seen.profiles() == ()


def test_removing_and_wrong_names(home: CredentialHome) -> None:
    credentials = home.credentials()
    credentials.add(key("openai:a"))
    assert credentials.remove("openai:a") is True
    assert credentials.remove("openai:a") is False
    for bad in ("openai", "openai:", "OpenAI:a b", ":a"):
        with pytest.raises(UsageError):
            credentials.add(key(bad))


@pytest.mark.anyio
async def test_opening_resolves_the_secret(home: CredentialHome) -> None:
    home.environment["MY_KEY"] = "sk-resolved-0000"
    home.agent.parent.joinpath("key").write_text("sk-from-file-0000")
    credentials = home.credentials()
    opened = await credentials.open(Profile("openai:a", "openai", "api_key", EnvSecret("env", "MY_KEY")))
    assert opened.secret == "sk-resolved-0000"
    assert "resolved" not in repr(opened)


def test_without_a_credential_people_are_told_what_to_do(home: CredentialHome) -> None:
    assert "ANTHROPIC_API_KEY" in home.credentials().describe_how_to_add("anthropic")
