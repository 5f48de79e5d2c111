"""OpenID Connect: sign-in at an identity provider with the authorization code flow and PKCE."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import httpx2
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet
from msgspec import Struct

from retinue.core.clock import Clock
from retinue.core.errors import RetinueError
from retinue.security.untrusted_text import label
from retinue.teams.settings import IdentityProviderSettings
from retinue.teams.sign_ins import BegunSignIn

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures with a public key. A signature with a shared secret, or none, is never accepted."""
METADATA_PATH = "/.well-known/openid-configuration"
METADATA_SECONDS = 3_600.0
KEYS_PAUSE_SECONDS = 5.0
"""How often the keys of the provider are read again at most because a token names an unknown one."""
LEEWAY_SECONDS = 60
REQUEST_SECONDS = 10.0
MAX_RESPONSE_BYTES = 1_000_000


class SignInRefused(RetinueError):
    """The identity provider or its answer does not let a person in."""


class ProviderUnavailable(RetinueError):
    """The identity provider cannot be reached or does not behave as one."""


class ProviderIdentity(Struct, frozen=True):
    """A person as the identity provider describes them. `verified` means that it knows the address to be theirs."""

    issuer: str
    subject: str
    login: str
    name: str
    verified: bool
    groups: tuple[str, ...]
    refresh_token: str | None = None

    def __repr__(self) -> str:
        return f"ProviderIdentity({self.issuer}, {self.subject})"


