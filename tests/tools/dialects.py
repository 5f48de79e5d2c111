"""What bash and dash really start, seen in a sandbox where every program is a stub that only writes it down."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from retinue.tools.shell.allowlist import ArgvPattern, CommandRules
from retinue.tools.shell.analysis import AnalysedCommand, CommandLocation, Joiner, OpenFolderListing
from retinue.tools.shell.decision import Allow, decide_command_line
from tests.tools import recorder

HOME = "/home/agent"
SHELLS = ("bash", "dash")
FAILING = frozenset({"false", "grep", "diff"})
PROGRAMS = (
    *("ls", "cat", "git", "rm", "id", "find", "grep", "sort", "head", "wc", "tar", "curl", "cp", "mv", "touch"),
    *("diff", "sed", "awk", "python3", "node", "perl", "sh", "bash", "env", "nice", "timeout", "xargs", "sudo"),
    *("busybox", "x", "a", "b1", "make", "tee", "jq", "nohup", "time", "if", "then", "do", "done", "{", "}", "!"),
    *("[[", "in", "case", "-n", "a.txt", "foo", "--x=y", "HEAD~1", "X=1", "a=b", "%1", "@", "^", ",", ":x", "echo-"),
    *("2", "0", "ü", "Á"),
)
BUILTINS = frozenset({"echo", "true", "false", "test", "[", "printf", "pwd"})
FILES = (
    *("a.txt", "b.txt", "c.py", "A.txt", "ab", "a b", "a*b", "x[1]", ".hidden", ".h2", "sub/one.txt", "sub/two.py"),
    *("sub/.secret", "sub/deep/three.txt", "other/one.txt", "emptyname", "1", "2", "z~", "{}", "a,b", "~", "#x"),
)
FOLDERS = ("empty", "sub/more")

EVERYTHING = CommandRules(patterns=(ArgvPattern.parse("**"),))
"""Every program is on the allowlist, so that only what is read from the text can stop a command."""

Started = tuple[str, ...]
Read = Callable[[str], AnalysedCommand | None]


@dataclass(frozen=True, slots=True)
class Difference:
    """A shell did something else than was reported."""

    shell: str
    text: str
    unreported: tuple[Started, ...]
    missing: tuple[Started, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a run found; `allowed` of the `generated` commands would have run unasked."""

    generated: int
    allowed: int
    differences: tuple[Difference, ...]


def available() -> str | None:
    """What is missing for a comparison, None where everything is there."""
    return next((program for program in ("bwrap", *SHELLS) if shutil.which(program) is None), None)


def compare(texts: Iterable[str], place: Path, *, read: Read | None = None, batch: int = 4_000) -> Comparison:
    """Judge the commands, run those that are allowed through both shells, and report every difference.

    `read` takes the place of the judge, to see that the comparison would notice a wrong one.
    """
    workspace = make_workspace(place)
    generated = 0
    kept: list[tuple[str, AnalysedCommand]] = []
    differences: list[Difference] = []
    allowed = 0
    with opened(workspace) as folder, _stubs(place) as stubs:
        listing = OpenFolderListing(folder)
        for text in texts:
            generated += 1
            command = read(text) if read is not None else _read(text, CommandLocation(HOME, listing))
            if command is not None:
                kept.append((text, command))
                allowed += 1
            if len(kept) >= batch:
                differences += _run(kept, place, workspace, stubs)
                kept = []
        differences += _run(kept, place, workspace, stubs)
    return Comparison(generated, allowed, tuple(differences))


def _read(text: str, place: CommandLocation) -> AnalysedCommand | None:
    """What would run unasked; a command of the list of harmless ones is told more than stands in the text."""
    decision = decide_command_line(text, EVERYTHING, place)
    if not isinstance(decision, Allow) or decision.command is None:
        return None
    return decision.command.with_commands(decision.segments)


def make_workspace(place: Path) -> Path:
    """A folder with names of every awkward kind."""
    workspace = place / "work"
    for name in FOLDERS:
        (workspace / name).mkdir(parents=True, exist_ok=True)
    for name in FILES:
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return workspace


