"""Settings of the confinement that commands run in."""

from __future__ import annotations

from typing import Any, Literal

from retinue.settings import Settings, key


class DockerSettings(Settings):
    """How a container is made."""

    image: str = key("retinue-sandbox:bookworm-slim", pending=True)
    """The image that commands run in."""
    container_prefix: str = key("retinue-", pending=True)
    """How the names of containers start."""
    workdir: str = key("/workspace", pending=True)
    """Where the workspace is inside the container."""
    network: str = key("none", pending=True)
    """The container's network."""
    read_only_root: bool = key(True, pending=True)
    """Whether the container's own files are read-only."""
    tmpfs: list[str] = key(["/tmp", "/var/tmp", "/run"], pending=True)  # noqa: S108
    """Folders in memory."""
    cap_drop: list[str] = key(["ALL"], pending=True)
    """Capabilities that are taken away."""
    user: str | None = key(None, pending=True)
    """Who runs the commands."""
    env: dict[str, str] = key({}, pending=True)
    """Environment variables of the container."""
    binds: list[str] = key([], pending=True)
    """More folders to bring in, as in `/host:/inside:ro`."""
    pids_limit: int | None = key(None, pending=True, ge=1)
    """How many processes may run."""
    memory: str | int | None = key(None, pending=True)
    """How much memory there is."""
    memory_swap: str | int | None = key(None, pending=True)
    """How much memory and swap there is together."""
    cpus: float | None = key(None, pending=True, gt=0)
    """How many processors there are."""
    ulimits: dict[str, Any] = key({}, pending=True)
    """Limits per process."""
    seccomp_profile: str | None = key(None, pending=True)
    """A file that says which system calls are allowed."""
    apparmor_profile: str | None = key(None, pending=True)
    """The name of an AppArmor profile."""
    dns: list[str] = key([], pending=True)
    """Name servers."""
    extra_hosts: list[str] = key([], pending=True)
    """More names, as in `name:address`."""
    setup_command: str | None = key(None, pending=True)
    """A command that is run once in a new container."""


class PruneSettings(Settings):
    """When unused sandboxes are removed."""

    idle_hours: int = key(24, pending=True, ge=0)
    """Hours without use."""
    max_age_days: int = key(7, pending=True, ge=0)
    """Days since it was made."""


class SandboxSettings(Settings):
    """Whether and how an agent's commands are confined."""

    mode: Literal["off", "non-main", "all"] = key("off")
    """`off` confines nothing, `non-main` every session but the main one, `all` every session."""
    scope: Literal["session", "agent", "shared"] = key("agent", pending=True)
    """Who shares a sandbox."""
    backend: Literal["bubblewrap", "landlock", "docker", "podman", "ssh"] | None = key(None, pending=True)
    """What confines; without it the best that the machine has."""
    workspace_access: Literal["none", "ro", "rw"] = key("none", pending=True)
    """What a sandbox may do with the agent's workspace."""
    workspace_root: str | None = key(None, pending=True)
    """Where sandboxes without workspace access keep their own folders."""
    docker: DockerSettings = key(DockerSettings)
    """How a container is made."""
    browser: dict[str, Any] = key({}, pending=True)
    """How the browser inside a sandbox is set up."""
    prune: PruneSettings = key(PruneSettings)
    """When unused sandboxes are removed."""
