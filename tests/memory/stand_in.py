"""A small program in the place of `qmd`: it keeps collections, writes down how it was called, and does as told."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retinue.core.clock import Clock, SystemClock
from retinue.memory.index import MemoryIndex
from retinue.memory.notes import Library, Provenance, written_by_agent
from retinue.memory.qmd.index import QmdIndex
from retinue.memory.qmd.memory import QmdMemory
from retinue.memory.qmd.program import QmdFolders, QmdProgram
from retinue.memory.settings import QmdSettings
from retinue.structs.decode import decode

PROGRAM = """#!{python} -IS
import json, os, pathlib, subprocess, sys, time
here = pathlib.Path(__file__).parent
arguments = sys.argv[3:]
command = arguments[0]
with (here / "calls.jsonl").open("a") as calls:
    calls.write(json.dumps({{"argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd()}}) + "\\n")
told = here / f"{{command}}.py"
config = pathlib.Path(os.environ["XDG_CONFIG_HOME"]) / "qmd" / "index.yml"
if told.exists():
    exec(told.read_text())
elif command == "--version":
    print("qmd 2.8.3 (stand-in)")
elif command == "collection":
    known = json.loads(config.read_text()) if config.exists() else {{"collections": {{}}}}
    if arguments[1] == "add":
        name, mask, folder = arguments[3], arguments[5], arguments[7]
        known["collections"][name] = {{"path": os.path.realpath(folder), "pattern": mask}}
    else:
        del known["collections"][arguments[3]]
    config.write_text(json.dumps(known))
elif command == "update":
    print("Indexed: 1 new, 0 updated, 2 unchanged, 1 removed")
elif command in ("search", "vsearch", "query"):
    print("[]")
"""

HANG = "subprocess.Popen(['sleep', '600']); (here / 'child').write_text(str(os.getpid())); time.sleep(600)"


@dataclass(frozen=True, slots=True)
class StandIn:
    """The program; `tell` says what a command does from now on, as a few lines of Python."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> StandIn:
        folder.mkdir(parents=True)
        made = cls(folder)
        made.program.write_text(PROGRAM.format(python=sys.executable))
        made.program.chmod(0o700)
        return made

    @property
    def program(self) -> Path:
        return self.folder / "qmd"

    def tell(self, command: str, script: str) -> None:
        (self.folder / f"{command}.py").write_text(script)

    def forget(self, command: str) -> None:
        (self.folder / f"{command}.py").unlink()

    def answer(self, command: str, *rows: dict[str, Any]) -> None:
        self.tell(command, f"print({json.dumps(rows)!r})")

    def calls(self) -> list[dict[str, Any]]:
        file = self.folder / "calls.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def commands(self) -> list[str]:
        """What it was asked for, in order, without the options."""
        return [
            " ".join(call["argv"][2:4]) if call["argv"][2] == "collection" else call["argv"][2] for call in self.calls()
        ]

    def clear(self) -> None:
        (self.folder / "calls.jsonl").unlink(missing_ok=True)


def row(file: str, score: float = 0.5, line: int = 1, **more: Any) -> dict[str, Any]:
    return {"file": f"qmd://{file}", "score": score, "line": line, **more}


def make_folders(folder: Path) -> QmdFolders:
    return QmdFolders(folder / "qmd", folder / "models")


def make_memory(
    program: Path,
    folder: Path,
    builtin: MemoryIndex,
    *,
    library: Library | None = None,
    clock: Clock | None = None,
    provenance: Provenance = written_by_agent,
    **settings: Any,
) -> QmdMemory:
    """A memory over the notes of a built-in index, with settings spelled as in the configuration."""
    chosen = decode(QmdSettings, settings)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "OPENAI_API_KEY": "sk-secret"}
    by_words = chosen.search_mode == "search"
    runner = QmdProgram(str(program), make_folders(folder), environment, uses_models=not by_words)
    index = QmdIndex(runner, library or builtin.library, "main", chosen.search_mode, chosen.update)
    return QmdMemory(index, builtin, clock or SystemClock(), chosen, provenance=provenance, keeps_builtin=False)
