"""Authentication: which token, password or pairing a client presents, what it allows, and how often it may fail."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from retinue.config.sections.gateway import GatewaySettings, RateLimit
from retinue.core.clock import Clock
from retinue.core.errors import StorageError
from retinue.gateway.auth.pairing import PairingRequest, PairingStore, TooManyRequests
from retinue.gateway.auth.request_source import RequestSource, is_loopback, network_of
from retinue.gateway.auth.tokens import TokenRecord, TokenStore
from retinue.gateway.errors import RequestRefused
from retinue.security.secrets import Secret, Secrets
from retinue.security.untrusted_text import label
from retinue.wire.frames import ClientFacts, Credentials
from retinue.wire.protocol import ErrorCode, Scope, with_implied

log = logging.getLogger(__name__)

RECORD_USE_SECONDS = 60.0
"""How often the use of one token is recorded at most."""
MAX_ADDRESSES = 10_000
"""How many addresses with failed attempts are remembered."""
MAX_RECOGNISED = 1_000
"""How many tokens are remembered that were valid, to tell their clients apart before a request is authenticated."""
UNRECOGNISED = "unrecognised"


class MemberRights(Struct, frozen=True):
    """A member of the team, and the scopes for agents for which they differ from those of the role in the team."""

    id: str
    role: str
    agents: Mapping[str, frozenset[Scope]] = {}


class MemberDirectory(Protocol):
    """The members who are signed in."""

    def find(self, token: str) -> Principal | None:
        """The member who presents a token."""
        ...


class Principal(Struct, frozen=True):
    """An authenticated client: its token and what the token allows."""

    token_id: str
    name: str
    scopes: frozenset[Scope]
    chose_name: bool = False
    """Whether the client chose the name itself, as a device does."""
    vouches: bool = False
    """Whether the client may say who wrote a message, the owner included, as a bridge to a chat does."""
    member: MemberRights | None = None
    """The member of the team who signed in; None for a token of the home."""

    @property
    def is_owner(self) -> bool:
        return Scope.ADMIN in self.scopes

    @property
    def known_as(self) -> str:
        """The name that others see. A name that the client chose is shown with its token, so it cannot impersonate."""
        return f"{self.name} ({self.token_id})" if self.chose_name else self.name

    @property
    def sender(self) -> str | None:
        """The sender of the client's messages; None means the owner."""
        return None if self.is_owner else self.known_as

    @property
    def audited_as(self) -> str:
        """The actor name in the audit log."""
        return f"gateway:{self.name} ({self.token_id})"

    def limited_to(self, scopes: Iterable[Scope], name: str) -> Principal:
        """The same client under a name that it chose, with no more than these scopes."""
        allowed = self.scopes & with_implied(scopes)
        return replace(self, name=label(name, 100) or self.name, scopes=allowed, chose_name=True, vouches=False)

    def require(self, scope: Scope) -> None:
        """Raise `RequestRefused` if the token does not have the scope."""
        if scope not in self.scopes:
            raise RequestRefused(
                ErrorCode.FORBIDDEN, f"This needs the scope '{scope}', which the token '{self.name}' does not have."
            )


class Admission(Struct, frozen=True):
    """A principal, and the token if a device was paired just now."""

    principal: Principal
    token: str | None = None


class _Record:
    def __init__(self) -> None:
        self.moments: deque[float] = deque()
        self.locked_until = 0.0


