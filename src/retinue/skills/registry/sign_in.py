"""Sign-in with a code that the owner confirms in a browser, on any device (RFC 8628)."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from retinue.core.errors import SkillError
from retinue.security.untrusted_text import literal
from retinue.skills.registry.connection import RegistryConnection, RegistryRefused

GRANT = "urn:ietf:params:oauth:grant-type:device_code"
SLOWER_SECONDS = 5.0
MAX_INTERVAL_SECONDS = 60.0
MAX_SECONDS = 1_800.0
NOT_OFFERED = frozenset((404, 405, 501))


class RegistryDeviceCode(Struct, frozen=True):
    """A code of the registry, and the page on which the owner confirms it."""

    device_code: str
    user_code: str
    verification_uri: str
    verification_uri_complete: str | None = None
    expires_in: float = 900.0
    interval: float = 5.0


class RegistryToken(Struct, frozen=True):
    """The token that belongs to a confirmed code."""

    access_token: str


class _Refusal(Struct, frozen=True):
    error: str


async def sign_in_by_device(
    connection: RegistryConnection,
    site: str,
    show: Callable[[RegistryDeviceCode], None],
    *,
    label: str,
) -> str:
    """Show a code, wait until the owner has confirmed it, and return the token."""
    asked = {"scope": "read write", "site_url": site, "label": label}
    try:
        code = await connection.post("/api/cli/device/code", asked, RegistryDeviceCode)
    except RegistryRefused as refused:
        if refused.status in NOT_OFFERED:
            raise SkillError("The registry does not offer sign-in by code. Use `login` with a token.") from None
        raise
    if urlsplit(code.verification_uri).scheme not in ("https", "http"):
        raise SkillError(f"The registry names no valid page for the code: {literal(code.verification_uri, 200)}.")
    show(code)
    interval, left = min(max(code.interval, 1.0), MAX_INTERVAL_SECONDS), min(code.expires_in, MAX_SECONDS)
    request = {"device_code": code.device_code, "grant_type": GRANT}
    while left > 0:
        await connection.wait(interval)
        left -= interval
        try:
            return (await connection.post("/api/cli/device/token", request, RegistryToken)).access_token
        except RegistryRefused as refused:
            match _read_error(refused):
                case "authorization_pending":
                    continue
                case "slow_down":
                    interval = min(interval + SLOWER_SECONDS, MAX_INTERVAL_SECONDS)
                case "access_denied":
                    raise SkillError("The sign-in was denied in the browser. Nothing was stored.") from None
                case "expired_token":
                    break
                case _:
                    raise
    raise SkillError("The code was not confirmed in time. Run `retinue skills login --device` again.")


def _read_error(refused: RegistryRefused) -> str:
    try:
        return msgspec.json.decode(refused.body, type=_Refusal).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
