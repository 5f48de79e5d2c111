"""The errors that Retinue raises deliberately.

A message says what happened and what to do next; it is shown to people unchanged.

    RetinueError
    ├── ConfigError          the configuration cannot be used
    ├── StorageError         a file or database cannot be read or written
    │   └── OutsideRoot      a path leads out of the folder it belongs to
    ├── WorkspaceError       an agent's folder cannot be used
    ├── SkillError           a skill cannot be loaded
    ├── SessionError         a session or transcript cannot be used
    ├── ModelError           a model cannot be reached or refused the request
    ├── ToolFailed           a tool could not do what was asked; the model reads the message
    ├── MessageTooLarge      a message exceeds the limit that all entry points share
    └── UsageError           the person asked for something that does not exist
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import ParamSpec

P = ParamSpec("P")


class RetinueError(Exception):
    """The base class of all deliberate errors."""


class ConfigError(RetinueError):
    """The configuration cannot be used."""


class StorageError(RetinueError):
    """A file or database cannot be read or written."""


class OutsideRoot(StorageError):
    """A path leads out of the folder it must stay in."""


class WorkspaceError(RetinueError):
    """An agent's folder cannot be used."""


class SkillError(RetinueError):
    """A skill cannot be loaded."""


class SessionError(RetinueError):
    """A session or its transcript cannot be used."""


class ModelError(RetinueError):
    """A model cannot be reached, or refused the request."""


class ToolFailed(RetinueError):
    """A tool failed; the message is for the model."""


class MessageTooLarge(RetinueError):
    """A message is larger than an agent accepts."""


class UsageError(RetinueError):
    """The person requested something that does not exist or is not valid."""


def first_cause(error: Exception) -> Exception:
    """Return the error itself, or the first error in an exception group."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


async def run_logged(what: str, work: Callable[P, Awaitable[object]], *args: P.args, **kwargs: P.kwargs) -> None:
    """Run something in the background; log an exception instead of raising it."""
    try:
        await work(*args, **kwargs)
    except Exception:  # border: tools, plugins, models and disks can fail here
        import logging  # here, because most commands need no logging

        logging.getLogger(__name__).exception("%s failed", what)
