"""`retinue models auth`: provider keys of an agent. A key is never printed and never an argument."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.common import Group, Invocation, ask_is_possible, pass_invocation, table
from retinue.cli.terminal import format_time

if TYPE_CHECKING:
    from retinue.providers.auth_profiles import ProfileSummary
    from retinue.providers.credential_pool import CredentialPool
    from retinue.providers.registry import Providers
    from retinue.runtime.models import ModelAccess
    from retinue.security.secrets import Secret

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_AGENT = click.option("--agent", metavar="ID", help="Agent (default: the default agent).")


@click.group(cls=Group)
def auth() -> None:
    """Add, list and remove the keys of providers.

    Every agent falls back to the keys of the agent `main`.
    """


@auth.command(context_settings={"allow_extra_args": True})
@click.argument("provider")
@click.option("--name", metavar="NAME", default="default", help="Name that distinguishes several keys of a provider.")
@click.option("--key-stdin", is_flag=True, help="Read the key from standard input.")
@click.option("--env", "variable", metavar="VAR", help="Store the name of the environment variable that holds the key.")
@click.option("--keyring", is_flag=True, help="Store the key in the desktop keyring and only its name in the file.")
@_AGENT
@click.pass_context
@pass_invocation
def add(
    invocation: Invocation,
    context: click.Context,
    provider: str,
    name: str,
    key_stdin: bool,
    variable: str | None,
    keyring: bool,
    agent: str | None,
) -> None:
    """Store a key for PROVIDER; on a terminal it is asked for without echo."""
    from retinue.core.errors import UsageError
    from retinue.providers.auth_profiles import Profile
    from retinue.security.secrets import describe_secret
    from retinue.storage.auditlog import CLI

    if context.args:
        raise UsageError(
            "A key must not be an argument: other processes and the shell history would see it. "
            "Omit it to be asked, pipe it in with --key-stdin, or name a variable with --env."
        )
    access = _open(invocation, agent)
    owner = access.settings.id
    chosen = _check_provider(access.providers, provider)
    profile_id = f"{chosen}:{name}"
    is_new = profile_id not in _own_ids(access.credentials)
    if keyring and variable:
        raise UsageError("Use --keyring or --env, not both.")
    secret = _ask_secret(invocation, chosen, key_stdin=key_stdin, variable=variable)
    if keyring and isinstance(secret, str):
        secret = _store_in_keyring(secret, f"{owner}/{profile_id}")
    access.credentials.add(Profile(profile_id, chosen, "api_key", secret))
    details = {"profile": profile_id, "agent": owner, "where": describe_secret(secret), "replaced": not is_new}
    access.home.audit.record("credential_added", CLI, details)
    invocation.show(
        {"id": profile_id, "provider": chosen, "agent": owner, "replaced": not is_new},
        f"{'Added' if is_new else 'Replaced'} {profile_id} for agent '{owner}'.\n"
        f"Try it: retinue models test {chosen}/<model>",
    )


@auth.command()
@click.argument("provider")
@click.option(
    "--name", metavar="NAME", default="default", help="Name that distinguishes several accounts of a provider."
)
@click.option("--device", is_flag=True, help="Sign in on another device with a code.")
@click.option("--no-browser", is_flag=True, help="Print the address instead of opening a browser.")
@_AGENT
@pass_invocation
def login(invocation: Invocation, provider: str, name: str, device: bool, no_browser: bool, agent: str | None) -> None:
    """Sign in to PROVIDER with OAuth, in the browser or with a device code.

    The provider needs `models.providers.<provider>.oauth`. The token is renewed when it expires.
    """
    import anyio

    from retinue.core.errors import UsageError
    from retinue.providers.auth_profiles import Profile
    from retinue.providers.credential_pool import with_tokens
    from retinue.providers.oauth import DeviceCode, OAuthTokens, login_with_browser, login_with_device
    from retinue.providers.vendors import settings_of
    from retinue.storage.auditlog import CLI

    access = _open(invocation, agent)
    chosen = _check_provider(access.providers, provider)
    settings = settings_of(access.home.config.models, chosen)
    oauth = settings.oauth if settings else None
    if oauth is None:
        raise UsageError(
            f"'{chosen}' has no sign-in. Set `models.providers.{chosen}.oauth` (authorizationUrl, tokenUrl, clientId), "
            f"or store a key: retinue models auth add {chosen}"
        )

    def show_page(address: str) -> None:
        invocation.note(f"Sign in here: {address}")
        if not no_browser:
            click.launch(address)

    def show_code(code: DeviceCode) -> None:
        invocation.note(f"Open {code.page} and enter the code {code.code}")

    async def sign_in() -> OAuthTokens:
        if device:
            return await login_with_device(oauth, show_code, anyio.sleep)
        return await login_with_browser(oauth, show_page)

    tokens = anyio.run(sign_in)
    invocation.keep_quiet(tokens.access)
    profile_id = f"{chosen}:{name}"
    profile = with_tokens(Profile(profile_id, chosen, "token", tokens.access), tokens, access.home.clock.now())
    access.credentials.add(profile)
    owner = access.settings.id
    access.home.audit.record("credential_added", CLI, {"profile": profile_id, "agent": owner, "where": "sign-in"})
    expires = profile.expires.isoformat() if profile.expires else None
    invocation.show(
        {"id": profile_id, "provider": chosen, "agent": owner, "expires": expires},
        f"Signed in to {chosen} as {profile_id} for agent '{owner}'.\nTry it: retinue models test {chosen}/<model>",
    )


def _check_provider(providers: Providers, text: str) -> str:
    from retinue.core.errors import UsageError
    from retinue.providers.vendors import canonical_provider
    from retinue.security.redaction import Redactor

    provider = canonical_provider(text)
    if provider not in providers.known():
        # People who paste their key here by mistake should not see it again.
        raise UsageError(
            f"There is no provider '{Redactor().redact(text)}'. Known: {', '.join(providers.known())}. "
            "Others can be added under `models.providers`."
        )
    endpoint = providers.endpoint(provider)
    if endpoint.auth == "none":
        hint = f" If your server needs one, set `models.providers.{provider}.auth` to 'api-key' first."
        raise UsageError(f"'{provider}' is used without a key.{hint if endpoint.base_url else ''}")
    return provider


def _ask_secret(invocation: Invocation, provider: str, *, key_stdin: bool, variable: str | None) -> Secret:
    import os

    from retinue.core.errors import UsageError
    from retinue.security.redaction import Redactor
    from retinue.security.secrets import EnvSecret

    if key_stdin and variable:
        raise UsageError("Use --key-stdin or --env, not both.")
    if variable:
        if not _VARIABLE.fullmatch(variable):
            raise UsageError(f"'{Redactor().redact(variable)}' is not the name of an environment variable.")
        if not os.environ.get(variable):
            invocation.note(f"{variable} is not set. It must be set when the model is used.")
        return EnvSecret("env", variable)
    if key_stdin:
        key = sys.stdin.read()
    elif ask_is_possible():
        key = click.prompt(f"Key for {provider}", hide_input=True, err=True)
    else:
        raise UsageError(
            "There is no terminal to ask for the key. Pipe it in with --key-stdin, or name a variable with --env."
        )
    key = key.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError("The key is not valid: it is empty or contains spaces, line breaks or control characters.")
    invocation.keep_quiet(str(key))
    return str(key)


def _store_in_keyring(key: str, name: str) -> Secret:
    from retinue.security.secret_sources import SERVICE, store_in_keyring
    from retinue.security.secrets import KeyringSecret

    store_in_keyring(SERVICE, name, key)
    return KeyringSecret("keyring", name, SERVICE)


@auth.command("list")
@_AGENT
@pass_invocation
def list_keys(invocation: Invocation, agent: str | None) -> None:
    """List the names of the keys an agent can use."""
    rows = _open(invocation, agent).credentials.listed()
    invocation.show(
        [_describe(row) for row in rows],
        lambda: (
            table(
                [(row.id, row.origin, row.where, _when(row), _state(row)) for row in rows],
                header=("key", "from", "stored as", "last used", ""),
            )
            if rows
            else "There are no keys. Add one with `retinue models auth add PROVIDER`."
        ),
    )


def _describe(row: ProfileSummary) -> dict[str, Any]:
    return {
        "id": row.id,
        "provider": row.provider,
        "kind": row.kind,
        "origin": row.origin,
        "where": row.where,
        "expires": row.expires.isoformat() if row.expires else None,
        "lastUsed": row.last_used.isoformat() if row.last_used else None,
        "resting": [
            {"model": cooldown.model, "reason": str(cooldown.reason), "until": cooldown.until.isoformat()}
            for cooldown in row.active_cooldowns
        ],
    }


def _when(row: ProfileSummary) -> str:
    return format_time(row.last_used) if row.last_used else "never"


def _state(row: ProfileSummary) -> str:
    cooldowns = [
        f"{cooldown.model} until {cooldown.until.astimezone():%H:%M} ({cooldown.reason})"
        for cooldown in row.active_cooldowns
    ]
    return f"cooling down for {', '.join(cooldowns)}" if cooldowns else ""


@auth.command()
@click.argument("id", metavar="ID")
@_AGENT
@pass_invocation
def remove(invocation: Invocation, id: str, agent: str | None) -> None:  # noqa: A002 - click names it after the argument
    """Remove a stored key."""
    from retinue.core.errors import UsageError
    from retinue.storage.auditlog import CLI

    access = _open(invocation, agent)
    credentials, owner = access.credentials, access.settings.id
    own = _own_ids(credentials)
    if id not in own:
        elsewhere = next((row for row in credentials.listed() if row.id == id), None)
        if elsewhere is not None:
            raise UsageError(f"'{id}' is not stored for this agent: {_say_origin(elsewhere)}")
        known = f"Stored keys: {', '.join(own)}." if own else "No key is stored; `retinue models auth add` stores one."
        raise UsageError(f"There is no key '{id}'. {known}")
    _forget(credentials, id)
    credentials.remove(id)
    access.home.audit.record("credential_removed", CLI, {"profile": id, "agent": owner})
    invocation.show(
        {"id": id, "agent": owner, "removed": True},
        f"Removed {id} of agent '{owner}'.",
    )


def _forget(credentials: CredentialPool, profile_id: str) -> None:
    """Remove a key that Retinue stored in the keyring."""
    from retinue.security.secret_sources import SERVICE, remove_from_keyring
    from retinue.security.secrets import KeyringSecret

    provider = profile_id.partition(":")[0]
    for profile in credentials.profiles(provider):
        secret = profile.secret
        if profile.id == profile_id and isinstance(secret, KeyringSecret) and secret.service == SERVICE:
            remove_from_keyring(SERVICE, secret.id)


def _say_origin(row: ProfileSummary) -> str:
    match row.origin:
        case "main":
            return "it belongs to the agent 'main'. Add --agent main."
        case "config":
            return (
                f"it is set in the configuration. See `retinue config explain models.providers.{row.provider}.apiKey`."
            )
        case _:
            return f"it is the {row.where}. Unset that."


def _own_ids(credentials: CredentialPool) -> list[str]:
    return [row.id for row in credentials.listed() if row.origin == "agent"]


def _open(invocation: Invocation, agent: str | None) -> ModelAccess:
    from retinue.runtime.models import make_access

    home = invocation.load_home()
    return make_access(home, home.agent_id(agent))
