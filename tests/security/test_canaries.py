"""Forty planted secrets: each was in use, and none is in a log, transcript, export, prompt or error."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import pytest

from retinue.security.redaction import HIDDEN
from tests.security.canaries import Evidence, stop_logging, tell_the_story
from tests.security.filekeyring import FileKeyring, in_use

pytestmark = pytest.mark.slow

FEWEST = 40


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evidence]:
    """The whole story, told once for all tests here."""
    place = tmp_path_factory.mktemp("canaries")
    (place / "user").mkdir()
    environ = {
        "HOME": str(place / "user"),
        "RETINUE_HOME": str(place / "home"),
    }
    found = Evidence(place / "home")
    with pytest.MonkeyPatch.context() as patch, in_use(FileKeyring(place / "home" / "keyring.json")):
        for name, value in environ.items():
            patch.setenv(name, value)
        anyio.run(tell_the_story, found, patch.setenv)
        stop_logging()
        yield found


def test_every_secret_was_in_use(evidence: Evidence) -> None:
    unused = [name for name, canary in evidence.canaries.items() if not canary.proof(evidence)]
    assert unused == []
    assert len(evidence.canaries) >= FEWEST


def test_no_secret_is_found_anywhere(evidence: Evidence) -> None:
    found = [
        (name, place)
        for place, text in evidence.traces
        for name, canary in evidence.canaries.items()
        if any(spelling in text for spelling in canary.spellings)
    ]
    assert found == []


def test_the_places_that_were_searched_hold_what_they_should(evidence: Evidence) -> None:
    places = dict(evidence.traces)
    log = places["logs/retinue.log"]
    assert "cannot sign with [redacted]" in log
    assert "Traceback" in log
    assert f"and ['{HIDDEN}" in log
    assert any(name.endswith(".jsonl") and HIDDEN in text for name, text in places.items() if "sessions" in name)
    assert "config_change" in places["audit.jsonl"]
    assert places["security log --verify"].startswith("All ")
    assert all(
        HIDDEN in places[name] for name in ("config get", "sessions export main", "models test echo-json/echo-json")
    )
    assert "state.sqlite" in places
