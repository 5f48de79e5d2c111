"""The findings of each check."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from retinue.audit.checks import examine
from retinue.audit.facts import (
    AgentFacts,
    Facts,
    Finding,
    GatewayFacts,
    MemoryFacts,
    ModelFacts,
    SandboxFacts,
    Severity,
    StateFile,
    WorkspaceFacts,
)
from retinue.audit.summary import is_whole
from retinue.config.load import load_config
from retinue.core.keys import AgentId
from retinue.core.model import Failure
from retinue.providers.auth_profiles import Cooldown, ProfileSummary
from retinue.sandbox.confinement import SandboxLevel
from retinue.sandbox.sandboxes import BackendCandidate
from retinue.sessions.check import CheckReport
from retinue.storage.home_paths import HomePaths
from retinue.storage.process_locks import InstanceFacts

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
RUNNING = GatewayFacts(InstanceFacts(7, "http://127.0.0.1:1"), answers=True, local_token=True)
AGENT = AgentFacts(
    AgentId("main"), WorkspaceFacts(Path("/w")), CheckReport(), ModelFacts("anthropic/one"), SandboxFacts(works=True)
)


@pytest.fixture
def sound(tmp_path: Path) -> Facts:
    """Facts in which there is nothing to find."""
    home = HomePaths(tmp_path)
    return Facts(home, load_config(home, {}), NOW, (AGENT,), RUNNING, (), (), 10**12, "UTC")


def test_nothing_is_said_of_a_sound_home(sound: Facts) -> None:
    assert examine(sound) == ()


def seen(facts: Facts, **changes: object) -> Facts:
    return replace(facts, agents=(replace(AGENT, **changes),))


def asked(**changes: object) -> GatewayFacts:
    return replace(RUNNING, **changes)


COOLING_DOWN = ProfileSummary(
    id="anthropic:env",
    provider="anthropic",
    kind="api_key",
    where="the environment",
    origin="environment",
    expires=None,
    last_used=None,
    active_cooldowns=(Cooldown("one", Failure.RATE_LIMIT, NOW + timedelta(minutes=5), 1, NOW),),
)

CASES: dict[str, tuple[Callable[[Facts], Facts], Severity, str]] = {
    "no room": (lambda f: replace(f, free_bytes=5_000_000), Severity.PROBLEM, "Only 5 MB"),
    "little room": (lambda f: replace(f, free_bytes=500_000_000), Severity.WARNING, "Only 500 MB"),
    "no zone": (lambda f: replace(f, zone=""), Severity.NOTE, "UTC is used"),
    "damaged state": (lambda f: replace(f, state_whole=False), Severity.PROBLEM, "state.sqlite"),
    "changed audit log": (lambda f: replace(f, audit_damage=("line 2: x",)), Severity.PROBLEM, "line 2: x"),
    "no otel": (lambda f: replace(f, tracing_missing=True), Severity.WARNING, "diagnostics.otel"),
    "silent gateway": (lambda f: replace(f, gateway=asked(answers=False)), Severity.PROBLEM, "does not answer"),
    "bad reload": (lambda f: replace(f, gateway=asked(problems=("x",))), Severity.PROBLEM, "did not load"),
    "no local token": (lambda f: replace(f, gateway=asked(local_token=False)), Severity.WARNING, "is missing"),
    "old token": (lambda f: replace(f, gateway=asked(unused_tokens=("phone",))), Severity.NOTE, "'phone'"),
    "no sandbox here": (
        lambda f: seen(
            f,
            sandbox=SandboxFacts(
                False, "auto", (BackendCandidate("bubblewrap", "not found", "Install it."),), required=False
            ),
        ),
        Severity.WARNING,
        "not sandboxed: bubblewrap: not found",
    ),
    "weaker sandbox": (
        lambda f: seen(
            f,
            sandbox=SandboxFacts(
                True, "auto", (BackendCandidate("bubblewrap", "not found", "Install it."),), SandboxLevel.LANDLOCK
            ),
        ),
        Severity.NOTE,
        "level landlock, not namespaces: bubblewrap: not found",
    ),
    "no sandbox": (
        lambda f: seen(
            f, sandbox=SandboxFacts(False, "the mode is all", (BackendCandidate("bubblewrap", "not found"),))
        ),
        Severity.PROBLEM,
        "bubblewrap: not found",
    ),
    "no credential": (lambda f: seen(f, model=ModelFacts("a/b", ready=False)), Severity.PROBLEM, "no credential"),
    "resting": (lambda f: seen(f, model=ModelFacts("a/b", profiles=(COOLING_DOWN,))), Severity.WARNING, "rate_limit"),
    "asked in vain": (
        lambda f: seen(f, model=ModelFacts("a/b", asked=True, failures=("a/b did not answer (auth): no",))),
        Severity.PROBLEM,
        "did not answer",
    ),
    "unknown alias": (
        lambda f: seen(f, model=ModelFacts(None, problem="'x' is not a model.")),
        Severity.PROBLEM,
        "'x'",
    ),
    "damaged credentials": (lambda f: seen(f, model=ModelFacts("a/b", notes=("bad file",))), Severity.PROBLEM, "bad"),
    "damaged memory": (
        lambda f: seen(f, memory=MemoryFacts(Path("/m"), problem="it is damaged")),
        Severity.PROBLEM,
        "it is damaged",
    ),
    "old memory": (
        lambda f: seen(f, memory=MemoryFacts(Path("/m"), dirty=True, provider="local")),
        Severity.NOTE,
        "changed since",
    ),
    "words only": (lambda f: seen(f, memory=MemoryFacts(Path("/m"))), Severity.WARNING, "keywords only"),
    "ritual": (
        lambda f: seen(f, workspace=WorkspaceFacts(Path("/w"), leftover_ritual=True)),
        Severity.NOTE,
        "BOOTSTRAP.md",
    ),
    "unusable file": (
        lambda f: seen(f, workspace=WorkspaceFacts(Path("/w"), faults=("SOUL.md is a folder.",))),
        Severity.PROBLEM,
        "SOUL.md is a folder",
    ),
    "a clone": (
        lambda f: seen(f, workspace=WorkspaceFacts(Path("/w"), trusted=False)),
        Severity.WARNING,
        "was not created by Retinue",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_fault_is_found_and_explained(sound: Facts, case: str) -> None:
    change, severity, words = CASES[case]
    (finding,) = examine(change(sound))
    assert finding.severity is severity
    assert words in finding.what
    assert finding.why
    assert finding.todo


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            {"session": {"scope": "global"}, "channels": {"http": {}}},
            "session.scope merges groups into the main",
        ),
        ({"session": {"groupScope": "main"}, "channels": {"http": {}}}, "session.groupScope merges groups into"),
        (
            {
                "gateway": {
                    "trustedProxies": ["127.0.0.1"],
                    "auth": {
                        "mode": "trusted-proxy",
                        "trustedProxy": {"userHeader": "x-user", "allowLoopback": True},
                    },
                }
            },
            "A proxy on this machine asserts user identities",
        ),
        ({"bindings": [{"agentId": "ghost", "match": {"channel": "http"}}]}, "refers to the agent 'ghost'"),
        ({"hooks": {"enabled": True}}, "hooks.enabled is set without hooks.token"),
    ],
)
def test_what_opens_doors_or_leads_nowhere_is_told(sound: Facts, config: dict[str, object], words: str) -> None:
    sound.home.config_file.write_text(json.dumps(config))
    (finding,) = examine(replace(sound, loaded=load_config(sound.home, {})))
    assert finding.severity is Severity.WARNING
    assert words in finding.what


def test_the_worst_comes_first(sound: Facts) -> None:
    found = examine(replace(sound, zone="", free_bytes=0, gateway=asked(local_token=False)))
    assert [each.severity for each in found] == [Severity.PROBLEM, Severity.WARNING, Severity.NOTE]


def test_two_agents_with_one_fault_are_told_once(sound: Facts) -> None:
    model = ModelFacts("a/b", notes=("bad file",))
    both = (replace(AGENT, model=model), replace(AGENT, id=AgentId("work"), model=model))
    found: tuple[Finding, ...] = examine(replace(sound, agents=both))
    assert [each.what for each in found] == ["bad file"]


def test_what_its_owner_may_not_use_is_a_problem(sound: Facts) -> None:
    home = sound.home.path
    entries = (
        StateFile(home, True, 0o500, True, 0, NOW),
        StateFile(home / "retinue.json", False, 0o000, True, 1, NOW),
        StateFile(home / "audit.jsonl", False, 0o400, True, 1, NOW),
    )
    (found,) = examine(replace(sound, entries=entries))
    assert found.what == f"You have no access to {home}, retinue.json."
    assert "chmod -R u+rwX" in found.todo


def test_only_a_database_that_is_there_can_be_damaged(tmp_path: Path) -> None:
    database = tmp_path / "state.sqlite"
    assert is_whole(database)
    database.write_text("no database")
    assert not is_whole(database)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_database_that_may_not_be_read_is_not_called_damaged(tmp_path: Path) -> None:
    database = tmp_path / "state.sqlite"
    database.write_text("no database")
    database.chmod(0)
    assert is_whole(database)
