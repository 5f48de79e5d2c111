"""A secret as a settings key: the value itself, or an object that references it."""

from __future__ import annotations

from typing import Annotated

from retinue.core.errors import ConfigError
from retinue.security.secrets import EnvSecret, ExecSecret, FileSecret, KeyringSecret, dump_secret, parse_secret
from retinue.structs.declare import Parsed, write_with


def _read_secret(value: object) -> object:
    try:
        return parse_secret(value)
    except ConfigError as error:
        raise ValueError(str(error)) from None


for _kind in (EnvSecret, FileSecret, ExecSecret, KeyringSecret):
    write_with(_kind, dump_secret)

SecretValue = Annotated[str | EnvSecret | FileSecret | ExecSecret | KeyringSecret, Parsed(_read_secret)]
"""A secret in a settings model: the value, or an object that references it."""
