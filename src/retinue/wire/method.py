"""The declaration of a method: name, scope, parameters and result."""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

from retinue.wire.frames import Params, Wire
from retinue.wire.protocol import Scope

P = TypeVar("P", bound=Params)
R = TypeVar("R", bound=Wire)


class Method(Struct, Generic[P, R], frozen=True):
    """One method of the gateway. `changes` is true if calling it twice may have an effect twice."""

    name: str
    scope: Scope
    params: type[P]
    result: type[R]
    summary: str
    changes: bool = False
