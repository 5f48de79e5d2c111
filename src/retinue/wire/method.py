"""A method: its name, who may call it, what it takes and what it gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from retinue.wire.frames import Params, Wire
from retinue.wire.protocol import Scope

P = TypeVar("P", bound=Params)
R = TypeVar("R", bound=Wire)


@dataclass(frozen=True, slots=True)
class Method(Generic[P, R]):
    """One method of the gateway. `changes` tells whether calling it twice may do something twice."""

    name: str
    scope: Scope
    params: type[P]
    result: type[R]
    summary: str
    changes: bool = False
