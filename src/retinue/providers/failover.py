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
from retinue.providers.base import Endpoint, Provider
from retinue.providers.catalog import cost_of
from retinue.providers.credentials.pool import CredentialPool
from retinue.providers.credentials.profile_file import Profile
from retinue.providers.vendors import find_vendor

Sleep = Callable[[float], Awaitable[None]]
OnFallback = Callable[[str], Awaitable[None]]
"""Notifies the person that another model answers."""

PROFILES_PER_MODEL = 2
LONGEST_WAIT = 60.0
CHARS_PER_TOKEN = 6
"""More than any text has on average: an answer with more characters per token of the window is cut off."""
TOO_LONG = "the answer was longer than the model's whole window, so it was stopped"
# If another model is available, one quick retry is enough; the last one is retried longer.
QUICK_RETRIES = (1.0,)
PATIENT_RETRIES = (2.5, 5.0, 10.0, 20.0, 30.0)

_PASSING = frozenset({Failure.OVERLOADED, Failure.CONNECTION, Failure.SERVER, Failure.EMPTY})
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


class _Patience(Struct, frozen=True):
    """The retries of one attempt. A rate limit is waited for only if no other credential is left."""

    delays: Sequence[float]
    waits_out_limits: bool

    def pause(self, failure: ModelFailed, delay: float) -> float | None:
        """Return the delay before the next retry; None if retrying does not help."""
        wish = failure.retry_after or 0.0
        passing = failure.reason in _PASSING or (
            self.waits_out_limits and failure.reason is Failure.RATE_LIMIT and wish > 0
        )
        return max(delay, wish) if passing and wish <= LONGEST_WAIT else None


class _Story(Struct):
    """The progress of one request."""

    failures: list[tuple[str, ModelFailed]] = field(default_factory=list)
    words_shown: bool = False


