"""Registering the functions that implement methods, and calling them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from msgspec import Struct

from retinue.gateway.errors import RequestRefused, read_json, read_plain_json
from retinue.gateway.gateway import Call
from retinue.wire.frames import Method, Params, Wire
from retinue.wire.protocol import ErrorCode

P = TypeVar("P", bound=Params)
R = TypeVar("R", bound=Wire)
Act = Callable[[Call, P], Awaitable[R]]


class MethodBinding(Struct, frozen=True):
    """A method and the function that implements it.

    `takes_mapping` is true for a method of a plugin: its parameters have no declared type.
    """

    method: Method[Any, Any]
    act: Act[Any, Any]
    takes_mapping: bool = False


class MethodRegistry:
    """The methods that one module implements."""

    def __init__(self) -> None:
        self.bindings: dict[str, MethodBinding] = {}

    def implements(self, method: Method[P, R]) -> Callable[[Act[P, R]], Act[P, R]]:
        """Register a function as the implementation of a method."""

        def register(act: Act[P, R]) -> Act[P, R]:
            if method.name in self.bindings:
                raise ValueError(f"two functions implement {method.name}")
            self.bindings[method.name] = MethodBinding(method, act)
            return act

        return register


async def call_method(methods: Mapping[str, MethodBinding], call: Call, name: str, params: bytes) -> Wire:
    """Call a method with JSON parameters; raises `RequestRefused` if the caller lacks the scope.

    The parameters are decoded only after that check.
    """
    binding = methods.get(name)
    if binding is None:
        raise RequestRefused(
            ErrorCode.NOT_FOUND, f"There is no method '{name[:100]}'. The hello of `connect` lists all methods."
        )
    call.principal.require(binding.method.scope)
    decoded = _read_mapping(params) if binding.takes_mapping else read_json(params, binding.method.params)
    result: Wire = await binding.act(call, decoded)
    return result


def _read_mapping(params: bytes) -> dict[str, Any]:
    decoded = read_plain_json(params)
    if not isinstance(decoded, dict):
        raise RequestRefused(ErrorCode.BAD_REQUEST, "The parameters must be a JSON object.")
    return decoded
