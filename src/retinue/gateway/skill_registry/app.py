"""The application of a registry: its routes, the limit of requests, and the server.

The server stands alone: no gateway runs with it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from retinue.core.errors import SkillError
from retinue.gateway.skill_registry.reading import RegistryReading
from retinue.gateway.skill_registry.writing import RegistryWriting
from retinue.gateway.transport import address_of, listen
from retinue.skills.registry.folder import RegistryFolder

WINDOW_SECONDS = 60


class _Limiter:
    """Counts the requests of each address in a minute."""

    def __init__(self, limit: int, monotonic: Callable[[], float]) -> None:
        self._limit = limit
        self._monotonic = monotonic
        self._window = 0.0
        self._counts: dict[str, int] = {}

    def check(self, address: str) -> dict[str, str]:
        """Return the headers that describe the limit; raise if it is reached."""
        now = self._monotonic()
        if now - self._window >= WINDOW_SECONDS:
            self._window, self._counts = now, {}
        count = self._counts[address] = self._counts.get(address, 0) + 1
        left = max(1, int(WINDOW_SECONDS - (now - self._window)))
        headers = {
            "ratelimit-limit": str(self._limit),
            "ratelimit-remaining": str(max(0, self._limit - count)),
            "ratelimit-reset": str(left),
        }
        if count > self._limit:
            raise HTTPException(429, "Rate limit exceeded", {**headers, "retry-after": str(left)})
        return headers


def make_registry_app(
    folder: RegistryFolder, *, requests_per_minute: int = 600, monotonic: Callable[[], float] = time.monotonic
) -> Starlette:
    """Return the web application over a folder."""
    reading, writing, limiter = (
        RegistryReading(folder),
        RegistryWriting(folder),
        _Limiter(requests_per_minute, monotonic),
    )
    skill = "/api/v1/skills/{slug}"
    table: tuple[tuple[str, str, Callable[[Request], Awaitable[Response]]], ...] = (
        ("GET", "/.well-known/clawhub.json", reading.well_known),
        ("GET", "/api/v1/search", reading.search),
        ("GET", "/api/v1/resolve", reading.resolve),
        ("GET", "/api/v1/download", reading.download),
        ("GET", "/api/v1/whoami", writing.whoami),
        ("GET", "/api/v1/skills", reading.list_skills),
        ("POST", "/api/v1/skills", writing.publish),
        ("POST", "/api/v1/skills/-/upload-url", writing.upload_url),
        ("POST", "/api/v1/skills/-/upload", writing.upload),
        ("POST", "/api/v1/skills/-/security-verdicts", reading.verdicts),
        ("GET", skill, reading.skill),
        ("DELETE", skill, partial(writing.withdraw_all, undo=False)),
        ("POST", f"{skill}/undelete", partial(writing.withdraw_all, undo=True)),
        ("GET", f"{skill}/versions", reading.versions),
        ("GET", f"{skill}/versions/{{version}}", reading.version),
        ("DELETE", f"{skill}/versions/{{version}}", partial(writing.withdraw, undo=False)),
        ("POST", f"{skill}/versions/{{version}}/restore", partial(writing.withdraw, undo=True)),
        ("GET", f"{skill}/install", reading.install),
        ("GET", f"{skill}/file", reading.file),
        ("GET", f"{skill}/verify", reading.verify),
        ("GET", f"{skill}/moderation", reading.moderation),
    )
    routes = [Route(path, partial(_handle, limiter, handler), methods=[method]) for method, path, handler in table]
    return Starlette(routes=routes, exception_handlers={HTTPException: _explain, SkillError: _explain_skill})


async def _handle(limiter: _Limiter, handler: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
    headers = limiter.check(request.client.host if request.client else "")
    response = await handler(request)
    response.headers.update({**headers, "x-content-type-options": "nosniff"})
    return response


async def serve_registry(
    app: Starlette, host: str, port: int, announce: Callable[[str], None] = lambda address: None
) -> None:
    """Serve until the process is interrupted."""
    config = uvicorn.Config(app, log_config=None, access_log=False, server_header=False, lifespan="off")
    with listen(host, port) as opened:
        opened.listen()
        announce(address_of(opened))
        await uvicorn.Server(config).serve([opened])


async def _explain(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return PlainTextResponse(error.detail, error.status_code, dict(error.headers or {}))


async def _explain_skill(_request: Request, error: Exception) -> Response:
    return PlainTextResponse(str(error), 400)