class Failover:
    """Answers a request with the first model of a chain that works."""

    def __init__(
        self,
        providers: OpenProviders,
        credentials: CredentialPool,
        describe: Callable[[ModelRef], ModelInfo],
        sleep: Sleep,
        *,
        patience: Sequence[float] = PATIENT_RETRIES,
        tuning: Callable[[ModelRef], RequestOptions] = lambda ref: NO_OPTIONS,
        redact: Callable[[str], str] = str,
    ) -> None:
        """`tuning` returns the operator's options for each model; `redact` removes secrets from error messages."""
        self._providers = providers
        self._credentials = credentials
        self._describe = describe
        self._sleep = sleep
        self._patience = patience
        self._tuning = tuning
        self._redact = redact

    async def stream(
        self,
        request: ModelRequest,
        chain: Sequence[ModelRef],
        on_fallback: OnFallback | None = None,
        failures: list[tuple[str, ModelFailed]] | None = None,
    ) -> AsyncGenerator[ModelEvent, None]:
        """Stream from the first model that answers, with the contract of `Provider.stream`.

        Every failed attempt is added to `failures`, by its name.
        """
        story = _Story([] if failures is None else failures)
        models = list(dict.fromkeys(chain)) or [request.model]
        attempts = self._plan(models, story)
        asked: ModelRef | None = None
        blocked: set[ModelRef] = set()
        for position, attempt in enumerate(attempts):
            if attempt.ref in blocked:
                continue
            if on_fallback and attempt.ref != (asked or models[0]):
                await on_fallback(self._redact(_fallback_notice(asked or models[0], attempt.ref, story)))
            asked = attempt.ref
            ending: ModelFailed | None = None
            is_last = not any(later.ref not in blocked | {attempt.ref} for later in attempts[position + 1 :])
            delays = self._patience if is_last else QUICK_RETRIES
            patience = _Patience(delays, waits_out_limits=is_last and position == len(attempts) - 1)
            async with aclosing(self._try(attempt, request, story, patience)) as events:
                async for event in events:
                    if isinstance(event, ModelFailed):
                        ending = event
                    else:
                        yield event
            if ending is None:
                return
            if story.words_shown or ending.reason in _FINAL:
                yield self._without_secrets(ending)
                return
            if ending.reason not in _ROTATES:
                blocked.add(attempt.ref)
        yield self._without_secrets(_sum_up(story))

    def _without_secrets(self, failure: ModelFailed) -> ModelFailed:
        """Return the failure without secrets; an endpoint can repeat a secret in its error message."""
        return replace(failure, detail=self._redact(failure.detail))

    def _plan(self, models: Sequence[ModelRef], story: _Story) -> list[Attempt]:
        """Return the attempts in order.

        Credentials in cooldown are skipped, unless all are: then the first to end is used.
        """
        ready: list[Attempt] = []
        resting: list[tuple[datetime, Attempt]] = []
        for ref in models:
            try:
                needs_key = self._providers.endpoint(ref.provider).auth != "none"
            except ConfigError as error:
                story.failures.append((str(ref), ModelFailed(Failure.NOT_FOUND, str(error))))
                continue
            if not needs_key:
                ready.append(Attempt(ref, None))
                continue
            profiles = self._credentials.profiles(ref.provider)
            if not profiles and find_vendor(ref.provider) is None:
                # A configured endpoint without a key is assumed to need none.
                ready.append(Attempt(ref, None))
            elif not profiles:
                detail = f"there is no credential for '{ref.provider}'. {self._credentials.how_to_add(ref.provider)}"
                story.failures.append((str(ref), ModelFailed(Failure.AUTH, detail)))
            rests = [
                (self._credentials.resting_until(profile, ref.model), Attempt(ref, profile)) for profile in profiles
            ]
            ready += [attempt for until, attempt in rests if until is None][:PROFILES_PER_MODEL]
            resting += [(until, attempt) for until, attempt in rests if until is not None]
        if not ready and resting:
            return [min(resting, key=lambda pair: pair[0])[1]]
        return ready

    async def _try(
        self, attempt: Attempt, request: ModelRequest, story: _Story, patience: _Patience
    ) -> AsyncGenerator[ModelEvent, None]:
        """Try one model with one credential, with retries while the failure is temporary."""
        info = self._describe(attempt.ref)
        fitted = adapt_request(apply_options(request, self._tuning(attempt.ref)), info)
        for delay in (*patience.delays, None):
            failure: ModelFailed | None = None
            room = info.window * CHARS_PER_TOKEN
            async with _closing(await self._open(attempt, fitted)) as events:
                async for event in events:
                    match event:
                        case ModelFailed():
                            failure = event
                        case ModelFinished(message):
                            self._note_success(attempt)
                            usage = replace(message.usage, cost=cost_of(message.usage, info.price))
                            yield ModelFinished(replace(message, usage=usage))
                            return
                        case _:
                            story.words_shown |= isinstance(event, ModelTextDelta) and bool(event.text)
                            yield event
                            room -= _length(event)
                    if room < 0:
                        failure = ModelFailed(Failure.FORMAT, TOO_LONG)
                        break
            if failure is None:
                failure = ModelFailed(Failure.EMPTY, "the stream ended without a final event")
            pause = None if story.words_shown or delay is None else patience.pause(failure, delay)
            if pause is None:
                self._note_failure(attempt, failure, story)
                yield failure
                return
            await self._sleep(pause)

    async def _open(self, attempt: Attempt, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Return the stream of one attempt; nothing is sent before it is read."""
        try:
            credential = await self._credentials.open(attempt.profile) if attempt.profile else None
            return self._providers[attempt.ref.provider].stream(request, credential)
        except ConfigError as error:
            return _failed_stream(ModelFailed(Failure.AUTH, str(error)))

    def _note_success(self, attempt: Attempt) -> None:
        if attempt.profile:
            self._credentials.succeeded(attempt.profile, attempt.ref.model)

    def _note_failure(self, attempt: Attempt, failure: ModelFailed, story: _Story) -> None:
        story.failures.append((str(attempt), failure))
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


def _fallback_notice(before: ModelRef, now: ModelRef, story: _Story) -> str:
    told = [failure for name, failure in story.failures if name.startswith(str(before))]
    why = _WORDS[told[-1].reason] if told else "its credentials are in cooldown after earlier failures"
    return f"{before} cannot answer now ({why}); {now} answers instead."


def _sum_up(story: _Story) -> ModelFailed:
    """Combine all failures into one: the first one's reason, and the details of every attempt."""
    if not story.failures:
        return ModelFailed(Failure.NOT_FOUND, "no model is configured. Choose one: retinue models set <provider/model>")
    name, first = story.failures[0]
    if len(story.failures) == 1:
        return replace(first, detail=f"{name}: {first.detail}")
    told = "\n".join(f"- {name}: {_WORDS[failure.reason]}: {failure.detail}" for name, failure in story.failures)
    waits = [failure.retry_after for _, failure in story.failures if failure.retry_after is not None]
    return ModelFailed(first.reason, f"no model could answer:\n{told}", min(waits, default=None), first.partial)
