"""The chat page: a few files that any browser may read, and that talk to the socket like every other client."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse, RedirectResponse

from retinue.gateway.app import make_route_group, needs
from retinue.gateway.gate import Refused
from retinue.gateway.gateway import Gateway
from retinue.gateway.registry import Entry
from retinue.wire.protocol import ErrorCode

FOLDER = Path(__file__).parents[1] / "web"
FIRST = "index.html"
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
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
        # With no policy that could make one, no text can become markup or code at all.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""What the page may do in a browser: run its own files and talk to where it came from, nothing else."""


def make_router(gateway: Gateway, entries: Mapping[str, Entry]) -> APIRouter:
    router = make_route_group()
    files = {path.name: path for path in FOLDER.iterdir() if path.suffix in KINDS}

    def serve(name: str) -> FileResponse:
        if name not in files or not gateway.gate.settings.control_ui.enabled:
            raise Refused(ErrorCode.NOT_FOUND, "There is no such page.")
        headers = {"Content-Security-Policy": CONTENT_POLICY}
        return FileResponse(files[name], media_type=KINDS[files[name].suffix], headers=headers)

    base = _prefix(gateway)
    if base:

        @router.get(base, openapi_extra=needs(None), include_in_schema=False)
        async def enter() -> RedirectResponse:
            # The page names its files relative to itself, so it needs the slash.
            return RedirectResponse(f"{base}/", 308)

    @router.get(f"{base}/", openapi_extra=needs(None), include_in_schema=False)
    async def page() -> FileResponse:
        return serve(FIRST)

    @router.get(f"{base}/page/{{name}}", openapi_extra=needs(None), include_in_schema=False)
    async def part(name: str) -> FileResponse:
        return serve(name)

    return router


def _prefix(gateway: Gateway | None) -> str:
    """Where the page is; the protocol's documents are made from routes without a gateway."""
    return gateway.gate.settings.control_ui.base_path.rstrip("/") if gateway is not None else ""
