"""A home full of secrets, listeners of the host, and a way to run programs in sandboxes among them."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import retinue
from retinue.core.keys import AgentId, SessionKey
from retinue.sandbox.confinement import Confinement
from retinue.sandbox.sandboxes import BackedSandbox, Sandboxes
from retinue.sandbox.settings import SandboxSettings
from retinue.structs.decode import decode
from retinue.toolkit.processes import supervisor

MARKER = "planted-secret-7f3a"
NOBODY = 65534
SYSTEM_PYTHON = "/usr/bin/python3"
SESSION = SessionKey.main(AgentId("main"))
NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)
MB = 2**20
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
LIMITS = {"memory": "512mb", "processes": 64, "fileSize": "16mb", "openFiles": 256}


@dataclass
class Arena:
    """A home and its agent, owned by the user that the sandboxes run as."""

    base: Path
    uid: int
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.base / "home"

    @property
    def workspace(self) -> Path:
        return self.home / "workspace"

    def sandboxes(self, **settings: Any) -> Sandboxes:
        chosen = decode(SandboxSettings, {"mode": "all", "workspaceAccess": "rw", "limits": LIMITS, **settings})
        return Sandboxes(self.home, lambda agent: chosen, lambda agent: self.workspace, lambda: NOW)

    def enter(self, **settings: Any) -> BackedSandbox:
        """A sandbox of the main session, its folders given to the user that will run in it."""
        sandboxes = self.sandboxes(**settings)
        confinement = sandboxes.confine(SESSION)
        assert confinement is not None
        skip_without(sandboxes, confinement)
        enclosure = sandboxes.with_backend(confinement, SESSION)
        sandboxes.open(confinement, SESSION)
        own(self.home, self.uid)
        return enclosure

    def run(self, enclosure: BackedSandbox | None, *argv: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """Run one program under the supervisor, as commands do; without an enclosure unconfined."""
        return self.run_steps(enclosure, [[";", [list(argv)], []]], seconds=seconds)

    def run_steps(
        self, enclosure: BackedSandbox | None, steps: list[Any], *, seconds: float = 60
    ) -> subprocess.CompletedProcess[str]:
        package = str(Path(retinue.__file__).parent.parent)
        wrapping = None if enclosure is None else enclosure.wrap(ENVIRONMENT)
        feeds = () if wrapping is None else wrapping.feeds
        sandbox = None if wrapping is None else wrapping.plan()
        folder = enclosure.confinement.folder if enclosure is not None else self.workspace
        with ExitStack() as stack:
            outside = {"PATH": "/usr/bin:/bin", "PLANTED": MARKER}
            plan = {"steps": steps, "grace": 1.0, "environment": outside, "sandbox": sandbox}
            numbers = supervisor.store_plan(plan, feeds), os.open(folder, os.O_RDONLY)
            for number in numbers:
                stack.callback(os.close, number)
            # the interpreter of the tests may lie in a folder that another user cannot enter
            python = sys.executable if self.uid == os.getuid() else SYSTEM_PYTHON
            other: dict[str, Any] = {"user": self.uid, "group": self.uid, "extra_groups": []}
            return subprocess.run(
                [python, "-I", "-S", "-X", "utf8", supervisor.__file__, "run", *map(str, numbers), package],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env=outside,
                start_new_session=True,
                pass_fds=numbers,
                timeout=seconds,
                check=False,
                **({} if self.uid == os.getuid() else other),
            )

    def probe(self, enclosure: BackedSandbox | None, *names: str) -> dict[str, str]:
        """What attempts say of themselves, all made in one sandbox; the last may end the program that makes them."""
        facts = str(self.workspace / "facts.json")
        made = self.run(enclosure, SYSTEM_PYTHON, "-B", "-m", "tests.sandbox.probes", facts, *names, seconds=240)
        lines = (line.partition("\t") for line in made.stdout.splitlines())
        return {name: told for name, tab, told in lines if tab}


def skip_without(sandboxes: Sandboxes, confinement: Confinement) -> None:
    """Skip a test on a machine that cannot enforce the sandbox it is about, and say why."""
    choice = sandboxes.choose(confinement, SESSION)
    if choice.backend is None:
        pytest.skip("; ".join(f"{candidate.name}: {candidate.problem}" for candidate in choice.candidates))


def own(folder: Path, uid: int) -> None:
    if uid != os.getuid():
        for path in (folder, *folder.rglob("*")):
            os.chown(path, uid, uid, follow_symlinks=False)


@contextmanager
def open_arena(uid: int) -> Iterator[Arena]:
    """Everything that a sandboxed program must not reach, within its reach if it were not confined."""
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp", prefix="retinue-")))
        base.chmod(0o755)
        arena = Arena(base.resolve(), uid)
        _plant(arena)
        arena.facts = {
            "home": str(arena.home),
            "user": str(arena.base / "user"),
            "temporary": str(arena.base / "temporary.txt"),
            "marker": MARKER,
            "other_uid": 12_345,
            "memory": 512 * MB,
            "processes": LIMITS["processes"],
            "file_size": 16 * MB,
            **_listen(arena, stack),
            **_linger(arena, stack),
        }
        (arena.workspace / "facts.json").write_text(json.dumps(arena.facts))
        own(arena.base, uid)
        yield arena


def _plant(arena: Arena) -> None:
    secrets = {
        "home/retinue.json": "{}",
        "home/state.sqlite": "x",
        "home/credentials/token": MARKER,
        "home/workspace-other/secret.txt": MARKER,
        "home/sandboxes/agent-other/tmp/secret.txt": MARKER,
        "home/victim.txt": "untouched",
        "home/workspace/notes.txt": "mine\n",
        "user/.ssh/id_ed25519": MARKER,
        "user/.aws/credentials": MARKER,
        "user/.bash_history": MARKER,
        "user/.gnupg/private.key": MARKER,
        "user/tool.sh": f"#!/bin/sh\necho {MARKER}\n",
        "temporary.txt": MARKER,
    }
    for name, text in secrets.items():
        path = arena.base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (arena.base / "user/tool.sh").chmod(0o755)
    package = arena.workspace / "tests/sandbox"
    shutil.copytree(
        Path(__file__).with_name("probes"), package / "probes", ignore=shutil.ignore_patterns("__pycache__")
    )
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()


def _listen(arena: Arena, stack: ExitStack) -> dict[str, Any]:
    """Listeners that answer everybody who reaches them."""
    tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    path, abstract = str(arena.base / "host.sock"), f"\0{arena.base.name}"
    unix = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2)]
    for listener, address in zip(unix, (path, abstract), strict=True):
        listener.bind(address)
        listener.listen()
    Path(path).chmod(0o777)
    udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    udp.bind(("127.0.0.1", 0))
    threads = [threading.Thread(target=_greet, args=(each,), daemon=True) for each in (tcp, *unix)]
    threads.append(threading.Thread(target=_echo, args=(udp,), daemon=True))
    for thread in threads:
        thread.start()
    for each in (tcp, *unix, udp):
        stack.callback(_shut, each)
    return {"tcp": tcp.getsockname()[1], "udp": udp.getsockname()[1], "unix": path, "abstract": abstract}


def _shut(listener: socket.socket) -> None:
    try:
        listener.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


def _greet(listener: socket.socket) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        with client, suppress(OSError):  # it may not wait for the answer
            client.recv(100)
            client.sendall(MARKER.encode())


def _echo(listener: socket.socket) -> None:
    while True:
        try:
            data, address = listener.recvfrom(100)
        except OSError:
            return
        if not data:
            return
        listener.sendto(MARKER.encode(), address)


def _linger(arena: Arena, stack: ExitStack) -> dict[str, Any]:
    """A process of the same user outside, with a secret in its memory, and a piece of memory that it shares."""
    key = 0x7E71_0000 + os.getpid() % 0xFFFF
    script = (
        "import ctypes, sys\n"
        "libc = ctypes.CDLL(None); libc.shmat.restype = ctypes.c_void_p\n"
        f"segment = libc.shmget({key}, 4096, 0o1600)\n"
        f"place = libc.shmat(segment, None, 0); ctypes.memmove(place, b'{MARKER}', {len(MARKER)})\n"
        "print('ready', segment, flush=True); sys.stdin.read()\n"
    )
    other: dict[str, Any] = {"user": arena.uid, "group": arena.uid, "extra_groups": []}
    process = subprocess.Popen(
        [SYSTEM_PYTHON, "-I", "-c", script, MARKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"PLANTED": MARKER},
        **({} if arena.uid == os.getuid() else other),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stack.enter_context(process)
    stack.callback(process.kill)  # it may have been stopped by an attempt to trace it
    ready, segment = process.stdout.readline().split()
    assert ready == b"ready"
    stack.callback(ctypes.CDLL(None).shmctl, int(segment), 0, None)
    return {"pid": process.pid, "shm": key}
