"""Download a model with progress on the terminal or as lines."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from retinue.cli.terminal import is_terminal

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from retinue.cli.common import Invocation
    from retinue.providers.local.pull import OnProgress, PulledModel, PullProgress

SMALLEST = "smollm2-135m"
"""The smallest downloadable model."""
STEP_PERCENT = 10


async def pull_showing(invocation: Invocation, name: str) -> PulledModel:
    """Download a model into the home and show progress."""
    from functools import partial

    from retinue.providers.local.pull import HUB, pull_model

    # The variable that other programs also use for a mirror of the hub.
    pull_it = partial(pull_model, hub=os.environ.get("HF_ENDPOINT") or HUB)
    if invocation.quiet or not is_terminal(sys.stderr):
        return await pull_it(name, invocation.home.models, _PlainProgress(invocation))

    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        return await pull_it(name, invocation.home.models, _show_on(bar))


def _show_on(bar: Bar) -> OnProgress:
    task = bar.add_task("", total=None)

    def show(progress: PullProgress) -> None:
        bar.update(task, description=progress.stage, completed=progress.done, total=progress.total or None)

    return show


class _PlainProgress:
    """Print a line per stage and per ten percent."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation
        self._told: tuple[str, int] | None = None

    def __call__(self, progress: PullProgress) -> None:
        percent = progress.done * 100 // progress.total if progress.total else 0
        now = (progress.stage, percent // STEP_PERCENT)
        if now == self._told:
            return
        self._told = now
        of = f": {percent} % of {progress.total / 10**6:,.0f} MB" if progress.total else ""
        self._invocation.note(f"{progress.stage}{of}")
