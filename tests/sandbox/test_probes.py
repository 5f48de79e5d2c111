"""Attempts to get out, each a real command in a real sandbox: none succeeds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from retinue.sandbox import landlock
from retinue.sandbox.confinement import VisiblePart
from retinue.sandbox.process_restrictions import landlock_version
from retinue.sandbox.sandboxes import BackedSandbox
from retinue.storage.files.file_info import FolderIdentity
from tests.sandbox.arena import NOBODY, SYSTEM_PYTHON, Arena, open_arena
from tests.sandbox.probes.catalogue import PROBES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.access(SYSTEM_PYTHON, os.X_OK), reason="the attempts are run by the system's Python"),
]

USERS = [
    pytest.param(os.getuid(), id="as-the-user"),
    *([pytest.param(NOBODY, id="as-nobody")] if os.getuid() == 0 else []),
]

ENDS_ALL = "start_too_many_processes"
"""An attempt for which the supervisor may end everything, where the kernel does not hold it."""

WORKS_UNCONFINED = (
    *("read_the_configuration", "read_credentials", "read_the_state_database", "list_the_home"),
    *("read_another_agents_workspace", "read_another_sandboxes_files", "read_the_users_keys"),
    *("read_the_hosts_temporary_files", "climb_out_by_dots", "climb_out_by_a_link", "climb_out_by_a_hard_link"),
    *("change_the_hosts_files", "watch_the_hosts_folders", "look_into_the_hosts_processes"),
    *("reach_the_host_through_proc", "read_the_hosts_descriptors", "use_sysfs"),
    *("connect_to_the_hosts_loopback", "send_datagrams_to_the_host", "connect_to_a_unix_socket"),
    *("connect_to_an_abstract_socket", "trace_itself", "read_the_hosts_memory"),
    *("read_cloud_credentials", "read_the_shells_history", "read_the_keyring_of_gnupg"),
    *("read_the_environment_of_the_host", "write_into_another_workspace"),
    *("run_a_program_of_the_home", "use_the_services_of_the_host", "make_a_program_of_another_user"),
    *("truncate_the_hosts_files", "signal_everybody"),
    *("take_a_descriptor_from_the_host", "change_the_hosts_limits", "share_memory_with_the_host"),
    *("use_the_keyring", "change_the_personality", "start_too_many_processes", "use_too_much_memory", "write_too_much"),
    *("gain_privileges_by_a_program", "find_secrets_in_the_environment", "kill_the_host", "trace_the_host"),
)
"""Attempts that are sure to succeed where nothing confines them, and do no harm: they show that the others mean it."""


@pytest.fixture(scope="module", params=USERS)
def arena(request: pytest.FixtureRequest) -> Iterator[Arena]:
    with open_arena(request.param) as opened:
        yield opened


@pytest.fixture(scope="module", params=["bubblewrap", "landlock", "landlock-1"])
def enclosure(arena: Arena, request: pytest.FixtureRequest) -> Iterator[BackedSandbox]:
    backend, _, version = request.param.partition("-")
    with pytest.MonkeyPatch.context() as patch:
        if version:
            only_version(patch, int(version))
        yield arena.enter(backend=backend)


def only_version(patch: pytest.MonkeyPatch, version: int) -> None:
    """Let landlock have the abilities of an older kernel; newer kernels still offer them."""
    if landlock_version() < version:
        pytest.skip(f"the kernel has no landlock {version}")
    patch.setattr(landlock, "landlock_version", lambda: version)


def test_there_are_at_least_a_hundred_attempts() -> None:
    assert len(PROBES) >= 100


def test_no_attempt_succeeds(arena: Arena, enclosure: BackedSandbox) -> None:
    names = [name for name in PROBES if name != ENDS_ALL]
    told = arena.probe(enclosure, *names)
    assert list(told) == names
    assert {name: what for name, what in told.items() if not what.startswith(("held", "killed"))} == {}
    assert "ESCAPED" not in arena.probe(enclosure, ENDS_ALL).get(ENDS_ALL, "")


def test_the_attempts_are_real() -> None:
    with open_arena(os.getuid()) as fresh:
        told = fresh.probe(None, *WORKS_UNCONFINED)
    assert [name for name in WORKS_UNCONFINED if "ESCAPED" not in told.get(name, "")] == []


def test_nothing_of_the_host_was_changed(arena: Arena, enclosure: BackedSandbox) -> None:
    arena.probe(enclosure, "change_the_hosts_files")
    victim = arena.home / "victim.txt"
    found = victim.stat()
    assert victim.read_text() == "untouched"
    assert (found.st_mode & 0o777, found.st_uid) == (0o644, arena.uid)
    assert found.st_mtime > 1000
    assert not (arena.home / "made").exists()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_no_version_of_landlock_lets_a_program_truncate_what_it_may_only_read(
    arena: Arena, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_version(monkeypatch, version)
    notes = arena.workspace / "notes.txt"
    kept = notes.read_text()
    for access in ("ro", "rw"):
        ran = arena.run(
            arena.enter(backend="landlock", workspaceAccess=access), SYSTEM_PYTHON, "-c", TRUNCATE, str(notes)
        )
        truncated = ran.stdout.split()
        assert (truncated == []) is (access == "ro"), ran.stdout
        assert bool(notes.read_text()) is (access == "ro")
    notes.write_text(kept)


TRUNCATE = """
import os, sys
ways = {"truncate": lambda path: os.truncate(path, 0)}
ways |= {f"flags{flags}": lambda path, flags=flags: os.open(path, flags | os.O_TRUNC) for flags in range(4)}
for name, way in ways.items():
    try:
        way(sys.argv[1])
    except PermissionError:
        continue
    print(name)
"""


def test_no_process_is_left_of_a_flood(arena: Arena, enclosure: BackedSandbox) -> None:
    arena.probe(enclosure, "start_too_many_processes")
    left = [
        folder
        for folder in Path("/proc").glob("[0-9]*")
        if str(arena.workspace / "facts.json").encode() in _read(folder / "cmdline").split(b"\0")
    ]
    assert left == []


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_part_of_the_folder_is_all_that_is_seen_and_must_be_the_one_that_was_meant(
    arena: Arena, enclosure: BackedSandbox
) -> None:
    path = arena.workspace / "tests"
    found = path.stat()

    def see(place: FolderIdentity, *argv: str) -> str:
        kept = enclosure.confinement.keep_to(VisiblePart(path, place))
        return arena.run(replace(enclosure, confinement=kept, below="tests"), *argv).stdout

    right, wrong = FolderIdentity(found.st_dev, found.st_ino), FolderIdentity(found.st_dev, found.st_ino + 1)
    assert "__init__.py" in see(right, "/usr/bin/ls", str(path))
    assert "notes.txt" not in see(right, "/usr/bin/ls", str(arena.workspace))
    assert "mine" not in see(right, "/usr/bin/cat", str(arena.workspace / "notes.txt"))
    assert "mine" in arena.run(enclosure, "/usr/bin/cat", str(arena.workspace / "notes.txt")).stdout
    refused = see(wrong, "/usr/bin/ls", str(path))
    assert "was replaced by another one" in refused
    assert "__init__.py" not in refused
