"""The download of a model while the gateway runs: at most one at a time, watched and stopped from the page."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

from anyio import CancelScope
from anyio.abc import TaskGroup
from msgspec import Struct
from msgspec.structs import replace

from retinue.core.errors import RetinueError, UsageError
from retinue.providers.local import engine
from retinue.providers.local.pull import HUB, PulledModel, PullProgress, find_pullable, pull_model

log = logging.getLogger(__name__)
STOPPED = "Stopped. What was received is kept: choose the model again to continue."


class DownloadProgress(Struct, frozen=True):
    """The last download: what it does now, or how it ended. `total` is 0 if it is unknown."""

    state: Literal["none", "running", "done", "failed", "stopped"] = "none"
    name: str = ""
    stage: str = ""
    done: int = 0
    total: int = 0
    message: str = ""


class ModelDownload:
    """Downloads one model at a time in the background."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._scope = CancelScope()
        self.progress = DownloadProgress()

    def start(self, name: str, folder: Path, hub: str | None, use: Callable[[PulledModel], Awaitable[None]]) -> None:
        """Begin or continue a download; `use` is called with the complete model.

        Raise `UsageError` if the model is unknown, could not run here, or another one is being downloaded.
        """
        wanted = find_pullable(name)
        if not engine.has_engine():
            raise UsageError(
                "Local models need the extra 'local', which is not installed. In a terminal, where Retinue runs: "
                f"`{shlex.join(engine.installer_command())}`. Then restart the gateway and choose the model again."
            )
        if self.progress.state == "running":
            if self.progress.name == wanted.name:
                return
            raise UsageError(f"'{self.progress.name}' is being downloaded. Stop that first, or wait for its end.")
        self.progress = DownloadProgress("running", wanted.name, "connecting")
        self._scope = CancelScope()
        self._tasks.start_soon(self._run, folder, hub or HUB, use)

    def stop(self) -> None:
        """Stop the download; what was received is kept."""
        if self.progress.state == "running":
            self._scope.cancel()
            self.progress = replace(self.progress, state="stopped", message=STOPPED)

    async def _run(self, folder: Path, hub: str, use: Callable[[PulledModel], Awaitable[None]]) -> None:
        with self._scope:
            try:
                await use(await pull_model(self.progress.name, folder, self._note, hub=hub))
            except RetinueError as error:
                log.warning("the download of %s failed: %s", self.progress.name, error)
                self.progress = replace(self.progress, state="failed", message=str(error))
            else:
                self.progress = replace(self.progress, state="done", message="")

    def _note(self, seen: PullProgress) -> None:
        self.progress = replace(self.progress, stage=seen.stage, done=seen.done, total=seen.total)
