#!/usr/bin/env python3
"""Show containers, and what is wrong with them, through docker or podman."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

MAX_LOG = 4_000


class ContainerError(Exception):
    """The request cannot be carried out; the message says why."""


def run(program: str, *arguments: str) -> str:
    try:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, errors="replace", timeout=60)
    except OSError:
        raise ContainerError(f"{program} is not installed") from None
    except subprocess.TimeoutExpired:
        raise ContainerError(f"{program} did not answer within a minute; is its service running?") from None
    if done.returncode != 0:
        text = done.stderr.strip() or f"{program} failed with status {done.returncode}"
        hint = (
            "; the user must be allowed to use it, for example as a member of its group"
            if "permission denied" in text.lower()
            else ""
        )
        raise ContainerError(text + hint)
    return done.stdout + (done.stderr if arguments[0] == "logs" else "")


def inspect_all(program: str) -> list[dict[str, Any]]:
    identities = run(program, "ps", "--all", "--quiet", "--no-trunc").split()
    if not identities:
        return []
    try:
        found = json.loads(run(program, "inspect", "--type", "container", *identities))
        return [describe(each) for each in found]
    except (ValueError, KeyError, TypeError, AttributeError) as failure:
        raise ContainerError(f"{program} gave an unexpected answer: {failure!r}") from failure


def describe(found: dict[str, Any]) -> dict[str, Any]:
    state = found["State"]
    health = state.get("Health") or state.get("Healthcheck") or {}
    bound = (found.get("NetworkSettings") or {}).get("Ports") or {}
    ports = [
        f"{each.get('HostIp') or '0.0.0.0'}:{each['HostPort']}->{inside}"
        for inside, places in bound.items()
        for each in places or []
    ]
    host = found.get("HostConfig") or {}
    mounts = [str(each.get("Source", "")) for each in found.get("Mounts") or []]
    power = [
        name
        for name, given in (
            ("privileged", host.get("Privileged")),
            ("host network", host.get("NetworkMode") == "host"),
            ("socket mounted", any(mount.endswith(("docker.sock", "podman.sock")) for mount in mounts)),
            ("/ mounted", "/" in mounts),
        )
        if given
    ]
    return {
        "name": found["Name"].lstrip("/"),
        "state": state["Status"],
        "health": health.get("Status") or "",
        "exit": state.get("ExitCode", 0),
        "out_of_memory": bool(state.get("OOMKilled")),
        "restarts": found.get("RestartCount", 0),
        "image": (found.get("Config") or {}).get("Image", ""),
        "ports": ports,
        "power": power,
    }


def overview(options: argparse.Namespace) -> list[dict[str, Any]]:
    return inspect_all(options.program)


def faults(container: dict[str, Any]) -> list[str]:
    found = []
    if container["health"] == "unhealthy":
        found.append("unhealthy")
    if container["state"] in ("restarting", "dead", "paused"):
        found.append(container["state"])
    if container["out_of_memory"]:
        found.append("killed for lack of memory")
    # 137 and 143 are the signals with which `stop` ends a container.
    if container["state"] == "exited" and container["exit"] not in (0, 137, 143):
        found.append(f"ended with status {container['exit']}")
    if container["restarts"] >= 3:
        found.append(f"{container['restarts']} restarts")
    return found


def problems(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for container in inspect_all(options.program):
        found = faults(container)
        if found:
            log = run(options.program, "logs", f"--since={options.since}", f"--tail={options.lines}", container["name"])
            rows.append({"name": container["name"], "problems": found, "log": log[-MAX_LOG:]})
    return rows


def show(rows: list[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        if "log" in row:
            lines += [
                f"{row['name']}: {', '.join(row['problems'])}",
                *(f"    {line}" for line in row["log"].splitlines()),
            ]
            continue
        health = f" ({row['health']})" if row["health"] else ""
        notes = [*row["ports"], *row["power"], f"{row['restarts']} restarts" if row["restarts"] else ""]
        lines.append(
            "  ".join(
                part
                for part in (row["name"], f"{row['state']}{health}", row["image"], ", ".join(filter(None, notes)))
                if part
            )
        )
    return "\n".join(lines) or "None."


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    found = next(filter(shutil.which, ("docker", "podman")), "docker")
    shared.add_argument("--program", default=found, choices=("docker", "podman"))
    shared.add_argument("--json", action="store_true", help="print JSON")
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    commands.add_parser("overview", parents=[shared], help="all containers").set_defaults(run=overview)
    failing = commands.add_parser("problems", parents=[shared], help="containers that need attention, with their logs")
    failing.add_argument("--since", default="1h", help="age of log lines (default: 1h)")
    failing.add_argument("--lines", type=int, default=20, help="log lines of each (default: 20)")
    failing.set_defaults(run=problems)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        rows = options.run(options)
    except ContainerError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    print(json.dumps(rows, ensure_ascii=False, indent=2) if options.json else show(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
