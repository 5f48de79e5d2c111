"""Configuration keys that hold secrets, and their redaction."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from retinue.config.keypath import Segment
from retinue.security.redaction import HIDDEN

_SECRET_NAME = re.compile(
    r"(?:api_?key|token|password|passphrase|secret|credential|private_?key|authorization|cookie)$", re.IGNORECASE
)
_MAPS_OF_SECRETS = ("env", "vars", "headers")


def is_secret(path: Sequence[Segment]) -> bool:
    """Return whether the value at a path is a secret."""
    names = [segment for segment in path if isinstance(segment, str)]
    if not names:
        return False
    is_named_so = bool(_SECRET_NAME.search(names[-1]))
    stands_in_map = len(names) > 1 and names[-2] in _MAPS_OF_SECRETS
    return is_named_so or (stands_in_map and names not in (["env", "vars"], ["env", "shellEnv"]))


def redact(value: Any, path: Sequence[Segment] = ()) -> Any:
    """Return a plain value with every secret replaced; references to secrets are kept."""
    if isinstance(value, dict):
        return {name: redact(below, (*path, name)) for name, below in value.items()}
    if isinstance(value, list):
        return [redact(below, path) for below in value]
    return HIDDEN if isinstance(value, str) and value and is_secret(path) else value
