#!/usr/bin/env python3
"""Show the state of this Linux machine, or only what is critical."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

PROC = Path("/proc")
# File systems without a device of their own, and read-only images, which are always full.
IGNORED = frozenset(("squashfs", "iso9660", "overlay", "tmpfs", "devtmpfs", "ramfs", "efivarfs", "fuse.portal", "nsfs"))
TICKS = os.sysconf("SC_CLK_TCK")
LISTENING = "0A"


def read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def memory() -> dict[str, Any]:
    found = {
        key: int(value) * 1024 for key, value in re.findall(r"^(\w+):\s+(\d+) kB", read(PROC / "meminfo"), re.MULTILINE)
    }
    total, free = found.get("MemTotal", 0), found.get("MemAvailable", found.get("MemFree", 0))
    swap = found.get("SwapTotal", 0)
    return {
        "total": total,
        "available": free,
        "used_percent": round(100 * (total - free) / total) if total else 0,
        "swap_total": swap,
        "swap_used": swap - found.get("SwapFree", swap),
    }


def pressure() -> dict[str, float]:
    """How much of the last minute some task waited for a resource, in percent."""
    found = {}
    for kind in ("cpu", "memory", "io"):
        match = re.search(r"some .*avg60=([\d.]+)", read(PROC / "pressure" / kind))
        if match:
            found[kind] = float(match[1])
    return found


def disks() -> list[dict[str, Any]]:
    rows, seen = [], set()
    for line in read(PROC / "self" / "mounts").splitlines():
        device, place, kind, *_ = line.split(" ")
        place = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), place)
        if kind in IGNORED and place != "/" or not (device.startswith("/") or place == "/") or not Path(place).is_dir():
            continue
        try:
            found, device_number = os.statvfs(place), Path(place).stat().st_dev
        except OSError:
            continue
        if not found.f_blocks or device_number in seen:
            continue
        seen.add(device_number)
        usable = found.f_blocks - found.f_bfree + found.f_bavail
        inodes = round(100 * (1 - found.f_ffree / found.f_files)) if found.f_files else 0
        rows.append(
            {
                "place": place,
                "total": found.f_blocks * found.f_frsize,
                "free": found.f_bavail * found.f_frsize,
                "used_percent": round(100 * (1 - found.f_bavail / usable)) if usable else 100,
                "inodes_percent": inodes,
            }
        )
    return rows


def processor_times() -> tuple[int, int]:
    """Return the busy and the whole time of all processors, in ticks."""
    values = [int(value) for value in read(PROC / "stat").partition("\n")[0].split()[1:9]]
    if len(values) < 5:
        return 0, 1
    return sum(values) - values[3] - values[4], sum(values)


def process_times() -> dict[int, tuple[str, int, int, str]]:
    """Return name, processor ticks, resident bytes and state of every process."""
    found = {}
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            name, _, rest = read(folder / "stat").partition(") ")
            fields = rest.split()
            if len(fields) > 21:
                command = read(folder / "cmdline").replace("\0", " ").strip()
                label = "".join(char for char in (command or name.partition("(")[2]) if char.isprintable())[:100]
                resident = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
                found[int(folder.name)] = (label, int(fields[11]) + int(fields[12]), resident, fields[0])
    return found


def processes(seconds: float, count: int) -> tuple[float, list[dict[str, Any]]]:
    """Return the use of the processors, and the busiest processes, measured over some time."""
    busy, whole = processor_times()
    before = process_times()
    time.sleep(seconds)
    busy_later, whole_later = processor_times()
    rows = []
    for number, (label, ticks, resident, state) in process_times().items():
        used = ticks - before[number][1] if number in before else 0
        rows.append(
            {
                "pid": number,
                "cpu_percent": round(100 * used / TICKS / seconds, 1),
                "memory": resident,
                "state": state,
                "command": label,
            }
        )
    rows.sort(key=lambda row: (-row["cpu_percent"], -row["memory"]))
    use = 100 * (busy_later - busy) / max(1, whole_later - whole)
    return round(use, 1), rows[:count]


def ports() -> list[str]:
    """Return the addresses on which something listens; `*` stands for all."""
    found = set()
    for name in ("tcp", "tcp6"):
        for line in read(PROC / "net" / name).splitlines()[1:]:
            fields = line.split()
            if len(fields) > 3 and fields[3] == LISTENING:
                address, _, port = fields[1].partition(":")
                local = address == "0100007F" or address == "00000000000000000000000001000000"
                every = not address.strip("0")
                found.add((int(port, 16), "*" if every else "localhost" if local else "one address"))
    return [f"{where}:{port}" for port, where in sorted(found)]


def failed_services() -> list[str]:
    try:
        done = subprocess.run(
            ["systemctl", "list-units", "--failed", "--plain", "--no-legend", "--no-pager"],
            capture_output=True, text=True, timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.split()[0] for line in done.stdout.splitlines() if line.split()] if done.returncode == 0 else []


def problems(state: dict[str, Any], options: argparse.Namespace) -> Iterator[str]:
    per_processor = state["load"][1] / state["processors"]
    if per_processor > options.load:
        yield f"load {state['load'][1]:.1f} with {state['processors']} processors"
    if state["memory"]["used_percent"] > options.memory:
        yield f"{state['memory']['used_percent']} % of memory is used"
    for disk in state["disks"]:
        if disk["used_percent"] > options.disk:
            yield f"{disk['place']} is {disk['used_percent']} % full, {size(disk['free'])} are free"
        if disk["inodes_percent"] > options.disk:
            yield f"{disk['place']} has used {disk['inodes_percent']} % of its inodes"
    for kind, percent in state["pressure"].items():
        if percent > 30:
            yield f"tasks waited for {kind} {percent:.0f} % of the last minute"
    for name in state["failed_services"]:
        yield f"the service {name} has failed"


def size(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def collect(options: argparse.Namespace) -> dict[str, Any]:
    use, busiest = processes(options.seconds, options.processes)
    uptime = float(read(PROC / "uptime").partition(" ")[0] or 0)
    state: dict[str, Any] = {
        "uptime_hours": round(uptime / 3600, 1),
        "processors": os.cpu_count() or 1,
        "load": list(os.getloadavg()),
        "cpu_percent": use,
        "memory": memory(),
        "pressure": pressure(),
        "disks": disks(),
        "processes": busiest,
        "ports": ports(),
        "failed_services": failed_services(),
    }
    return state | {"problems": list(problems(state, options))}


def show(state: dict[str, Any]) -> str:
    used = state["memory"]
    load = " ".join(f"{value:.2f}" for value in state["load"])
    lines = [f"! {problem}" for problem in state["problems"]]
    lines += [
        f"up {state['uptime_hours']} h, load {load} on {state['processors']} processors, {state['cpu_percent']} % busy",
        f"memory {used['used_percent']} % used, {size(used['available'])} of {size(used['total'])} available, "
        f"swap {size(used['swap_used'])} used",
    ]
    lines += [
        f"disk {each['place']}  {each['used_percent']} % used, {size(each['free'])} of {size(each['total'])} free"
        for each in state["disks"]
    ]
    lines += [
        f"{each['pid']:>8}  {each['cpu_percent']:>5} %  {size(each['memory']):>9}  {each['command']}"
        for each in state["processes"]
    ]
    if state["ports"]:
        lines.append(f"listening: {', '.join(state['ports'])}")
    return "\n".join(lines)


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=5, help="how many processes to list (default: 5)")
    parser.add_argument("--seconds", type=float, default=1, help="how long to measure processes (default: 1)")
    parser.add_argument("--disk", type=float, default=90, help="critical use of a disk in percent (default: 90)")
    parser.add_argument("--memory", type=float, default=90, help="critical use of memory in percent (default: 90)")
    parser.add_argument("--load", type=float, default=2, help="critical load per processor (default: 2)")
    parser.add_argument("--problems", action="store_true", help="print only what is critical; status 1 if anything is")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    if not 0.05 <= options.seconds <= 60:
        parser.error("--seconds must be between 0.05 and 60")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    if not (PROC / "stat").exists():
        print("error: /proc is not there; this works on Linux only", file=sys.stderr)
        return 1
    state = collect(options)
    if options.problems:
        print(json.dumps(state["problems"]) if options.json else "\n".join(state["problems"]) or "Nothing is critical.")
        return int(bool(state["problems"]))
    print(json.dumps(state, indent=2) if options.json else show(state))
    return 0


if __name__ == "__main__":
    sys.exit(main())
