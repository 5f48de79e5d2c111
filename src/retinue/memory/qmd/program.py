"""Running the `qmd` program: without a shell, with a minimal environment, a time limit, and its process group."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL, PIPE

import anyio
import anyio.to_thread
from anyio.abc import ByteReceiveStream, Process
from msgspec import Struct

from retinue.core.errors import StorageError
from retinue.storage.files.descriptors import make_private_dir

MAX_OUTPUT_BYTES = 400_000
INDEX_NAME = "index"
_KEPT_ERROR_BYTES = 8_000
_SHOWN_ERROR_CHARS = 200
_OWNER_ONLY = 0o077

_ALWAYS = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
_FOR_MODELS = (
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("QMD_EMBED_MODEL", "QMD_GENERATE_MODEL", "QMD_RERANK_MODEL", "QMD_FORCE_CPU", "QMD_LLAMA_GPU", "CUDA_PATH"),
)


class QmdFailed(StorageError):
    """The QMD program is missing or failed."""


class QmdFolders(Struct, frozen=True):
    """The folders of one agent's QMD: `home` is private to it, `models` is shared by all agents."""

    home: Path
    models: Path

    @property
    def config(self) -> Path:
        return self.home / "xdg-config"

    @property
    def cache(self) -> Path:
        return self.home / "xdg-cache"

    @property
    def config_file(self) -> Path:
        return self.config / "qmd" / f"{INDEX_NAME}.yml"

    @property
    def database(self) -> Path:
        return self.cache / "qmd" / f"{INDEX_NAME}.sqlite"

    def make(self, *, uses_models: bool) -> None:
        """Create the folders; models are large, so they are downloaded once for all agents."""
        for folder in (self.config / "qmd", self.cache / "qmd"):
            make_private_dir(folder)
        link = self.cache / "qmd" / "models"
        if uses_models and not link.exists():
            make_private_dir(self.models)
            with suppress(FileExistsError):
                link.symlink_to(self.models, target_is_directory=True)


def make_environment(environment: Mapping[str, str], folders: QmdFolders, *, uses_models: bool) -> dict[str, str]:
    """Return the environment of the program: the few variables it needs, and the folders of this agent.

    A text search needs no model. `CI` prevents the program from loading one, which would download gigabytes.
    """
    names = (*_ALWAYS, *_FOR_MODELS) if uses_models else _ALWAYS
    kept = {name: environment[name] for name in names if name in environment}
    own = {"XDG_CONFIG_HOME": str(folders.config), "XDG_CACHE_HOME": str(folders.cache), "NO_COLOR": "1"}
    return kept | own | ({} if uses_models else {"CI": "1"})


class QmdProgram(Struct, frozen=True):
    """The QMD program of one agent. Several commands may run at once."""

    command: str
    folders: QmdFolders
    environment: Mapping[str, str]
    uses_models: bool = False

    def __repr__(self) -> str:
        # The environment holds API keys.
        return f"QmdProgram(command={self.command!r}, folders={self.folders!r}, uses_models={self.uses_models!r})"

    def locate(self) -> str:
        """Return the executable; raise `QmdFailed` if it is not found."""
        if os.sep not in self.command:
            found = shutil.which(self.command, path=self.environment.get("PATH", os.defpath))
        else:
            path = Path(self.command).expanduser()
            found = str(path) if path.is_absolute() and os.access(path, os.X_OK) else None
        if found is None:
            raise QmdFailed(
                f"The program '{self.command}' was not found. Install it (npm install -g @tobilu/qmd), "
                "or set memory.qmd.command to its full path."
            )
        return found

    async def run(self, *arguments: str, seconds: float) -> str:
        """Return the program's output; raise `QmdFailed` if it fails or exceeds the time limit."""
        # A named index prevents the program from using a `.qmd` folder in a parent directory.
        argv = [await anyio.to_thread.run_sync(self.locate), "--index", INDEX_NAME, *arguments]
        await anyio.to_thread.run_sync(lambda: self.folders.make(uses_models=self.uses_models))
        title = f"`qmd {arguments[0]}`"
        # Shielded, because a process that is started during cancellation would not be killed.
        with anyio.CancelScope(shield=True):
            process = await self._start(argv, title)
        output, errors = _Captured(MAX_OUTPUT_BYTES), _Captured(_KEPT_ERROR_BYTES, drops=True)
        ended = False
        try:
            with anyio.move_on_after(seconds):
                await _read_to_end(process, output, errors)
                ended = not output.is_full
        finally:
            with anyio.CancelScope(shield=True):
                if not ended:
                    kill_group(process.pid)
                await process.aclose()
        if output.is_full:
            raise QmdFailed(f"{title} printed more than {MAX_OUTPUT_BYTES:,} bytes and was stopped.")
        if not ended:
            raise QmdFailed(f"{title} did not end within {seconds:g} s and was stopped.")
        if process.returncode:
            raise QmdFailed(f"{title} failed ({_format_code(process.returncode)}){_last_error_line(errors.data)}")
        return output.data.decode("utf-8", "replace")

    async def _start(self, argv: list[str], title: str) -> Process:
        environment = make_environment(self.environment, self.folders, uses_models=self.uses_models)
        try:
            return await anyio.open_process(
                argv,
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=PIPE,
                env=environment,
                cwd=self.folders.home,
                start_new_session=True,
                umask=_OWNER_ONLY,
            )
        except (OSError, ValueError) as error:
            raise QmdFailed(f"{title} could not be started: {error}") from error


class _Captured(Struct):
    """The output of a stream up to a limit; after that it is full, or drops the oldest bytes."""

    most: int
    drops: bool = False
    data: bytes = b""
    is_full: bool = False

    async def follow(self, stream: ByteReceiveStream) -> None:
        async for piece in stream:
            self.data += piece
            if len(self.data) > self.most:
                self.is_full = not self.drops
                self.data = self.data[-self.most :]
            if self.is_full:
                return


async def _read_to_end(process: Process, output: _Captured, errors: _Captured) -> None:
    assert process.stdout is not None
    assert process.stderr is not None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(errors.follow, process.stderr)
        await output.follow(process.stdout)
        if output.is_full:
            tasks.cancel_scope.cancel()
            return
        await process.wait()


def kill_group(leader: int) -> None:
    """Kill a process group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _format_code(code: int) -> str:
    if code < 0:
        with suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


def _last_error_line(data: bytes) -> str:
    """Return the last line that is not blank, without non-printable characters, since it is untrusted."""
    lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
    last = "".join(char for char in lines[-1] if char.isprintable()) if lines else ""
    return f": {last[:_SHOWN_ERROR_CHARS]}" if last else "."
