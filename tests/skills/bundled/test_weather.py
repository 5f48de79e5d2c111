"""Weather from a service that speaks like Open-Meteo."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.skills.bundled.scripts import Script, Workspace, script

pytestmark = pytest.mark.slow  # a process for each call of the script

BERN = {
    "name": "Bern",
    "admin1": "Bern",
    "country": "Switzerland",
    "country_code": "CH",
    "latitude": 46.9,
    "longitude": 7.4,
}
OREGON = {"name": "Portland", "admin1": "Oregon", "country": "United States", "latitude": 45.5, "longitude": -122.7}
MAINE = {"name": "Portland", "admin1": "Maine", "country": "United States", "latitude": 43.7, "longitude": -70.3}
FORECAST: dict[str, Any] = {
    "timezone": "Europe/Zurich",
    "current_units": {"temperature_2m": "°C", "precipitation": "mm", "wind_speed_10m": "km/h"},
    "daily_units": {"precipitation_sum": "mm"},
    "current": {
        "time": "2030-05-14T10:00",
        "temperature_2m": 12.3,
        "apparent_temperature": 11.0,
        "relative_humidity_2m": 80,
        "precipitation": 0.2,
        "weather_code": 61,
        "wind_speed_10m": 9.5,
    },
    "daily": {
        "time": ["2030-05-14", "2030-05-15"],
        "weather_code": [63, 42],
        "temperature_2m_min": [8, 9],
        "temperature_2m_max": [14, 20],
        "precipitation_sum": [5.5, 0],
        "precipitation_probability_max": [90, 5],
        "sunrise": ["2030-05-14T05:51", "2030-05-15T05:50"],
        "sunset": ["2030-05-14T20:57", "2030-05-15T20:58"],
    },
    "hourly": {
        "time": ["2030-05-14T11:00"],
        "temperature_2m": [13],
        "precipitation_probability": [70],
        "precipitation": [1],
        "weather_code": [80],
        "wind_speed_10m": [10],
    },
}


@dataclass
class Station:
    """A service on this machine that keeps what it was asked."""

    forecast: Any = field(default_factory=lambda: dict(FORECAST))
    address: str = ""
    asked: list[dict[str, str]] = field(default_factory=list)

    def answer(self, path: str) -> tuple[int, str]:
        parts = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.asked.append(query)
        if parts.path == "/search":
            places = {"Bern": [BERN], "Portland": [OREGON, MAINE]}.get(query["name"])
            return 200, json.dumps({"results": places} if places else {"generationtime_ms": 1})
        if parts.path == "/forecast":
            return 200, self.forecast if isinstance(self.forecast, str) else json.dumps(self.forecast)
        return 503, "busy"


@pytest.fixture
def station() -> Iterator[Station]:
    station = Station()

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = station.answer(self.path)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Keep the test's output quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        station.address = f"http://127.0.0.1:{server.server_port}"
        yield station
        server.shutdown()
        thread.join()


@pytest.fixture
def weather(workspace: Workspace) -> Script:
    return script("weather", "weather.py", workspace)


def services(station: Station) -> tuple[str, ...]:
    return ("--geocoder", f"{station.address}/search", "--forecaster", f"{station.address}/forecast")


def test_the_weather_of_a_place_is_told_in_words(weather: Script, station: Station) -> None:
    printed = weather.run("Bern", "--days", 2, *services(station)).splitlines()
    assert printed == [
        "Bern, Switzerland (Europe/Zurich)",
        "now 2030-05-14T10:00: light rain, 12.3 °C, feels 11.0, humidity 80 %, wind 9.5 km/h, precipitation 0.2 mm",
        "2030-05-14T11:00: light showers, 13 °C, 1 mm (70 %), wind 10 km/h",
        "2030-05-14: rain, 8 to 14 °C, 5.5 mm (90 %), sun 05:51-20:57",
        "2030-05-15: weather code 42, 9 to 20 °C, 0 mm (5 %), sun 05:50-20:58",
    ]


def test_only_the_place_and_the_wish_are_sent(weather: Script, station: Station) -> None:
    weather.run("Bern", "--hours", 6, "--units", "imperial", *services(station))
    search, forecast = station.asked
    assert search["name"] == "Bern"
    assert (forecast["latitude"], forecast["longitude"]) == ("46.9", "7.4")
    assert (forecast["forecast_hours"], forecast["temperature_unit"]) == ("6", "fahrenheit")


def test_a_region_chooses_among_places_of_one_name(weather: Script, station: Station) -> None:
    assert weather.json("Portland, maine", *services(station))["place"] == "Portland, Maine, United States"
    assert station.asked[-1]["latitude"] == "43.7"


def test_an_unknown_region_lists_what_is_known(weather: Script, station: Station) -> None:
    message = weather.fail("Portland, Ohio", *services(station))
    assert "Portland, Oregon, United States; Portland, Maine, United States" in message
    assert "no place matches 'Atlantis'" in weather.fail("Atlantis", *services(station))


def test_a_position_needs_no_search(weather: Script, station: Station) -> None:
    weather.run("--at=-33.92,18.42", *services(station))
    assert [query.get("latitude") for query in station.asked] == ["-33.92"]


@pytest.mark.parametrize("position", ["north", "91,0", "0,181", "1,2,3"])
def test_a_position_off_the_earth_is_refused(weather: Script, station: Station, position: str) -> None:
    weather.fail("--at", position, *services(station))
    assert station.asked == []


def test_a_refusal_is_passed_on(weather: Script, station: Station) -> None:
    assert "503" in weather.fail("Bern", "--geocoder", f"{station.address}/busy")


@pytest.mark.parametrize(
    ("forecast", "message"),
    [
        ("<html>", "did not answer with JSON"),
        ("[1]", "unexpected answer"),
        ('{"timezone": "UTC"}', "the forecast lacks 'daily_units'"),
        (json.dumps({**FORECAST, "current": None}), "unexpected shape"),
    ],
)
def test_a_strange_forecast_is_refused(weather: Script, station: Station, forecast: str, message: str) -> None:
    station.forecast = forecast
    assert message in weather.fail("--at", "1,2", *services(station))


def test_an_unreachable_service_is_named(weather: Script) -> None:
    assert "cannot reach 127.0.0.1:9" in weather.fail("--at", "1,2", "--forecaster", "http://127.0.0.1:9/forecast")


def test_arguments_are_checked(weather: Script) -> None:
    assert "between 1 and 16" in weather.misuse("Bern", "--days", "40")
    weather.misuse()
    weather.misuse("Bern", "--at", "1,2")
