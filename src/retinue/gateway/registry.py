"""Methods and who carries them out: one table, filled by one module per noun."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

from retinue.gateway.gate import Refused
from retinue.gateway.gateway import Call
from retinue.wire.frames import Params, Wire
from retinue.wire.method import Method
from retinue.wire.methods import METHODS
from retinue.wire.protocol import ErrorCode

P = TypeVar("P", bound=Params)
R = TypeVar("R", bound=Wire)
Act = Callable[[Call, P], Awaitable[R]]

NOUNS = (
    "retinue.gateway.methods.system",
    "retinue.gateway.methods.agent",
    "retinue.gateway.methods.sessions",
    "retinue.gateway.methods.agents",
    "retinue.gateway.methods.memory",
    "retinue.gateway.methods.config",
    "retinue.gateway.methods.approvals",
    "retinue.gateway.methods.records",
    "retinue.gateway.methods.automation",
    "retinue.gateway.methods.devices",
)
"""The modules that carry methods out; a new noun is a file and a name here."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A method with what carries it out."""

    method: Method[Any, Any]
    act: Act[Any, Any]


class Registry:
    """Collects the methods of a module."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}

    def carries_out(self, method: Method[P, R]) -> Callable[[Act[P, R]], Act[P, R]]:
        """Declare what carries out a method."""

        def register(act: Act[P, R]) -> Act[P, R]:
            if method.name in self.entries:
                raise ValueError(f"two functions carry out {method.name}")
            self.entries[method.name] = Entry(method, act)
            return act

        return register


def load_methods() -> Mapping[str, Entry]:
    """Every method of the wire, with what carries it out; a method without anything is a mistake that shows at once."""
    entries: dict[str, Entry] = {}
    for noun in NOUNS:
        entries |= import_module(noun).registry.entries
    if entries.keys() != METHODS.keys():
        raise ValueError(f"these methods are declared or carried out, but not both: {entries.keys() ^ METHODS.keys()}")
    return entries


async def call_method(entries: Mapping[str, Entry], call: Call, name: str, params: Mapping[str, Any]) -> Wire:
    """Carry out a method for somebody who may; raises `Refused` for others, before the parameters are looked at."""
    entry = entries.get(name)
    if entry is None:
        raise Refused(ErrorCode.NOT_FOUND, f"There is no method '{name[:100]}'. The hello of `connect` lists them.")
    call.principal.require(entry.method.scope)
    parsed = entry.method.params.model_validate(params)
    result: Wire = await entry.act(call, parsed)
    return result
