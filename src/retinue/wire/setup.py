"""The guided first run on the page: its steps, the choices of each, and the answers."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from retinue.wire.frames import Method, Nothing, Params, Wire
from retinue.wire.protocol import Scope

Name = Annotated[str, Meta(max_length=200)]


class SetupStepState(Wire, frozen=True):
    """One step; an open one is neither done nor skipped."""

    id: str
    title: str
    done: bool
    skipped: bool
    detail: str = ""


class ModelOption(Wire, frozen=True):
    """A model that can be chosen at once: of a key or of a model server on the gateway's machine."""

    model: str
    about: str
    base_url: str | None = None


class TaskOption(Wire, frozen=True):
    """A first message."""

    title: str
    message: str


class DownloadOption(Wire, frozen=True):
    """A model that can be downloaded to the gateway's machine, where it runs."""

    name: str
    about: str
    bytes: int
    received: int
    """Bytes that an earlier, interrupted download received; the next one continues there."""
    memory: int
    tokens_per_second: int
    licence: str
    is_demo: bool


class DownloadState(Wire, frozen=True):
    """The last download; `total` is 0 if it is unknown, and `message` says why it ended and what to do."""

    state: Literal["none", "running", "done", "failed", "stopped"]
    name: str
    stage: str
    done: int
    total: int
    message: str


class SetupState(Wire, frozen=True):
    """The progress of the setup, and what can be chosen."""

    steps: tuple[SetupStepState, ...]
    offered: bool
    """Whether a new user should be guided: nobody configured a model, or the setup has begun."""
    next: str | None
    model: str | None
    is_demo: bool
    models: tuple[ModelOption, ...]
    downloads: tuple[DownloadOption, ...]
    download: DownloadState
    tempers: tuple[str, ...]
    first_tasks: tuple[TaskOption, ...]


class GiveKey(Params, frozen=True):
    """A key; without a provider it is recognised by its shape."""

    key: Annotated[str, Meta(min_length=8, max_length=500)]
    provider: Name | None = None
    model: Name | None = None
    base_url: Name | None = None
    anyway: bool = False
    """Whether to store a key that may be valid but could not be tried, as without a connection."""


class KeyTried(Wire, frozen=True):
    """The result of trying a key; `providers` are asked for if it is not clear whose key it is."""

    ok: bool
    stored: bool
    message: str
    model: str | None = None
    providers: tuple[str, ...] = ()


class ChooseModel(Params, frozen=True):
    """A model, and the address of its server if it is not built in."""

    model: Annotated[str, Meta(min_length=3, max_length=300)]
    base_url: Name | None = None


class Download(Params, frozen=True):
    """The name of a model in `downloads`."""

    name: Name


class GiveProfile(Params, frozen=True):
    """What to write about the person and the agent; null leaves a fact as it is."""

    user_name: Name | None = None
    agent_name: Name | None = None
    temper: Annotated[str, Meta(max_length=1_000)] | None = None


class SkipStep(Params, frozen=True):
    """A step that the person leaves out, or, with `done`, has finished."""

    step: Name
    done: bool = False


SETUP_GET = Method("setup.get", Scope.ADMIN, Nothing, SetupState, "Return the progress of the first run.")
SETUP_KEY = Method("setup.key", Scope.ADMIN, GiveKey, KeyTried, "Try a provider's key, and store it if it works.", True)
SETUP_MODEL = Method("setup.model", Scope.ADMIN, ChooseModel, SetupState, "Make a model the default.", True)
SETUP_DOWNLOAD = Method(
    "setup.download", Scope.ADMIN, Download, DownloadState, "Download a model in the background, then use it.", True
)
SETUP_DOWNLOADING = Method("setup.downloading", Scope.ADMIN, Nothing, DownloadState, "Return the last download.")
SETUP_STOP = Method(
    "setup.stop", Scope.ADMIN, Nothing, DownloadState, "Stop the download; what was received is kept.", True
)
SETUP_PROFILE = Method(
    "setup.profile", Scope.ADMIN, GiveProfile, SetupState, "Write the names and the temper to the workspace.", True
)
SETUP_SKIP = Method("setup.skip", Scope.ADMIN, SkipStep, SetupState, "Leave out a step, or mark it as done.", True)

METHODS = (
    SETUP_GET,
    SETUP_KEY,
    SETUP_MODEL,
    SETUP_DOWNLOAD,
    SETUP_DOWNLOADING,
    SETUP_STOP,
    SETUP_PROFILE,
    SETUP_SKIP,
)
