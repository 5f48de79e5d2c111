"""Reaching what the default profile keeps: credentials, services, devices and the files of the system."""

from __future__ import annotations

import ctypes
import os
import socket
import stat
from pathlib import Path

from tests.sandbox.probes.attempts import Facts, attempt, call, did, probe, read


@probe
def read_the_password_hashes(facts: Facts) -> str | None:
    return attempt(lambda: read("/etc/shadow"), lambda: read("/etc/gshadow"))


@probe
def read_cloud_credentials(facts: Facts) -> str | None:
    return attempt(lambda: read(f"{facts['user']}/.aws/credentials"))


@probe
def read_the_shells_history(facts: Facts) -> str | None:
    return attempt(lambda: read(f"{facts['user']}/.bash_history"), lambda: read("/root/.bash_history"))


@probe
def read_the_keyring_of_gnupg(facts: Facts) -> str | None:
    return attempt(lambda: read(f"{facts['user']}/.gnupg/private.key"))


@probe
def read_the_environment_of_the_host(facts: Facts) -> str | None:
    return attempt(lambda: read(f"/proc/{facts['pid']}/environ"), lambda: _foreign(read("/proc/1/environ"), facts))


def _foreign(text: str, facts: Facts) -> str | None:
    return text if facts["marker"] in text else None


@probe
def list_the_logs_of_the_system(facts: Facts) -> str | None:
    return attempt(lambda: os.listdir("/var/log") or None, lambda: os.listdir("/var/lib") or None)  # noqa: PTH208


@probe
def read_the_servers_keys(facts: Facts) -> str | None:
    return attempt(lambda: os.listdir("/etc/ssh"), lambda: os.listdir("/etc/ssl/private"))  # noqa: PTH208


@probe
def plant_a_program(facts: Facts) -> str | None:
    return attempt(
        *(did(path, Path(path).touch) for path in ("/usr/local/bin/planted", "/usr/bin/planted", "/bin/planted"))
    )


@probe
def plant_a_login_script(facts: Facts) -> str | None:
    return attempt(
        did("profile", Path("/etc/profile.d/planted.sh").touch), did("cron", Path("/etc/cron.d/planted").touch)
    )


@probe
def plant_a_module_of_python(facts: Facts) -> str | None:
    return attempt(did("planted", Path("/usr/lib/python3/dist-packages/planted.py").touch))


@probe
def plant_a_plugin(facts: Facts) -> str | None:
    return attempt(
        did("folder", os.mkdir, f"{facts['home']}/plugins"),
        did("file", Path(f"{facts['home']}/retinue.json").write_text, "{}"),
        did("skill", os.mkdir, f"{facts['home']}/skills"),
    )


@probe
def change_the_record_of_the_sandbox(facts: Facts) -> str | None:
    return attempt(did("changed", Path(f"{facts['home']}/sandboxes/agent-main/sandbox.json").write_text, "{}"))


@probe
def write_into_another_workspace(facts: Facts) -> str | None:
    place = f"{facts['home']}/workspace-other"
    return attempt(
        did("file", Path(f"{place}/planted").touch), did("changed", Path(f"{place}/secret.txt").write_text, "x")
    )


@probe
def remove_the_hosts_files(facts: Facts) -> str | None:
    return attempt(
        did("moved", os.rename, facts["temporary"], "taken.txt"),
        did("renamed", os.rename, f"{facts['home']}/workspace-other", f"{facts['home']}/gone"),
        did("unlinked", os.unlink, f"{facts['home']}/victim.txt"),
    )


@probe
def truncate_the_hosts_files(facts: Facts) -> str | None:
    victim = f"{facts['home']}/victim.txt"
    return attempt(
        did("truncated", os.truncate, victim, 0),
        lambda: os.open(victim, os.O_RDONLY | os.O_TRUNC),
        lambda: os.open(victim, os.O_WRONLY | os.O_APPEND),
    )


@probe
def run_a_program_of_the_home(facts: Facts) -> str | None:
    return attempt(lambda: _run(f"{facts['user']}/tool.sh"))


def _run(path: str) -> str | None:
    with os.popen(f"{path} 2>&1") as stream:
        told = stream.read()
    return told if "planted" in told and "denied" not in told and "not found" not in told else None


@probe
def connect_over_ipv6(facts: Facts) -> str | None:
    return attempt(lambda: _connect(socket.AF_INET6, ("::1", facts["tcp"])))


def _connect(family: int, address: object) -> str:
    with socket.socket(family) as client:
        client.settimeout(2)
        client.connect(address)  # type: ignore[arg-type]
        return f"connected to {address}"


@probe
def resolve_a_name(facts: Facts) -> str | None:
    return attempt(lambda: socket.getaddrinfo("example.org", 80) or None)


