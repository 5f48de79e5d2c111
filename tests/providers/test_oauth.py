"""Signing in to a provider: a local provider that checks every step."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import urlopen

import anyio
import anyio.to_thread
import pytest
from click.testing import CliRunner

from retinue.cli.models import models
from retinue.core.errors import ConfigError
from retinue.providers.auth_profiles import Profile, ProfileFile
from retinue.providers.credential_pool import AuthRules, CredentialPool, with_tokens
from retinue.providers.oauth import DeviceCode, OAuthTokens, login_with_browser, login_with_device, refresh_tokens
from retinue.providers.settings import AuthSettings, ModelsSettings, OAuthSettings, ProviderSettings
from retinue.security.secrets import Secrets
from tests.providers.support import HandClock

pytestmark = pytest.mark.anyio

WAIT = 120.0


class TestProvider:
    """An OAuth provider on a loopback port."""

    __test__ = False

    def __init__(self) -> None:
        self.challenges: dict[str, dict[str, str]] = {}
        self.forms: list[dict[str, str]] = []
        self.pending = 2
        self.refresh = "refresh-1"
        self.denies = False
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
                provider.challenges["code-1"] = query
                answer = {"error": "access_denied"} if provider.denies else {"code": "code-1"}
                self.send_response(302)
                self.send_header("location", f"{query['redirect_uri']}?{urlencode(answer | {'state': query['state']})}")
                self.end_headers()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                form = {name: values[0] for name, values in parse_qs(body).items()}
                provider.forms.append(form)
                status, answer = provider.answer(self.path, form)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, path: str, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        if path == "/device":
            return 200, {"device_code": "d", "user_code": "ABCD-EFGH", "verification_uri": "http://x/go", "interval": 1}
        tokens = {"access_token": "access-0123456789", "refresh_token": self.refresh, "expires_in": 3600}
        match form["grant_type"]:
            case "authorization_code":
                begun = self.challenges[form["code"]]
                digest = hashlib.sha256(form["code_verifier"].encode()).digest()
                fits = begun["code_challenge"] == base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
                return (200, tokens) if fits else (400, {"error": "invalid_grant"})
            case "refresh_token":
                if form["refresh_token"] != self.refresh:
                    return 400, {"error": "invalid_grant", "error_description": "the session has ended"}
                return 200, {"access_token": "access-renewed-01", "expires_in": 3600}
        self.pending -= 1
        return (400, {"error": "authorization_pending"}) if self.pending >= 0 else (200, tokens)

    @property
    def settings(self) -> OAuthSettings:
        return OAuthSettings(
            authorization_url=f"{self.url}/authorize",
            token_url=f"{self.url}/token",
            device_url=f"{self.url}/device",
            client_id="retinue-test",
            scopes=["chat", "models"],
        )


@pytest.fixture
def provider() -> Iterator[TestProvider]:
    made = TestProvider()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        thread.join()
        made.server.server_close()


class Browser:
    """A browser that opens the page of the sign-in, after some requests of others to the same port."""

    def __init__(self, *, first: tuple[str, ...] = ()) -> None:
        self.statuses: list[int] = []
        self._first = first
        self._thread: threading.Thread | None = None

    def open(self, address: str) -> None:
        self._thread = threading.Thread(target=self._visit, args=(address,))
        self._thread.start()

    def _visit(self, address: str) -> None:
        back = parse_qs(urlsplit(address).query)["redirect_uri"][0]
        for url in (*(back + query for query in self._first), address):
            try:
                with urlopen(url, timeout=WAIT) as page:
                    self.statuses.append(page.status)
            except HTTPError as error:
                self.statuses.append(error.code)
                error.close()

    async def finished(self) -> list[int]:
        """What it saw, after it has read every answer."""
        assert self._thread is not None
        await anyio.to_thread.run_sync(self._thread.join)
        return self.statuses


async def test_signing_in_with_the_browser(provider: TestProvider) -> None:
    browser = Browser()
    tokens = await login_with_browser(provider.settings, browser.open, seconds=WAIT)
    assert (tokens.access, tokens.refresh, tokens.seconds) == ("access-0123456789", "refresh-1", 3600)
    assert await browser.finished() == [200]
    begun = provider.challenges["code-1"]
    assert (begun["client_id"], begun["scope"], begun["code_challenge_method"]) == (
        "retinue-test",
        "chat models",
        "S256",
    )
    assert "access" not in repr(tokens)


async def test_a_forged_answer_to_the_sign_in_is_refused(provider: TestProvider) -> None:
    browser = Browser(first=("?code=evil&state=wrong", "?code=evil", "/elsewhere?code=evil"))
    tokens = await login_with_browser(provider.settings, browser.open, seconds=WAIT)
    assert tokens.access == "access-0123456789"
    assert await browser.finished() == [404, 404, 404, 200]
    assert [form["code"] for form in provider.forms] == ["code-1"]


async def test_a_denied_sign_in_says_so(provider: TestProvider) -> None:
    provider.denies = True
    browser = Browser()
    with pytest.raises(ConfigError, match="access_denied"):
        await login_with_browser(provider.settings, browser.open, seconds=WAIT)
    await browser.finished()


async def test_a_sign_in_that_nobody_finishes_ends(provider: TestProvider) -> None:
    with pytest.raises(ConfigError, match="nobody signed in"):
        await login_with_browser(provider.settings, lambda address: None, seconds=0.01)


async def test_signing_in_with_a_device_code(provider: TestProvider) -> None:
    shown: list[DeviceCode] = []
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    tokens = await login_with_device(provider.settings, shown.append, sleep)
    assert tokens.refresh == "refresh-1"
    assert shown == [DeviceCode("http://x/go", "ABCD-EFGH")]
    assert pauses == [1, 1, 1]


async def test_a_refresh_keeps_the_old_refresh_token_if_there_is_no_new_one(provider: TestProvider) -> None:
    tokens = await refresh_tokens(provider.settings, "refresh-1")
    assert (tokens.access, tokens.refresh) == ("access-renewed-01", "refresh-1")
    with pytest.raises(ConfigError, match="the session has ended"):
        await refresh_tokens(provider.settings, "refresh-0")


async def test_an_expired_token_is_renewed_once_and_stored(provider: TestProvider, tmp_path: Path) -> None:
    clock = HandClock()
    rules = AuthRules(AuthSettings(), ModelsSettings(providers={"lab": ProviderSettings(oauth=provider.settings)}))
    pool = CredentialPool(tmp_path, None, rules, Secrets({}), clock)
    tokens = OAuthTokens("access-0123456789", "refresh-1", 3600)
    pool.add(with_tokens(Profile("lab:me", "lab", "token", ""), tokens, clock.now()))
    (profile,) = pool.profiles("lab")
    assert (await pool.open(profile)).secret == "access-0123456789"
    clock.turn(hours=2)
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(pool.open, profile)
    assert len(provider.forms) == 1
    (stored,) = ProfileFile(tmp_path).profiles()
    assert (stored.secret, stored.refresh) == ("access-renewed-01", "refresh-1")
    assert stored.expires == clock.now() + timedelta(hours=1)
    provider.refresh = "another"
    clock.turn(hours=2)
    with pytest.raises(ConfigError, match="retinue models auth login lab"):
        await pool.open(stored)


def test_the_command_stores_what_the_sign_in_returned(
    provider: TestProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETINUE_HOME", str(tmp_path))
    oauth = {
        "authorizationUrl": f"{provider.url}/authorize",
        "tokenUrl": f"{provider.url}/token",
        "deviceUrl": f"{provider.url}/device",
        "clientId": "retinue-test",
    }
    lab = {"baseUrl": f"{provider.url}/v1", "api": "openai-completions", "oauth": oauth}
    (tmp_path / "retinue.json").write_text(json.dumps({"models": {"providers": {"lab": lab}}}))
    provider.pending = 0
    done = CliRunner().invoke(models, ["auth", "login", "lab", "--device", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["id"] == "lab:default"
    assert "ABCD-EFGH" in done.stderr
    assert "access-0123456789" not in done.output
    listed = json.loads(CliRunner().invoke(models, ["auth", "list", "--json"]).stdout)
    assert [(row["id"], row["kind"]) for row in listed if row["provider"] == "lab"] == [("lab:default", "token")]
    refused = CliRunner().invoke(models, ["auth", "login", "openai", "--json"])
    assert refused.exit_code != 0
