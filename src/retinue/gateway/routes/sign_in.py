"""`/auth/…`: members of a team sign in and out. Imported only if `teams.team` is set.

The token of a sign-in is in a cookie that scripts of the page cannot read.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Annotated, NoReturn

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from retinue.core.errors import RetinueError
from retinue.gateway.auth.authenticator import Principal
from retinue.gateway.auth.request_source import find_source
from retinue.gateway.endpoint import RouteEndpoint, json_response, principal_of
from retinue.gateway.errors import RequestRefused
from retinue.gateway.gateway import Gateway
from retinue.gateway.members.open import Members
from retinue.gateway.members.sign_in import SignedIn, absolute_seconds
from retinue.teams.provider import ProviderUnavailable, SignInRefused
from retinue.teams.sign_ins import DEVICE_MINUTES, format_code
from retinue.wire.frames import Done, Name, Params, Wire
from retinue.wire.protocol import ErrorCode, Scope

POLL_SECONDS = 2
MAX_PARAMETER_CHARS = 4_000
PAGE_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
Password = Annotated[str, Meta(min_length=1, max_length=500)]
Text = Annotated[str, Meta(min_length=1, max_length=300)]


class TeamSignIn(Wire, frozen=True):
    """The team, and how its members sign in."""

    team: str
    name: str
    password: bool
    provider: str | None


class PasswordSignIn(Params, frozen=True):
    """The login and password of a member."""

    login: Text
    password: Password


class InvitationSignIn(Params, frozen=True, kw_only=True):
    """An invitation, and the name and password that the new member chooses."""

    invitation: Text
    name: Annotated[str, Meta(max_length=100)] = ""
    password: Password


class PasswordChange(Params, frozen=True, kw_only=True):
    """The present password, and the new one."""

    present: Annotated[str, Meta(max_length=500)] = ""
    password: Password


class DeviceSignIn(Params, frozen=True):
    """The name of the device in lists."""

    client: Name = "a device"


class ShownDeviceCode(Wire, frozen=True):
    """What the device keeps, the code that it shows, and where the member enters it."""

    device: str
    code: str
    address: str
    interval_seconds: int
    expires_seconds: int


class DevicePoll(Params, frozen=True):
    """What the device keeps."""

    device: Text


class DeviceToken(Wire, frozen=True):
    """The token, or null while nobody has approved the device."""

    token: str | None
    login: str | None = None


class DeviceApproval(Params, frozen=True):
    """The code that a device shows."""

    code: Text


class ApprovedDevice(Wire, frozen=True):
    """The name of the device that may act as the member now."""

    client: str


class WhoSignedIn(Wire, frozen=True):
    """The member who has signed in."""

    login: str
    name: str
    role: str


class SignedOut(Wire, frozen=True):
    """Where to sign out of the identity provider; null if that is not needed."""

    provider: str | None


def make_endpoints(base: str) -> Sequence[RouteEndpoint]:
    """The endpoints under the path of the page."""
    public = (
        ("GET", "team", describe_team, "Return how members sign in.", None, TeamSignIn),
        ("POST", "password", sign_in_with_password, "Sign in with a password.", PasswordSignIn, WhoSignedIn),
        ("POST", "invitation", accept_invitation, "Accept an invitation.", InvitationSignIn, WhoSignedIn),
        ("GET", "provider", begin_at_provider, "Go to the identity provider.", None, None),
        ("GET", "callback", finish_at_provider, "Come back from the identity provider.", None, None),
        ("POST", "device", begin_device, "Begin the sign-in of a device.", DeviceSignIn, ShownDeviceCode),
        ("POST", "device/token", poll_device, "Get the token of an approved device.", DevicePoll, DeviceToken),
    )
    own = (
        ("sign-out", sign_out, "End the sign-in.", None, SignedOut),
        ("password/change", change_password, "Change the own password.", PasswordChange, Done),
        ("device/approve", approve_device, "Let a device act as the member.", DeviceApproval, ApprovedDevice),
    )
    return (
        *(
            RouteEndpoint(verb, f"{base}/auth/{path}", None, act, summary, body, result, tags=("team",))
            for verb, path, act, summary, body, result in public
        ),
        *(
            RouteEndpoint("POST", f"{base}/auth/{path}", Scope.READ, act, summary, body, result, tags=("team",))
            for path, act, summary, body, result in own
        ),
    )


async def describe_team(gateway: Gateway, request: Request) -> TeamSignIn:
    members, settings = _members(gateway), gateway.runtime.home.config.teams
    provider = members.sign_in.provider
    return TeamSignIn(
        members.team.id, members.team.name, settings.password.enabled, provider.settings.name if provider else None
    )


async def sign_in_with_password(gateway: Gateway, request: Request, body: PasswordSignIn) -> Response:
    sign_in = _members(gateway).sign_in
    found = await sign_in.with_password(body.login, body.password, _address(gateway, request), _client(request))
    return _welcome(gateway, found)


async def accept_invitation(gateway: Gateway, request: Request, body: InvitationSignIn) -> Response:
    sign_in, address = _members(gateway).sign_in, _address(gateway, request)
    found = await sign_in.with_invitation(body.invitation, body.name, body.password, address, _client(request))
    return _welcome(gateway, found)


async def begin_at_provider(gateway: Gateway, request: Request) -> Response:
    members = _members(gateway)
    try:
        begun, address = await members.sign_in.begin_at_provider()
    except ProviderUnavailable as error:
        return _explain(gateway, error, 502)
    response = RedirectResponse(address, 303)
    members.cookies.set_state(response, begun.state)
    return response


async def finish_at_provider(gateway: Gateway, request: Request) -> Response:
    members = _members(gateway)
    given = {name: value[:MAX_PARAMETER_CHARS] for name, value in request.query_params.items()}
    try:
        if "code" not in given:
            raise SignInRefused("The identity provider did not sign you in.")
        cookie = members.cookies.read_state(request.scope)
        found = await members.sign_in.finish_at_provider(
            given.get("state", ""), given["code"], given.get("iss"), cookie, _client(request)
        )
    except (SignInRefused, ProviderUnavailable) as error:
        response: Response = _explain(gateway, error, 502 if isinstance(error, ProviderUnavailable) else 403)
    else:
        response = RedirectResponse(_page(gateway), 303)
        members.cookies.set_session(response, found.token, absolute_seconds(gateway.runtime.home.config.teams))
    members.cookies.clear(response, members.cookies.state)
    return response


async def begin_device(gateway: Gateway, request: Request, body: DeviceSignIn) -> ShownDeviceCode:
    device, code = await _members(gateway).sign_in.begin_device(body.client, _address(gateway, request))
    public = gateway.runtime.home.config.teams.public_url or gateway.state.address
    address = f"{public.rstrip('/')}/#/team"
    return ShownDeviceCode(device, format_code(code), address, POLL_SECONDS, DEVICE_MINUTES * 60)


async def poll_device(gateway: Gateway, request: Request, body: DevicePoll) -> DeviceToken:
    found = await _members(gateway).sign_in.poll_device(body.device, _address(gateway, request))
    return DeviceToken(found.token, found.member.login) if found else DeviceToken(None)


async def approve_device(gateway: Gateway, request: Request, body: DeviceApproval) -> ApprovedDevice:
    principal = _require_person(principal_of(request))
    assert principal.member is not None
    address = _address(gateway, request)
    approve = _members(gateway).sign_in.approve_device
    return ApprovedDevice(await approve(body.code, principal.member.id, principal.name, address))


async def change_password(gateway: Gateway, request: Request, body: PasswordChange) -> Response:
    members, principal = _members(gateway), _require_person(principal_of(request))
    assert principal.member is not None
    address = _address(gateway, request)
    await members.sign_in.change_password(principal.member.id, body.present, body.password, address)
    members.directory.forget(principal.token_id)
    response = json_response(Done())
    members.cookies.clear(response, members.cookies.session)
    return response


async def sign_out(gateway: Gateway, request: Request) -> Response:
    members, principal = _members(gateway), principal_of(request)
    if principal.member is None:
        _refuse_home_token()
    address = await members.sign_in.sign_out(principal.token_id, principal.name)
    gateway.connections.close_if(lambda other: other.token_id == principal.token_id, "signed out")
    response = json_response(SignedOut(address))
    members.cookies.clear(response, members.cookies.session)
    return response


def _members(gateway: Gateway) -> Members:
    assert gateway.members is not None
    return gateway.members


def _require_person(principal: Principal) -> Principal:
    """The member who sends a request; a service account and a token of the home have no password and no devices."""
    if principal.member is None or principal.member.role == "service":
        _refuse_home_token()
    return principal


def _refuse_home_token() -> NoReturn:
    raise RequestRefused(ErrorCode.FORBIDDEN, "Only a member who has signed in can do this.")


def _address(gateway: Gateway, request: Request) -> str:
    return find_source(request.scope, gateway.auth.settings).address


def _client(request: Request) -> str:
    return request.headers.get("user-agent", "")[:200] or "a browser"


def _page(gateway: Gateway) -> str:
    return f"{gateway.auth.settings.control_ui.base_path.rstrip('/')}/"


def _welcome(gateway: Gateway, found: SignedIn) -> Response:
    member, members = found.member, _members(gateway)
    response = json_response(WhoSignedIn(member.login, member.name, member.role.value))
    members.cookies.set_session(response, found.token, absolute_seconds(gateway.runtime.home.config.teams))
    return response


def _explain(gateway: Gateway, error: RetinueError, status: int) -> HTMLResponse:
    """A page for a browser that a sign-in at the provider brought here."""
    page = html.escape(_page(gateway))
    text = f"<!doctype html><title>Sign-in</title><h1>You are not signed in</h1><p>{html.escape(str(error))}</p>"
    headers = {"Content-Security-Policy": PAGE_POLICY}
    return HTMLResponse(f'{text}<p><a href="{page}">Back to the sign-in</a></p>', status, headers)
