"""How containers are asked for; and, where an engine runs, that they hold."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from retinue.core.keys import SessionKey
from retinue.sandbox.confinement import CommandStart, Confinement, SandboxFolders, make_confinement
from retinue.sandbox.docker import Docker, refuse_bind, refuse_network
from retinue.sandbox.sandboxes import BackedSandbox
from retinue.sandbox.settings import SandboxSettings
from retinue.structs.decode import decode
from tests.sandbox.arena import open_arena

HOME = Path("/home/ada/.retinue")
MAIN = SessionKey.parse("agent:main:main")


def make(docker: dict[str, Any] | None = None, **values: Any) -> tuple[Docker, Confinement]:
    settings = decode(SandboxSettings, {"mode": "all", "workspaceAccess": "rw", **values, "docker": docker or {}})
    confinement = make_confinement(settings, MAIN, SandboxFolders(HOME, HOME / "workspace", (Path("/opt/skills"),)))
    return Installed(
        settings.docker, HOME, {"DOCKER_HOST": "tcp://engine", "SECRET": "s", "HOME": "/home/ada"}
    ), confinement


class Installed(Docker, frozen=True):
    """A client that is there, whatever this machine has."""

    program = "/usr/bin/docker"


def options(docker: dict[str, Any] | None = None, **values: Any) -> list[str]:
    backend, confinement = make(docker, **values)
    return list(backend.wrap(confinement, CommandStart("src", {"LANG": "C", "PATH": "/x", "HOME": "/y"})).options)


def given(words: list[str], option: str) -> list[str]:
    return [words[at + 1] for at, word in enumerate(words) if word == option]


def test_a_container_is_closed_by_default() -> None:
    words = options()
    assert words[:6] == ["run", "--rm", "--init", "--interactive", "--pull", "never"]
    assert given(words, "--network") == ["none"]
    assert given(words, "--cap-drop") == ["ALL"]
    assert given(words, "--security-opt") == ["no-new-privileges"]
    assert "--read-only" in words
    assert given(words, "--tmpfs") == ["/tmp", "/var/tmp", "/run"]
    assert given(words, "--user") == [f"{os.getuid()}:{os.getgid()}"]
    assert given(words, "--pids-limit") == ["512"]
    assert given(words, "--memory") == [str(8 * 2**30)]
    assert given(words, "--ulimit") == [f"fsize={2**30}", "nofile=1024", "core=0"]
    assert given(words, "--workdir") == ["/workspace/src"]
    assert words[-1] == "retinue-sandbox:bookworm-slim"


def test_only_the_workspace_and_what_is_shown_are_mounted() -> None:
    assert given(options(), "--mount") == [
        f"type=bind,source={HOME}/workspace,target=/workspace",
        "type=bind,source=/opt/skills,target=/opt/skills,readonly",
    ]
    assert given(options(workspaceAccess="ro"), "--mount")[0].endswith("target=/workspace,readonly")
    assert f"source={HOME}/sandboxes/agent-main/work," in given(options(workspaceAccess="none"), "--mount")[0]


@pytest.mark.parametrize(
    ("setup", "code", "printed", "told"),
    [
        ("echo set up; touch made", 0, "ran with a word\n", "set up\n"),
        ("echo oops # why\nfalse", 125, "", "oops\nsandbox.docker.setupCommand failed\n"),
        ("cat", 0, "ran with a word\n", ""),
    ],
)
def test_a_setup_command_comes_before_the_program(
    tmp_path: Path, setup: str, code: int, printed: str, told: str
) -> None:
    """The words behind the image are what the container runs; a shell of this machine runs them here."""
    words = options({"image": "mine:1", "setupCommand": setup})
    inner = words[words.index("mine:1") + 1 :]
    argv = [*inner, "/bin/sh", "-c", 'echo "ran with $1"', "sh", "a word"]
    ran = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False, input="not for the setup")
    assert (ran.returncode, ran.stdout, ran.stderr) == (code, printed, told)
    assert (tmp_path / "made").exists() is ("touch" in setup)


def test_every_setting_is_applied() -> None:
    words = options(
        {
            "image": "mine:1",
            "containerPrefix": "box-",
            "workdir": "/w",
            "network": "restricted",
            "readOnlyRoot": False,
            "tmpfs": ["/scratch"],
            "capDrop": ["NET_RAW", "SYS_ADMIN"],
            "user": "1000:1000",
            "env": {"MODE": "test"},
            "binds": ["/srv/data:/data:ro"],
            "pidsLimit": 10,
            "memory": "1g",
            "memorySwap": "2g",
            "cpus": 1.5,
            "ulimits": {"nofile": {"soft": 10, "hard": 20}, "nproc": 5},
            "seccompProfile": "/etc/filter.json",
            "apparmorProfile": "strict",
            "dns": ["9.9.9.9"],
            "extraHosts": ["db:10.0.0.1"],
        }
    )
    assert words[-1] == "mine:1"
    assert given(words, "--name") == ["box-agent-main-{serial}"]
    assert given(words, "--workdir") == ["/w/src"]
    assert "--read-only" not in words
    expected = {
        "--network": ["restricted"],
        "--tmpfs": ["/scratch"],
        "--cap-drop": ["NET_RAW", "SYS_ADMIN"],
        "--user": ["1000:1000"],
        "--env": ["LANG", "MODE"],
        "--volume": ["/srv/data:/data:ro"],
        "--pids-limit": ["10"],
        "--memory": ["1g"],
        "--memory-swap": ["2g"],
        "--cpus": ["1.5"],
        "--ulimit": [f"fsize={2**30}", "nofile=10:20", "core=0", "nproc=5"],
        "--security-opt": ["no-new-privileges", "seccomp=/etc/filter.json", "apparmor=strict"],
        "--dns": ["9.9.9.9"],
        "--add-host": ["db:10.0.0.1"],
    }
    assert {option: given(words, option) for option in expected} == expected


def test_variables_reach_the_container_by_name_and_the_client_keeps_its_own() -> None:
    backend, confinement = make({"env": {"TOKEN": "secret-value"}})
    wrapping = backend.wrap(confinement, CommandStart(".", {"LANG": "C"}))
    assert "secret-value" not in " ".join(wrapping.options), "other users can read the words of a command"
    assert wrapping.environment == {
        "DOCKER_HOST": "tcp://engine",
        "HOME": "/home/ada",
        "LANG": "C",
        "TOKEN": "secret-value",
    }
    assert given(list(wrapping.options), "--env") == ["LANG", "TOKEN"]


@pytest.mark.parametrize("network", ["host", "container:other", "ns:/proc/1/ns/net"])
def test_a_foreign_network_is_refused(network: str) -> None:
    assert refuse_network(network) is not None
    backend, confinement = make({"network": network})
    assert "not the sandbox's own" in str(backend.find_problem(confinement))


@pytest.mark.parametrize(
    "bind",
    [
        *("/:/host", "/etc:/etc:ro", "/proc:/p", "/sys:/s", "/dev:/d", "/root/.ssh:/k", "/run:/r", "/boot:/b"),
        *("/var/run/docker.sock:/s", "/srv/docker.sock:/s", "relative:/x", f"{HOME}:/h", f"{HOME}/credentials:/c"),
        *("/home/ada:/a", "/home:/h", "/srv/../etc:/e"),
    ],
)
def test_dangerous_binds_are_refused(bind: str) -> None:
    assert refuse_bind(bind, HOME) is not None
    backend, confinement = make({"binds": ["/srv/data:/data", bind]})
    assert "sandbox.docker.binds" in str(backend.find_problem(confinement))


def test_an_ordinary_bind_is_fine() -> None:
    backend, confinement = make({"binds": ["/srv/data:/data:ro"]})
    assert backend.find_problem(confinement) is None


def test_the_proxy_is_not_for_containers() -> None:
    backend, confinement = make(network="proxy")
    assert "sandbox.docker.network" in str(backend.find_problem(confinement))


STUB = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
[ "$1" = run ] && echo "from the container: $GREETING"
exit 0
"""


