"""Home Assistant, through a server on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script


def state(entity: str, value: str, **attributes: Any) -> dict[str, Any]:
    return {
        "entity_id": entity,
        "state": value,
        "attributes": attributes,
        "last_changed": "2030-05-14T10:00:00.123+00:00",
    }


STATES = [
    state("light.kitchen", "off", friendly_name="Kitchen lamp"),
    state("lock.door", "locked", friendly_name="Front door"),
    state("sensor.outdoor", "12.5", unit_of_measurement="°C"),
]


@dataclass
class House:
    address: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)


@pytest.fixture
def house() -> Iterator[House]:
    house = House(answers={"/api/states": STATES})

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            found = next((answer for start, answer in house.answers.items() if path.startswith(start)), None)
            if self.headers["Authorization"] != "Bearer token-1":
                self.send_response(401)
            elif found == "redirect":
                self.send_response(302)
                self.send_header("Location", "http://127.0.0.1:9/")
            else:
                self.send_response(404 if found is None else 200)
            self.end_headers()
            self.wfile.write(found.encode() if isinstance(found, str) else json.dumps(found).encode())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            house.calls.append((self.path, body))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps([state("light.kitchen", "on")]).encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Keep the test's output quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        house.address = f"http://127.0.0.1:{server.server_port}"
        yield house
        server.shutdown()
        thread.join()


@pytest.fixture
def hass(workspace: Workspace, house: House) -> Script:
    given = {"HASS_URL": house.address, "HASS_TOKEN": "token-1"}
    return script("home-assistant", "hass.py", Workspace(workspace.folder, given))


def test_entities_are_found_by_name_domain_and_state(hass: Script) -> None:
    assert hass.run("states", "KITCHEN", "lamp") == "light.kitchen  Kitchen lamp  off  2030-05-14T10:00:00\n"
    assert [each["state"] for each in hass.json("states", "--domain", "sensor")] == ["12.5 °C"]
    assert hass.json("states", "--state", "on") == []


def test_a_service_is_called_for_known_entities_only(hass: Script, house: House) -> None:
    (changed,) = hass.json("call", "light.turn_on", "light.kitchen", "--data", '{"brightness_pct": 40}')
    assert changed["state"] == "on"
    body = {"brightness_pct": 40, "entity_id": ["light.kitchen"]}
    assert house.calls == [("/api/services/light/turn_on", body)]
    assert "there is no entity all" in hass.fail("call", "light.turn_off", "all")
    assert "without a target" in hass.fail("call", "light.turn_on", "--data", '{"area_id": "home"}')
    assert "looks like light.turn_on" in hass.fail("call", "turn_on", "light.kitchen")
    assert "is not JSON" in hass.fail("call", "light.turn_on", "--data", "{")
    assert len(house.calls) == 1


def test_a_lock_needs_the_users_yes(hass: Script, house: House) -> None:
    assert "lock needs the user's yes" in hass.fail("call", "lock.unlock", "lock.door")
    assert "lock needs the user's yes" in hass.fail("call", "homeassistant.turn_off", "lock.door")
    assert house.calls == []
    hass.run("call", "lock.unlock", "lock.door", "--confirmed")
    assert len(house.calls) == 1


def test_the_history_of_numbers_is_summed_up(hass: Script, house: House) -> None:
    rows = [{"last_changed": "2030-05-14T10:00:00+00:00", "state": value} for value in ("10", "14", "unavailable")]
    house.answers["/api/history/period"] = [rows]
    assert hass.run("history", "sensor.outdoor").splitlines()[-1] == "summary  least 10, most 14, mean of changes 12"
    house.answers["/api/history/period"] = []
    assert "there is no history" in hass.fail("history", "sensor.outdoor")


def test_services_of_a_domain(hass: Script, house: House) -> None:
    services = {"turn_on": {"description": "Turn on.", "fields": {"brightness_pct": {}}}}
    house.answers["/api/services"] = [{"domain": "light", "services": services}]
    assert hass.run("services", "light") == "light.turn_on (brightness_pct)  Turn on.\n"
    assert "there are no services" in hass.fail("services", "winds")


def test_failures_say_what_to_do(hass: Script, house: House, workspace: Workspace) -> None:
    def fail(**changed: str) -> str:
        given = {"HASS_URL": house.address, "HASS_TOKEN": "token-1", **changed}
        return script("home-assistant", "hass.py", Workspace(workspace.folder, given)).fail("states")

    assert "are not set" in fail(HASS_TOKEN="")
    assert "the token is not valid" in fail(HASS_TOKEN="old")
    assert "cannot reach 127.0.0.1:9" in fail(HASS_URL="http://127.0.0.1:9")
    house.answers = {"/api/states": "<html>"}
    assert "did not answer with JSON" in fail()
    house.answers = {"/api/states": [{"a": 1}]}
    assert "unexpected answer" in fail()
    house.answers = {"/api/states": "redirect"}
    assert "302" in fail()
