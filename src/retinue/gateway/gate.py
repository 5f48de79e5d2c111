"""The door: who is there, what they may do, and from where a browser may come."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from retinue.config.sections.gateway import GatewaySettings
from retinue.core.clock import Clock
from retinue.core.errors import RetinueError
from retinue.gateway.failures import FailureCounter
from retinue.gateway.pairing import PairingBook, PairingRequest, TooManyRequests
from retinue.gateway.tokens import TokenBook, TokenRecord
from retinue.gateway.visitors import Visitor
from retinue.security.secrets import Secret, Secrets
from retinue.wire.frames import ClientFacts, Credentials
from retinue.wire.protocol import ErrorCode, Scope, with_implied

USE_NOTED_SECONDS = 60.0
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})


class Refused(RetinueError):
    """Somebody may not do what they asked for."""

    def __init__(self, code: ErrorCode, message: str, retry_after_ms: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after_ms = retry_after_ms


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody who was let in: the token they have and what it allows."""

    token_id: str
    name: str
    scopes: frozenset[Scope]
    chose_name: bool = False
    """Whether the name is the client's own word, as that of a device is."""
    vouches: bool = False
    """Whether they say whose words they bring, the owner's included, as a bridge to a chat does."""

    @property
    def is_owner(self) -> bool:
        return Scope.ADMIN in self.scopes

    @property
    def known_as(self) -> str:
        """What others call them: nobody becomes somebody else by the name they choose."""
        return f"{self.name} ({self.token_id})" if self.chose_name else self.name

    @property
    def sender(self) -> str | None:
        """Who their messages are from; None is the owner."""
        return None if self.is_owner else self.known_as

    @property
    def audited_as(self) -> str:
        """Who they are in the audit log."""
        return f"gateway:{self.name} ({self.token_id})"

    def require(self, scope: Scope) -> None:
        """Raise `Refused` where the token does not allow it."""
        if scope not in self.scopes:
            raise Refused(ErrorCode.FORBIDDEN, f"This needs the scope '{scope}', which the token '{self.name}' lacks.")


@dataclass(frozen=True, slots=True)
class Admission:
    """A principal, and the token that a device was given just now."""

    principal: Principal
    token: str | None = None


EVERYTHING = frozenset(Scope)
NEEDS_TOKEN = "A token is needed: `retinue gateway token create` makes one."  # noqa: S105 - a sentence
NEEDS_ITS_OWN = "A token is needed, in the header `Authorization: Bearer …`."
NOT_THE_ONE = "The token is not the one that opens this."
NOT_VALID = "The token or password is not valid (any more). `retinue gateway token create` makes another token."


class Gate:
    """Decides who may come in. Settings may change while it stands; tokens are looked up each time."""

    def __init__(
        self, settings: GatewaySettings, book: TokenBook, requests: PairingBook, secrets: Secrets, clock: Clock
    ) -> None:
        self.settings = settings
        self.book = book
        self.requests = requests
        self._secrets = secrets
        self._clock = clock
        self._failures = FailureCounter(clock)
        self._requests_made = FailureCounter(clock)
        self._used: dict[str, float] = {}

    def admit(self, credentials: Credentials, visitor: Visitor, device: str) -> Admission:
        """Let somebody in, or raise `Refused`."""
        address = visitor.address
        _refuse_locked(self._failures, address)
        if credentials.pairing_code is not None:
            paired = self.book.redeem(credentials.pairing_code, device)
            if paired is None:
                self._failures.note(address, self.settings.auth.rate_limit, always=True)
                raise Refused(
                    ErrorCode.UNAUTHENTICATED,
                    "That code is not valid (any more). Make another with `retinue gateway pair`.",
                )
            return self._admit_device(*paired)
        principal = self._recognise(credentials, visitor.user)
        if principal is None:
            given = credentials.token is not None or credentials.password is not None
            if given:
                self._failures.note(address, self.settings.auth.rate_limit)
            raise Refused(ErrorCode.UNAUTHENTICATED, NOT_VALID if given else NEEDS_TOKEN)
        return Admission(principal)

    def knows_nobody(self, credentials: Credentials, visitor: Visitor) -> bool:
        """Whether a client brings nothing by which it could be let in, where something is needed."""
        given = (credentials.token, credentials.password, credentials.pairing_code, visitor.user)
        return self.settings.auth.mode != "none" and given == (None, None, None, None)

    def ask_to_pair(self, client: ClientFacts, address: str) -> PairingRequest:
        """Note that a device without a token wants one; raises `Refused` where it asks too often."""
        _refuse_locked(self._failures, address)
        _refuse_locked(self._requests_made, address)
        self._requests_made.note(address, self.settings.auth.rate_limit, always=True)
        try:
            return self.requests.ask(client.name, client.platform, address)
        except TooManyRequests as error:
            raise Refused(ErrorCode.BUSY, str(error)) from error

    def admit_paired(self, request: PairingRequest) -> Admission | None:
        """Let a device in that the owner approved; None while the owner has not decided, `Refused` where it is over."""
        match self.requests.state_of(request.id):
            case "pending":
                return None
            case "approved":
                paired = self.requests.claim(request)
                if paired is not None:
                    return self._admit_device(*paired)
            case "rejected":
                raise Refused(ErrorCode.FORBIDDEN, "The owner did not let this device in.")
        raise Refused(ErrorCode.UNAUTHENTICATED, "Nobody let this device in in time. Ask again.")

    def check_secret(self, given: str | None, expected: Secret | None, address: str) -> None:
        """Let in who knows a secret that stands for one purpose alone, such as webhooks; raises `Refused` otherwise."""
        if self.knows_secret(given, expected, address):
            return
        if given is not None:
            self._failures.note(address, self.settings.auth.rate_limit)
        raise Refused(ErrorCode.UNAUTHENTICATED, NOT_THE_ONE if given is not None else NEEDS_ITS_OWN)

    def knows_secret(self, given: str | None, expected: Secret | None, address: str) -> bool:
        """Whether somebody knows such a secret; raises `Refused` for an address that guessed too often."""
        _refuse_locked(self._failures, address)
        return expected is not None and given is not None and _equal(given, self._secrets.resolve(expected))

    def _admit_device(self, record: TokenRecord, token: str) -> Admission:
        self._note_use(record)
        return Admission(_principal(record), token)

    def _recognise(self, credentials: Credentials, user: str | None) -> Principal | None:
        auth = self.settings.auth
        if auth.mode == "none":
            return Principal("none", "anybody on this machine", EVERYTHING)
        if auth.mode == "password" and auth.password is not None and credentials.password is not None:
            if _equal(credentials.password, self._secrets.resolve(auth.password)):
                return Principal("password", "password", EVERYTHING)
            return None
        if credentials.token is None:
            return Principal(f"proxy:{user}", user, EVERYTHING) if user is not None else None
        if auth.token is not None and _equal(credentials.token, self._secrets.resolve(auth.token)):
            return Principal("config", "gateway.auth.token", EVERYTHING)
        record = self.book.check(credentials.token)
        if record is None:
            return None
        self._note_use(record)
        return _principal(record)

    def _note_use(self, record: TokenRecord) -> None:
        now = self._clock.monotonic()
        if now - self._used.get(record.id, -USE_NOTED_SECONDS) >= USE_NOTED_SECONDS:
            self._used[record.id] = now
            self.book.note_use(record.id)


