"""Which registry is used, and the token for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from retinue.core.errors import SkillError
from retinue.storage.files.descriptors import write_atomic

DEFAULT_SITE = "https://clawhub.ai"
WELL_KNOWN = ("/.well-known/clawhub.json", "/.well-known/clawdhub.json")
TOKEN_VARIABLE = "RETINUE_SKILLS_TOKEN"  # noqa: S105 - the name of a variable
_CREDENTIALS = "skill-registries.json"


class WellKnown(Struct, frozen=True, rename="camel"):
    """What a site says about its registry; `registry` is the older name of `apiBase`."""

    api_base: str | None = None
    registry: str | None = None
    auth_base: str | None = None

    @property
    def address(self) -> str | None:
        return (self.api_base or self.registry or "").strip() or None


class _Tokens(Struct, frozen=True):
    tokens: dict[str, str] = {}


class _ForeignConfig(Struct, frozen=True):
    registry: str = ""
    token: str | None = None


def read_token(credentials: Path, registry: str, environment: Mapping[str, str]) -> str | None:
    """Return the token for a registry: of the environment, of `login`, or of ClawHub's own program."""
    given = environment.get(TOKEN_VARIABLE) or _read(credentials).tokens.get(registry)
    if given:
        return given
    try:
        known = msgspec.json.decode(_foreign_path(environment).read_bytes(), type=_ForeignConfig)
    except (OSError, msgspec.DecodeError):
        return None
    return known.token if known.registry.rstrip("/") == registry else None


def write_token(credentials: Path, registry: str, token: str | None) -> None:
    """Store the token for a registry, or remove it."""
    tokens = {**_read(credentials).tokens, registry: token or ""}
    data = msgspec.json.encode(_Tokens({key: value for key, value in tokens.items() if value}))
    write_atomic(credentials / _CREDENTIALS, data)


def _read(credentials: Path) -> _Tokens:
    path = credentials / _CREDENTIALS
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Tokens)
    except FileNotFoundError:
        return _Tokens()
    except (OSError, msgspec.DecodeError) as error:
        raise SkillError(f"{path} cannot be read: {error}. Remove it, then run `retinue skills login`.") from None


def _foreign_path(environment: Mapping[str, str]) -> Path:
    named = environment.get("CLAWHUB_CONFIG_PATH")
    if named:
        return Path(named)
    home = Path(environment.get("HOME") or Path.home())
    if os.uname().sysname == "Darwin":
        return home / "Library/Application Support/clawhub/config.json"
    return Path(environment.get("XDG_CONFIG_HOME") or home / ".config") / "clawhub/config.json"
