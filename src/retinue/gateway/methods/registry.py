"""Registering the functions that implement methods, and calling them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from msgspec import Struct

from retinue.core.keys import RunId
from retinue.gateway.auth.authenticator import Principal
from retinue.gateway.auth.member_access import (
    MEMBER_METHODS,
    NOT_FOR_MEMBERS,
    MemberRule,
    is_limited,
    require_anywhere,
    require_for,
    require_own_run,
)
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


def may_call(principal: Principal, method: Method[Any, Any]) -> bool:
    """Whether a client may call a method, for some agent at least."""
    if is_limited(principal) and method.name not in MEMBER_METHODS:
        return False
    try:
        require_anywhere(principal, method.scope)
    except RequestRefused:
        return False
    return True


async def call_method(methods: Mapping[str, MethodBinding], call: Call, name: str, params: bytes) -> Wire:
    """Call a method with JSON parameters; raises `RequestRefused` if the caller lacks the scope.

    The parameters are decoded only after that check.
    """
    binding = methods.get(name)
    if binding is None:
        raise RequestRefused(
            ErrorCode.NOT_FOUND, f"There is no method '{name[:100]}'. The hello of `connect` lists all methods."
        )
    require_anywhere(call.principal, binding.method.scope)
    if is_limited(call.principal) and name not in MEMBER_METHODS:
        raise RequestRefused(ErrorCode.FORBIDDEN, NOT_FOR_MEMBERS)
    decoded = _read_mapping(params) if binding.takes_mapping else read_json(params, binding.method.params)
    if is_limited(call.principal):
        _check_member(call, binding.method, decoded)
    result: Wire = await binding.act(call, decoded)
    return result


def _check_member(call: Call, method: Method[Any, Any], params: Any) -> None:
    """Raise `RequestRefused` if a member may not call a method with these parameters."""
    match MEMBER_METHODS[method.name]:
        case MemberRule.GENERAL:
            require_anywhere(call.principal, method.scope)
        case MemberRule.AGENT:
            require_for(call.principal, call.runtime.home.agent_id(params.agent), method.scope)
        case MemberRule.SESSION:
            session = call.session(params.session_key, params.agent)
            require_for(call.principal, session.agent, method.scope)
        case MemberRule.RUN:
            session = call.runtime.services.inbox.session_of(RunId(params.run_id))
            require_own_run(call.principal, session)
            require_for(call.principal, session.agent, method.scope)


def _read_mapping(params: bytes) -> dict[str, Any]:
    decoded = read_plain_json(params)
    if not isinstance(decoded, dict):
        raise RequestRefused(ErrorCode.BAD_REQUEST, "The parameters must be a JSON object.")
    return decoded
