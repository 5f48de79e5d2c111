"""Reaching the machine through the kernel's files."""

from __future__ import annotations

import contextlib
import os
from functools import partial
from pathlib import Path

from tests.sandbox.probes.attempts import Facts, attempt, did, probe, read


@probe
def configure_the_kernel(facts: Facts) -> str | None:
    pattern = Path("/proc/sys/kernel/core_pattern")
    return attempt(
        lambda: pattern.write_text(pattern.read_text()),
        lambda: Path("/proc/sys/kernel/hostname").write_text("probe"),
        lambda: Path("/proc/sys/vm/drop_caches").write_text("1"),
        lambda: Path("/proc/sysrq-trigger").write_text("h"),
        lambda: Path("/proc/self/oom_score_adj").write_text("-1000"),
    )


@probe
def look_into_the_hosts_processes(facts: Facts) -> str | None:
    def marked(name: str) -> str | None:
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if facts["marker"] in (folder / name).read_bytes().decode("latin-1"):
                    return str(folder)
        return None

    return attempt(lambda: marked("environ"), lambda: marked("cmdline"), lambda: marked("comm"))


@probe
def reach_the_host_through_proc(facts: Facts) -> str | None:
    pids = ("1", str(facts["pid"]), "self", str(os.getppid()))
    doors = [
        f"/proc/{pid}/{door}{facts['home']}/credentials/token" for pid in pids for door in ("root", "cwd/../../..")
    ]
    return attempt(*(lambda door=door: read(door) for door in doors))


@probe
def read_the_hosts_descriptors(facts: Facts) -> str | None:
    return attempt(
        lambda: os.listdir(f"/proc/{facts['pid']}/fd") or None,  # noqa: PTH208
        lambda: read(f"/proc/{facts['pid']}/maps"),
        lambda: read(f"/proc/{facts['pid']}/mem"),
    )


@probe
def read_the_kernels_secrets(facts: Facts) -> str | None:
    def secret(name: str) -> str | None:
        return read(f"/proc/{name}").strip() or None

    names = ("kcore", "kmsg", "keys", "kallsyms", "timer_list", "slabinfo", "vmallocinfo")
    return attempt(*(partial(secret, name) for name in names))


@probe
def use_sysfs(facts: Facts) -> str | None:
    return attempt(
        lambda: os.listdir("/sys") or None,  # noqa: PTH208
        lambda: Path("/sys/power/state").write_text("x"),
        lambda: read("/sys/kernel/uevent_helper"),
    )


@probe
def make_a_control_group(facts: Facts) -> str | None:
    places = ("/sys/fs/cgroup", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory")
    return attempt(*(did(place, Path(place, "probe").mkdir) for place in places))


@probe
def open_devices(facts: Facts) -> str | None:
    names = (
        "mem",
        "kmem",
        "port",
        "kmsg",
        "vda",
        "sda",
        "nvme0n1",
        "loop0",
        "fuse",
        "kvm",
        "vhost-net",
        "tty1",
        "console",
    )
    return attempt(*(lambda name=name: os.open(f"/dev/{name}", os.O_RDWR | os.O_NONBLOCK) and name for name in names))


@probe
def make_a_device(facts: Facts) -> str | None:
    return attempt(
        did("block device", os.mknod, "block", 0o60666, os.makedev(254, 0)),
        did("memory device", os.mknod, "/tmp/mem", 0o20666, os.makedev(1, 1)),
    )
