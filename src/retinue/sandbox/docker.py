"""The docker and podman backends: every program runs in a container that is removed when it ends."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path, PurePosixPath

from msgspec import Struct, field

from retinue.sandbox.confinement import (
    BackendKind,
    BackendProblem,
    CommandStart,
    Confinement,
    LaunchPlan,
    Network,
    SandboxLevel,
    SandboxParts,
)
from retinue.sandbox.settings import DockerSettings

_CLIENT_VARIABLES = ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "CONTAINER_HOST", "XDG_RUNTIME_DIR", "HOME")
"""Variables that the client needs to find its engine; they are not passed to the container."""
_SYSTEM_PLACES = (
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib64",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/sys",
    "/var/run",
)
_ENGINE_SOCKETS = ("docker.sock", "podman.sock", "containerd.sock", "crio.sock")


class Docker(Struct, frozen=True, dict=True):
    """The client of a container engine; `name` is also the program's name.

    The engine mounts folders by path and does not report which ones it found, so it cannot show only a verified part.
    """

    settings: DockerSettings
    home: Path
    inherited: Mapping[str, str] = field(default_factory=dict)
    name: str = "docker"
    level: SandboxLevel = SandboxLevel.CONTAINER
    shows_parts: bool = False

    @cached_property
    def program(self) -> str | None:
        return shutil.which(self.name, path="/usr/local/bin:/usr/bin:/bin")

    def find_problem(self, confinement: Confinement) -> BackendProblem | None:
        """Return why containers cannot be used; the engine itself is contacted only when a command runs."""
        if self.program is None:
            return BackendProblem(f"the program `{self.name}` is not installed", f"Install {self.name}.")
        if confinement.network is Network.PROXY:
            return BackendProblem(
                "containers use sandbox.docker.network, not the proxy; set sandbox.network to off",
                "Set sandbox.network to off.",
            )
        if confinement.hidden:
            return BackendProblem(
                f"a container cannot hide {confinement.hidden[0]} inside a visible folder",
                "Move the workspace out of the folders that contain it.",
            )
        refused = refuse_network(self.settings.network) or next(
            (problem for bind in self.settings.binds if (problem := refuse_bind(bind, self.home))), None
        )
        return BackendProblem(refused, "Change the named setting.") if refused else None

    def reaches_network(self, confinement: Confinement) -> bool:
        """Return whether commands have any network."""
        return self.settings.network != "none"

    def wrap(self, confinement: Confinement, entry: CommandStart) -> LaunchPlan:
        """Return how to start a program in a new container."""
        assert self.program is not None
        client = {name: self.inherited[name] for name in _CLIENT_VARIABLES if name in self.inherited}
        variables = {**entry.environment, **self.settings.env}
        names = [name for name in variables if name not in ("HOME", "PATH", "TMPDIR", *_CLIENT_VARIABLES)]
        return LaunchPlan(
            kind=BackendKind.DOCKER,
            program=self.program,
            options=(
                *("run", "--rm", "--init", "--interactive", "--pull", "never"),
                *("--name", f"{self.settings.container_prefix}{confinement.name}-{{serial}}"),
                *("--workdir", str(PurePosixPath(self.settings.workdir, entry.below))),
                *describe_container(self.settings, confinement),
                # a name without a value is taken from the client's own variables, which other users cannot read
                *(word for name in names for word in ("--env", name)),
                self.settings.image,
                *prepare_container(self.settings.setup_command),
            ),
            environment={**client, **{name: variables[name] for name in names}},
            stamp=str(confinement.own / "sandbox.json"),
        )


def prepare_container(command: str | None) -> tuple[str, ...]:
    """Return the start command of a container: the setup command, whose failure fails the program, then the program."""
    if not command:
        return ()
    script = (
        f'{{ {command}\n}} </dev/null >&2 || {{ echo "sandbox.docker.setupCommand failed" >&2; exit 125; }}; exec "$@"'
    )
    return ("/bin/sh", "-c", script, "sh")


def describe_container(settings: DockerSettings, confinement: Confinement) -> Iterator[str]:
    """Yield the options that define a container and its permissions."""
    mode = "" if confinement.writable else ",readonly"
    yield from ("--network", settings.network, "--security-opt", "no-new-privileges")
    yield from ("--mount", f"type=bind,source={confinement.folder},target={settings.workdir}{mode}")
    for path in confinement.shown:
        yield from ("--mount", f"type=bind,source={path},target={path},readonly")
    for path in confinement.write_paths:
        yield from ("--mount", f"type=bind,source={path},target={path}")
    for bind in settings.binds:
        yield from ("--volume", bind)
    if settings.read_only_root:
        yield "--read-only"
    for folder in settings.tmpfs:
        yield from ("--tmpfs", folder)
    for capability in settings.cap_drop:
        yield from ("--cap-drop", capability)
    yield from ("--user", settings.user or f"{os.getuid()}:{os.getgid()}")
    yield from ("--pids-limit", str(settings.pids_limit or confinement.limits.processes))
    yield from ("--memory", str(settings.memory or confinement.limits.memory))
    if settings.memory_swap is not None:
        yield from ("--memory-swap", str(settings.memory_swap))
    if settings.cpus is not None:
        yield from ("--cpus", str(settings.cpus))
    yield from _ulimits(settings, confinement)
    if settings.seccomp_profile:
        yield from ("--security-opt", f"seccomp={Path(settings.seccomp_profile).expanduser()}")
    if settings.apparmor_profile:
        yield from ("--security-opt", f"apparmor={settings.apparmor_profile}")
    for server in settings.dns:
        yield from ("--dns", server)
    for host in settings.extra_hosts:
        yield from ("--add-host", host)


def _ulimits(settings: DockerSettings, confinement: Confinement) -> Iterator[str]:
    limits = confinement.limits
    wanted = {"fsize": limits.file_size, "nofile": limits.open_files, "core": 0, **settings.ulimits}
    for name, value in wanted.items():
        if isinstance(value, Mapping):
            soft, hard = value.get("soft", value.get("hard")), value.get("hard", value.get("soft"))
            yield from ("--ulimit", f"{name}={soft}:{hard}")
        else:
            yield from ("--ulimit", f"{name}={value}")


def refuse_network(network: str) -> str | None:
    """Return why a container must not use a network: it would be shared with the host or another container."""
    if network == "host" or network.startswith(("container:", "ns:")):
        return f"sandbox.docker.network `{network}` would share a network that is not the sandbox's own"
    return None


def refuse_bind(bind: str, home: Path) -> str | None:
    """Return why a folder of the host must not be mounted; None if it may."""
    source = bind.partition(":")[0]
    if not source.startswith("/"):
        return f"sandbox.docker.binds: `{bind}` does not start with an absolute path"
    path = Path(os.path.realpath(source))
    if path == Path("/") or any(path.is_relative_to(place) for place in _SYSTEM_PLACES):
        return f"sandbox.docker.binds: `{source}` is a system folder"
    if path.name in _ENGINE_SOCKETS:
        return f"sandbox.docker.binds: `{source}` would give access to the container engine"
    state = Path(os.path.realpath(home))
    if state.is_relative_to(path) or path.is_relative_to(state):
        return f"sandbox.docker.binds: `{source}` would show Retinue's state"
    return None


def make_backend(parts: SandboxParts) -> Docker:
    """Return the backend of a container engine, which has its name."""
    return Docker(parts.settings.docker, parts.home, parts.environment, parts.name)
