"""The cookies of a sign-in. Browsers send them by themselves, so they count only for requests of the page itself."""

from __future__ import annotations

from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from retinue.gateway.auth.request_source import header_values

STATE_SECONDS = 600


class SignInCookies(Struct, frozen=True):
    """The names of a team's cookies. Gateways on one host share cookies, whatever their ports."""

    team: str
    secure: bool
    """Whether browsers reach the gateway with https only, and must not send the cookie otherwise."""

    @property
    def session(self) -> str:
        return self._name("session")

    @property
    def state(self) -> str:
        return self._name("state")

    def _name(self, kind: str) -> str:
        return f"{'__Host-' if self.secure else ''}retinue_{kind}_{self.team}"

    def read_session(self, scope: Mapping[str, Any]) -> str | None:
        """The token in the cookie of a request that the page made; None for a request of a foreign page.

        A browser names the origin of a WebSocket and of a request that changes something, which the guard has checked.
        For the others it says whether the page has the same origin.
        """
        same_origin = header_values(scope, "sec-fetch-site") == ["same-origin"]
        if not header_values(scope, "origin") and not same_origin:
            return None
        return _read(scope, self.session)

    def read_state(self, scope: Mapping[str, Any]) -> str | None:
        return _read(scope, self.state)

    def set_session(self, response: Response, token: str, seconds: int) -> None:
        self._set(response, self.session, token, seconds, "strict")

    def set_state(self, response: Response, state: str) -> None:
        """Remember which browser began a sign-in. The identity provider sends it back from another site."""
        self._set(response, self.state, state, STATE_SECONDS, "lax")

    def clear(self, response: Response, *names: str) -> None:
        for name in names:
            response.delete_cookie(name, path="/", secure=self.secure, httponly=True, samesite="strict")

    def _set(self, response: Response, name: str, value: str, seconds: int, same_site: Any) -> None:
        response.set_cookie(name, value, seconds, path="/", secure=self.secure, httponly=True, samesite=same_site)


def _read(scope: Mapping[str, Any], name: str) -> str | None:
    for header in header_values(scope, "cookie"):
        cookies: SimpleCookie = SimpleCookie()
        try:
            cookies.load(header)
        except CookieError:
            continue
        if name in cookies:
            return cookies[name].value
    return None