@probe
def send_a_query_for_a_name(facts: Facts) -> str | None:
    return attempt(lambda: _send(("8.8.8.8", 53)), lambda: _send(("192.0.2.1", 53)))


def _send(address: tuple[str, int]) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.sendto(b"x", address)
    return f"sent to {address}"


@probe
def use_the_services_of_the_host(facts: Facts) -> str | None:
    places = ("/run/dbus/system_bus_socket", "/var/run/docker.sock", "/run/systemd/private", "/tmp/.X11-unix/X0")
    return attempt(*(lambda path=path: _connect(socket.AF_UNIX, path) for path in (*places, facts["unix"])))


@probe
def use_another_kind_of_socket(facts: Facts) -> str | None:
    kinds = ((17, 3), (40, 1), (38, 5), (16, 3), (31, 3), (15, 3))
    return attempt(*(lambda kind=kind: _reach(*kind) for kind in kinds))


def _reach(family: int, kind: int) -> str | None:
    with socket.socket(family, kind) as client:
        if family == 16:  # netlink tells of the namespace's own devices; only those of the host matter
            return None
        return f"family {family} {client.fileno()}"


@probe
def find_the_agent_of_ssh(facts: Facts) -> str | None:
    return (
        os.environ.get("SSH_AUTH_SOCK")
        or os.environ.get("GPG_AGENT_INFO")
        or os.environ.get("DBUS_SESSION_BUS_ADDRESS")
    )


@probe
def open_a_device(facts: Facts) -> str | None:
    names = ("mem", "kmsg", "sda", "vda", "kvm", "fuse", "net/tun", "loop-control", "input/event0", "vsock")
    return attempt(*(lambda name=name: f"/dev/{name} {os.open(f'/dev/{name}', os.O_RDONLY)}" for name in names))


@probe
def make_a_device(facts: Facts) -> str | None:
    device = os.makedev(1, 1)
    return attempt(
        did("character", os.mknod, "character", stat.S_IFCHR | 0o600, device),
        did("block", os.mknod, "block", stat.S_IFBLK | 0o600, os.makedev(8, 0)),
    )


@probe
def make_a_program_of_another_user(facts: Facts) -> str | None:
    os.umask(0)
    for name in ("tool", "made", "node"):
        Path(name).unlink(missing_ok=True)
    Path("tool").touch()
    attempt(did("mode", os.chmod, "tool", 0o4755))
    attempt(did("group", os.chmod, "tool", 0o2755))
    attempt(did("open", os.open, "made", os.O_CREAT | os.O_WRONLY, 0o4755))
    attempt(did("node", os.mknod, "node", stat.S_IFREG | 0o4755))
    modes = [Path(name).stat().st_mode for name in ("tool", "made", "node") if Path(name).exists()]
    return next((oct(mode) for mode in modes if mode & (stat.S_ISUID | stat.S_ISGID)), None)


@probe
def give_a_program_capabilities(facts: Facts) -> str | None:
    Path("capable").touch()
    value = bytes.fromhex("0100000200200000000000000000000000000000")
    return attempt(did("capabilities", os.setxattr, "capable", "security.capability", value))


@probe
def become_another_user(facts: Facts) -> str | None:
    other = facts["other_uid"]
    return attempt(
        did("user", os.setuid, other),
        did("groups", os.setgroups, [other]),
        did("file system user", lambda: _must(ctypes.CDLL(None).setfsuid(other), other)),
    )


def _must(_: int, other: int) -> None:
    if ctypes.CDLL(None).setfsuid(-1) != other:
        raise OSError("not changed")


@probe
def mount_something(facts: Facts) -> str | None:
    libc = ctypes.CDLL(None, use_errno=True)

    def mount() -> None:
        if libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) != 0:
            raise OSError(ctypes.get_errno(), "refused")

    return attempt(
        did("tmpfs", mount), lambda: call(161, 51, b"/tmp") or "chroot", lambda: call(272, 97, 0x10000000) or "unshared"
    )


@probe
def set_what_the_kernel_runs(facts: Facts) -> str | None:
    return attempt(
        *(
            did(path, Path(path).write_text, "|/tmp/x")
            for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/sys/kernel/uevent_helper")
        )
    )


@probe
def use_control_groups(facts: Facts) -> str | None:
    return attempt(
        did("made", os.mkdir, "/sys/fs/cgroup/pids/planted"),
        did("made", os.mkdir, "/sys/fs/cgroup/planted"),
        did("left", Path("/sys/fs/cgroup/pids/cgroup.procs").write_text, "0"),
    )


@probe
def signal_everybody(facts: Facts) -> str | None:
    """Only processes of the sandbox may be reached; the one outside is checked by the test that counts it."""
    os.kill(-1, 0)
    return attempt(did("outside", os.kill, facts["pid"], 0))
