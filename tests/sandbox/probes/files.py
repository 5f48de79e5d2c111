"""Reaching files of the host."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

from tests.sandbox.probes.attempts import Facts, attempt, call, did, probe, read


@probe
def read_the_configuration(facts: Facts) -> str | None:
    return attempt(lambda: read(f"{facts['home']}/retinue.json"))


@probe
def read_credentials(facts: Facts) -> str | None:
    return attempt(lambda: read(f"{facts['home']}/credentials/token"))


@probe
def read_the_state_database(facts: Facts) -> str | None:
    return attempt(lambda: read(f"{facts['home']}/state.sqlite"))


@probe
def list_the_home(facts: Facts) -> str | None:
    wanted = {"retinue.json", "credentials", "state.sqlite"}
    return attempt(lambda: sorted(wanted & set(os.listdir(facts["home"]))) or None)  # noqa: PTH208


@probe
def read_another_agents_workspace(facts: Facts) -> str | None:
    return attempt(lambda: read(f"{facts['home']}/workspace-other/secret.txt"))


@probe
def read_another_sandboxes_files(facts: Facts) -> str | None:
    return attempt(lambda: read(f"{facts['home']}/sandboxes/agent-other/tmp/secret.txt"))


@probe
def read_the_users_keys(facts: Facts) -> str | None:
    return attempt(lambda: read(f"{facts['user']}/.ssh/id_ed25519"), lambda: read("/root/.ssh/id_ed25519"))


@probe
def list_other_peoples_homes(facts: Facts) -> str | None:
    return attempt(
        lambda: [name for name in os.listdir("/root") if name] or None,  # noqa: PTH208
        lambda: [name for name in os.listdir("/home") if name != "agent"] or None,  # noqa: PTH208
    )


@probe
def read_the_hosts_temporary_files(facts: Facts) -> str | None:
    return attempt(lambda: read(facts["temporary"]))


@probe
def read_password_hashes(facts: Facts) -> str | None:
    return attempt(lambda: read("/etc/shadow"), lambda: read("/etc/gshadow"), lambda: read("/etc/ssh/ssh_config"))


@probe
def climb_out_by_dots(facts: Facts) -> str | None:
    return attempt(
        lambda: read("../retinue.json"),
        lambda: read("../../home/credentials/token"),
        lambda: read(f"/usr/..{facts['home']}/credentials/token"),
        lambda: read("/proc/self/cwd/../credentials/token"),
    )


@probe
def climb_out_by_a_link(facts: Facts) -> str | None:
    link = Path("link")
    link.unlink(missing_ok=True)
    link.symlink_to(f"{facts['home']}/credentials")
    return attempt(lambda: read("link/token"))


@probe
def climb_out_by_a_hard_link(facts: Facts) -> str | None:
    def link() -> str:
        os.link(f"{facts['home']}/credentials/token", "hard")
        return read("hard")

    return attempt(link)


@probe
def change_the_hosts_files(facts: Facts) -> str | None:
    victim = f"{facts['home']}/victim.txt"
    return attempt(
        lambda: Path(victim).write_text("changed"),
        did("truncated", os.truncate, victim, 0),
        lambda: os.open(victim, os.O_RDONLY | os.O_TRUNC),
        did("removed", Path(victim).unlink),
        lambda: Path(victim).rename("stolen"),
        lambda: _change_mode(victim, 0o777),
        did("owner changed", os.chown, victim, os.getuid(), os.getgid()),
        did("time changed", os.utime, victim, (1, 1)),
        did("attribute changed", os.setxattr, victim, "user.x", b"1"),
        did("folder made", Path(facts["home"], "made").mkdir),
    )


@probe
def watch_the_hosts_folders(facts: Facts) -> str | None:
    def watch() -> str:
        watcher = call(294, 26, 0)
        call(254, 27, watcher, f"{facts['home']}/credentials".encode(), 0x100)
        return "watching"

    return attempt(watch)


@probe
def find_a_file_by_its_handle(facts: Facts) -> str | None:
    handle = ctypes.create_string_buffer(struct.pack("=Ii", 128, 0) + bytes(128))
    mount = ctypes.c_int()

    def by_handle() -> str:
        call(303, 264, -100, b"/usr", handle, ctypes.byref(mount), 0)
        folder = os.open("/usr", os.O_RDONLY)
        return f"opened {call(304, 265, folder, handle, os.O_RDONLY)}"

    return attempt(by_handle)


@probe
def write_system_folders(facts: Facts) -> str | None:
    places = ("/usr/probe", "/usr/bin/probe", "/etc/probe", "/probe", "/dev/probe", "/bin/probe", "/lib/probe")
    return attempt(*(lambda place=place: Path(place).write_text("x") for place in places))


@probe
def change_permissions_of_programs(facts: Facts) -> str | None:
    def by_descriptor() -> bool:
        descriptor = os.open("/usr/bin/env", os.O_RDONLY)
        os.fchmod(descriptor, 0o4755)
        return os.fstat(descriptor).st_mode & 0o7777 == 0o4755

    return attempt(by_descriptor, lambda: _change_mode("/usr/bin/env", 0o4755))


def _change_mode(path: str, mode: int) -> bool:
    Path(path).chmod(mode)
    return Path(path).stat().st_mode & 0o7777 == mode
