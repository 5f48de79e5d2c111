"""A secret as a settings key: the value itself, or an object that says where the value is."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer

from retinue.core.errors import ConfigError
from retinue.security.secrets import EnvSecret, ExecSecret, FileSecret, KeyringSecret, dump_secret, parse_secret


def _read_secret(value: object) -> object:
    try:
        return parse_secret(value)
    except ConfigError as error:
        raise ValueError(str(error)) from None


SecretValue = Annotated[
    str | Annotated[EnvSecret | FileSecret | ExecSecret | KeyringSecret, Field(discriminator="source")],
    BeforeValidator(_read_secret),
    PlainSerializer(dump_secret),
]
"""A secret in a settings model: the value, or an object that says where the value is."""
