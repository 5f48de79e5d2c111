#!/usr/bin/env python3
"""Show the current weather and the forecast for a place, from Open-Meteo."""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

GEOCODER = "https://geocoding-api.open-meteo.com/v1/search"
FORECASTER = "https://api.open-meteo.com/v1/forecast"
TIMEOUT_SECONDS = 20
MAX_BYTES = 2_000_000

# Weather codes of the World Meteorological Organization, table 4677 as Open-Meteo uses it.
SKY = {
    0: "clear", 1: "mainly clear", 2: "partly cloudy", 3: "overcast", 45: "fog", 48: "freezing fog",
    51: "light drizzle", 53: "drizzle", 55: "dense drizzle", 56: "light freezing drizzle", 57: "freezing drizzle",
    61: "light rain", 63: "rain", 65: "heavy rain", 66: "light freezing rain", 67: "freezing rain",
    71: "light snow", 73: "snow", 75: "heavy snow", 77: "snow grains",
    80: "light showers", 81: "showers", 82: "violent showers", 85: "light snow showers", 86: "heavy snow showers",
    95: "thunderstorm", 96: "thunderstorm with light hail", 99: "thunderstorm with heavy hail",
}  # fmt: skip
UNITS = {
    "metric": {},
    "imperial": {"temperature_unit": "fahrenheit", "wind_speed_unit": "mph", "precipitation_unit": "inch"},
}
CURRENT = "temperature_2m,apparent_temperature,relative_humidity_2m,precipitation,weather_code,wind_speed_10m"
HOURLY = "temperature_2m,precipitation_probability,precipitation,weather_code,wind_speed_10m"
DAILY = (
    "weather_code,temperature_2m_min,temperature_2m_max,precipitation_sum,precipitation_probability_max,sunrise,sunset"
)


class WeatherError(Exception):
    """The request cannot be carried out; the message says why."""


@dataclass(frozen=True, slots=True)
class Place:
    name: str
    latitude: float
    longitude: float


