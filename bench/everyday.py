"""Everyday commands in the sandbox: how many print the same as without it, at each level, as this user and another.

The commands are in `tests/sandbox/everyday_commands.txt`. They run one after the other in the same folder, each in a
sandbox of its own, as the exec tool runs commands that need no approval.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
from msgspec import Struct
from msgspec.structs import replace

from retinue.core.clock import SystemClock, random_id
from retinue.core.keys import DEFAULT_AGENT, SessionKey
from retinue.sandbox.bubblewrap import Bubblewrap
from retinue.sandbox.confinement import SandboxUnavailable
from retinue.sandbox.sandboxes import BackedSandbox, Sandboxes
from retinue.sandbox.settings import SandboxSettings
from retinue.structs.decode import decode
from retinue.toolkit.processes.command_table import CommandTable
from retinue.toolkit.processes.environment import base_environment
from retinue.toolkit.processes.fork_server import ForkServer
from retinue.toolkit.processes.launch import Launch
from retinue.tools.shell.allowlist import CommandRules
from retinue.tools.shell.analysis import Joiner, PipelineStep, analyse
from retinue.tools.shell.decision import Allow, decide_command

COMMANDS = Path(__file__).parent.parent / "tests/sandbox/everyday_commands.txt"
SYSTEM_PYTHON = "/usr/bin/python3"
NOBODY = 65534
SECRET = "planted-secret-51c9"
SESSION = SessionKey.main(DEFAULT_AGENT)
_SECONDS = 120.0
_MADE = 1_700_000_000
_GIT = {"GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.org", "GIT_AUTHOR_DATE": "2024-01-02T03:04:05Z"}
_COMMITTER = {name.replace("AUTHOR", "COMMITTER"): value for name, value in _GIT.items()}


class Difference(Struct, frozen=True):
    """A command that printed something else than outside the sandbox."""

    group: str
    command: str
    outside: str
    inside: str


class Comparison(Struct, frozen=True):
    """How commands fared at one level as one user; `leaked` are those that printed the planted secret."""

    backend: str
    user: str
    commands: int
    asked: int
    leaked: tuple[str, ...]
    differences: tuple[Difference, ...]

    @property
    def equal(self) -> float:
        """The part of the commands that printed the same, in percent."""
        return 100 * (1 - len(self.differences) / self.commands)


def read_commands(path: Path = COMMANDS) -> list[tuple[str, str]]:
    """Return the commands with their groups, in order."""
    found, group = [], ""
    for line in path.read_text().splitlines():
        if line.startswith("## "):
            group = line[3:]
        elif line and not line.startswith("# "):
            found.append((group, line))
    return found


def compare(commands: Sequence[tuple[str, str]], backend: str, uid: int) -> Comparison:
    """Run commands outside and inside a sandbox, and compare what they print."""
    with _home(uid) as home:
        outside = anyio.run(_run_all, home, commands, None, uid)
    with _home(uid) as home:
        inside = anyio.run(_run_all, home, commands, _enter(home, backend, uid), uid)
    asked = sum(
        not isinstance(decide_command(analyse(text), CommandRules(), sandboxed=True), Allow) for _, text in commands
    )
    pairs = zip(commands, outside, inside, strict=True)
    return Comparison(
        backend,
        "root" if uid == 0 else "user",
        len(commands),
        asked,
        tuple(text for (_, text), told in zip(commands, inside, strict=True) if SECRET in told),
        tuple(Difference(group, text, before, after) for (group, text), before, after in pairs if before != after),
    )


def _enter(home: Path, backend: str, uid: int) -> BackedSandbox:
    settings = decode(SandboxSettings, {"backend": backend})
    sandboxes = Sandboxes(home, lambda agent: settings, lambda agent: home / "workspace", SystemClock().now)
    confinement = sandboxes.confinement_of(SESSION)
    sandboxes.open(confinement, SESSION)
    _give(home, uid)
    entered = sandboxes.with_backend(confinement, SESSION)
    if isinstance(entered.backend, Bubblewrap):
        return replace(entered, backend=replace(entered.backend, uid=uid))
    return entered


async def _run_all(
    home: Path, commands: Sequence[tuple[str, str]], enclosure: BackedSandbox | None, uid: int
) -> list[str]:
    own = None if uid == os.getuid() else uid
    server = ForkServer() if own is None else ForkServer(own, SYSTEM_PYTHON)
    folder = os.open(home / "workspace", os.O_RDONLY)
    try:
        async with CommandTable(SystemClock(), random_id, grace=0.2, server=server) as table:
            return [await _run(table, home, folder, text, enclosure) for _, text in commands]
    finally:
        os.close(folder)


async def _run(table: CommandTable, home: Path, folder: int, text: str, enclosure: BackedSandbox | None) -> str:
    base = dict(base_environment({"LANG": "C.UTF-8", "HOME": str(home / "person")}))
    shell = ("/bin/bash", "--noprofile", "--norc", "-c", "--", text)
    step = PipelineStep(Joiner.ALWAYS, (shell,))
    variables = {**base, **_GIT, **_COMMITTER, "GIT_CONFIG_NOSYSTEM": "1", "NO_UPDATE_NOTIFIER": "1"}
    launch = Launch(DEFAULT_AGENT, SESSION, text, (step,), variables, _SECONDS, enclosure=enclosure)
    command = await table.start(launch, folder)
    if not await command.wait(_SECONDS) or command.end is None:
        raise RuntimeError(f"the command did not end: {text}")
    # the folders of two runs have different names
    return f"{command.output.text.replace(str(home), '/home')}\n(code {command.end.code})"


@contextmanager
def _home(uid: int) -> Iterator[Path]:
    """Make a home with a workspace to work in, and secrets beside it."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="everyday-") as place:
        home = Path(place).resolve()
        home.chmod(0o755)
        for name in ("credentials/token", "person/.ssh/id_ed25519", "workspace-other/secret.txt"):
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(SECRET)
        make_workspace(home / "workspace")
        _give(home, uid)
        yield home


