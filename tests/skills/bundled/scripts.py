"""How the tests run the scripts and examples of bundled skills: as the assistant does, in a process of their own."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skills_ref import read_properties, validate  # type: ignore[import-untyped]

BUNDLED = Path(__file__).parents[3] / "src" / "retinue" / "skills" / "bundled"
SKILLS = tuple(sorted(path for path in BUNDLED.iterdir() if (path / "SKILL.md").is_file()))
_SHELL_FENCE = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def find_faults(skill: Path) -> list[str]:
    """What the reference validator of the open format has against a skill."""
    return [str(fault) for fault in validate(skill)]


def read_description(skill: Path) -> str:
    return str(read_properties(skill).description)


def shell_blocks(skill: Path) -> list[str]:
    """The shell examples of a skill, with its real folder in place of the placeholder."""
    text = (skill / "SKILL.md").read_text(encoding="utf-8")
    return [block.replace("{baseDir}", shlex.quote(str(skill))) for block in _SHELL_FENCE.findall(text)]


@dataclass(frozen=True)
class Workspace:
    """A folder in which commands run, with an environment that has nothing but the necessary."""

    folder: Path
    extra_env: dict[str, str] = field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"])
        return {"PATH": path, "HOME": str(self.folder), "TZ": "Europe/Zurich", "LANG": "C.UTF-8", **self.extra_env}

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def read(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8")

    def call(self, command: list[str], stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.folder, env=self.env, input=stdin, capture_output=True, text=True, timeout=60, check=False
        )

    def shell(self, block: str) -> str:
        """Run an example as it stands and return what it printed."""
        done = self.call(["bash", "-euo", "pipefail", "-c", block])
        assert done.returncode == 0, f"{block}\n{done.stdout}{done.stderr}"
        return done.stdout


@dataclass(frozen=True)
class Script:
    """One script of a bundled skill, bound to a workspace."""

    path: Path
    workspace: Workspace
    libraries: bool = False
    """Whether the libraries that the script declares are there, as `uv run` provides them."""

    # -S: no site-packages, because the user's python3 may have none of ours.
    def _call(self, arguments: tuple[object, ...], stdin: str) -> subprocess.CompletedProcess[str]:
        switches = [] if self.libraries else ["-S"]
        done = self.workspace.call([sys.executable, *switches, str(self.path), *map(str, arguments)], stdin)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def run(self, *arguments: object, stdin: str = "") -> str:
        """Standard output of a call that must succeed."""
        done = self._call(arguments, stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run_loudly(self, *arguments: object) -> tuple[str, str]:
        """Standard output and standard error of a call that must succeed."""
        done = self._call(arguments, "")
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr

    def json(self, *arguments: object, stdin: str = "") -> Any:
        return json.loads(self.run(*arguments, "--json", stdin=stdin))

    def fail(self, *arguments: object, stdin: str = "") -> str:
        """The message of a call that must be refused."""
        done = self._call(arguments, stdin)
        assert done.returncode == 1, f"status {done.returncode}: {done.stdout}{done.stderr}"
        assert "error: " in done.stderr
        return done.stderr

    def misuse(self, *arguments: object) -> str:
        """The message of a call whose arguments make no sense."""
        done = self._call(arguments, "")
        assert done.returncode == 2, f"status {done.returncode}: {done.stdout}{done.stderr}"
        return done.stderr


def script(skill: str, name: str, workspace: Workspace, *, libraries: bool = False) -> Script:
    path = BUNDLED / skill / "scripts" / name
    assert path.is_file()
    return Script(path, workspace, libraries)


def stand_in(folder: Path, name: str, program: str) -> None:
    """Put a Python program into a folder of PATH, in place of one that tests cannot expect."""
    file = folder / name
    folder.mkdir(exist_ok=True)
    file.write_text(f"#!{sys.executable}\n{program}")
    file.chmod(0o755)


UV = """import os, sys
assert sys.argv[1] == "run"
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""
"""Runs scripts as uv does, with the libraries of the tests."""
