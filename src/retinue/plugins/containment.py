"""Calling code of a plugin so that it can neither end nor block this process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio

from retinue.plugins.manifest import PluginError

log = logging.getLogger(__name__)

T = TypeVar("T")

LOAD_SECONDS = 10.0
"""How long a plugin may take to be imported, to register, and to make what it registered."""
INIT_SECONDS = 15.0
SHUTDOWN_SECONDS = 5.0


def call_contained(function: Callable[[], T], *, seconds: float = LOAD_SECONDS) -> T:
    """Call a function of a plugin; raise `PluginError` if it raises, exits or takes too long.

    It runs in a thread, because nothing else can end the wait for a function that hangs. The thread of such a function
    stays until the process ends.
    """
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - border: a plugin may also exit
            failures.append(error)

    thread = threading.Thread(target=run, name="plugin", daemon=True)
    thread.start()
    thread.join(seconds)
    if results:
        return results[0]
    if failures:
        raise PluginError(_explain(failures[0])) from failures[0]
    raise PluginError(f"it took longer than {seconds:g} seconds")


async def await_contained(run: Callable[..., Awaitable[T]], *arguments: Any, seconds: float) -> T:
    """Await an async function of a plugin; raise `PluginError` if it raises, exits or takes too long."""
    try:
        with anyio.fail_after(seconds):
            return await run(*arguments)
    except TimeoutError:
        raise PluginError(f"it took longer than {seconds:g} seconds") from None
    except (Exception, SystemExit) as error:  # border: a plugin is foreign code, and may also exit
        log.warning("a plugin failed", exc_info=error)
        raise PluginError(_explain(error)) from error


def _explain(error: BaseException) -> str:
    match error:
        case PluginError():
            return str(error)
        case SystemExit():
            return f"it tried to end the process (exit code {error.code})"
        case ModuleNotFoundError() if error.name:
            return f"the module '{error.name}' is not installed"
        case _:
            text = str(error)
            return f"{type(error).__name__}: {text}" if text else type(error).__name__
