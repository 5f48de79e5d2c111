"""The sources of secrets: files, programs and the keyring.

All calls have time and size limits, and errors never contain the data that was read.
"""

from __future__ import annotations

import importlib
import os
import selectors
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from retinue.core.errors import ConfigError

MAX_SECRET_BYTES = 64 * 1024
EXEC_SECONDS = 30.0
KEYRING_SECONDS = 60.0
"""A keyring may first ask the person for a password."""
SERVICE = "retinue"

T = TypeVar("T")


def read_secret_file(path: str) -> str:
    """Return the content of a small regular file."""
    try:
        # Opening must not block: a FIFO would, until another process writes to it.
        descriptor = os.open(Path(path).expanduser(), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            data = os.read(descriptor, MAX_SECRET_BYTES + 1) if regular else None
        finally:
            os.close(descriptor)
    except OSError as error:
        why = (error.strerror or "it failed").lower()
        raise ConfigError(f"The secret file '{path}' cannot be read: {why}.") from None
    if data is None or len(data) > MAX_SECRET_BYTES:
        raise ConfigError(f"The secret file '{path}' is not a regular file of at most {MAX_SECRET_BYTES} bytes.")
    return _decode(data, f"The secret file '{path}'")


def run_for_secret(command: tuple[str, ...], environment: Mapping[str, str], seconds: float) -> str:
    """Return the output of a program; it is killed with its children if it takes too long or prints too much."""
    program = command[0]
    deadline = time.monotonic() + seconds
    try:
        child = subprocess.Popen(
            [str(Path(program).expanduser()), *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environment),
            start_new_session=True,
        )
    except OSError as error:
        raise ConfigError(
            f"'{program}' could not provide the secret: {(error.strerror or 'it failed').lower()}."
        ) from None
    with child:
        try:
            data = _read_output(child, deadline)
            code = child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            raise ConfigError(
                f"'{program}' did not provide the secret within {seconds:g} seconds, or printed more than "
                f"{MAX_SECRET_BYTES} bytes. Run it yourself to see why."
            ) from None
    if code != 0:
        raise ConfigError(f"'{program}' could not provide the secret (exit code {code}). Run it yourself to see why.")
    return _decode(data, f"The output of '{program}'")


def _read_output(child: subprocess.Popen[bytes], deadline: float) -> bytes:
    assert child.stdout is not None
    data = bytearray()
    with selectors.DefaultSelector() as ready:
        ready.register(child.stdout, selectors.EVENT_READ)
        while len(data) <= MAX_SECRET_BYTES and ready.select(max(0.0, deadline - time.monotonic())):
            chunk = os.read(child.stdout.fileno(), MAX_SECRET_BYTES)
            if not chunk:
                return bytes(data)
            data += chunk
    raise subprocess.TimeoutExpired(child.args, 0)


def _decode(data: bytes, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{what} is not UTF-8 text.") from None


def ask_keyring(service: str, name: str, seconds: float) -> str:
    """Return an entry of the keyring; empty if there is none."""
    keyring = _load_keyring()
    return str(_in_time(keyring, lambda: keyring.get_password(service, name), seconds) or "")


def store_in_keyring(service: str, name: str, value: str) -> None:
    """Add or replace an entry of the keyring."""
    keyring = _load_keyring()
    _in_time(keyring, lambda: keyring.set_password(service, name, value), KEYRING_SECONDS)


def remove_from_keyring(service: str, name: str) -> None:
    """Remove an entry of the keyring, if it is there."""
    keyring = _load_keyring()

    def remove() -> None:
        with suppress(keyring.errors.PasswordDeleteError):
            keyring.delete_password(service, name)

    _in_time(keyring, remove, KEYRING_SECONDS)


def _load_keyring() -> ModuleType:
    try:
        return importlib.import_module("keyring")
    except ImportError:
        raise ConfigError(
            "Secrets in the keyring need the extra 'keyring'. Install it: pip install 'retinue[keyring]'"
        ) from None


def _in_time(keyring: ModuleType, call: Callable[[], T], seconds: float) -> T:
    """Call the keyring with a timeout; a call that does not return is abandoned."""
    outcome: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(call())
        except Exception as error:  # noqa: BLE001 - border: a keyring is foreign code; raised below, in this thread
            failure.append(error)

    worker = threading.Thread(target=run, daemon=True, name="keyring")
    worker.start()
    worker.join(seconds)
    if outcome:
        return outcome[0]
    if not failure:
        raise ConfigError(f"The keyring did not answer within {seconds:g} seconds. Unlock it and try again.")
    if isinstance(failure[0], keyring.errors.NoKeyringError):
        raise ConfigError(
            "There is no keyring on this machine. Keep the secret in a file or a variable instead, or install one."
        ) from failure[0]
    raise ConfigError(
        f"The keyring cannot be used ({type(failure[0]).__name__}). Unlock it and try again."
    ) from failure[0]