def ask(address: str, parameters: dict[str, object]) -> dict[str, Any]:
    url = f"{address}?{urllib.parse.urlencode(parameters)}"
    host = urllib.parse.urlsplit(address).netloc
    request = urllib.request.Request(url, headers={"User-Agent": "retinue-weather/1.0"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            found = json.loads(answer.read(MAX_BYTES))
    except urllib.error.HTTPError as failure:
        raise WeatherError(f"{host} refused the request: {failure.code} {failure.reason}") from failure
    except (OSError, http.client.HTTPException) as failure:
        raise WeatherError(f"cannot reach {host}: {failure}") from failure
    except ValueError as failure:
        raise WeatherError(f"{host} did not answer with JSON") from failure
    if not isinstance(found, dict):
        raise WeatherError(f"{host} gave an unexpected answer")
    return found


def find_place(text: str, geocoder: str) -> Place:
    """Look a name up; what stands after a comma must occur in the region or country."""
    name, *regions = [part.strip() for part in text.split(",")]
    if not name:
        raise WeatherError("name a place")
    found = ask(geocoder, {"name": name, "count": 20, "language": "en", "format": "json"}).get("results") or []

    def parts(result: dict[str, Any], *keys: str) -> list[str]:
        return list(dict.fromkeys(str(result[key]) for key in keys if result.get(key)))

    def label(result: dict[str, Any]) -> str:
        return ", ".join(parts(result, "name", "admin1", "country"))

    for result in found:
        around = [part.casefold() for part in parts(result, "admin1", "admin2", "country", "country_code")]
        if all(region.casefold() in around for region in regions):
            return Place(label(result), float(result["latitude"]), float(result["longitude"]))
    known = "; ".join(label(result) for result in found[:5])
    raise WeatherError(f"no place matches {text!r}" + (f"; known are: {known}" if known else ""))


def parse_position(text: str) -> Place:
    try:
        latitude, longitude = (float(part) for part in text.split(","))
    except ValueError:
        raise WeatherError(f"cannot read the position {text!r}; write 46.95,7.45") from None
    if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
        raise WeatherError(f"the position {text!r} is not on Earth")
    return Place(f"{latitude}, {longitude}", latitude, longitude)


def rows(table: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Turn parallel lists into records."""
    return [dict(zip(table, values, strict=False)) for values in zip(*table.values(), strict=False)]


def fetch_report(place: Place, options: argparse.Namespace) -> dict[str, Any]:
    parameters: dict[str, object] = {
        "latitude": place.latitude,
        "longitude": place.longitude,
        "timezone": "auto",
        "current": CURRENT,
        "daily": DAILY,
        "forecast_days": options.days,
        **UNITS[options.units],
    }
    if options.hours:
        parameters |= {"hourly": HOURLY, "forecast_hours": options.hours}
    answer = ask(options.forecaster, parameters)
    try:
        return {
            "place": place.name,
            "timezone": answer["timezone"],
            "units": {**answer["daily_units"], **answer["current_units"]},
            "current": {**answer["current"], "sky": describe(answer["current"])},
            "hours": [{**row, "sky": describe(row)} for row in rows(answer.get("hourly") or {})],
            "days": [{**row, "sky": describe(row)} for row in rows(answer["daily"])],
        }
    except (TypeError, AttributeError) as failure:
        raise WeatherError(f"the forecast has an unexpected shape: {failure}") from failure


def describe(row: dict[str, Any]) -> str:
    code = row.get("weather_code")
    return SKY.get(code, f"weather code {code}") if isinstance(code, int) else "unknown"


def show(report: dict[str, Any]) -> str:
    units, now = report["units"], report["current"]
    degrees, water, wind = units["temperature_2m"], units["precipitation"], units["wind_speed_10m"]

    def hour_line(hour: dict[str, Any]) -> str:
        rain = f"{hour['precipitation']} {water} ({hour['precipitation_probability']} %)"
        blow = f"wind {hour['wind_speed_10m']} {wind}"
        return f"{hour['time']}: {hour['sky']}, {hour['temperature_2m']} {degrees}, {rain}, {blow}"

    def day_line(day: dict[str, Any]) -> str:
        warmth = f"{day['temperature_2m_min']} to {day['temperature_2m_max']} {degrees}"
        rain = f"{day['precipitation_sum']} {water} ({day['precipitation_probability_max']} %)"
        return f"{day['time']}: {day['sky']}, {warmth}, {rain}, sun {day['sunrise'][-5:]}-{day['sunset'][-5:]}"

    return "\n".join(
        [
            f"{report['place']} ({report['timezone']})",
            f"now {now['time']}: {now['sky']}, {now['temperature_2m']} {degrees}, feels {now['apparent_temperature']}, "
            f"humidity {now['relative_humidity_2m']} %, wind {now['wind_speed_10m']} {wind}, "
            f"precipitation {now['precipitation']} {water}",
            *map(hour_line, report["hours"]),
            *map(day_line, report["days"]),
        ]
    )


def between(low: int, high: int) -> Any:
    def parse(text: str) -> int:
        number = int(text)
        if not low <= number <= high:
            raise argparse.ArgumentTypeError(f"must be between {low} and {high}")
        return number

    return parse


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("place", nargs="?", help="a name, with region or country after a comma")
    where.add_argument("--at", metavar="LATITUDE,LONGITUDE")
    parser.add_argument("--days", type=between(1, 16), default=3)
    parser.add_argument("--hours", type=between(1, 168))
    parser.add_argument("--units", choices=sorted(UNITS), default="metric")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--geocoder", default=GEOCODER, help="address of another Open-Meteo geocoder")
    parser.add_argument("--forecaster", default=FORECASTER, help="address of another Open-Meteo forecast service")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        place = parse_position(options.at) if options.at else find_place(options.place, options.geocoder)
        report = fetch_report(place, options)
        print(json.dumps(report, ensure_ascii=False, indent=2) if options.json else show(report))
    except KeyError as missing:
        print(f"error: the forecast lacks {missing}", file=sys.stderr)
        return 1
    except WeatherError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
