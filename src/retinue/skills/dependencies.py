"""What a skill needs and how to install it: exact commands that the owner sees before anything runs.

The texts come from the skill, so they are untrusted: a name is only ever one argument of a program, never an option, an
address or part of a shell command.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from retinue.core.errors import SkillError
from retinue.security.untrusted_text import literal
from retinue.skills.integrity.unpack import unzip
from retinue.skills.skill import InstallSpec, Skill
from retinue.storage.files.descriptors import make_private_dir, write_atomic

_PACKAGE = re.compile(r"[A-Za-z0-9@][A-Za-z0-9@/._+~=<>\[\]-]{0,199}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
MAX_DOWNLOAD_BYTES = 200_000_000
DOWNLOAD_SECONDS = 900.0
_COMMANDS: dict[str, tuple[str, ...]] = {
    "brew": ("brew", "install"),
    "apt": ("apt-get", "install", "-y"),
    "npm": ("npm", "install", "--global", "--ignore-scripts"),
    "node": ("npm", "install", "--global", "--ignore-scripts"),
    "uv": ("uv", "tool", "install"),
    "pip": ("python3", "-m", "pip", "install", "--user"),
    "go": ("go", "install"),
    "cargo": ("cargo", "install"),
}


class InstallPlan(Struct, frozen=True):
    """One way to install what a skill needs: a command, or a download with its checksum.

    `problem` is why it cannot be used here.
    """

    id: str
    kind: str
    label: str
    command: tuple[str, ...] = ()
    url: str = ""
    sha256: str = ""
    problem: str = ""

    @property
    def text(self) -> str:
        """What runs, exactly."""
        return f"download {self.url} (sha256 {self.sha256})" if self.url else shlex.join(self.command)


def plan_installs(skill: Skill, system: str, has_program: Callable[[str], bool]) -> tuple[InstallPlan, ...]:
    """Return the ways that fit this system, those that can be used first."""
    plans = [
        _plan(spec, number, has_program)
        for number, spec in enumerate(skill.install, 1)
        if not spec.os or system in spec.os
    ]
    return tuple(sorted(plans, key=lambda plan: bool(plan.problem)))


def _plan(spec: InstallSpec, number: int, has_program: Callable[[str], bool]) -> InstallPlan:
    name = literal(spec.id or f"{spec.kind}-{number}", 60)
    label = literal(spec.label or f"{spec.kind}: {spec.target}", 120)
    if spec.kind == "download":
        sha256 = (spec.sha256 or "").lower()
        problem = "" if _SHA256.fullmatch(sha256) else "it has no sha256, so the file could not be checked"
        if not spec.target.startswith("https://"):
            problem = "its address is not https"
        return InstallPlan(name, spec.kind, label, (), literal(spec.target, 500), sha256, problem)
    head = _COMMANDS.get(spec.kind)
    if head is None:
        return InstallPlan(name, spec.kind, label, problem=f"'{literal(spec.kind, 30)}' is not a known kind")
    target = f"{spec.target}@latest" if spec.kind == "go" and "@" not in spec.target else spec.target
    if not _PACKAGE.fullmatch(target) or ".." in target or "//" in target:
        return InstallPlan(name, spec.kind, label, problem=f"'{literal(target, 60)}' is not the name of a package")
    command = (*head, target)
    if spec.kind == "apt" and os.geteuid() != 0:
        command = ("sudo", *command)
    missing = "" if has_program(head[0]) else f"needs the program `{head[0]}`, not on PATH"
    return InstallPlan(name, spec.kind, label, command, problem=missing)


async def download(plan: InstallPlan, folder: Path) -> Path:
    """Download a file, compare it with its checksum, and unpack a ZIP archive; return where it is."""
    from retinue.security.fetch import fetch
    from retinue.security.network import MODEL_CHOSEN

    found = await fetch(plan.url, policy=MODEL_CHOSEN, max_bytes=MAX_DOWNLOAD_BYTES, timeout=DOWNLOAD_SECONDS)
    if found.status != 200 or found.truncated:
        raise SkillError(
            f"{plan.url} answered with HTTP {found.status}, or with more than {MAX_DOWNLOAD_BYTES:,} bytes."
        )
    return store_download(plan, found.body, folder)


def store_download(plan: InstallPlan, data: bytes, folder: Path) -> Path:
    """Store downloaded data if it has the checksum of the plan; a ZIP archive is unpacked safely."""
    if hashlib.sha256(data).hexdigest() != plan.sha256:
        raise SkillError(f"The file from {plan.url} is not the one that the skill names. Nothing was stored.")
    make_private_dir(folder)
    if plan.url.lower().endswith(".zip"):
        for name, file in unzip(data).items():
            write_atomic(folder / name, file.data, mode=0o700 if file.executable else 0o600)
        return folder
    name = re.sub(r"[^A-Za-z0-9._-]", "_", plan.url.rsplit("/", 1)[-1]).lstrip(".") or "download"
    write_atomic(folder / name, data, mode=0o700)
    return folder / name
