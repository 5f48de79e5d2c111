"""The chat page: static files; the page uses the WebSocket like every other client."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse

from retinue.gateway.endpoint import RouteEndpoint
from retinue.gateway.errors import RequestRefused
from retinue.gateway.gateway import Gateway
from retinue.wire.protocol import ErrorCode

FOLDER = Path(__file__).parents[1] / "web"
INDEX = "index.html"
MEDIA_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # Without any Trusted Types policy, no text can become markup or code.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""What the page may do in a browser: run its own files and connect to its own origin."""


def make_endpoints(base: str) -> Sequence[RouteEndpoint]:
    """The endpoints of the page under a path, which is empty or has no slash at its end."""
    files = {path.name: path for path in FOLDER.iterdir() if path.suffix in MEDIA_TYPES}

    def serve(gateway: Gateway, name: str) -> FileResponse:
        if name not in files or not gateway.auth.settings.control_ui.enabled:
            raise RequestRefused(ErrorCode.NOT_FOUND, "There is no such page.")
        headers = {"Content-Security-Policy": CONTENT_POLICY}
        return FileResponse(files[name], media_type=MEDIA_TYPES[files[name].suffix], headers=headers)

    async def redirect(gateway: Gateway, request: Request) -> RedirectResponse:
        # The page refers to its files by relative paths, so its own path must end with a slash.
        return RedirectResponse(f"{base}/", 308)

    async def index(gateway: Gateway, request: Request) -> FileResponse:
        return serve(gateway, INDEX)

    async def file(gateway: Gateway, request: Request) -> FileResponse:
        return serve(gateway, request.path_params["name"])

    paths = {base: redirect, f"{base}/": index, f"{base}/page/{{name}}": file}
    return [RouteEndpoint("GET", path, None, act, in_schema=False) for path, act in paths.items() if path]
