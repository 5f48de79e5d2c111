"""OAuth 2: sign in with the browser (authorization code and PKCE) or a device code, and renew tokens."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from msgspec import Struct

from retinue.core.errors import ConfigError
from retinue.providers.base import Timeouts
from retinue.providers.settings import OAuthSettings
from retinue.security.sign_in_callback import explain_answer, open_callback

LOGIN_SECONDS = 300.0
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_TIMEOUTS = Timeouts(connect=15.0, idle=30.0)


class OAuthTokens(Struct, frozen=True):
    """An access token, and what is needed to renew it."""

    access: str
    refresh: str | None = None
    seconds: float | None = None
    """How long the access token is valid; None if the provider does not say so."""

    def __repr__(self) -> str:
        return "OAuthTokens()"


class DeviceCode(Struct, frozen=True):
    """What a person enters on another device."""

    page: str
    code: str


async def login_with_browser(
    settings: OAuthSettings, show_page: Callable[[str], None], *, seconds: float = LOGIN_SECONDS
) -> OAuthTokens:
    """Sign in with a browser on this machine: `show_page` gets the address; the answer comes to a loopback port."""
    verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    async with open_callback() as callback:
        address = callback.address
        query = {
            "response_type": "code",
            "client_id": settings.client_id,
            "redirect_uri": address,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            **({"scope": " ".join(settings.scopes)} if settings.scopes else {}),
        }
        mark = "&" if "?" in settings.authorization_url else "?"
        show_page(f"{settings.authorization_url}{mark}{urlencode(query)}")
        answer = await callback.wait(state, seconds)
    if "code" not in answer:
        raise ConfigError(f"The sign-in failed: {explain_answer(answer, seconds)}. Run the command again.")
    form = {
        "grant_type": "authorization_code",
        "code": answer["code"],
        "redirect_uri": address,
        "client_id": settings.client_id,
        "code_verifier": verifier,
    }
    return _read_tokens(await _post(settings.token_url, form))


async def login_with_device(
    settings: OAuthSettings, show_code: Callable[[DeviceCode], None], sleep: Callable[[float], Awaitable[None]]
) -> OAuthTokens:
    """Sign in on another device: `show_code` gets the page and the code; the provider is polled until it is entered."""
    if settings.device_url is None:
        raise ConfigError("This provider has no device sign-in (`oauth.deviceUrl`). Omit --device.")
    form = {"client_id": settings.client_id} | ({"scope": " ".join(settings.scopes)} if settings.scopes else {})
    begun = await _post(settings.device_url, form)
    page, code = begun.get("verification_uri_complete") or begun.get("verification_uri"), begun.get("user_code")
    if not page or not code or not begun.get("device_code"):
        raise ConfigError(f"{settings.device_url} returned no device code.")
    show_code(DeviceCode(str(page), str(code)))
    poll = {"grant_type": DEVICE_GRANT, "device_code": str(begun["device_code"]), "client_id": settings.client_id}
    pause, left = float(begun.get("interval") or 5), float(begun.get("expires_in") or LOGIN_SECONDS)
    while left > 0:
        await sleep(pause)
        left -= pause
        answer = await _post(settings.token_url, poll, allowed=("authorization_pending", "slow_down"))
        if answer.get("error") == "slow_down":
            pause += 5
        elif "error" not in answer:
            return _read_tokens(answer)
    raise ConfigError("The sign-in failed: the code has expired. Run the command again.")


async def refresh_tokens(settings: OAuthSettings, refresh: str) -> OAuthTokens:
    """Return new tokens; a provider that sends no new refresh token keeps the old one valid."""
    form = {"grant_type": "refresh_token", "refresh_token": refresh, "client_id": settings.client_id}
    found = _read_tokens(await _post(settings.token_url, form))
    return found if found.refresh else OAuthTokens(found.access, refresh, found.seconds)


async def _post(url: str, form: Mapping[str, str], *, allowed: tuple[str, ...] = ()) -> dict[str, Any]:
    import httpx2

    from retinue.providers.http_client import check_endpoint, open_client

    check_endpoint(url)
    headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
    try:
        async with open_client(_TIMEOUTS) as client:
            response = await client.post(url, content=urlencode(form), headers=headers)
            found = response.json()
    except (httpx2.HTTPError, ValueError) as error:
        raise ConfigError(f"{url} did not answer the sign-in: {str(error) or type(error).__name__}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{url} did not answer the sign-in with a JSON object.")
    problem = found.get("error")
    if (problem and problem not in allowed) or (not problem and not response.is_success):
        why = found.get("error_description") or problem or f"status {response.status_code}"
        raise ConfigError(f"The provider refused the sign-in: {str(why)[:200]}")
    return found


def _read_tokens(answer: Mapping[str, Any]) -> OAuthTokens:
    access, refresh, seconds = answer.get("access_token"), answer.get("refresh_token"), answer.get("expires_in")
    if not isinstance(access, str) or not access:
        raise ConfigError("The provider returned no access token.")
    lifetime = float(seconds) if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) else None
    return OAuthTokens(access, refresh if isinstance(refresh, str) and refresh else None, lifetime)