def _give(home: Path, uid: int) -> None:
    if uid != os.getuid():
        for path in (home, *home.rglob("*")):
            os.chown(path, uid, uid, follow_symlinks=False)


_FILES: dict[str, str] = {
    "README.md": "# Sample\n\nA small project to work on.\n\n## Use\n\nRun `make`.\n\n## License\n\nFree.\n",
    "notes.txt": "first: one\n\tsecond: two a.b\nthird: three\n",
    "poem.txt": "the cat sat on the mat\nand looked at the quiet garden gate\nwhile rain fell on the roof\n",
    "words.txt": "apple\nplum\napple\ncat\nbanana\nplum\n",
    "words2.txt": "plum\ncat\nkiwi\n",
    "words_sorted.txt": "apple\napricot\nbanana\n",
    "numbers.txt": "".join(f"{n * 7 % 23}\n" for n in range(1, 24)),
    "numbers_short.txt": "1 2 3\n",
    "scratch.txt": "old text\nold again\n",
    "with space.txt": "spaces are fine\n",
    ".gitignore": "build/\n*.o\nenv/\n__pycache__/\n",
    "docs/guide.md": "# Guide\n\nTODO write the guide.\n",
    "docs/api.md": "# Api\n\nadd(a, b) adds.\n",
    "docs/empty.md": "",
    "data/people.csv": "name,city,age\nAda,London,36\nGrace,New York,45\nAlan,London,41\n",
    "data/orders.csv": "id,item,code,amount\n" + "".join(f"{n},item{n % 3},ABC{n},{n * 5}\n" for n in range(1, 21)),
    "data/config.json": '{"name": "sample", "ports": [80, 443], "owners": ["ada", "alan"], "note": "text"}\n',
    "data/list.json": '[{"id": 1, "n": 2, "k": "a"}, {"id": 2, "n": 5, "k": "b"}, {"id": 3, "n": 7, "k": "a"}]\n',
    "data/events.jsonl": "".join(
        f'{{"level": "{"error" if n % 4 == 0 else "info"}", "message": "{"disk full" if n % 4 == 0 else "ok"}"}}\n'
        for n in range(12)
    ),
    "data/left.txt": "1 one\n2 two\n3 three\n",
    "data/right.txt": "1 eins\n3 drei\n",
    "logs/app.log": "".join(
        f"2024-01-{n % 28 + 1:02} {('INFO', 'WARN', 'INFO', 'ERROR')[n % 4]} request {n}\n" for n in range(200)
    ),
    "logs/access.log": "".join(
        f'10.0.0.{n % 5} - - [x] "GET /{n} HTTP/1.1" x {(200, 404, 200, 500)[n % 4]} 12\n' for n in range(60)
    ),
    "src/__init__.py": "",
    "src/app/__init__.py": "",
    "src/app/main.py": "import sys\n\n\ndef main():\n    print('hello from', len(sys.argv))\n\n\nmain()\n",
    "src/app/util.py": (
        "def add(a, b):\n    '''Add.\n\n    >>> add(1, 2)\n    3\n    '''\n    return a + b\n\n\n"
        "def double(x):\n    # TODO faster\n    return add(x, x)\n"
    ),
    "tests/__init__.py": "",
    "tests/test_util.py": (
        "import unittest\n\nfrom src.app.util import add, double\n\n\nclass Sums(unittest.TestCase):\n"
        "    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n\n"
        "    def test_double(self):\n        self.assertEqual(double(4), 8)\n"
    ),
    "Makefile": (
        "all: hello\nhello: c/hello.c\n\tgcc -o hello c/hello.c\ntest: hello\n\t./hello\n"
        "clean:\n\trm -f hello list *.o\n"
    ),
    "c/Makefile": "main: main.c list.c\n\tgcc -o main main.c list.c\nclean:\n\trm -f main\n",
    "c/hello.c": '#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n',
    "c/list.h": "int list_max(int count, char **words);\n",
    "c/list.c": (
        '#include "list.h"\n#include <stdlib.h>\nint list_max(int count, char **words) {\n  int max = 0;\n'
        "  for (int i = 0; i < count; i++) if (atoi(words[i]) > max) max = atoi(words[i]);\n  return max;\n}\n"
    ),
    "c/main.c": (
        '#include "list.h"\n#include <stdio.h>\n'
        'int main(int n, char **w) { printf("%d\\n", list_max(n - 1, w + 1)); return 0; }\n'
    ),
    "c/broken.c": "int main(void) { return missing; }\n",
    "cm/CMakeLists.txt": "cmake_minimum_required(VERSION 3.10)\nproject(tool C)\nadd_executable(tool tool.c)\n",
    "cm/tool.c": '#include <stdio.h>\nint main(void) { puts("tool"); return 0; }\n',
    "scripts/build.sh": "#!/bin/sh\nset -e\necho building\nwc -l < README.md\n",
    "scripts/report.py": (
        "import csv, sys\nrows = list(csv.DictReader(open(sys.argv[1])))\nprint(sum(int(r['amount']) for r in rows))\n"
    ),
    "scripts/check.pl": 'print "checked\\n";\n',
    "scripts/total.awk": 'BEGIN { FS = "," } NR > 1 { s += $4 } END { print s }\n',
    "js/index.js": "const sum = require('./sum.js');\nconsole.log(sum(1, 2));\n",
    "js/sum.js": "module.exports = (a, b) => a + b;\n",
    "package.json": (
        '{"name": "sample", "version": "1.0.0", "scripts": {"hello": "echo hello", "test": "node js/index.js"}}\n'
    ),
}


