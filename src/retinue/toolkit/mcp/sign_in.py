"""Signing in to MCP servers with OAuth: the stored tokens, and the sign-in with a browser.

It needs the SDK, so it is imported only when a server with OAuth is used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl, BaseModel, ValidationError

from retinue.core.errors import ToolFailed
from retinue.security.redaction import Redactor
from retinue.security.sign_in_callback import SignInCallback, explain_answer
from retinue.storage.files.descriptors import make_private_dir, write_atomic
from retinue.toolkit.mcp.settings import McpServerSettings

log = logging.getLogger(__name__)

LOGIN_SECONDS = 300.0
UNUSED_ADDRESS = "http://127.0.0.1/callback"
"""The registered address of a client that only renews its tokens."""


class _Stored(BaseModel):
    """The file of a server: its tokens, and how this client is registered."""

    url: str
    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None


class StoredTokens:
    """The tokens of a server in a private file of the home. They are valid for one address only."""

    def __init__(self, home: Path, server: str, url: str, redactor: Redactor) -> None:
        self._path = home / "mcp" / "sign-in" / f"{server}.json"
        self._url = url
        self._redactor = redactor

    @property
    def exist(self) -> bool:
        """Whether there are tokens."""
        return self._load().tokens is not None

    def forget(self) -> None:
        """Delete the tokens and the registration of this client."""
        self._path.unlink(missing_ok=True)

    async def get_tokens(self) -> OAuthToken | None:
        found = self._load().tokens
        if found is not None:
            self._hide(found)
        return found

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._hide(tokens)
        self._save(self._load().model_copy(update={"tokens": tokens}))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._load().client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._save(self._load().model_copy(update={"client": client_info}))

    def _hide(self, tokens: OAuthToken) -> None:
        for secret in (tokens.access_token, tokens.refresh_token):
            if secret:
                self._redactor.hide(secret)

    def _load(self) -> _Stored:
        try:
            found = _Stored.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return _Stored(url=self._url)
        except (OSError, ValidationError) as error:
            log.warning("the tokens in %s cannot be read: %s", self._path, error)
            return _Stored(url=self._url)
        return found if found.url == self._url else _Stored(url=self._url)

    def _save(self, stored: _Stored) -> None:
        make_private_dir(self._path.parent)
        write_atomic(self._path, stored.model_dump_json(exclude_none=True).encode())


def make_auth(server: str, settings: McpServerSettings, tokens: StoredTokens) -> OAuthClientProvider:
    """Return what adds the stored tokens to requests and renews them; nobody is asked to sign in."""

    async def refuse(_address: str) -> None:
        raise ToolFailed(f"The MCP server {server} needs a sign-in. The owner runs `retinue mcp login {server}`.")

    async def never() -> AuthorizationCodeResult:
        raise AssertionError("nobody was sent to sign in")

    assert settings.url is not None
    return OAuthClientProvider(settings.url, _describe_client(UNUSED_ADDRESS, settings), tokens, refuse, never)


def make_login(
    settings: McpServerSettings, tokens: StoredTokens, callback: SignInCallback, show_page: Callable[[str], None]
) -> OAuthClientProvider:
    """Return what sends a person to the sign-in page as soon as the server demands it."""
    state = ""

    async def redirect(address: str) -> None:
        nonlocal state
        state = parse_qs(urlsplit(address).query).get("state", [""])[0]
        show_page(address)

    async def wait() -> AuthorizationCodeResult:
        answer = await callback.wait(state, LOGIN_SECONDS)
        if "code" not in answer:
            raise ToolFailed(f"The sign-in failed: {explain_answer(answer, LOGIN_SECONDS)}. Run the command again.")
        return AuthorizationCodeResult(code=answer["code"], state=answer.get("state"), iss=answer.get("iss"))

    assert settings.url is not None
    return OAuthClientProvider(settings.url, _describe_client(callback.address, settings), tokens, redirect, wait)


def _describe_client(address: str, settings: McpServerSettings) -> OAuthClientMetadata:
    return OAuthClientMetadata(
        client_name="Retinue",
        redirect_uris=[AnyUrl(address)],
        grant_types=["authorization_code", "refresh_token"],
        token_endpoint_auth_method="none",  # noqa: S106 - a public client has no secret
        scope=settings.oauth.scope,
    )
