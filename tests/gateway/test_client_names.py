"""Who takes turns with whom, before a request is authenticated."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from retinue.config.sections.gateway import GatewaySettings
from retinue.gateway.auth.authenticator import MAX_RECOGNISED, Authenticator
from retinue.gateway.auth.pairing import PairingStore
from retinue.gateway.auth.request_source import RequestSource
from retinue.gateway.auth.tokens import TokenStore
from retinue.gateway.errors import RequestRefused
from retinue.security.secrets import Secrets
from retinue.storage.database import SqliteDatabase
from retinue.testing.clock import FrozenClock
from retinue.wire.frames import Credentials
from retinue.wire.protocol import Scope


def test_invented_tokens_have_one_name_and_each_valid_token_has_its_own(tmp_path: Path) -> None:
    clock, database = FrozenClock(), SqliteDatabase(tmp_path / "state.sqlite")
    tokens = TokenStore(database, clock)
    auth = Authenticator(GatewaySettings(), tokens, PairingStore(database, tokens, clock), Secrets({}), clock)
    first, second = (tokens.create(name, (Scope.READ,))[1] for name in ("first", "second"))
    assert auth.client_name(first) == auth.client_name("rtn_invented_1") == auth.client_name(None)
    for token in (first, second, *(f"rtn_invented_{number}" for number in range(MAX_RECOGNISED)), f"{first}x"):
        with suppress(RequestRefused):
            auth.admit(Credentials(token=token), RequestSource("127.0.0.1"), "http")
    names = {auth.client_name(token) for token in (first, second, "rtn_invented_1", "rtn_invented_2", f"{first}x")}
    assert len(names) == 3
    assert auth.client_name("rtn_invented_1") == auth.client_name(f"{first}x") == auth.client_name(None)
    database.close()
