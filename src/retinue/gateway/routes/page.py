"""The control page: static files; the page uses the WebSocket like every other client."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response

from retinue.gateway.endpoint import RouteEndpoint
from retinue.gateway.errors import RequestRefused
from retinue.gateway.gateway import Gateway
from retinue.gateway.page_files import INDEX, MEDIA_TYPES, NOT_BUILT, find_file, find_page
from retinue.wire.protocol import ErrorCode

CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "manifest-src 'self'",
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

    def serve(gateway: Gateway, request: Request, name: str) -> Response:
        headers = {"Content-Security-Policy": CONTENT_POLICY, "Vary": "Accept-Encoding"}
        folder = find_page()
        if gateway.auth.settings.control_ui.enabled and folder is None and name == INDEX:
            return HTMLResponse(NOT_BUILT, headers=headers)
        path = find_file(folder, name) if gateway.auth.settings.control_ui.enabled and folder else None
        if path is None:
            raise RequestRefused(ErrorCode.NOT_FOUND, "There is no such page.")
        media_type = MEDIA_TYPES[path.suffix]
        packed = path.with_name(f"{path.name}.gz")
        if "gzip" in request.headers.get("accept-encoding", "") and packed.is_file():
            headers["Content-Encoding"] = "gzip"
            path = packed
        return FileResponse(path, media_type=media_type, headers=headers)

    async def redirect(gateway: Gateway, request: Request) -> RedirectResponse:
        # The page refers to its files by relative paths, so its own path must end with a slash.
        return RedirectResponse(f"{base}/", 308)

    async def index(gateway: Gateway, request: Request) -> Response:
        return serve(gateway, request, INDEX)

    async def file(gateway: Gateway, request: Request) -> Response:
        return serve(gateway, request, f"page/{request.path_params['name']}")

    async def top_file(gateway: Gateway, request: Request) -> Response:
        return serve(gateway, request, request.url.path.rpartition("/")[2])

    paths = {
        base: redirect,
        f"{base}/": index,
        f"{base}/page/{{name}}": file,
        f"{base}/icon.svg": top_file,
        f"{base}/app.webmanifest": top_file,
    }
    return [RouteEndpoint("GET", path, None, act, in_schema=False) for path, act in paths.items() if path]
