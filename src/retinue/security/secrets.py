"""Secrets: parse references to them and fetch their values.

The configuration contains either the value itself or a reference. A reference is resolved when the secret is needed,
not when the configuration is read, so a locked keyring stops one provider and not the program.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Annotated, Any, ClassVar, Literal, assert_never

from msgspec import Struct, to_builtins

from retinue.core.errors import ConfigError
from retinue.security.redaction import Redactor
from retinue.security.secret_sources import (
    EXEC_SECONDS,
    KEYRING_SECONDS,
    SERVICE,
    ask_keyring,
    read_secret_file,
    run_for_secret,
)
from retinue.structs.declare import Parsed, write_with

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


class _SecretReference(Struct, frozen=True):
    type_description: ClassVar[str] = "a reference to a secret"


class EnvSecret(_SecretReference, frozen=True):
    """The value of an environment variable."""

    source: Literal["env"]
    id: str


class FileSecret(_SecretReference, frozen=True, omit_defaults=True):
    """The content of a file, or with `id` (a JSON pointer such as `/openai/key`) one value inside it."""

    source: Literal["file"]
    path: str
    id: str = ""


class ExecSecret(_SecretReference, frozen=True, omit_defaults=True):
    """The output of a program; `command` is its argument list, run without a shell."""

    source: Literal["exec"]
    command: tuple[str, ...]
    id: str = ""


class KeyringSecret(_SecretReference, frozen=True):
    """An entry of the desktop's keyring."""

    source: Literal["keyring"]
    id: str
    service: str = SERVICE


SecretRef = EnvSecret | FileSecret | ExecSecret | KeyringSecret
Secret = str | SecretRef


def parse_secret(value: object) -> Secret:
    """Parse a secret of a configuration or profile file: a value or a reference."""
    if isinstance(value, (str, EnvSecret, FileSecret, ExecSecret, KeyringSecret)):
        return value
    if not isinstance(value, Mapping):
        raise ConfigError("A secret is either a string or an object with a 'source' (env, file, exec or keyring).")
    match value.get("source"):
        case "env":
            return EnvSecret("env", _name(value, "id"))
        case "file":
            return FileSecret("file", _name(value, "path"), str(value.get("id") or ""))
        case "exec":
            command = value.get("command")
            argv = (command,) if isinstance(command, str) else tuple(command or ())
            if not argv or not all(isinstance(part, str) and part for part in argv):
                raise ConfigError(
                    "A secret with source 'exec' needs 'command': a list such as ['pass', 'show', 'key']."
                )
            return ExecSecret("exec", argv, str(value.get("id") or ""))
        case "keyring":
            return KeyringSecret("keyring", _name(value, "id"), str(value.get("service") or SERVICE))
        case other:
            raise ConfigError(f"'{other}' is not a valid secret source. Use env, file, exec or keyring.")


def dump_secret(secret: Secret) -> Any:
    """Return the form that `parse_secret` reads, for a JSON file."""
    return secret if isinstance(secret, str) else to_builtins(secret)


def describe_secret(secret: Secret) -> str:
    """Describe the source of a secret, without the secret itself."""
    match secret:
        case str():
            return "stored value"
        case EnvSecret(id=name):
            return f"environment variable {name}"
        case FileSecret(path=path):
            return f"file {path}"
        case ExecSecret(command=command):
            return f"output of {command[0]}"
        case KeyringSecret(id=name):
            return f"keyring entry {name}"
        case _:
            assert_never(secret)


def _name(value: Mapping[Any, Any], key: str) -> str:
    found = value.get(key)
    if not isinstance(found, str) or not found:
        raise ConfigError(f"A secret with source '{value.get('source')}' needs '{key}', a string.")
    return found


class Secrets:
    """Fetches secrets, caches them in memory only, and registers each value with `redactor`."""

    def __init__(self, environment: Mapping[str, str] | None = None, redactor: Redactor | None = None) -> None:
        self.environment = os.environ if environment is None else environment
        self.redactor = redactor or Redactor()
        self._known: dict[SecretRef, str] = {}

    def resolve(self, secret: Secret) -> str:
        """Return the value; raise `ConfigError` if it is not available. May block on files and programs."""
        if isinstance(secret, str):
            value = secret
        elif secret in self._known:
            value = self._known[secret]
        else:
            value = self._fetch(secret)
            # Reading the environment is cheap, and a changed variable should take effect at once.
            if not isinstance(secret, EnvSecret):
                self._known[secret] = value
        self.redactor.hide(value)
        return value

    def forget(self, secret: Secret) -> None:
        """Fetch the secret again next time; called after a provider refused it."""
        if not isinstance(secret, str):
            self._known.pop(secret, None)

    def _fetch(self, ref: SecretRef) -> str:
        match ref:
            case EnvSecret(id=name):
                value = self.environment.get(name, "") if _ENV_NAME.fullmatch(name) else ""
                missing = f"The environment variable '{name}' is not set. Set it, or change the secret reference."
            case FileSecret(path=path, id=pointer):
                value = _pick(read_secret_file(path), pointer, f"the file '{path}'")
                missing = f"The secret file '{path}' is empty."
            case ExecSecret(command=command, id=pointer):
                printed = run_for_secret(command, self.environment, EXEC_SECONDS)
                value = _pick(printed, pointer, f"the output of '{command[0]}'")
                missing = f"'{command[0]}' printed nothing; it should print the secret."
            case KeyringSecret(id=name, service=service):
                value = ask_keyring(service, name, KEYRING_SECONDS)
                missing = (
                    f"The keyring has no entry '{name}' for '{service}'. Add it with: keyring set {service} {name}"
                )
            case _:
                assert_never(ref)
        if not value.strip():
            raise ConfigError(missing)
        return value.strip()


def _pick(text: str, pointer: str, where: str) -> str:
    """Return the value that a JSON pointer selects in `text`; the whole text without a pointer."""
    if not pointer:
        return text
    try:
        found: Any = json.loads(text)
        for part in pointer.strip("/").split("/"):
            step = part.replace("~1", "/").replace("~0", "~")
            found = found[int(step)] if isinstance(found, list) else found[step]
    except (ValueError, KeyError, IndexError, TypeError):
        raise ConfigError(f"There is no '{pointer}' in {where}.") from None
    if not isinstance(found, str):
        raise ConfigError(f"'{pointer}' in {where} is not a string.")
    return found


def _read_secret(value: object) -> object:
    try:
        return parse_secret(value)
    except ConfigError as error:
        raise ValueError(str(error)) from None


for _kind in (EnvSecret, FileSecret, ExecSecret, KeyringSecret):
    write_with(_kind, dump_secret)

SecretValue = Annotated[Secret, Parsed(_read_secret)]
"""A secret in a settings model: the value, or an object that references it."""


def resolve_references(value: Any, resolve: Callable[[Secret], str]) -> Any:
    """Return a plain value in which each reference to a secret is replaced by what `resolve` returns."""
    if isinstance(value, dict):
        if "source" in value:
            with suppress(ConfigError):
                return resolve(parse_secret(value))
        return {name: resolve_references(below, resolve) for name, below in value.items()}
    if isinstance(value, list):
        return [resolve_references(below, resolve) for below in value]
    return value