@contextmanager
def opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _stubs(place: Path) -> Iterator[Path]:
    """A folder of programs that append their name and arguments to a log, and do nothing else."""
    folder = place / "stubs"
    folder.mkdir(exist_ok=True)
    for name in {*PROGRAMS, *BUILTINS, "env"}:
        if "/" in name:
            continue
        stub = folder / name
        code = 1 if name in FAILING else 0
        stub.write_text(f'#!/shells/dash\nprintf \'%s\\0\' "$0" "$@" "\\n" >>/log\nexit {code}\n')
        stub.chmod(0o755)
    yield folder


def _run(kept: Sequence[tuple[str, AnalysedCommand]], place: Path, workspace: Path, stubs: Path) -> list[Difference]:
    if not kept:
        return []
    with tempfile.TemporaryDirectory(dir=place) as exchange:
        folder = Path(exchange)
        (folder / "texts.json").write_text(json.dumps([text for text, _ in kept]))
        (folder / "log").touch()
        (folder / "answers").mkdir()
        subprocess.run(_sandbox(folder, workspace, stubs), check=True, stdin=subprocess.DEVNULL, timeout=3_600)
        answers = {shell: json.loads((folder / "answers" / f"{shell}.json").read_text()) for shell in SHELLS}
    found: list[Difference] = []
    for shell in SHELLS:
        for (text, command), started in zip(kept, answers[shell], strict=True):
            difference = _difference(shell, text, command, [tuple(argv) for argv in started])
            if difference is not None:
                found.append(difference)
    return found


def _sandbox(exchange: Path, workspace: Path, stubs: Path) -> list[str]:
    """No network, no file system but libraries and the stubs, which stand wherever programs are looked for."""
    folders = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", f"{sys.base_prefix}/lib")
    libraries = [folder for folder in dict.fromkeys(folders) if Path(folder).exists()]
    python = str(Path(sys.executable).resolve())
    mounts = [word for folder in libraries for word in ("--ro-bind", folder, folder)]
    for shell in SHELLS:
        mounts += ["--ro-bind", str(Path(shutil.which(shell) or shell).resolve()), f"/shells/{shell}"]
    for folder in ("/usr/bin", "/bin", "/usr/local/bin", "/sbin", "/usr/sbin"):
        mounts += ["--ro-bind", str(stubs), folder]
    return [
        *(str(shutil.which("bwrap")), "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"),
        *(*mounts, "--ro-bind", python, "/driver/python", "--ro-bind", recorder.__file__, "/driver/recorder.py"),
        *("--bind", str(exchange), "/exchange", "--bind", str(exchange / "log"), "/log"),
        *("--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", HOME, "--ro-bind", str(workspace), "/work"),
        *("--chdir", "/work", "--setenv", "PYTHONHOME", sys.base_prefix),
        *("/driver/python", "-S", "/driver/recorder.py", "/exchange", HOME),
    ]


def _difference(shell: str, text: str, command: AnalysedCommand, started: list[Started]) -> Difference | None:
    """What was started and not reported, and what our own runner would start and the shell did not."""
    names = [(argv[0].rpartition("/")[2] if not argv[0].startswith("./") else argv[0], *argv[1:]) for argv in started]
    reported = Counter(_bare(argv) for argv in command.commands)
    expected = Counter(_bare(argv) for argv in _would_start(command) if argv[0] in PROGRAMS and argv[0] not in BUILTINS)
    real = Counter(names)
    unreported, missing = real - reported, expected - real
    if not unreported and not missing:
        return None
    return Difference(shell, text, tuple(unreported), tuple(missing))


def _bare(argv: Started) -> Started:
    return (argv[0].rpartition("/")[2], *argv[1:])


def _would_start(command: AnalysedCommand) -> Iterator[Started]:
    """The programs that run, as far as it is known how each ends: a stub by its name, what is not there by failing."""
    failed = False
    for step in command.steps:
        if step.joiner is Joiner.ALWAYS or (step.joiner is Joiner.ON_FAILURE) == failed:
            yield from step.pipeline
            last = step.pipeline[-1][0]
            if last in BUILTINS or "/" in last:
                return
            failed = last in FAILING or last not in PROGRAMS