class IdentityProvider:
    """One provider, with its metadata and keys, which are read when they are needed."""

    def __init__(self, settings: IdentityProviderSettings, secret: str | None, clock: Clock) -> None:
        assert settings.issuer is not None
        assert settings.client_id is not None
        self.settings = settings
        self.issuer = settings.issuer
        self._client_id = settings.client_id
        self._secret = secret
        self._clock = clock
        self._metadata: Mapping[str, Any] = {}
        self._metadata_until = 0.0
        self._keys: KeySet | None = None
        self._keys_at = 0.0

    async def authorization_url(self, begun: BegunSignIn, redirect: str) -> str:
        """The address to which the browser is sent."""
        metadata = await self._read_metadata()
        challenge = base64.urlsafe_b64encode(hashlib.sha256(begun.verifier.encode()).digest()).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": redirect,
            "scope": " ".join(self.settings.scopes),
            "state": begun.state,
            "nonce": begun.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return _with_query(metadata["authorization_endpoint"], query)

    async def finish(self, begun: BegunSignIn, code: str, redirect: str, issuer: str | None) -> ProviderIdentity:
        """Exchange a code for the identity of the person. `issuer` is the parameter `iss` of the redirect, if any."""
        metadata = await self._read_metadata()
        if issuer not in (None, self.issuer):
            raise SignInRefused("The answer came from another identity provider. Start the sign-in again.")
        if issuer is None and metadata.get("authorization_response_iss_parameter_supported") is True:
            raise SignInRefused("The answer does not name the identity provider. Start the sign-in again.")
        given = await self._request_tokens(
            {
                "grant_type": "authorization_code",
                "code": code,
                "redirect_uri": redirect,
                "code_verifier": begun.verifier,
            }
        )
        claims = await self._check_id_token(given.get("id_token"), begun.nonce)
        if self.settings.groups_claim not in claims or "email" not in claims:
            claims = {**await self._read_user(given, claims["sub"]), **claims}
        return self._describe(claims, given.get("refresh_token"))

    async def renew(self, refresh_token: str, subject: str) -> ProviderIdentity:
        """Ask the provider whether a person still has access; raises `SignInRefused` if not."""
        given = await self._request_tokens({"grant_type": "refresh_token", "refresh_token": refresh_token})
        claims = await self._read_user(given, subject)
        if isinstance(given.get("id_token"), str):
            fresh = await self._check_id_token(given["id_token"], None)
            if fresh["sub"] != subject:
                raise SignInRefused("The identity provider answered for another person.")
            claims = {**claims, **fresh}
        return self._describe({**claims, "sub": subject}, given.get("refresh_token") or refresh_token)

    async def logout_url(self, back: str) -> str | None:
        """The address at which the person also signs out of the provider; None if the provider has none."""
        endpoint = (await self._read_metadata()).get("end_session_endpoint")
        if not isinstance(endpoint, str):
            return None
        return _with_query(endpoint, {"client_id": self._client_id, "post_logout_redirect_uri": back})

    def _describe(self, claims: Mapping[str, Any], refresh_token: object) -> ProviderIdentity:
        email = claims.get("email")
        login = email or claims.get("preferred_username") or claims["sub"]
        groups = claims.get(self.settings.groups_claim)
        listed = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
        return ProviderIdentity(
            self.issuer,
            claims["sub"],
            str(login),
            str(claims.get("name") or login),
            isinstance(email, str) and claims.get("email_verified") is True,
            tuple(each for each in listed if isinstance(each, str)),
            refresh_token if isinstance(refresh_token, str) else None,
        )

    async def _check_id_token(self, token: object, nonce: str | None) -> dict[str, Any]:
        if not isinstance(token, str):
            raise SignInRefused("The identity provider sent no ID token. Check that the scope `openid` is requested.")
        rules = jwt.JWTClaimsRegistry(
            now=int(self._clock.now().timestamp()),
            leeway=LEEWAY_SECONDS,
            iss={"essential": True, "value": self.issuer},
            aud={"essential": True, "value": self._client_id},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
        )
        try:
            claims = dict((await self._verify(token)).claims)
            rules.validate(claims)
        except (JoseError, ValueError) as error:
            raise SignInRefused(
                f"The ID token of the identity provider is not valid: {label(str(error), 200)}."
            ) from None
        audience = claims["aud"]
        if isinstance(audience, list) and len(audience) > 1 and claims.get("azp") != self._client_id:
            raise SignInRefused("The ID token of the identity provider is for another program.")
        if nonce is not None and claims.get("nonce") != nonce:
            raise SignInRefused("The ID token belongs to another sign-in. Start the sign-in again.")
        return claims

    async def _verify(self, token: str) -> jwt.Token:
        """Check the signature. Keys are read again for a token that names an unknown one: the provider changed them."""
        keys = self._keys
        if keys is not None:
            try:
                return jwt.decode(token, keys, ALGORITHMS)
            except InvalidKeyIdError:
                if self._clock.monotonic() - self._keys_at < KEYS_PAUSE_SECONDS:
                    raise
        return jwt.decode(token, await self._read_keys(), ALGORITHMS)

    async def _read_keys(self) -> KeySet:
        uri = (await self._read_metadata())["jwks_uri"]
        found = await self._get(uri)
        try:
            self._keys = KeySet.import_key_set({"keys": list(found["keys"])})
        except (JoseError, KeyError, TypeError, ValueError):
            raise ProviderUnavailable("The identity provider published no keys that can be read.") from None
        self._keys_at = self._clock.monotonic()
        return self._keys

    async def _read_user(self, given: Mapping[str, Any], subject: str) -> dict[str, Any]:
        endpoint, token = (await self._read_metadata()).get("userinfo_endpoint"), given.get("access_token")
        if not isinstance(endpoint, str) or not isinstance(token, str):
            return {"sub": subject}
        found = await self._get(endpoint, {"Authorization": f"Bearer {token}"})
        if found.get("sub") != subject:
            raise SignInRefused("The identity provider answered for another person.")
        return found

    async def _read_metadata(self) -> Mapping[str, Any]:
        if self._metadata and self._clock.monotonic() < self._metadata_until:
            return self._metadata
        found = await self._get(self.issuer.rstrip("/") + METADATA_PATH)
        if found.get("issuer") != self.issuer:
            raise ProviderUnavailable(
                f"The identity provider calls itself '{label(str(found.get('issuer')), 200)}'. Set "
                "teams.provider.issuer to exactly that."
            )
        needed = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        scheme = urlsplit(self.issuer).scheme
        for name in (*needed, "userinfo_endpoint", "end_session_endpoint"):
            value = found.get(name)
            if value is None and name not in needed:
                continue
            if not isinstance(value, str) or urlsplit(value).scheme not in ("https", scheme):
                raise ProviderUnavailable(f"The identity provider names no usable `{name}`.")
        self._metadata, self._metadata_until = found, self._clock.monotonic() + METADATA_SECONDS
        return found

    async def _request_tokens(self, form: Mapping[str, str]) -> dict[str, Any]:
        metadata = await self._read_metadata()
        methods = metadata.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        body, headers = dict(form), {"Accept": "application/json"}
        if self._secret is not None and "client_secret_basic" in methods:
            pair = f"{quote(self._client_id, safe='')}:{quote(self._secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            body["client_id"] = self._client_id
            if self._secret is not None:
                body["client_secret"] = self._secret
        response = await self._send("POST", metadata["token_endpoint"], headers, body)
        found = _read_object(response)
        if response.status_code in (400, 401, 403):
            code = label(str(found.get("error", response.status_code)), 60)
            raise SignInRefused(f"The identity provider refused the sign-in ({code}). Start it again.")
        if response.status_code != 200:
            raise ProviderUnavailable(f"The identity provider answered with status {response.status_code}.")
        return found

    async def _get(self, url: str, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        response = await self._send("GET", url, headers or {})
        if response.status_code in (401, 403):
            raise SignInRefused("The identity provider does not accept the access of this person any more.")
        if response.status_code != 200:
            raise ProviderUnavailable(f"The identity provider answered with status {response.status_code}.")
        return _read_object(response)

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], form: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        try:
            async with httpx2.AsyncClient(timeout=REQUEST_SECONDS, verify=url.startswith("https:")) as client:
                response = await client.request(method, url, headers=dict(headers), data=form)
        except httpx2.HTTPError as error:
            reason = type(error).__name__
            raise ProviderUnavailable(
                f"The identity provider cannot be reached ({reason}). Try again later."
            ) from error
        if len(response.content) > MAX_RESPONSE_BYTES:
            raise ProviderUnavailable("The answer of the identity provider is too large.")
        return response


def _read_object(response: httpx2.Response) -> dict[str, Any]:
    try:
        found = response.json()
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ProviderUnavailable(f"The identity provider answered with status {response.status_code} and no JSON.")
    return found


def _with_query(address: str, query: Mapping[str, str]) -> str:
    return f"{address}{'&' if urlsplit(address).query else '?'}{urlencode(query)}"
