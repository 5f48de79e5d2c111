#!/usr/bin/env python3
"""Show the hosts of the SSH configuration, check whether they answer, and run a command on several."""

from __future__ import annotations

import argparse
import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HOST_NAME = re.compile(r"[A-Za-z0-9_][\w.:@%-]*")
MAX_INCLUDES = 50


class HostError(Exception):
    """The request cannot be carried out; the message says why."""


def names_in(config: Path, seen: set[Path]) -> Iterator[str]:
    """Yield the names of hosts, without patterns, also from included files."""
    if config in seen or len(seen) > MAX_INCLUDES:
        return
    seen.add(config)
    try:
        lines = config.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        key, _, value = line.strip().replace("=", " ", 1).partition(" ")
        if key.lower() == "host":
            yield from (name.strip('"') for name in value.split() if not set("*?!") & set(name))
        elif key.lower() == "include":
            for pattern in value.split():
                place = Path(pattern.strip('"')).expanduser()
                base = place.parent if place.is_absolute() else config.parent / place.parent
                for path in sorted(base.glob(place.name)):
                    yield from names_in(path, seen)


def check_name(name: str) -> str:
    if not HOST_NAME.fullmatch(name):
        raise HostError(f"{name!r} is not the name of a host")
    return name


def resolve(name: str, config: Path) -> dict[str, Any]:
    given = ["-F", str(config)] if config.is_file() else []
    try:
        done = subprocess.run(["ssh", *given, "-G", check_name(name)], capture_output=True, text=True, timeout=20)
    except FileNotFoundError:
        raise HostError("ssh is not installed") from None
    except subprocess.TimeoutExpired:
        raise HostError(f"ssh took too long to read {config}") from None
    if done.returncode != 0:
        raise HostError(f"{name}: {done.stderr.strip()}")
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        found.setdefault(key, []).append(value)
    keys = [key for key in found.get("identityfile", []) if Path(key).expanduser().is_file()]
    jump = next(iter(found.get("proxyjump", found.get("proxycommand", []))), "")
    return {
        "name": name,
        "address": found["hostname"][0],
        "port": int(found["port"][0]),
        "user": found["user"][0],
        "keys": keys,
        "jump": "" if jump == "none" else jump,
    }


def selected(options: argparse.Namespace) -> list[dict[str, Any]]:
    names = options.hosts or list(dict.fromkeys(names_in(options.config, set())))
    if not names:
        raise HostError(f"{options.config} names no hosts; name one")
    return [resolve(name, options.config) for name in names]


def try_port(host: dict[str, Any], timeout: float) -> dict[str, Any]:
    if host["jump"]:
        return {"name": host["name"], "state": f"not tried, it is behind {host['jump']}"}
    try:
        with socket.create_connection((host["address"], host["port"]), timeout) as connection:
            connection.settimeout(timeout)
            greeting = connection.recv(256).split(b"\r\n")[0].decode("ascii", "replace")
    except OSError as failure:
        return {"name": host["name"], "state": f"unreachable: {failure}"}
    if not greeting.startswith("SSH-"):
        return {"name": host["name"], "state": f"port {host['port']} answers, but not with SSH"}
    return {"name": host["name"], "state": "ok", "server": "".join(each for each in greeting if each.isprintable())}


def check(options: argparse.Namespace) -> list[dict[str, Any]]:
    hosts = selected(options)
    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(lambda host: try_port(host, options.timeout), hosts))


def run_on(name: str, options: argparse.Namespace) -> dict[str, Any]:
    given = ["-F", str(options.config)] if options.config.is_file() else []
    safe = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={options.timeout:.0f}", "-o", "ForwardAgent=no"]
    command = ["ssh", *given, *safe, check_name(name), " ".join(options.command)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=options.limit, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return {"name": name, "status": None, "output": f"no end within {options.limit} s"}
    except OSError as failure:
        raise HostError(f"ssh cannot be started: {failure}") from failure
    return {"name": name, "status": done.returncode, "output": (done.stdout + done.stderr).rstrip()}


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    if not options.command:
        raise HostError("name the command after --, such as: run web1 web2 -- uptime")
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda name: run_on(name, options), options.hosts))


def show(rows: list[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        if "output" in row:
            lines += [f"{row['name']}: status {row['status']}", *(f"    {line}" for line in row["output"].splitlines())]
        elif "state" in row:
            lines.append(f"{row['name']}  {row['state']}  {row.get('server', '')}".rstrip())
        else:
            notes = [f"key {key}" for key in row["keys"]] + ([f"through {row['jump']}"] if row["jump"] else [])
            lines.append(f"{row['name']}  {row['user']}@{row['address']}:{row['port']}  {', '.join(notes)}".rstrip())
    return "\n".join(lines)


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    given = list(sys.argv[1:] if argv is None else argv)
    cut = given.index("--") if "--" in given else len(given)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "--config", type=Path, default=Path("~/.ssh/config").expanduser(), help="default: ~/.ssh/config"
    )
    shared.add_argument("--timeout", type=float, default=5, help="seconds to connect (default: 5)")
    shared.add_argument("--json", action="store_true", help="print JSON")
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, action, text in (
        ("list", selected, "hosts as ssh resolves them"),
        ("check", check, "which hosts answer"),
    ):
        command = commands.add_parser(name, parents=[shared], help=text)
        command.add_argument("hosts", nargs="*")
        command.set_defaults(run=action)
    running = commands.add_parser("run", parents=[shared], help="one command on several hosts, after --")
    running.add_argument("hosts", nargs="+")
    running.add_argument("--limit", type=int, default=60, help="seconds for the command (default: 60)")
    running.set_defaults(run=run)
    options = parser.parse_args(given[:cut])
    options.command = given[cut + 1 :]
    return options


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        rows = options.run(options)
    except HostError as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    print(json.dumps(rows, ensure_ascii=False, indent=2) if options.json else show(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
