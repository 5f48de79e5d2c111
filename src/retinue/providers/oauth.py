"""OAuth 2: sign in with the browser (authorization code and PKCE) or a device code, and renew tokens."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Mapping
from html import escape
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import anyio
from anyio.abc import SocketAttribute, SocketStream
from msgspec import Struct

from retinue.core.errors import ConfigError
from retinue.providers.base import Timeouts
from retinue.providers.settings import OAuthSettings

LOGIN_SECONDS = 300.0
CALLBACK_PATH = "/callback"
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
MAX_REQUEST_BYTES = 16_384
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
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    callback = _Callback(state)
    async with listener:
        port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - not Django
        address = f"http://127.0.0.1:{port}{CALLBACK_PATH}"
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
        with anyio.move_on_after(seconds):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listener.serve, callback.answer)
                await callback.done.wait()
                tasks.cancel_scope.cancel()
    if callback.code is None:
        why = callback.problem or f"nobody signed in within {seconds:g} s"
        raise ConfigError(f"The sign-in failed: {why}. Run the command again.")
    form = {
        "grant_type": "authorization_code",
        "code": callback.code,
        "redirect_uri": address,
        "client_id": settings.client_id,
        "code_verifier": verifier,
    }
    return _read_tokens(await _post(settings.token_url, form))


class _Callback:
    """Answers the browser's request with the code; requests without the right state are refused."""

    def __init__(self, state: str) -> None:
        self.code: str | None = None
        self.problem: str | None = None
        self.done = anyio.Event()
        self._state = state

    async def answer(self, stream: SocketStream) -> None:
        async with stream:
            received = b""
            while b"\r\n\r\n" not in received and len(received) < MAX_REQUEST_BYTES:
                try:
                    received += await stream.receive()
                except anyio.EndOfStream:
                    return
            target = urlsplit([*received.split(b" ", 2), b"", b""][1].decode("latin-1"))
            query = {name: values[0] for name, values in parse_qs(target.query).items()}
            if target.path != CALLBACK_PATH or not self._is_expected(query.get("state", "")):
                await _send_page(stream, "404 Not Found", "This is not the answer to the sign-in.")
                return
            self.code, problem = query.get("code"), query.get("error_description") or query.get("error")
            if self.code is None:
                self.problem = (problem or "the provider sent no code")[:200]
            await _send_page(
                stream, "200 OK", "You are signed in. You can close this page." if self.code else str(self.problem)
            )
        self.done.set()

    def _is_expected(self, state: str) -> bool:
        return secrets.compare_digest(state.encode("utf-8", "replace"), self._state.encode())


async def _send_page(stream: SocketStream, status: str, text: str) -> None:
    body = f"<!doctype html><title>Retinue</title><p>{escape(text)}</p>".encode()
    head = f"HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {len(body)}\r\n"
    await stream.send(f"{head}connection: close\r\n\r\n".encode() + body)


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
