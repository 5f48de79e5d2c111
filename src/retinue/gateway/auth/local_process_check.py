"""Detect connections that a command of an agent opened on this machine.

A command without a sandbox runs as the owner's own user and can read the owner's token, so the token does not tell the
two apart. Their processes do: everything that a command starts is a descendant of its supervisor.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

PROC = Path("/proc")
_PARENT, _LOCAL, _REMOTE, _INODE = 1, 1, 2, 9
Address = tuple[str, int]


def is_agent_command(scope: Mapping[str, Any], supervisors: Collection[int]) -> bool:
    """Whether a descendant of one of these supervisors opened the connection with this ASGI scope.

    False if that cannot be determined: on other systems than Linux, or for a process whose files are not readable.
    """
    client, server = scope.get("client"), scope.get("server")
    if not supervisors or not client or not server or sys.platform != "linux":
        return False
    # The address does not matter: a machine can reach itself by any address, and only local sockets are listed.
    inode = find_inode((client[0], client[1]), (server[0], server[1]))
    return inode is not None and any(holds_socket(pid, inode) for pid in find_descendants(supervisors))


def find_inode(local: Address, remote: Address) -> str | None:
    """The inode of the socket with these two ends, from the kernel's tables."""
    wanted = (_format(local), _format(remote))
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (PROC / "net" / table).read_text("ascii").splitlines()[1:]:
                fields = line.split()
                if (_last_word(fields[_LOCAL]), _last_word(fields[_REMOTE])) == wanted:
                    return fields[_INODE]
    return None


def find_descendants(roots: Iterable[int]) -> set[int]:
    """The descendants of some processes, including these."""
    children: dict[int, list[int]] = {}
    for folder in PROC.glob("[0-9]*"):
        with suppress(OSError, ValueError):
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            children.setdefault(int(fields[_PARENT]), []).append(int(folder.name))
    found, fresh = set(roots), list(roots)
    while fresh:
        below = [pid for pid in children.get(fresh.pop(), ()) if pid not in found]
        found.update(below)
        fresh += below
    return found


def holds_socket(pid: int, inode: str) -> bool:
    """Whether a process has a socket open."""
    with suppress(OSError):
        for entry in (PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                if os.readlink(entry) == f"socket:[{inode}]":  # noqa: PTH115 - the target is not a path
                    return True
    return False


def _format(address: Address) -> str:
    """The last 32 bits and the port as the kernel writes them for both families, including mapped IPv4."""
    packed = ipaddress.ip_address(address[0]).packed[-4:]
    return f"{int.from_bytes(packed, sys.byteorder):08X}:{address[1]:04X}"


def _last_word(field: str) -> str:
    host, _, port = field.partition(":")
    return f"{host[-8:]}:{port}"
