"""What `retinue cluster status` prints for people, and as JSON."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from inline_snapshot import snapshot
from msgspec import to_builtins

from retinue.cli.cluster import MAX_SESSIONS, format_cluster
from retinue.storage.postgres.workers import ClusterStatus, LeaseFacts, WorkerFacts

NOW = datetime(2026, 11, 19, 12, 0, tzinfo=UTC)


def gateway(name: str, role: str, *, sessions: int = 0, automation: bool = False, version: str = "1.0") -> WorkerFacts:
    started = NOW - timedelta(minutes=61)
    return WorkerFacts(name, role, "host", 1, "http://10.0.0.4:18790", version, started, sessions, automation)


def state(*workers: WorkerFacts, sessions: int = 0, waiting: int = 0, lag: float = 0.0) -> ClusterStatus:
    names = (f"agent:main:s{number}" for number in range(sessions))
    leases = (*(LeaseFacts(name, "worker-1", 1, 9.0) for name in names), LeaseFacts("automation", "front-1", 1, 9.0))
    return ClusterStatus(workers, leases, {"waiting": waiting, "claimed": sessions}, lag)


FRONT = gateway("front-1", "front", automation=True)
WORKER = gateway("worker-1", "worker", sessions=2)


def test_people_see_gateways_messages_and_sessions() -> None:
    found = state(FRONT, WORKER, sessions=2, waiting=1, lag=61.0)
    assert format_cluster(found, NOW) == snapshot("""\
gateway   role    sessions  jobs and channels  runs for   version  address
front-1   front   0         yes                1 h 1 min  1.0      http://10.0.0.4:18790
worker-1  worker  2         no                 1 h 1 min  1.0      http://10.0.0.4:18790

1 message waiting, 2 being answered. The oldest has waited for 1 min.

session        worked on by
agent:main:s0  worker-1
agent:main:s1  worker-1\
""")


def test_the_document_has_four_parts() -> None:
    document = to_builtins(state(FRONT, WORKER, sessions=1))
    assert list(document) == ["workers", "leases", "queues", "lag"]
    assert list(document["workers"][0]) == snapshot(
        ["name", "role", "host", "pid", "address", "version", "startedAt", "sessions", "automation"]
    )
    assert list(document["leases"][0]) == snapshot(["name", "worker", "epoch", "expiresInSeconds"])


def test_a_session_that_a_command_works_on_is_shown_as_such() -> None:
    found = ClusterStatus(
        (FRONT, WORKER), (LeaseFacts("agent:main:main", None, 1, 9.0),), {"waiting": 0, "claimed": 1}, 0
    )
    assert "agent:main:main  a command" in format_cluster(found, NOW)


def test_many_sessions_are_counted() -> None:
    text = format_cluster(state(FRONT, WORKER, sessions=MAX_SESSIONS + 3), NOW)
    assert text.count("agent:main:") == MAX_SESSIONS
    assert "and 3 more" in text


@pytest.mark.parametrize(
    ("workers", "problem"),
    [
        ((), "No gateway is running. Start one: retinue gateway run"),
        ((FRONT,), "--role worker"),
        ((WORKER,), "--role front"),
        ((gateway("a", "all"),), "takes them over within seconds"),
        ((FRONT, gateway("worker-1", "worker", version="1.1")), "different versions"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(workers: tuple[WorkerFacts, ...], problem: str) -> None:
    assert problem in format_cluster(state(*workers), NOW)
    assert problem not in format_cluster(state(FRONT, WORKER), NOW)
