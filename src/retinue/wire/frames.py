"""Frames: the three kinds of JSON text on a WebSocket, the declaration of a method, and the payloads of events."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from retinue.core.events import TurnEvent
from retinue.core.keys import RunId
from retinue.wire.protocol import PROTOCOL, RETRYABLE, ErrorCode, Scope

Id = Annotated[str, Meta(min_length=1, max_length=128)]
IdempotencyKey = Annotated[str, Meta(min_length=1, max_length=200)]
Name = Annotated[str, Meta(min_length=1, max_length=100)]
Time = Annotated[datetime, Meta(tz=True)]
"""A time with its offset from UTC."""
Base64 = Annotated[str, Meta(pattern=r"^[A-Za-z0-9+/]*={0,2}$")]
"""Bytes as text. A value that holds one calls `check_base64` when it is created."""


def check_base64(name: str, text: str) -> None:
    """Raise `ValueError` unless the field's text is base64: otherwise only the model would notice, in every turn."""
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError(f"`{name}` is not base64") from None


class Wire(Struct, frozen=True, rename="camel"):
    """A value as it is sent: camelCase names; a reader ignores fields that it does not know."""


class SparseWire(Wire, frozen=True):
    """A value that is sent without the fields that are None, here and in everything below."""


class Params(Wire, frozen=True, forbid_unknown_fields=True):
    """The parameters of a method. An unknown key is an error, because the call would not do what was meant."""


class Nothing(Params, frozen=True):
    """The parameters of a method that takes none."""


class Done(Wire, frozen=True):
    """The result of a method that returns nothing else."""

    ok: bool = True


class Request(Wire, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request of a client. The client chooses the `id`; the response carries it back."""

    type: Literal["req"] = "req"
    id: Id
    method: Name
    params: dict[str, Any] = msgspec.field(default_factory=dict)


class RequestFrame(Wire, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request whose parameters are decoded later, by the type that the method declares."""

    type: Literal["req"] = "req"
    id: Id
    method: Name
    params: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))


class Failure(SparseWire, frozen=True):
    """Why a request failed, and whether the same request may succeed later."""

    code: ErrorCode
    message: str
    details: dict[str, Any] | None = None
    retryable: bool = False
    retry_after_ms: int | None = None

    @classmethod
    def of(cls, code: ErrorCode, message: str, *, retry_after_ms: int | None = None) -> Failure:
        return cls(code=code, message=message, retryable=code in RETRYABLE, retry_after_ms=retry_after_ms)


class Response(Wire, frozen=True, kw_only=True):
    """The response to a request: a payload if `ok`, otherwise an error."""

    type: Literal["res"] = "res"
    id: str
    ok: bool
    payload: dict[str, Any] | None = None
    error: Failure | None = None


class Event(Wire, frozen=True, kw_only=True):
    """An event. `seq` grows within a stream; after a disconnect a client requests what came after it."""

    type: Literal["event"] = "event"
    event: str
    stream: str
    seq: int
    payload: dict[str, Any]


class ClientFacts(Wire, frozen=True):
    """The client that connects. `asks` means that a person is there who can answer approval requests."""

    name: Name = "unknown"
    version: Annotated[str, Meta(max_length=60)] = ""
    platform: Annotated[str, Meta(max_length=60)] = ""
    asks: bool = False


class Credentials(Wire, frozen=True, forbid_unknown_fields=True):
    """How a client authenticates if it did not do so in the `Authorization` header."""

    token: Annotated[str, Meta(max_length=500)] | None = None
    password: Annotated[str, Meta(max_length=500)] | None = None
    pairing_code: Annotated[str, Meta(max_length=40)] | None = None
    """A code that the owner created with `retinue gateway pair`; the hello then carries a token for this device."""
    request_pairing: bool = False
    """Request pairing: the event `pairing.requested` carries a code to show, and the hello with a token follows after
    the owner has approved the device. The client must send nothing else meanwhile."""


class Connect(Params, frozen=True):
    """The first request of every connection.

    With `scopes`, the connection has only those of its token's scopes. Without `admin` among them it does not act as
    the owner but as a client of its own name: for a program that passes on what another model asks for.
    """

    min_protocol: int = PROTOCOL
    max_protocol: int = PROTOCOL
    client: ClientFacts = ClientFacts()
    auth: Credentials = Credentials()
    scopes: Annotated[tuple[Scope, ...], Meta(min_length=1, max_length=len(Scope))] | UnsetType = UNSET


class Policy(Wire, frozen=True):
    """The limits of this gateway."""

    max_frame_bytes: int
    max_in_flight: int
    tick_seconds: float


class Hello(Wire, frozen=True):
    """The result of `connect`. `epoch` names this run of the gateway; sequence numbers are valid only within it."""

    protocol: int
    version: str
    epoch: str
    connection: str
    scopes: list[Scope]
    token_id: str
    methods: list[str]
    policy: Policy
    token: str | None = None
    """A token for a device that was paired with this connection; it is sent once."""


P = TypeVar("P", bound=Params)
R = TypeVar("R", bound=Wire)


class Method(Struct, Generic[P, R], frozen=True):
    """One method of the gateway. `changes` is true if calling it twice may have an effect twice."""

    name: str
    scope: Scope
    params: type[P]
    result: type[R]
    summary: str
    changes: bool = False


class TurnPayload(SparseWire, frozen=True):
    """The payload of `turn`: `runs` are the messages that the turn answers; the last one names the turn."""

    runs: tuple[RunId, ...]
    event: TurnEvent


class SessionsChanged(SparseWire, frozen=True):
    """The payload of `sessions.changed`: a session differs from what lists show."""

    session_key: str
    reason: str


class ConfigChanged(SparseWire, frozen=True):
    """The payload of `config.changed`: a new configuration was applied, or could not be applied."""

    applied: bool
    hash: str
    needs_restart: list[str]
    problems: list[str]


class ApprovalsChanged(SparseWire, frozen=True):
    """The payload of `approvals.changed`: an approval was requested or decided; `approvals.list` has pending ones."""

    id: str
    pending: bool
    session_key: str


class PairingRequested(SparseWire, frozen=True):
    """The payload of `pairing.requested`: what a device shows while it waits for the owner."""

    id: str
    code: str
    expires_at: Time


class DevicesChanged(SparseWire, frozen=True):
    """The payload of `devices.changed`: the number of devices that wait for approval; `devices.list` has them."""

    waiting: int


class Shutdown(SparseWire, frozen=True):
    """The payload of `shutdown`: the gateway stops; messages without an answer are answered after its next start."""

    reason: str


EVENTS: dict[str, tuple[type[SparseWire], str]] = {
    "turn": (TurnPayload, "Something happened in a turn of the stream's session."),
    "sessions.changed": (SessionsChanged, "A session was started, ended or changed. Stream `gateway`."),
    "config.changed": (ConfigChanged, "The configuration was read again. Stream `gateway`."),
    "approvals.changed": (ApprovalsChanged, "An approval was requested or decided. Stream `gateway`."),
    "pairing.requested": (PairingRequested, "Before the hello, to a device that requests pairing: the code to show."),
    "devices.changed": (
        DevicesChanged,
        "A device requested access, stopped waiting, or was revoked. Stream `gateway`.",
    ),
    "shutdown": (Shutdown, "The gateway stops or restarts. Stream `gateway`."),
}
"""Every event: its payload, and when it is sent."""
