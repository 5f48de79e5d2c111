"""Failover: try the next credential, then the next model, until one answers.

After text was shown to the person, a failure is final: the answer is not started again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import datetime
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.errors import ConfigError
from retinue.core.events import Notice
from retinue.core.model import (
    Failure,
    ModelCallDelta,
    ModelEvent,
    ModelFailed,
    ModelFinished,
    ModelInfo,
    ModelReasoningDelta,
    ModelRef,
    ModelRequest,
    ModelTextDelta,
)
from retinue.providers.adapt_request import NO_OPTIONS, RequestOptions, adapt_request, apply_options
from retinue.providers.auth_profiles import Profile
from retinue.providers.base import Endpoint, Provider
from retinue.providers.catalog import cost_of
from retinue.providers.credential_pool import CredentialPool
from retinue.providers.vendors import find_vendor

Sleep = Callable[[float], Awaitable[None]]
OnNotice = Callable[[Notice], Awaitable[None]]
"""Tells the person that a call is repeated, or that another model answers."""

MAX_RETRY_AFTER_SECONDS = 60.0
CHARS_PER_TOKEN = 6
"""More than any text has on average: an answer with more characters per token of the window is cut off."""
TOO_LONG = "the answer was longer than the model's whole window, so it was stopped"
# If another model is available, one quick retry is enough; the last one is retried longer.
SHORT_RETRY_DELAYS = (1.0,)
LONG_RETRY_DELAYS = (2.5, 5.0, 10.0, 20.0, 30.0)

_TEMPORARY = frozenset({Failure.OVERLOADED, Failure.CONNECTION, Failure.SERVER, Failure.EMPTY})
_ROTATES = frozenset({Failure.AUTH, Failure.BILLING, Failure.RATE_LIMIT})
_FINAL = frozenset({Failure.OVERFLOW, Failure.FORMAT})

_WORDS = {
    Failure.AUTH: "the credential was refused",
    Failure.BILLING: "the account has no credit",
    Failure.RATE_LIMIT: "rate limit",
    Failure.OVERLOADED: "overloaded",
    Failure.TIMEOUT: "no answer in time",
    Failure.SERVER: "server error",
    Failure.OVERFLOW: "the conversation is too long for it",
    Failure.FORMAT: "it refused the request",
    Failure.NOT_FOUND: "no such model",
    Failure.CONNECTION: "no connection",
    Failure.EMPTY: "an empty answer",
    Failure.UNKNOWN: "unknown error",
}


class OpenProviders(Protocol):
    """Opens the adapters of providers."""

    def __getitem__(self, provider: str) -> Provider: ...

    def endpoint(self, provider: str) -> Endpoint: ...


class Attempt(Struct, frozen=True):
    """A model and its credential; None if it needs none."""

    ref: ModelRef
    profile: Profile | None

    def __str__(self) -> str:
        return f"{self.ref} ({self.profile.id})" if self.profile else str(self.ref)


class _RetryPolicy(Struct, frozen=True):
    """The retries of one attempt. A rate limit is waited for only if no other credential is left.

    A call that timed out is repeated once, and only if no other model is left: it has cost minutes already.
    """

    delays: Sequence[float]
    is_last_model: bool
    waits_out_limits: bool

    def pause(self, failure: ModelFailed, delay: float) -> float | None:
        """Return the delay before the next retry; None if retrying does not help."""
        requested = failure.retry_after or 0.0
        temporary = (
            failure.reason in _TEMPORARY
            or (self.waits_out_limits and failure.reason is Failure.RATE_LIMIT and requested > 0)
            or (self.is_last_model and failure.reason is Failure.TIMEOUT and delay == self.delays[0])
        )
        return max(delay, requested) if temporary and requested <= MAX_RETRY_AFTER_SECONDS else None


class _RequestProgress(Struct):
    """The progress of one request."""

    failures: list[tuple[str, ModelFailed]] = field(default_factory=list)
    on_notice: OnNotice | None = None
    text_shown: bool = False

    async def notify(self, text: str, wait_seconds: float | None = None) -> None:
        if self.on_notice:
            await self.on_notice(Notice(text, wait_seconds))


class Failover:
    """Answers a request with the first model of a chain that works."""

    def __init__(
        self,
        providers: OpenProviders,
        credentials: CredentialPool,
        describe: Callable[[ModelRef], ModelInfo],
        sleep: Sleep,
        *,
        retries: Sequence[float] = LONG_RETRY_DELAYS,
        tuning: Callable[[ModelRef], RequestOptions] = lambda ref: NO_OPTIONS,
        redact: Callable[[str], str] = str,
    ) -> None:
        """`tuning` returns the operator's options for each model; `redact` removes secrets from error messages."""
        self._providers = providers
        self._credentials = credentials
        self._describe = describe
        self._sleep = sleep
        self._retry_delays = retries
        self._tuning = tuning
        self._redact = redact

    async def stream(
        self,
        request: ModelRequest,
        chain: Sequence[ModelRef],
        on_notice: OnNotice | None = None,
        failures: list[tuple[str, ModelFailed]] | None = None,
    ) -> AsyncGenerator[ModelEvent, None]:
        """Stream from the first model that answers, with the contract of `Provider.stream`.

        Every failed attempt is added to `failures`, by its name.
        """
        progress = _RequestProgress([] if failures is None else failures, on_notice)
        models = list(dict.fromkeys(chain)) or [request.model]
        attempts = self._plan(models, progress)
        asked: ModelRef | None = None
        blocked: set[ModelRef] = set()
        for position, attempt in enumerate(attempts):
            if attempt.ref in blocked:
                continue
            if attempt.ref != (asked or models[0]):
                await progress.notify(self._redact(_fallback_notice(asked or models[0], attempt.ref, progress)))
            asked = attempt.ref
            ending: ModelFailed | None = None
            is_last = not any(later.ref not in blocked | {attempt.ref} for later in attempts[position + 1 :])
            delays = self._retry_delays if is_last else SHORT_RETRY_DELAYS
            is_final = is_last and position == len(attempts) - 1
            retries = _RetryPolicy(delays, is_last, waits_out_limits=is_final)
            async with aclosing(self._try(attempt, request, progress, retries)) as events:
                async for event in events:
                    if isinstance(event, ModelFailed):
                        ending = event
                    else:
                        yield event
            if ending is None:
                return
            if progress.text_shown or ending.reason in _FINAL:
                yield self._without_secrets(ending)
                return
            if ending.reason not in _ROTATES:
                blocked.add(attempt.ref)
        yield self._without_secrets(_combine_failures(progress))

    def _without_secrets(self, failure: ModelFailed) -> ModelFailed:
        """Return the failure without secrets; an endpoint can repeat a secret in its error message."""
        return replace(failure, detail=self._redact(failure.detail))

    def _plan(self, models: Sequence[ModelRef], progress: _RequestProgress) -> list[Attempt]:
        """Return the attempts in order.

        Credentials in cooldown are skipped, unless all are: then the first to end is used.
        """
        ready: list[Attempt] = []
        cooling_down: list[tuple[datetime, Attempt]] = []
        for ref in models:
            try:
                needs_key = self._providers.endpoint(ref.provider).auth != "none"
            except ConfigError as error:
                progress.failures.append((str(ref), ModelFailed(Failure.NOT_FOUND, str(error))))
                continue
            if not needs_key:
                ready.append(Attempt(ref, None))
                continue
            profiles = self._credentials.profiles(ref.provider)
            if not profiles and find_vendor(ref.provider) is None:
                # A configured endpoint without a key is assumed to need none.
                ready.append(Attempt(ref, None))
            elif not profiles:
                hint = self._credentials.describe_how_to_add(ref.provider)
                detail = f"there is no credential for '{ref.provider}'. {hint}"
                progress.failures.append((str(ref), ModelFailed(Failure.AUTH, detail)))
            cooldowns = [
                (self._credentials.cooldown_until(profile, ref.model), Attempt(ref, profile)) for profile in profiles
            ]
            ready += [attempt for until, attempt in cooldowns if until is None]
            cooling_down += [(until, attempt) for until, attempt in cooldowns if until is not None]
        if not ready and cooling_down:
            return [min(cooling_down, key=lambda pair: pair[0])[1]]
        return ready

    async def _try(
        self, attempt: Attempt, request: ModelRequest, progress: _RequestProgress, retries: _RetryPolicy
    ) -> AsyncGenerator[ModelEvent, None]:
        """Try one model with one credential, with retries while the failure is temporary."""
        info = self._describe(attempt.ref)
        fitted = adapt_request(apply_options(request, self._tuning(attempt.ref)), info)
        for repeated, delay in enumerate((*retries.delays, None), start=1):
            failure: ModelFailed | None = None
            room = info.window * CHARS_PER_TOKEN
            async with _closing(await self._open(attempt, fitted)) as events:
                async for event in events:
                    match event:
                        case ModelFailed():
                            failure = event
                        case ModelFinished(message):
                            if attempt.profile:
                                self._credentials.succeeded(attempt.profile, attempt.ref.model)
                            usage = replace(message.usage, cost=cost_of(message.usage, info.price))
                            yield ModelFinished(replace(message, usage=usage))
                            return
                        case _:
                            progress.text_shown |= isinstance(event, ModelTextDelta) and bool(event.text)
                            yield event
                            room -= _length(event)
                    if room < 0:
                        failure = ModelFailed(Failure.FORMAT, TOO_LONG)
                        break
            if failure is None:
                failure = ModelFailed(Failure.EMPTY, "the stream ended without a final event")
            pause = None if progress.text_shown or delay is None else retries.pause(failure, delay)
            if pause is None:
                self._record_failure(attempt, failure, progress)
                yield failure
                return
            notice = _retry_notice(attempt.ref, failure, pause, f"{repeated} of {len(retries.delays)}")
            await progress.notify(self._redact(notice), pause)
            await self._sleep(pause)

    async def _open(self, attempt: Attempt, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Return the stream of one attempt; nothing is sent before it is read."""
        try:
            credential = await self._credentials.open(attempt.profile) if attempt.profile else None
            return self._providers[attempt.ref.provider].stream(request, credential)
        except ConfigError as error:
            return _failed_stream(ModelFailed(Failure.AUTH, str(error)))

    def _record_failure(self, attempt: Attempt, failure: ModelFailed, progress: _RequestProgress) -> None:
        progress.failures.append((str(attempt), failure))
        if attempt.profile:
            self._credentials.failed(attempt.profile, attempt.ref.model, failure)


def _length(event: ModelTextDelta | ModelReasoningDelta | ModelCallDelta) -> int:
    return len(event.arguments if isinstance(event, ModelCallDelta) else event.text)


async def _failed_stream(failure: ModelFailed) -> AsyncGenerator[ModelEvent, None]:
    yield failure


@asynccontextmanager
async def _closing(events: AsyncIterator[ModelEvent]) -> AsyncGenerator[AsyncIterator[ModelEvent], None]:
    """Close a stream at the end of the block if it can be closed, so that its connection does not outlive it."""
    try:
        yield events
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()


def _retry_notice(ref: ModelRef, failure: ModelFailed, pause: float, number: str) -> str:
    return f"{ref} does not answer ({_WORDS[failure.reason]}); trying again in {pause:.3g} s (retry {number})."


def _fallback_notice(before: ModelRef, now: ModelRef, progress: _RequestProgress) -> str:
    details = [failure for name, failure in progress.failures if name.startswith(str(before))]
    why = _WORDS[details[-1].reason] if details else "its credentials are in cooldown after earlier failures"
    return f"{before} cannot answer now ({why}); {now} answers instead."


def _combine_failures(progress: _RequestProgress) -> ModelFailed:
    """Combine all failures into one: the first one's reason, and the details of every attempt."""
    if not progress.failures:
        return ModelFailed(Failure.NOT_FOUND, "no model is configured. Choose one: retinue models set <provider/model>")
    name, first = progress.failures[0]
    if len(progress.failures) == 1:
        return replace(first, detail=f"{name}: {first.detail}")
    details = "\n".join(f"- {name}: {_WORDS[failure.reason]}: {failure.detail}" for name, failure in progress.failures)
    waits = [failure.retry_after for _, failure in progress.failures if failure.retry_after is not None]
    return ModelFailed(first.reason, f"no model could answer:\n{details}", min(waits, default=None), first.partial)
