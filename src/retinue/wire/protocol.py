"""The protocol between gateway and client: version, scopes, error codes and limits."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

PROTOCOL = 1
"""Incremented if an old client could misunderstand a new gateway; additions do not increment it."""

SOCKET_PATH = "/ws"

MAX_FRAME_BYTES = 8 * 1024 * 1024
"""The largest frame and the largest HTTP body: a message of `MAX_MESSAGE_CHARS` with pictures."""
MAX_READ_FRAME_BYTES = 2 * MAX_FRAME_BYTES
"""Up to this size, a frame is read to find the request that an error response belongs to."""
MAX_FIRST_FRAME_BYTES = 64 * 1024
MAX_IN_FLIGHT = 64
"""How many requests of one connection may be open at the same time."""
CONNECT_SECONDS = 10.0
TICK_SECONDS = 20.0
"""Seconds between two pings of the gateway; a client that is silent for twice as long is disconnected."""

GATEWAY_STREAM = "gateway"
"""The stream of events that belong to no session."""


class Scope(StrEnum):
    """What a token allows. Only the gateway's record of the token counts, never what a client says."""

    READ = "read"
    WRITE = "write"
    APPROVE = "approve"
    PAIR = "pair"
    ADMIN = "admin"


IMPLIED: dict[Scope, frozenset[Scope]] = {
    Scope.READ: frozenset({Scope.READ}),
    Scope.WRITE: frozenset({Scope.WRITE, Scope.READ}),
    Scope.APPROVE: frozenset({Scope.APPROVE, Scope.READ}),
    Scope.PAIR: frozenset({Scope.PAIR, Scope.READ}),
    Scope.ADMIN: frozenset(Scope),
}
"""The scopes that each scope includes."""


def with_implied(scopes: Iterable[Scope]) -> frozenset[Scope]:
    """All scopes that a set of scopes includes."""
    return frozenset().union(*(IMPLIED[scope] for scope in scopes))


class ErrorCode(StrEnum):
    """Why a request failed, for programs; the message beside it is for people."""

    BAD_REQUEST = "bad_request"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    TIMED_OUT = "timed_out"
    TOO_LARGE = "too_large"
    RATE_LIMITED = "rate_limited"
    BUSY = "busy"
    SHUTTING_DOWN = "shutting_down"
    FAILED = "failed"
    INTERNAL = "internal"


RETRYABLE = frozenset({ErrorCode.TIMED_OUT, ErrorCode.RATE_LIMITED, ErrorCode.BUSY, ErrorCode.SHUTTING_DOWN})

HTTP_STATUS: dict[ErrorCode, int] = {
    ErrorCode.BAD_REQUEST: 400,
    ErrorCode.UNAUTHENTICATED: 401,
    ErrorCode.FORBIDDEN: 403,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.CONFLICT: 409,
    ErrorCode.TIMED_OUT: 408,
    ErrorCode.TOO_LARGE: 413,
    ErrorCode.RATE_LIMITED: 429,
    ErrorCode.BUSY: 503,
    ErrorCode.SHUTTING_DOWN: 503,
    ErrorCode.FAILED: 422,
    ErrorCode.INTERNAL: 500,
}


class CloseCode:
    """Why the gateway closes a socket."""

    GOING_AWAY = 1001
    POLICY = 1008
    TOO_BIG = 1009
    RESTART = 1012
    TOO_SLOW = 4008
    REVOKED = 4001
