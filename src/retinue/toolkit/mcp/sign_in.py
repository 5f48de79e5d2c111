"""Signing in to MCP servers with OAuth: the stored tokens, and the sign-in with a browser.

It needs the SDK, so it is imported only when a server with OAuth is used.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl, BaseModel, ValidationError

from retinue.core.errors import ToolFailed
from retinue.security.redaction import Redactor
from retinue.security.sign_in_callback import SignInCallback, explain_answer
from retinue.storage.files.descriptors import make_private_dir, write_atomic
from retinue.toolkit.mcp.connection import SignInNeeded
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
    wanted_scope: str | None = None
    """The scopes that the server demanded for a call, and that the next sign-in requests."""


class StoredTokens:
    """The tokens of a server in a private file of the home. They are valid for one address only.

    `client` is the client if the owner registered it; otherwise it registers itself.
    """

    def __init__(
        self, home: Path, server: str, url: str, redactor: Redactor, client: OAuthClientInformationFull | None = None
    ) -> None:
        self._path = home / "mcp" / "sign-in" / f"{server}.json"
        self._url = url
        self._redactor = redactor
        self._client = client

    @property
    def exist(self) -> bool:
        """Whether there are tokens."""
        return self._load().tokens is not None

    @property
    def wanted_scope(self) -> str | None:
        """The scopes that a call needed and the tokens do not have."""
        return self._load().wanted_scope

    def want_scope(self, scope: str) -> None:
        """Store the scopes that the next sign-in requests."""
        self._save(self._load().model_copy(update={"wanted_scope": scope}))

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
        return self._client or self._load().client

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

    async def refuse(address: str) -> None:
        scope = _scope_of(address)
        if tokens.exist and scope:
            tokens.want_scope(scope)
            raise SignInNeeded(
                f"The MCP server {server} needs a sign-in with more rights ({scope[:200]}). The owner runs "
                f"`retinue mcp login {server}`."
            )
        raise SignInNeeded(f"The MCP server {server} needs a sign-in. The owner runs `retinue mcp login {server}`.")

    async def never() -> AuthorizationCodeResult:
        raise AssertionError("nobody was sent to sign in")

    return _make_provider(settings, tokens, UNUSED_ADDRESS, refuse, never)


def make_login(
    settings: McpServerSettings,
    tokens: StoredTokens,
    callback: SignInCallback,
    show_page: Callable[[str], None],
    wanted_scope: str | None = None,
) -> OAuthClientProvider:
    """Return what sends a person to the sign-in page as soon as the server demands it.

    `wanted_scope` is requested too: the server may name it only when a certain tool is called.
    """
    state = ""

    async def redirect(address: str) -> None:
        nonlocal state
        state = parse_qs(urlsplit(address).query).get("state", [""])[0]
        show_page(_with_scope(address, f"{settings.oauth.scope or _scope_of(address)} {wanted_scope or ''}"))

    async def wait() -> AuthorizationCodeResult:
        answer = await callback.wait(state, LOGIN_SECONDS)
        if "code" not in answer:
            raise ToolFailed(f"The sign-in failed: {explain_answer(answer, LOGIN_SECONDS)}. Run the command again.")
        return AuthorizationCodeResult(code=answer["code"], state=answer.get("state"), iss=answer.get("iss"))

    return _make_provider(settings, tokens, callback.address, redirect, wait)


def _scope_of(address: str) -> str:
    return parse_qs(urlsplit(address).query).get("scope", [""])[0]


def _with_scope(address: str, scope: str) -> str:
    """Return the address of a sign-in page with other scopes to request."""
    parts = urlsplit(address)
    query = [(name, value) for name, value in parse_qsl(parts.query) if name != "scope"]
    scopes = " ".join(dict.fromkeys(scope.split()))
    return parts._replace(query=urlencode([*query, ("scope", scopes)] if scopes else query)).geturl()


def _make_provider(
    settings: McpServerSettings,
    tokens: StoredTokens,
    address: str,
    redirect: Callable[[str], Awaitable[None]],
    wait: Callable[[], Awaitable[AuthorizationCodeResult]],
) -> OAuthClientProvider:
    assert settings.url is not None
    client = OAuthClientMetadata(
        client_name="Retinue",
        redirect_uris=[AnyUrl(address)],
        grant_types=["authorization_code", "refresh_token"],
        token_endpoint_auth_method="none",  # noqa: S106 - a public client has no secret
    )
    described = settings.oauth.client_metadata_url
    return OAuthClientProvider(settings.url, client, tokens, redirect, wait, described)


def make_registered_client(client_id: str, secret: str | None) -> OAuthClientInformationFull:
    """Return the client that the owner registered with a service."""
    return OAuthClientInformationFull(
        client_id=client_id,
        client_secret=secret,
        redirect_uris=[AnyUrl(UNUSED_ADDRESS)],
        token_endpoint_auth_method="client_secret_basic" if secret else "none",
    )