def make_workspace(folder: Path) -> None:
    """Make the folder that the commands work in: a small project with a history."""
    for name, text in _FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "data/latin1.txt").write_bytes("café\n".encode("latin-1"))
    (folder / "scripts/build.sh").chmod(0o755)
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (_MADE, _MADE))
    for line in (
        "tar --sort=name --mtime=@0 -cf archive.tar notes.txt words.txt",
        "gzip -nk poem.txt",
        "TZ=UTC touch -d 2024-01-01 notes.txt words.txt && TZ=UTC zip -qX bundle.zip notes.txt words.txt",
        'sqlite3 shop.db \'create table orders (item text, amount int); insert into orders values ("a", 1), ("b", 2)\'',
        "git init -q -b master . && git config user.name Ada && git config user.email ada@example.org",
        "git add -A && git commit -qm 'start'",
        "echo more >> README.md && git commit -qam 'say more' && git tag v1",
        "git checkout -q -b feature && echo kiwi >> words.txt && git commit -qam 'add a fruit'",
        "git checkout -q master",
        "echo last >> notes.txt && git commit -qam 'last note'",
    ):
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), **_GIT, **_COMMITTER}
        subprocess.run(["/bin/sh", "-c", line], cwd=folder, env=environment, check=True)


def run_everyday(*, full: bool) -> Iterator[Comparison]:
    """Compare all commands, or every twentieth, at both levels as this user and, for root, as another one."""
    commands = read_commands() if full else read_commands()[::20]
    users = [os.getuid(), *([NOBODY] if os.getuid() == 0 and shutil.which(SYSTEM_PYTHON) else [])]
    for uid in users:
        for backend in ("bubblewrap", "landlock"):
            try:
                yield compare(commands, backend, uid)
            except SandboxUnavailable as error:
                print(f"  {backend} is left out: {error}")


def summarise(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as plain data."""
    return {
        "backend": comparison.backend,
        "user": comparison.user,
        "commands": comparison.commands,
        "equalPercent": round(comparison.equal, 1),
        "asked": comparison.asked,
        "leaked": len(comparison.leaked),
        "different": [each.command for each in comparison.differences],
    }
