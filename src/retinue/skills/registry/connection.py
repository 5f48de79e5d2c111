"""HTTP requests to a registry: checked addresses, repeated attempts, and errors that say what to do.

The registry's own address is the operator's choice, so it may be in the local network. Addresses that the registry
names may not, and get no token.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import httpx2
import msgspec

from retinue.core.errors import SkillError
from retinue.security.checked_transport import CheckedTransport
from retinue.security.network import OPERATOR, NetworkFailed, Policy, parse_url, port_of
from retinue.security.untrusted_text import literal
from retinue.skills.integrity.contents import MAX_TOTAL_BYTES, describe_limits
from retinue.skills.registry.answers import AMBIGUOUS, AmbiguousName

T = TypeVar("T")
Progress = Callable[[str, int, int], None]
"""Called with what is transferred, the bytes so far, and the total, 0 if it is unknown."""
Wait = Callable[[float], Awaitable[None]]

NAMED_BY_REGISTRY = Policy()
ATTEMPTS = 3
MAX_WAIT_SECONDS = 60.0
MAX_ANSWER_BYTES = 8_000_000
MAX_ARCHIVE_BYTES = MAX_TOTAL_BYTES + 1_000_000
REQUEST_SECONDS = 30.0
MAX_REDIRECTS = 3
OFFLINE = (
    "Check the network and the address (`skills.registry`). Skills can also be installed from a folder, a ZIP file or "
    "a Git repository."
)


class RegistryRefused(SkillError):
    """The registry answered with an error."""

    def __init__(self, message: str, status: int, body: bytes, seconds: float) -> None:
        super().__init__(message)
        self.status = status
        self.body = body
        self.seconds = seconds
        """How long to wait before another attempt."""


class _Repeat(Exception):
    """An attempt failed in a way that another one may not."""

    def __init__(self, error: SkillError, seconds: float) -> None:
        super().__init__()
        self.error = error
        self.seconds = seconds


class RegistryConnection:
    """Sends requests to one registry."""

    def __init__(self, base: str, token: str | None, *, wait: Wait = anyio.sleep) -> None:
        self.base = base.rstrip("/")
        self.token = token
        self._origin = _origin(parse_url(self.base))
        self.wait = wait
        timeout = httpx2.Timeout(REQUEST_SECONDS)
        self._own = httpx2.AsyncClient(transport=CheckedTransport(OPERATOR), trust_env=False, timeout=timeout)
        self._others = httpx2.AsyncClient(
            transport=CheckedTransport(NAMED_BY_REGISTRY), trust_env=False, timeout=timeout
        )

    async def aclose(self) -> None:
        await self._own.aclose()
        await self._others.aclose()

    async def get(self, path: str, kind: type[T], **query: str | int | None) -> T:
        """Read a value."""
        return _decode(await self.send("GET", path, query=query), kind, path)

    async def post(self, path: str, body: object, kind: type[T]) -> T:
        """Send a value as JSON, and read the answer."""
        data = msgspec.json.encode(body)
        return _decode(await self.send("POST", path, data, {"content-type": "application/json"}), kind, path)

    async def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        query: Mapping[str, str | int | None] | None = None,
    ) -> bytes:
        """Send a request, again if the registry is busy, and return the body of the answer."""
        url = self._url(path, query)

        async def attempt() -> bytes:
            async with self._open(method, url, body, headers or {}) as response:
                return await _read(response, MAX_ANSWER_BYTES)

        return await self._repeat(attempt)

    async def download(self, path: str, place: Path, progress: Progress, **query: str | None) -> tuple[bytes, str]:
        """Download a file and return it with its media type.

        What was received is kept in `place` until the download is complete, so that a later one continues it.
        """
        url = self._url(path, query)

        async def attempt() -> tuple[bytes, str]:
            kept, tag = _read_part(place)
            headers = {"accept-encoding": "identity"}  # a range counts the bytes that are sent
            if kept and tag:
                headers |= {"range": f"bytes={len(kept)}-", "if-range": tag}
            async with self._open("GET", url, None, headers) as response:
                continued = response.status_code == httpx2.codes.PARTIAL_CONTENT
                kept = kept if continued else b""
                with _Part(place, response.headers.get("etag", ""), kept) as part:
                    total = len(kept) + int(response.headers.get("content-length", "0") or 0)
                    async for chunk in response.aiter_bytes():
                        part.add(chunk)
                        progress(place.name, part.size, total)
                        if part.size > MAX_ARCHIVE_BYTES:
                            raise SkillError(describe_limits())
                return place.read_bytes(), response.headers.get("content-type", "").partition(";")[0]

        return await self._repeat(attempt)

    def _url(self, path: str, query: Mapping[str, str | int | None] | None) -> httpx2.URL:
        url = parse_url(path if "://" in path else f"{self.base}{path}")
        given = {name: str(value) for name, value in (query or {}).items() if value not in (None, "")}
        return url.copy_merge_params(given) if given else url

    async def _repeat(self, attempt: Callable[[], Awaitable[T]]) -> T:
        for left in reversed(range(ATTEMPTS)):
            try:
                return await self._explained(attempt)
            except _Repeat as failed:
                if not left:
                    raise failed.error from None
                await self.wait(min(failed.seconds, MAX_WAIT_SECONDS) + random.random() / 4)  # noqa: S311
        raise AssertionError

    async def _explained(self, attempt: Callable[[], Awaitable[T]]) -> T:
        try:
            return await attempt()
        except RegistryRefused as error:
            if error.status == httpx2.codes.TOO_MANY_REQUESTS or error.status >= 500:
                raise _Repeat(error, error.seconds) from None
            raise
        except (NetworkFailed, httpx2.HTTPError, OSError) as error:
            reason = str(error).rstrip(".") or type(error).__name__
            text = f"The registry {self.base} cannot be reached: {reason}. {OFFLINE}"
            if isinstance(error, (httpx2.RemoteProtocolError, httpx2.ReadError)):
                text = f"The registry {self.base} ended the transfer early. Repeat the command to continue it."
            raise _Repeat(SkillError(text), 0.3) from None

    @asynccontextmanager
    async def _open(
        self, method: str, url: httpx2.URL, body: bytes | None, headers: Mapping[str, str]
    ) -> AsyncIterator[httpx2.Response]:
        for _ in range(MAX_REDIRECTS + 1):
            own = _origin(url) == self._origin
            credentials = {"authorization": f"Bearer {self.token}"} if own and self.token else {}
            client = self._own if own else self._others
            request = client.build_request(method, url, content=body, headers={**headers, **credentials})
            response = await client.send(request, stream=True)
            try:
                location = response.headers.get("location") if response.is_redirect and method == "GET" else None
                if location is None:
                    if response.status_code >= 300:
                        raise _refusal(response, await _read(response, 100_000))
                    yield response
                    return
            finally:
                await response.aclose()
            url = parse_url(str(url.join(location)))
        raise SkillError(f"The registry redirects more than {MAX_REDIRECTS} times.")


class _Part:
    """The part of a download that was received, with the tag of its content."""

    def __init__(self, place: Path, tag: str, kept: bytes) -> None:
        place.parent.mkdir(0o700, parents=True, exist_ok=True)
        _tag_path(place).write_text(tag)
        self.size = len(kept)
        self._file = place.open("ab" if kept else "wb")

    def add(self, chunk: bytes) -> None:
        self._file.write(chunk)
        self.size += len(chunk)

    def __enter__(self) -> _Part:
        return self

    def __exit__(self, *_error: object) -> None:
        self._file.close()


def forget_part(place: Path) -> None:
    """Remove what was received of a download."""
    place.unlink(missing_ok=True)
    _tag_path(place).unlink(missing_ok=True)


def _tag_path(place: Path) -> Path:
    return place.with_suffix(".tag")


def _read_part(place: Path) -> tuple[bytes, str]:
    try:
        return place.read_bytes(), _tag_path(place).read_text()
    except OSError:
        return b"", ""


async def _read(response: httpx2.Response, limit: int) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > limit:
            raise SkillError(f"The registry sent more than {limit:,} bytes, which no valid answer has.")
    return bytes(body)


def _refusal(response: httpx2.Response, body: bytes) -> RegistryRefused:
    status = response.status_code
    said = literal(body.decode(errors="replace").strip(), 500)
    match status:
        case 401:
            text = "The registry does not accept the token. Run `retinue skills login`."
        case 403:
            text = f"The registry does not permit this: {said or 'forbidden'}."
        case 404:
            text = f"The registry does not have it: {said or 'not found'}. Check the name and the version."
        case 409 if (ambiguous := _read_ambiguous(body)) is not None:
            names = ", ".join(literal(each.ref, 100) for each in ambiguous.matches)
            text = f"Several publishers have a skill of this name. Name one of them: {names}."
        case 410:
            text = f"This version was withdrawn: {said or 'gone'}. Choose another with --version."
        case 429:
            text = f"The registry gets too many requests (HTTP 429). Repeat the command in {_seconds(response):g} s."
        case _:
            text = f"The registry answered with HTTP {status}: {said or 'no reason'}."
    return RegistryRefused(text, status, body, _seconds(response))


def _seconds(response: httpx2.Response) -> float:
    """Return how long the registry wants a client to wait."""
    try:
        return max(1.0, float(response.headers["retry-after"]))
    except (KeyError, ValueError):
        return 30.0 if response.status_code == httpx2.codes.TOO_MANY_REQUESTS else 0.5


def _read_ambiguous(body: bytes) -> AmbiguousName | None:
    try:
        found = msgspec.json.decode(body, type=AmbiguousName)
    except msgspec.DecodeError:
        return None
    return found if found.code == AMBIGUOUS else None


def _decode(body: bytes, kind: type[T], path: str) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SkillError(
            f"The registry's answer to {path.partition('?')[0]} is not valid: {error}. Is the address a registry?"
        ) from None


def _origin(url: Any) -> tuple[str, bytes, int]:
    return url.scheme, url.raw_host, port_of(url)
