"""Errors of requests: refusals with a code, and what a caller learns about any other error."""

from __future__ import annotations

import json
import logging
import re
from typing import TypeVar

import msgspec

from retinue.core.errors import ConfigError, MessageTooLarge, RetinueError, SessionError, UsageError
from retinue.dispatch.inbox import InboxFull, UnknownRun
from retinue.dispatch.lanes import LaneFull
from retinue.runtime.dispatcher.commands import DispatcherClosed
from retinue.runtime.dispatcher.dispatcher import TooBusy
from retinue.security.redaction import redact_everything
from retinue.tools.approvals.broker import AlreadySettled, NotAnApprover, UnknownApproval
from retinue.wire import codec
from retinue.wire.frames import Failure
from retinue.wire.protocol import ErrorCode

log = logging.getLogger(__name__)

T = TypeVar("T")

REVOKED_WHILE_WAITING = "The token was revoked while the request waited."

_CODES: tuple[tuple[type[RetinueError], ErrorCode], ...] = (
    (DispatcherClosed, ErrorCode.SHUTTING_DOWN),
    (MessageTooLarge, ErrorCode.TOO_LARGE),
    (TooBusy, ErrorCode.BUSY),
    (InboxFull, ErrorCode.BUSY),
    (LaneFull, ErrorCode.BUSY),
    (UnknownRun, ErrorCode.NOT_FOUND),
    (UnknownApproval, ErrorCode.NOT_FOUND),
    (AlreadySettled, ErrorCode.CONFLICT),
    (NotAnApprover, ErrorCode.FORBIDDEN),
    (UsageError, ErrorCode.BAD_REQUEST),
    (SessionError, ErrorCode.NOT_FOUND),
    (ConfigError, ErrorCode.CONFLICT),
)
_LOCATED = re.compile(r"(?P<problem>.*?)(?: - at `\$(?P<place>[^`]*)`)?", re.DOTALL)
_FIELD = re.compile(r"Object (missing required|contains unknown) field `(?P<name>[^`]*)`")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class RequestRefused(RetinueError):
    """A request is not carried out; `code` says why."""

    def __init__(self, code: ErrorCode, message: str, retry_after_ms: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after_ms = retry_after_ms


class BadField(RequestRefused):
    """A field of a request has a value that is not accepted; `param` is its path, such as `messages.0.role`."""

    def __init__(
        self, param: str, message: str, *, code: ErrorCode = ErrorCode.BAD_REQUEST, kind: str | None = None
    ) -> None:
        super().__init__(code, message)
        self.param = param
        self.kind = kind


class ProviderFailed(RequestRefused):
    """A turn has no answer because of the model's provider; `status` and `kind` are those that OpenAI's API uses."""

    def __init__(self, code: ErrorCode, message: str, *, status: int, kind: str, retry_after: float | None) -> None:
        super().__init__(code, message, round(retry_after * 1000) if retry_after is not None else None)
        self.status = status
        self.kind = kind


def read_json(text: bytes | str, kind: type[T]) -> T:
    """Decode a request; raises `BadField` for a value of a wrong type, `RequestRefused` for a text that is not JSON."""
    try:
        return codec.decode(text, kind)
    except msgspec.ValidationError as error:
        read_plain_json(text)  # the decoder reports a wrong field before it has read the whole text
        steps, problem = _locate(str(error))
        allowed = codec.allowed_values(kind, steps)
        path = ".".join(steps)
        hint = f" (use one of: {', '.join(allowed)})" if allowed else ""
        raise BadField(path, f"{path}: {problem}{hint}" if path else problem) from None
    except (ValueError, RecursionError):
        read_plain_json(text)
        raise


def read_plain_json(text: bytes | str) -> object:
    """Decode a request without a declared type; raises `RequestRefused` for a text that is not JSON."""
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        raise RequestRefused(ErrorCode.BAD_REQUEST, "This is not JSON: it is nested too deeply.") from None
    except ValueError as error:
        raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        problem = "it holds half of a surrogate pair (`\\ud800`…)" if _has_lone_surrogate(raw) else str(error)
        raise RequestRefused(ErrorCode.BAD_REQUEST, f"This is not JSON: {problem}.") from None


def _locate(text: str) -> tuple[list[str], str]:
    """The path of the field that a message of msgspec is about, and the message without it."""
    found = _LOCATED.fullmatch(text)
    problem, place = (found["problem"], found["place"] or "") if found else (text, "")
    steps = [step for step in re.split(r"[.\[\]]+", place) if step]
    if named := _FIELD.fullmatch(problem):
        steps.append(named["name"])
        problem = "Field required" if "missing" in named[1] else "Unknown field"
    return steps, problem


def _has_lone_surrogate(body: bytes) -> bool:
    if not _SURROGATE.search(body):
        return False
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def explain_failure(error: Exception, what: str) -> Failure:
    """What a caller learns about an error. An unexpected one is logged, and the caller learns no details."""
    match error:
        case RequestRefused(code=code, retry_after_ms=later):
            return Failure.of(code, redact_everything(str(error)), retry_after_ms=later)
        case RetinueError():
            code = next((code for kind, code in _CODES if isinstance(error, kind)), ErrorCode.FAILED)
            return Failure.of(code, redact_everything(str(error)))
    log.error("%s crashed", what, exc_info=error)
    return Failure.of(ErrorCode.INTERNAL, f"{what} failed unexpectedly; the gateway's log has the details.")
