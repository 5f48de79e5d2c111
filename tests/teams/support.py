"""A gateway whose home serves the team `red`, and an identity provider that tests can tamper with."""

from __future__ import annotations

import base64
import json
import re
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey
from websockets.exceptions import ConnectionClosed
from werkzeug.serving import make_server

from retinue.core.clock import SystemClock
from retinue.storage.postgres.server import PostgresServer
from retinue.storage.postgres.team_storage import close_team_storages
from retinue.teams.access import AccessStore
from retinue.teams.audit import TeamAuditLog
from retinue.teams.database import TeamDatabase
from retinue.teams.members import MemberStore, NewMember, TeamMember
from retinue.teams.passwords import hash_password
from retinue.teams.roles import TeamRole
from tests.gateway.conftest import PATIENCE, Hall, RawSocket, open_hall
from tests.postgres import create_team_database

PASSWORD = "correct horse battery"
TEAM_KEY = "k" * 40


@dataclass
class TeamHall:
    """A gateway with a team, and the stores of that team."""

    hall: Hall
    server: PostgresServer
    members: MemberStore = field(init=False)
    access: AccessStore = field(init=False)
    audit: TeamAuditLog = field(init=False)

    def __post_init__(self) -> None:
        database = TeamDatabase(self.server, "red", SystemClock())
        self.members, self.access, self.audit = MemberStore(database), AccessStore(database), TeamAuditLog(database)

    def add(self, login: str, role: TeamRole = TeamRole.MEMBER) -> TeamMember:
        new = NewMember(login, login.partition("@")[0].title(), role, hash_password(PASSWORD, 8))
        return self.members.add(new, TeamRole.OWNER)

    async def publish(self) -> None:
        """Set `teams.publicUrl` to the address of the gateway, which is not known before it listens."""
        self.hall.write_config(teams={**self.hall.config["teams"], "publicUrl": self.hall.url})
        async with self.hall.http() as client:
            (await client.post("/rpc/config.apply", json={})).raise_for_status()

    @asynccontextmanager
    async def browser(self) -> AsyncIterator[httpx2.AsyncClient]:
        """A client that keeps cookies and names its origin, as a browser does."""
        headers = {"Origin": self.hall.url}
        async with httpx2.AsyncClient(
            base_url=self.hall.url, headers=headers, timeout=PATIENCE, verify=False
        ) as client:
            yield client

    async def sign_in(self, client: httpx2.AsyncClient, login: str, password: str = PASSWORD) -> httpx2.Response:
        return await client.post("/auth/password", json={"login": login, "password": password})

    async def token_of(self, login: str) -> str:
        """The token of a member's new sign-in."""
        async with self.browser() as client:
            response = await self.sign_in(client, login)
            assert response.status_code == 200, response.text
            return next(iter(client.cookies.values()))


@asynccontextmanager
async def open_team_hall(path: Path, **teams: Any) -> AsyncIterator[TeamHall]:
    """A gateway that serves the team `red`; `teams` are further settings of the team."""
    url = create_team_database("red", "blue")
    config = {"storage": {"url": url}, "teams": {"team": "red", "encryptionKey": TEAM_KEY, **teams}}
    server = PostgresServer(url)
    try:
        async with open_hall(path, **config) as hall, hall.serving():
            yield TeamHall(hall, server)
    finally:
        server.close()
        close_team_storages()  # a process opens one database; here each test has another


Tamper = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass
class FakeProvider:
    """The provider of `oidc-provider-mock` behind a filter that can change its tokens and its keys."""

    url: str = ""
    tamper: Tamper | None = None
    """Changes the claims of ID tokens, which are signed again with `key`."""
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "first"}))
    published: list[RSAKey] = field(default_factory=list)
    """The keys that the provider publishes instead of its own, if there are any."""
    requests: list[str] = field(default_factory=list)

    def wrap(self, app: Any) -> Any:
        def filtered(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            path = environ["PATH_INFO"]
            self.requests.append(path)
            if path == "/jwks" and self.published:
                body = json.dumps(KeySet(list(self.published)).as_dict(private=False)).encode()
                start("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
                return [body]
            if path != "/oauth2/token" or (self.tamper is None and not self.published):
                return app(environ, start)  # type: ignore[no-any-return]
            return self._sign_again(app, environ, start)

        return filtered

    def _sign_again(self, app: Any, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        seen: list[Any] = []
        body = b"".join(app(environ, lambda *given: seen.append(given)))
        answer = json.loads(body)
        if "id_token" in answer:
            claims = json.loads(_decode(answer["id_token"].split(".")[1]))
            claims = self.tamper(claims) if self.tamper else claims
            answer["id_token"] = jwt.encode({"alg": "RS256", "kid": self.key.kid}, claims, self.key)
        body = json.dumps(answer).encode()
        start(seen[0][0], [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]

    def set_user(self, subject: str, **claims: Any) -> None:
        httpx2.put(f"{self.url}/users/{subject}", json=claims, timeout=PATIENCE).raise_for_status()

    def revoke(self, subject: str) -> None:
        httpx2.post(f"{self.url}/users/{subject}/revoke-tokens", timeout=PATIENCE).raise_for_status()


def _decode(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


@contextmanager
def fake_provider() -> Iterator[FakeProvider]:
    with warnings.catch_warnings(action="ignore"):  # of a library that it uses
        from oidc_provider_mock import app  # type: ignore[import-untyped]
    provider = FakeProvider()
    server = make_server("localhost", 0, provider.wrap(app()), threaded=True)
    provider.url = f"http://localhost:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def authorize(client: httpx2.AsyncClient, address: str, subject: str) -> str:
    """Do at the provider what a person does there; return the address to which the provider sends the browser."""
    response = await client.post(address, data={"sub": subject})
    assert response.status_code == 302, response.text
    return response.headers["location"]


async def begin(client: httpx2.AsyncClient) -> str:
    """Begin a sign-in; return the address of the provider."""
    response = await client.get("/auth/provider")
    assert response.status_code == 303, response.text
    return response.headers["location"]


async def wait_until_closed(raw: RawSocket) -> int | None:
    """Wait until the gateway closes a connection; return the code."""
    try:
        while True:
            await raw.receive()
    except ConnectionClosed as closed:
        return closed.rcvd.code if closed.rcvd is not None else None


def parameter(address: str, name: str) -> str:
    return parse_qs(urlsplit(address).query)[name][0]


def replace_parameter(address: str, name: str, value: str) -> str:
    return re.sub(rf"([?&]{name}=)[^&]*", rf"\g<1>{value}", address)