def grounds_of(principal: Principal, settings: GatewaySettings) -> object:
    """What of the configuration somebody was let in by; None for a token of the home, which has a record of its own."""
    auth = settings.auth
    match principal.token_id.partition(":")[0]:
        case "none":
            return auth.mode
        case "config":
            return auth.token
        case "password":
            return auth.mode, auth.password
        case "proxy":
            return auth.mode, auth.trusted_proxy, settings.trusted_proxies
    return None


def _refuse_locked(counter: FailureCounter, address: str) -> None:
    locked = counter.locked_for(address)
    if locked:
        raise Refused(ErrorCode.RATE_LIMITED, "Too many attempts. Wait before the next.", round(locked * 1000))


def _principal(record: TokenRecord) -> Principal:
    return Principal(record.id, record.name, with_implied(record.scopes), chose_name=record.kind == "device")


def _equal(given: str, expected: str) -> bool:
    return bool(expected) and hmac.compare_digest(given.encode(), expected.encode())


def bearer_token(values: Sequence[str]) -> str | None:
    """The token in the `Authorization` header; None where there is none."""
    if len(values) != 1:
        return None
    scheme, _, token = values[0].partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def may_be_host(hosts: Sequence[str], allowed_origins: Iterable[str]) -> bool:
    """Whether a request names a host that is us.

    A page elsewhere can make its own name lead to our address. It cannot make the browser write another name than its
    own here, so only names that nobody else can own are taken: loopback, plain addresses, and what is configured.
    """
    name = _host_name(hosts[0]) if len(hosts) == 1 else None
    if name is None:
        return False
    if name in LOOPBACK_NAMES or name in {_origin_host(origin) for origin in allowed_origins}:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def may_be_origin(origins: Sequence[str], hosts: Sequence[str], allowed_origins: Iterable[str]) -> bool:
    """Whether a browser may send this: no page at all, a page of ours, or one that is configured."""
    if not origins:
        return True
    if len(origins) != 1 or len(hosts) != 1:
        return False
    origin = origins[0].strip().lower()
    if origin in {allowed.strip().lower().rstrip("/") for allowed in allowed_origins}:
        return True
    return origin in (f"http://{hosts[0].strip().lower()}", f"https://{hosts[0].strip().lower()}")


def _host_name(host: str) -> str | None:
    try:
        parts = urlsplit(f"//{host.strip()}")
        _ = parts.port
    except ValueError:
        return None
    plain = not parts.path and not parts.query and not parts.fragment and "@" not in host
    return parts.hostname if plain else None


def _origin_host(origin: str) -> str | None:
    try:
        return urlsplit(origin).hostname
    except ValueError:
        return None
