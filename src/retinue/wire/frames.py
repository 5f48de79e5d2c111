"""The three kinds of frames, as JSON texts on a WebSocket: request, response and event."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from retinue.wire.protocol import PROTOCOL, RETRYABLE, ErrorCode, Scope

Id = Annotated[str, StringConstraints(min_length=1, max_length=128)]
IdempotencyKey = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=100)]


def _check_base64(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError("this is not base64") from None
    return text


Base64 = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9+/]*={0,2}$"), AfterValidator(_check_base64)]
"""Bytes as text; whatever else came would only be found out by the model, again and again."""


class Wire(BaseModel):
    """A value as it is sent: camelCase, and what a reader does not know is ignored.

    A model is built when it is first used: a client needs few of them, and a gateway starts sooner.
    """

    model_config = ConfigDict(
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        extra="ignore",
        serialize_by_alias=True,
        defer_build=True,
    )


class Params(Wire):
    """What a method takes; a key that it does not know is an error, because it would not do what was meant."""

    model_config = ConfigDict(extra="forbid")


class Nothing(Params):
    """A method that takes nothing."""


class Done(Wire):
    """A method that has nothing to tell."""

    ok: bool = True


class Request(Wire):
    """A client asks for something. The `id` is the client's; the response carries it back."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["req"] = "req"
    id: Id
    method: Name
    params: dict[str, Any] = Field(default_factory=dict)


class Failure(Wire):
    """Why a request failed, and whether the same request may succeed later."""

    code: ErrorCode
    message: str
    details: dict[str, Any] | None = None
    retryable: bool = False
    retry_after_ms: int | None = None

    @classmethod
    def of(cls, code: ErrorCode, message: str, *, retry_after_ms: int | None = None) -> Failure:
        return cls(code=code, message=message, retryable=code in RETRYABLE, retry_after_ms=retry_after_ms)


class Response(Wire):
    """The answer to a request: a payload where `ok`, else an error."""

    type: Literal["res"] = "res"
    id: str
    ok: bool
    payload: dict[str, Any] | None = None
    error: Failure | None = None


class Event(Wire):
    """Something happened. `seq` grows within a stream; after a disconnect a client asks for what came after it."""

    type: Literal["event"] = "event"
    event: str
    stream: str
    seq: int
    payload: dict[str, Any]


class ClientFacts(Wire):
    """Who connects. `asks` tells that a person is there who can answer questions, if the token allows it."""

    name: Name = "unknown"
    version: Annotated[str, StringConstraints(max_length=60)] = ""
    platform: Annotated[str, StringConstraints(max_length=60)] = ""
    asks: bool = False


class Credentials(Wire):
    """How a client proves itself, where it did not do so in the `Authorization` header."""

    model_config = ConfigDict(extra="forbid")

    token: Annotated[str, StringConstraints(max_length=500)] | None = None
    password: Annotated[str, StringConstraints(max_length=500)] | None = None
    pairing_code: Annotated[str, StringConstraints(max_length=40)] | None = None
    """A code that the owner made with `retinue gateway pair`; the hello then carries a token for this device."""
    request_pairing: bool = False
    """Ask the owner to let this device in: the event `pairing.requested` brings a code to show, and the hello with a
    token comes once the owner has approved it. Nothing else may be sent meanwhile."""


class Connect(Params):
    """The first request of every connection."""

    min_protocol: int = PROTOCOL
    max_protocol: int = PROTOCOL
    client: ClientFacts = Field(default_factory=ClientFacts)
    auth: Credentials = Field(default_factory=Credentials)


class Policy(Wire):
    """The limits of this gateway."""

    max_frame_bytes: int
    max_in_flight: int
    tick_seconds: float


class Hello(Wire):
    """The answer to `connect`. `epoch` names this run of the gateway: sequence numbers of another mean nothing."""

    protocol: int
    version: str
    epoch: str
    connection: str
    scopes: list[Scope]
    token_id: str
    methods: list[str]
    policy: Policy
    token: str | None = None
    """A token of its own for a device that came with a pairing code; shown once."""
