"""Settings of sandboxes."""

from __future__ import annotations

from typing import Any, Literal

from retinue.settings import Settings, key, size_in_bytes


class DockerSettings(Settings):
    """Settings of containers, also for podman. Every program of a command runs in a new container."""

    image: str = key("retinue-sandbox:bookworm-slim")
    """The image of the containers."""
    container_prefix: str = key("retinue-")
    """The prefix of container names."""
    workdir: str = key("/workspace")
    """The path of the workspace inside the container."""
    network: str = key("none")
    """The container's network; `host` and another container's network are refused."""
    read_only_root: bool = key(True)
    """Whether the container's root file system is read-only."""
    tmpfs: list[str] = key(["/tmp", "/var/tmp", "/run"])  # noqa: S108
    """Folders mounted as tmpfs."""
    cap_drop: list[str] = key(["ALL"])
    """Linux capabilities to drop."""
    user: str | None = key(None)
    """User of the commands. Default: the owner of the workspace."""
    env: dict[str, str] = key({})
    """Environment variables of the container."""
    binds: list[str] = key([])
    """Additional bind mounts, as in `/host:/inside:ro`; system folders and Retinue's own are refused."""
    pids_limit: int | None = key(None, ge=1)
    """Maximum number of processes. Default: `limits.processes`."""
    memory: str | int | None = key(None)
    """Memory limit. Default: `limits.memory`."""
    memory_swap: str | int | None = key(None)
    """Limit of memory and swap together."""
    cpus: float | None = key(None, gt=0)
    """Number of processors."""
    ulimits: dict[str, Any] = key({})
    """Limits per process, as a number or as `{soft, hard}`."""
    seccomp_profile: str | None = key(None)
    """Path of a seccomp profile."""
    apparmor_profile: str | None = key(None)
    """Name of an AppArmor profile."""
    dns: list[str] = key([])
    """Name servers."""
    extra_hosts: list[str] = key([])
    """Additional host names, as in `name:address`."""
    setup_command: str | None = key(None)
    """A shell command that runs in each new container before its program; a container ends with its program."""


class LimitSettings(Settings):
    """Resource limits of a sandboxed program."""

    memory: str | int = key("8gb", check=size_in_bytes)
    """Address space of one process, which may be larger than the memory it uses."""
    processes: int = key(512, ge=16)
    """Processes and threads of one program and its children."""
    file_size: str | int = key("1gb", check=size_in_bytes)
    """Maximum size of a file."""
    open_files: int = key(1024, ge=64)
    """Maximum number of open files of one process."""


class PruneSettings(Settings):
    """When unused sandboxes are removed, including their files."""

    idle_hours: int = key(24, ge=0)
    """Hours without use; 0 means never."""
    max_age_days: int = key(7, ge=0)
    """Days since it was created; 0 means never. A sandbox used within the last hour is kept."""


class SandboxSettings(Settings):
    """Whether and how an agent's commands are sandboxed."""

    mode: Literal["auto", "off", "non-main", "all"] = key("auto")
    """Which sessions are sandboxed.

    `auto` runs every command in a sandbox if the system can, and asks for approval otherwise. `non-main` sandboxes all
    sessions but the main one, `all` every session: their tools are restricted, and commands are refused if no backend
    works. `off` sandboxes none.
    """
    scope: Literal["session", "agent", "shared"] = key("agent")
    """Which sessions share a sandbox: its temporary files, its home folder and, without workspace access, its work."""
    backend: str | None = key(None)
    """Sandbox backend: `bubblewrap`, `landlock`, `docker`, `podman`, or one of a plugin.

    Default: that of `plugins.slots.sandbox`, otherwise bubblewrap, or landlock if bubblewrap does not work.
    """
    workspace_access: Literal["none", "ro", "rw"] | None = key(None)
    """What a sandboxed session may do with the agent's workspace: nothing, read, or read and write.

    Default: `rw` in the mode `auto`, `none` in the others.
    """
    workspace_root: str | None = key(None)
    """The folder that contains the sandboxes' own folders. Default: `sandboxes` in Retinue's home."""
    network: Literal["off", "proxy"] = key("off")
    """Network access. `proxy` allows public hosts over HTTP and HTTPS through a proxy that checks every address."""
    allow_hosts: list[str] = key([])
    """Hosts that the proxy allows, as `example.org`, `*.example.com` or `host:port`; empty allows all public hosts."""
    read_only_paths: list[str] = key([])
    """Additional folders that commands can read."""
    limits: LimitSettings = key(LimitSettings)
    """Resource limits of a sandboxed program."""
    docker: DockerSettings = key(DockerSettings)
    """Settings of containers."""
    prune: PruneSettings = key(PruneSettings)
    """When unused sandboxes are removed."""

    @property
    def access(self) -> Literal["none", "ro", "rw"]:
        """The effective workspace access."""
        return self.workspace_access or ("rw" if self.mode == "auto" else "none")