class RateLimiter:
    """Counts failures per address; too many within the window lock the address for a while."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._records: OrderedDict[str, _Record] = OrderedDict()

    def locked_for(self, address: str) -> float:
        """The seconds for which the address is still locked; 0 if it is not."""
        record = self._records.get(network_of(address))
        return max(0.0, record.locked_until - self._clock.monotonic()) if record else 0.0

    def record(self, address: str, rules: RateLimit, *, always: bool = False) -> None:
        """Count a failure. Loopback may be exempt, unless `always` is set because a short code can be guessed."""
        if rules.exempt_loopback and is_loopback(address) and not always:
            return
        now = self._clock.monotonic()
        name = network_of(address)
        record = self._records.setdefault(name, _Record())
        self._records.move_to_end(name)
        while len(self._records) > MAX_ADDRESSES:
            self._records.popitem(last=False)
        while record.moments and record.moments[0] <= now - rules.window_ms / 1000:
            record.moments.popleft()
        record.moments.append(now)
        if len(record.moments) >= rules.max_attempts:
            record.locked_until = now + rules.lockout_ms / 1000
            record.moments.clear()


EVERYTHING = frozenset(Scope)


class Authenticator:
    """Authenticates clients. Settings may change at run time; tokens are looked up each time."""

    def __init__(
        self, settings: GatewaySettings, tokens: TokenStore, pairing: PairingStore, secrets: Secrets, clock: Clock
    ) -> None:
        self.settings = settings
        self.tokens = tokens
        self.pairing = pairing
        self._secrets = secrets
        self._clock = clock
        self._failures = RateLimiter(clock)
        self._pairing_attempts = RateLimiter(clock)
        self._used: dict[str, float] = {}
        self._recognised: OrderedDict[bytes, str] = OrderedDict()
        self.members: MemberDirectory | None = None

    def admit(self, credentials: Credentials, source: RequestSource, device: str) -> Admission:
        """Authenticate a client; raises `RequestRefused`."""
        address = source.address
        _refuse_if_locked(self._failures, address)
        if credentials.pairing_code is not None:
            paired = self.tokens.redeem(credentials.pairing_code, device)
            if paired is None:
                self._failures.record(address, self.settings.auth.rate_limit, always=True)
                raise RequestRefused(
                    ErrorCode.UNAUTHENTICATED,
                    "The pairing code is not valid or has expired. Create another with `retinue gateway pair`.",
                )
            return self._admit_device(*paired)
        principal = self._recognise(credentials, source.user)
        if principal is None:
            problem = "A token is required. Create one with `retinue gateway token create`."
            if credentials.token is not None or credentials.password is not None:
                self._failures.record(address, self.settings.auth.rate_limit)
                problem = (
                    "The token or password is not valid or has expired. Create a token with "
                    "`retinue gateway token create`."
                )
            raise RequestRefused(ErrorCode.UNAUTHENTICATED, problem)
        self._remember(credentials.token, principal.token_id)
        return Admission(principal)

    def client_name(self, token: str | None) -> str:
        """The id of a token that was valid before; all others have one name, so that invented tokens gain nothing.

        The name decides only with whom a client takes turns. It grants nothing.
        """
        return self._recognised.get(_digest(token), UNRECOGNISED) if token is not None else UNRECOGNISED

    def _remember(self, token: str | None, name: str) -> None:
        if token is None:
            return
        digest = _digest(token)
        self._recognised[digest] = name
        self._recognised.move_to_end(digest)
        if len(self._recognised) > MAX_RECOGNISED:
            self._recognised.popitem(last=False)

    def lacks_credentials(self, credentials: Credentials, source: RequestSource) -> bool:
        """Whether a client presents no credentials although credentials are required."""
        given = (credentials.token, credentials.password, credentials.pairing_code, source.user)
        return self.settings.auth.mode != "none" and given == (None, None, None, None)

    def request_pairing(self, client: ClientFacts, address: str) -> PairingRequest:
        """Record that a device without a token requests pairing; raises `RequestRefused` if it does so too often."""
        _refuse_if_locked(self._failures, address)
        _refuse_if_locked(self._pairing_attempts, address)
        self._pairing_attempts.record(address, self.settings.auth.rate_limit, always=True)
        try:
            return self.pairing.request(client.name, client.platform, address)
        except TooManyRequests as error:
            raise RequestRefused(ErrorCode.BUSY, str(error)) from error

    def admit_paired(self, request: PairingRequest) -> Admission | None:
        """Authenticate a device that the owner approved; None while the owner has not decided.

        Raises `RequestRefused` if the owner rejected the device or the request expired.
        """
        match self.pairing.state_of(request.id):
            case "pending":
                return None
            case "approved":
                paired = self.pairing.claim(request)
                if paired is not None:
                    return self._admit_device(*paired)
            case "rejected":
                raise RequestRefused(ErrorCode.FORBIDDEN, "The owner rejected this device.")
        raise RequestRefused(ErrorCode.UNAUTHENTICATED, "The device was not approved in time. Request pairing again.")

    def check_secret(self, given: str | None, expected: Secret | None, address: str) -> None:
        """Check a secret that has one purpose only, such as webhooks; raises `RequestRefused` if it is wrong."""
        if self.is_secret(given, expected, address):
            return
        if given is None:
            problem = "A token is required in the header `Authorization: Bearer …`."
        else:
            self._failures.record(address, self.settings.auth.rate_limit)
            problem = "The token is not valid here."
        raise RequestRefused(ErrorCode.UNAUTHENTICATED, problem)

    def check_hash(self, given: str | None, expected: str | None, address: str) -> None:
        """Check a secret of which only the SHA-256 hash is known; raises `RequestRefused` if it is wrong."""
        hashed = hashlib.sha256(given.encode("utf-8", "replace")).hexdigest() if given else None
        self.check_secret(hashed, expected, address)
        self._remember(given, "secret")

    def is_secret(self, given: str | None, expected: Secret | None, address: str) -> bool:
        """Whether such a secret is correct; raises `RequestRefused` for an address that guessed too often."""
        _refuse_if_locked(self._failures, address)
        correct = expected is not None and given is not None and _equal(given, self._secrets.resolve(expected))
        if correct:
            self._remember(given, "secret")
        return correct

    def refuse_if_locked(self, address: str) -> None:
        """Raise `RequestRefused` for an address that guessed too often."""
        _refuse_if_locked(self._failures, address)

    def record_failure(self, address: str) -> None:
        """Count a wrong password, invitation or code of a member."""
        self._failures.record(address, self.settings.auth.rate_limit, always=True)

    def _admit_device(self, record: TokenRecord, token: str) -> Admission:
        self._record_use(record)
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
        record = self.tokens.check(credentials.token)
        if record is None:
            return self.members.find(credentials.token) if self.members is not None else None
        self._record_use(record)
        return _principal(record)

    def _record_use(self, record: TokenRecord) -> None:
        now = self._clock.monotonic()
        if now - self._used.get(record.id, -RECORD_USE_SECONDS) >= RECORD_USE_SECONDS:
            self._used[record.id] = now
            try:
                self.tokens.record_use(record.id)
            except StorageError as error:  # reading must work on a disk that is full
                log.warning("the use of a token was not recorded: %s", error)


def auth_settings_of(principal: Principal, settings: GatewaySettings) -> object:
    """The settings by which a principal was authenticated; None for a token, which has its own record."""
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


def _refuse_if_locked(counter: RateLimiter, address: str) -> None:
    locked = counter.locked_for(address)
    if locked:
        raise RequestRefused(
            ErrorCode.RATE_LIMITED, "Too many attempts. Wait before you try again.", round(locked * 1000)
        )


def _principal(record: TokenRecord) -> Principal:
    return Principal(record.id, record.name, with_implied(record.scopes), chose_name=record.kind == "device")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def _equal(given: str, expected: str) -> bool:
    return bool(expected) and hmac.compare_digest(given.encode(), expected.encode())


def bearer_token(values: Sequence[str]) -> str | None:
    """The token in the `Authorization` header; None if there is none."""
    if len(values) != 1:
        return None
    scheme, _, token = values[0].partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None