def test_containers_are_named_apart_and_removed_at_the_end() -> None:
    with open_arena(os.getuid()) as arena:
        program = arena.base / "docker"
        program.write_text(STUB)
        program.chmod(0o755)
        values = {"mode": "all", "backend": "docker", "docker": {"env": {"GREETING": "hello"}}}
        settings = decode(SandboxSettings, values)
        sandboxes = arena.sandboxes()
        confinement = sandboxes.confinement_of(MAIN)
        sandboxes.open(confinement, MAIN)
        backend = type("Stub", (Docker,), {"program": str(program)})(settings.docker, arena.home)
        done = arena.run_steps(BackedSandbox(confinement, backend), [[";", [["/bin/a"], ["/bin/b", "x"]], []]])
        *runs, removal = (arena.base / "calls").read_text().splitlines()
    assert done.stdout == "from the container: hello\n"
    names = [given(line.split(), "--name")[0] for line in runs]
    assert len(set(names)) == 2
    assert all(name.startswith("retinue-agent-main-") for name in names)
    assert sorted(line.split("bookworm-slim ")[1] for line in runs) == ["/bin/a", "/bin/b x"]
    assert removal.split()[:2] == ["rm", "--force"]
    assert sorted(removal.split()[2:]) == sorted(names)


def engine_works() -> bool:
    program = shutil.which("docker")
    if program is None:
        return False
    return subprocess.run([program, "info"], capture_output=True, timeout=20, check=False).returncode == 0


@pytest.mark.slow
def test_a_real_container_sees_the_workspace_alone(tmp_path: Path) -> None:
    if not engine_works():
        pytest.skip("no docker engine runs here")
    image = os.environ.get("RETINUE_TEST_IMAGE", "busybox:latest")
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace/note.txt").write_text("hello")
    values = {"mode": "all", "workspaceAccess": "ro", "backend": "docker", "docker": {"image": image}}
    settings = decode(SandboxSettings, values)
    confinement = make_confinement(settings, MAIN, SandboxFolders(tmp_path, tmp_path / "workspace"))
    wrapping = Docker(settings.docker, tmp_path, dict(os.environ)).wrap(confinement, CommandStart())
    words = [option.replace("{serial}", str(os.getpid())) for option in wrapping.options]
    script = "cat note.txt; touch note.txt 2>/dev/null || echo held; ls /sys/class/net"
    done = subprocess.run(
        [wrapping.program, *words, "sh", "-c", script], env=dict(wrapping.environment), capture_output=True, text=True
    )
    assert done.stdout.split() == ["helloheld", "lo"], done.stderr
