"""Settings of the confinement that commands run in."""

from __future__ import annotations

from typing import Any, Literal

from retinue.settings import Settings, key, size_in_bytes


class DockerSettings(Settings):
    """How a container is made; also for podman. Every program of a command gets a container of its own."""

    image: str = key("retinue-sandbox:bookworm-slim")
    """The image that commands run in."""
    container_prefix: str = key("retinue-")
    """How the names of containers start."""
    workdir: str = key("/workspace")
    """Where the workspace is inside the container."""
    network: str = key("none")
    """The container's network; `host` and another container's are refused."""
    read_only_root: bool = key(True)
    """Whether the container's own files are read-only."""
    tmpfs: list[str] = key(["/tmp", "/var/tmp", "/run"])  # noqa: S108
    """Folders in memory."""
    cap_drop: list[str] = key(["ALL"])
    """Capabilities that are taken away."""
    user: str | None = key(None)
    """User of the commands. Default: the owner of the workspace."""
    env: dict[str, str] = key({})
    """Environment variables of the container."""
    binds: list[str] = key([])
    """More folders to bring in, as in `/host:/inside:ro`; system folders and Retinue's own are refused."""
    pids_limit: int | None = key(None, ge=1)
    """How many processes may run; without it `limits.processes`."""
    memory: str | int | None = key(None)
    """How much memory there is; without it `limits.memory`."""
    memory_swap: str | int | None = key(None)
    """How much memory and swap there is together."""
    cpus: float | None = key(None, gt=0)
    """How many processors there are."""
    ulimits: dict[str, Any] = key({})
    """Limits per process, as a number or as `{soft, hard}`."""
    seccomp_profile: str | None = key(None)
    """A file that says which system calls are allowed."""
    apparmor_profile: str | None = key(None)
    """The name of an AppArmor profile."""
    dns: list[str] = key([])
    """Name servers."""
    extra_hosts: list[str] = key([])
    """More names, as in `name:address`."""
    setup_command: str | None = key(None)
    """A shell command that runs in each new container before its program; containers end with their program."""


class LimitSettings(Settings):
    """What a sandboxed program may use."""

    memory: str | int = key("8gb", check=size_in_bytes)
    """Address space of one program; it may reserve more than it really uses."""
    processes: int = key(512, ge=16)
    """Processes and threads of one program and all it starts."""
    file_size: str | int = key("1gb", check=size_in_bytes)
    """How large a file may be written."""
    open_files: int = key(1024, ge=64)
    """Files that one process may have open."""


class PruneSettings(Settings):
    """When unused sandboxes are removed, with all that is in them."""

    idle_hours: int = key(24, ge=0)
    """Hours without use; 0 is never."""
    max_age_days: int = key(7, ge=0)
    """Days since it was made; 0 is never. One that was used within the last hour is kept."""


class SandboxSettings(Settings):
    """Whether and how an agent's commands are confined."""

    mode: Literal["off", "non-main", "all"] = key("off")
    """`off` confines nothing, `non-main` every session but the main one, `all` every session."""
    scope: Literal["session", "agent", "shared"] = key("agent")
    """Who shares a sandbox: its temporary files, its home folder and, without workspace access, its work."""
    backend: Literal["bubblewrap", "landlock", "docker", "podman", "ssh"] | None = key(None)
    """Sandbox backend. Default: bubblewrap, or landlock if bubblewrap does not work."""
    workspace_access: Literal["none", "ro", "rw"] = key("none")
    """What a sandboxed session may do with the agent's workspace: nothing, read, or read and write."""
    workspace_root: str | None = key(None)
    """Where sandboxes keep their own folders; without it `sandboxes` in Retinue's home."""
    network: Literal["off", "proxy"] = key("off")
    """`proxy` lets commands reach public hosts over HTTP and HTTPS through a proxy that checks every address."""
    allow_hosts: list[str] = key([])
    """The only hosts that the proxy reaches, as `example.org`, `*.example.com` or `host:port`; empty is all public."""
    read_only_paths: list[str] = key([])
    """Further folders that commands see, read-only."""
    limits: LimitSettings = key(LimitSettings)
    """What a sandboxed program may use."""
    docker: DockerSettings = key(DockerSettings)
    """How a container is made."""
    browser: dict[str, Any] = key({}, pending=True)
    """How the browser inside a sandbox is set up."""
    prune: PruneSettings = key(PruneSettings)
    """When unused sandboxes are removed."""
