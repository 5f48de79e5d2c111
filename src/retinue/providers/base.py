"""The provider interface: a stream of model events from one endpoint."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Literal, Protocol

import msgspec
from msgspec import Struct, field

from retinue.core.model import ModelEvent, ModelInfo, ModelRef, ModelRequest
from retinue.providers.settings import CompatSettings

CredentialKind = Literal["api_key", "token"]
Describe = Callable[[ModelRef], ModelInfo]
"""Returns the known facts of a model."""


class Credential(Struct, frozen=True):
    """A key or token, and its profile; its `repr` never shows the secret."""

    profile: str
    secret: str
    kind: CredentialKind = "api_key"

    def __repr__(self) -> str:
        return f"Credential(profile={self.profile!r}, kind={self.kind!r})"


class Timeouts(Struct, frozen=True):
    """Time limits of a call, in seconds.

    `idle` is the time between two pieces of the answer: bytes without content do not extend it.
    """

    connect: float = 15.0
    idle: float = 300.0
    total: float = 3600.0


class Endpoint(Struct, frozen=True):
    """The address, protocol and options of a provider."""

    provider: str
    api: str
    base_url: str
    describe: Describe
    headers: Mapping[str, str] = field(default_factory=dict)
    auth: Literal["api-key", "token", "none"] = "api-key"
    timeouts: Timeouts = Timeouts()
    compat: CompatSettings = field(default_factory=CompatSettings)
    model_compat: Mapping[str, CompatSettings] = field(default_factory=dict)
    models_dir: Path | None = None

    def __repr__(self) -> str:
        # Headers may contain API keys.
        return f"Endpoint(provider={self.provider!r}, api={self.api!r}, base_url={self.base_url!r}, auth={self.auth!r})"

    def compat_of(self, model: str) -> CompatSettings:
        """Return the endpoint's compatibility settings, overridden by the model's."""
        own = self.model_compat.get(model)
        if own is None:
            return self.compat
        chosen = {name: value for name, value in msgspec.structs.asdict(own).items() if value is not None}
        return msgspec.structs.replace(self.compat, **chosen)


class Provider(Protocol):
    """An interface to models.

    `stream` never raises for a failure of the model, the network or the endpoint: the last event is exactly one
    `ModelFinished` or `ModelFailed`. Cancelling the task, or closing the iterator, closes the connection.
    """

    @property
    def id(self) -> str: ...

    def stream(self, request: ModelRequest, credential: Credential | None) -> AsyncIterator[ModelEvent]: ...


class OwnedProvider(Provider, Protocol):
    """A provider that holds connections or memory; its owner closes it."""

    async def aclose(self) -> None: ...
