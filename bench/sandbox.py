"""What a sandbox adds to a command: from the call to its end, by what enforces it."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio

from bench.everyday import run_everyday
from bench.measure import Sheet, median_ms
from retinue.core.clock import SystemClock, random_id
from retinue.core.keys import DEFAULT_AGENT, SessionKey
from retinue.sandbox.bubblewrap import Bubblewrap
from retinue.sandbox.landlock import Landlock
from retinue.sandbox.sandboxes import BackedSandbox, Sandboxes
from retinue.sandbox.settings import SandboxSettings
from retinue.structs.decode import decode
from retinue.toolkit.processes.command_table import CommandTable
from retinue.toolkit.processes.environment import base_environment
from retinue.toolkit.processes.launch import Launch
from retinue.tools.shell.analysis import Joiner, PipelineStep

SESSION = SessionKey.main(DEFAULT_AGENT)
ENVIRONMENT = base_environment({"LANG": "C.UTF-8"})
TRUE = ("/usr/bin/true",)


def run(*, full: bool) -> None:
    sheet = Sheet("sandbox")
    runs = 200 if full else 40
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        (home / "workspace").mkdir()
        sandboxes = _sandboxes(home)
        sheet.row("deciding what a session's sandbox is", median_ms(lambda: sandboxes.confinement_of(SESSION)), "ms")
        plain = anyio.run(_time, home, None, TRUE, runs)
        sheet.row("a command, unconfined", plain, "ms")
        for backend in (Bubblewrap(), Landlock()):
            began = time.perf_counter()
            problem = backend.find_problem(sandboxes.confinement_of(SESSION))
            tried = (time.perf_counter() - began) * 1000
            if problem is not None:
                print(f"  {backend.name} is left out: {problem.why}", file=sys.stderr)
                continue
            sheet.row(f"{backend.name}: found out to work, once per process", tried, "ms")
            _measure(sheet, home, backend.name, plain, runs)
        _compare_with_bare(sheet, home, runs)
    for each in run_everyday(full=full):
        where = f"{each.backend} as {each.user}"
        sheet.row(f"everyday commands that print the same, {where}", each.equal, "%", f"of {each.commands}")
        sheet.row(f"everyday commands that need approval or print a secret, {where}", each.asked + len(each.leaked), "")
        for difference in each.differences:
            print(f"  differs in {where}: {difference.command}", file=sys.stderr)
    sheet.save()


def _compare_with_bare(sheet: Sheet, home: Path, runs: int) -> None:
    """Compare a sandboxed command with bubblewrap alone: the same mounts and namespaces, started by one process."""
    enclosure = _enter(home, backend="bubblewrap")
    if not isinstance(enclosure.backend, Bubblewrap):
        return
    bare = (enclosure.backend.program or "", *bare_options(enclosure), *TRUE)
    alone: list[float] = []
    ours = anyio.run(_time, home, enclosure, TRUE, runs, lambda: alone.append(_time_bare(bare)))
    sheet.row("bubblewrap: the program alone", statistics.median(alone), "ms")
    sheet.row("bubblewrap: a command, compared with the program alone", ours / statistics.median(alone), "×", "≤ 2")


def bare_options(enclosure: BackedSandbox) -> list[str]:
    """Return the options of a sandbox without those that need descriptors: limits, filter and files in memory."""
    words = [word.decode() for word in enclosure.wrap(ENVIRONMENT).feeds[0].split(b"\0")[:-1]]
    left_out = {"--info-fd": 2, "--block-fd": 2, "--seccomp": 2, "--perms": 2, "--file": 3}
    options, position = [], 0
    while position < len(words):
        skipped = left_out.get(words[position])
        if skipped is None:
            options.append(words[position])
        position += skipped or 1
    return options


def _time_bare(argv: tuple[str, ...]) -> float:
    """The time of a program in milliseconds."""
    began = time.perf_counter()
    subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env={}, check=True)
    return (time.perf_counter() - began) * 1000


def _measure(sheet: Sheet, home: Path, name: str, plain: float, runs: int) -> None:
    confined = anyio.run(_time, home, _enter(home, backend=name), TRUE, runs)
    sheet.row(f"{name}: a command", confined, "ms", f"{confined - plain:+.1f} ms")
    three = anyio.run(_time, home, _enter(home, backend=name), (*TRUE, *TRUE, *TRUE), runs // 2)
    sheet.row(f"{name}: three programs in a pipeline", three, "ms")
    if name == "bubblewrap":
        proxied = anyio.run(_time, home, _enter(home, backend=name, network="proxy"), TRUE, runs)
        sheet.row(f"{name}: a command with the checked proxy", proxied, "ms", f"{proxied - plain:+.1f} ms")


def _sandboxes(home: Path, **values: Any) -> Sandboxes:
    settings = decode(SandboxSettings, {"mode": "all", "workspaceAccess": "rw", **values})
    return Sandboxes(home, lambda agent: settings, lambda agent: home / "workspace", SystemClock().now)


def _enter(home: Path, **values: Any) -> BackedSandbox:
    sandboxes = _sandboxes(home, **values)
    confinement = sandboxes.confinement_of(SESSION)
    sandboxes.open(confinement, SESSION)
    return sandboxes.with_backend(confinement, SESSION)


async def _time(
    home: Path,
    enclosure: BackedSandbox | None,
    programs: tuple[str, ...],
    runs: int,
    between: Callable[[], None] = lambda: None,
) -> float:
    """The median of a command's time, in milliseconds; `between` is called after each, as the load changes."""
    step = PipelineStep(Joiner.ALWAYS, tuple((program,) for program in programs))
    launch = Launch(DEFAULT_AGENT, SESSION, "true", (step,), ENVIRONMENT, 60.0, enclosure=enclosure)
    folder = os.open(home / "workspace", os.O_RDONLY)
    times = []
    try:
        async with CommandTable(SystemClock(), random_id) as table:
            for _ in range(runs):
                began = time.perf_counter()
                command = await table.start(launch, folder)
                if not await command.wait(60) or command.end is None or command.end.code != 0:
                    raise RuntimeError(f"the command failed: {command.output.text}")
                times.append(time.perf_counter() - began)
                between()
    finally:
        os.close(folder)
    return statistics.median(times) * 1000
