#!/usr/bin/env python3
"""Read states and call services of Home Assistant."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlsplit

TIMEOUT_SECONDS = 30
MAX_BYTES = 20_000_000
GUARDED = frozenset(("lock", "alarm_control_panel", "cover", "valve", "siren", "water_heater"))
Record = dict[str, Any]


class HomeError(Exception):
    """The request cannot be carried out; the message says why."""


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would hand the token to another address."""

    def redirect_request(self, *_: Any) -> None:
        return None


def ask(path: str, data: Record | None = None) -> Any:
    address, token = os.environ.get("HASS_URL", "").rstrip("/"), os.environ.get("HASS_TOKEN", "").strip()
    if urlsplit(address).scheme not in ("http", "https") or not token:
        raise HomeError("HASS_URL and HASS_TOKEN are not set; the user sets them in skills.entries.home-assistant")
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    body = None if data is None else json.dumps(data).encode()
    request = urllib.request.Request(f"{address}/api/{path}", body, headers)
    host = urlsplit(address).netloc
    try:
        with urllib.request.build_opener(NoRedirects).open(request, timeout=TIMEOUT_SECONDS) as answer:
            return json.loads(answer.read(MAX_BYTES))
    except urllib.error.HTTPError as failure:
        known = {
            401: "the token is not valid",
            404: "there is no such thing",
            400: "Home Assistant did not understand the request",
        }
        raise HomeError(f"{host}: {known.get(failure.code, f'{failure.code} {failure.reason}')}") from failure
    except (OSError, http.client.HTTPException) as failure:
        raise HomeError(f"cannot reach {host}: {getattr(failure, 'reason', failure)}") from failure
    except ValueError as failure:
        raise HomeError(f"{host} did not answer with JSON; is it Home Assistant?") from failure


def describe(state: Record) -> Record:
    given = state.get("attributes") or {}
    unit = given.get("unit_of_measurement")
    return {
        "entity": state["entity_id"],
        "name": str(given.get("friendly_name") or ""),
        "state": f"{state['state']} {unit}" if unit else state["state"],
        "changed": str(state.get("last_changed") or "")[:19],
        "attributes": {
            key: value for key, value in given.items() if key not in ("friendly_name", "unit_of_measurement", "icon")
        },
    }


def states(options: argparse.Namespace) -> list[Record]:
    words = [word.casefold() for word in options.words]
    found = [describe(state) for state in ask("states")]
    return [
        each
        for each in sorted(found, key=lambda each: each["entity"])
        if all(word in f"{each['entity']} {each['name']}".casefold() for word in words)
        and (options.domain is None or each["entity"].startswith(f"{options.domain}."))
        and (options.state is None or each["state"].casefold() == options.state.casefold())
    ]


def history(options: argparse.Namespace) -> list[Record]:
    start = datetime.now(UTC) - timedelta(hours=options.hours)
    query = f"filter_entity_id={quote(options.entity)}&minimal_response&no_attributes"
    found = ask(f"history/period/{quote(start.isoformat(timespec='seconds'))}?{query}")
    rows = [
        {"time": str(each.get("last_changed", ""))[:19], "state": each["state"]} for each in (found[0] if found else [])
    ]
    if not rows:
        raise HomeError(f"there is no history of {options.entity} in the last {options.hours:g} hours")
    numbers = [float(row["state"]) for row in rows if re.fullmatch(r"-?\d+(\.\d+)?", row["state"])]
    if numbers:
        mean = sum(numbers) / len(numbers)
        rows.append(
            {"time": "summary", "state": f"least {min(numbers):g}, most {max(numbers):g}, mean of changes {mean:.4g}"}
        )
    return rows


def services(options: argparse.Namespace) -> list[Record]:
    rows = []
    for each in ask("services"):
        if each["domain"] == options.domain:
            for name, details in sorted(each["services"].items()):
                fields = sorted((details.get("fields") or {}).keys())
                rows.append(
                    {"service": f"{options.domain}.{name}", "about": details.get("description") or "", "fields": fields}
                )
    if not rows:
        raise HomeError(f"there are no services of {options.domain!r}")
    return rows


def call(options: argparse.Namespace) -> list[Record]:
    domain, dot, service = options.service.partition(".")
    if not dot or not re.fullmatch(r"[a-z0-9_]+\.[a-z0-9_]+", options.service):
        raise HomeError(f"{options.service!r} is not a service; it looks like light.turn_on")
    try:
        data = json.loads(options.data)
    except ValueError as failure:
        raise HomeError(f"the data is not JSON: {failure}") from failure
    if not isinstance(data, dict) or {"entity_id", "area_id", "device_id", "label_id", "floor_id"} & data.keys():
        raise HomeError("the data must be a JSON object without a target; name the entities as arguments")
    known = {state["entity_id"] for state in ask("states")}
    unknown = [entity for entity in options.entities if entity not in known]
    if unknown:
        raise HomeError(f"there is no entity {unknown[0]}; `states` finds them")
    guarded = {each.partition(".")[0] for each in (*options.entities, options.service)} & GUARDED
    if guarded and not options.confirmed:
        raise HomeError(f"{sorted(guarded)[0]} needs the user's yes for exactly this; then add --confirmed")
    target = {"entity_id": options.entities} if options.entities else {}
    changed = ask(f"services/{domain}/{service}", data | target)
    return [describe(state) for state in changed] if isinstance(changed, list) else []


def show(rows: list[Record]) -> str:
    lines = []
    for row in rows:
        if "service" in row:
            fields = f" ({', '.join(row['fields'])})" if row["fields"] else ""
            lines.append(f"{row['service']}{fields}  {row['about']}".rstrip())
        else:
            lines.append(
                "  ".join(str(row[key]) for key in ("time", "entity", "name", "state", "changed") if row.get(key))
            )
    return "\n".join(lines) or "Nothing."


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--json", action="store_true", help="print JSON")
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    listing = commands.add_parser("states", parents=[shared], help="entities and their states")
    listing.add_argument("words", nargs="*")
    listing.add_argument("--domain")
    listing.add_argument("--state")
    listing.set_defaults(run=states)
    past = commands.add_parser("history", parents=[shared], help="changes of an entity")
    past.add_argument("entity")
    past.add_argument("--hours", type=float, default=24)
    past.set_defaults(run=history)
    offering = commands.add_parser("services", parents=[shared], help="what can be called")
    offering.add_argument("domain")
    offering.set_defaults(run=services)
    calling = commands.add_parser("call", parents=[shared], help="call a service")
    calling.add_argument("service")
    calling.add_argument("entities", nargs="*")
    calling.add_argument("--data", default="{}", help="JSON")
    calling.add_argument("--confirmed", action="store_true", help="the user agreed to exactly this")
    calling.set_defaults(run=call)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        rows: list[Record] = options.run(options)
    except HomeError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    except (KeyError, TypeError, AttributeError, IndexError) as failure:
        print(f"error: Home Assistant gave an unexpected answer: {failure!r}", file=sys.stderr)
        return 1
    print(json.dumps(rows, ensure_ascii=False, indent=2) if options.json else show(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
