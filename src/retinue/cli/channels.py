"""`retinue channels`: chat services, their state, and the people who write there."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import click

from retinue.cli.channel_pairing import pairing
from retinue.cli.common import Group, Invocation, ask_is_possible, open_state, pass_invocation, table

if TYPE_CHECKING:
    from retinue.channels.channel import AccountIdentity
    from retinue.channels.services import ServiceFacts
    from retinue.runtime.agents.chats import AccountSettings
    from retinue.runtime.home import Home

_TITLES = {"http": "a bridge, by HTTP"}
_ACCOUNT = click.option("--account", metavar="NAME", help="Account (default: the channel's default account).")


@click.group(cls=Group)
def channels() -> None:
    """Messages are received and sent while the gateway runs."""


channels.add_command(pairing)


@channels.command("list")
@pass_invocation
def list_channels(invocation: Invocation) -> None:
    """List the built-in services, the channels of plugins, and which are configured."""
    from retinue.channels.services import SERVICES
    from retinue.runtime.agents.chats import list_accounts

    home = invocation.load_home()
    configured = list_accounts(home)
    data = [
        {
            "channel": name,
            "title": SERVICES[name].title if name in SERVICES else _TITLES.get(name, name),
            "plugin": extension.plugin,
            "accounts": [account for channel, account in configured if channel == name],
            "capabilities": list(extension.capabilities.names),
        }
        for name, extension in sorted(home.registry.channels.items())
    ]
    rows = [(each["channel"], each["title"], ", ".join(each["accounts"]) or "-") for each in data]
    invocation.show(data, lambda: table(rows, header=("channel", "service", "accounts")))


@channels.command("status")
@pass_invocation
def status(invocation: Invocation) -> None:
    """Show whether each account is connected, and why not."""
    import msgspec

    from retinue.runtime.inspect.channels import describe_accounts

    home = invocation.load_home()
    with open_state(home) as database:
        facts = describe_accounts(home, database)
    rows = [
        (
            f"{each.channel}/{each.account}",
            each.state,
            each.heard_at or "-",
            str(each.waiting or "-"),
            each.error or "",
        )
        for each in facts
    ]
    header = ("account", "state", "last message", "waiting to be sent", "error")
    empty = "No channels are configured. Add one: `retinue channels add telegram`."
    invocation.show(msgspec.to_builtins(facts), lambda: table(rows, header=header) if rows else empty)


@channels.command("add")
@click.argument("channel", required=False)
@_ACCOUNT
@click.option("--token", "values", multiple=True, help="A credential; repeat it in the order in which they are asked.")
@click.option("--set", "pairs", multiple=True, metavar="KEY=VALUE", help="Another key of the account.")
@click.option("--no-test", is_flag=True, help="Do not check the credentials now.")
@pass_invocation
def add(
    invocation: Invocation,
    channel: str | None,
    account: str | None,
    values: tuple[str, ...],
    pairs: tuple[str, ...],
    *,
    no_test: bool,
) -> int:
    """Connect an account of a service: asks for its credentials and checks them with the service.

    Tokens on the command line can be read by other processes; without `--token` they are asked for.
    """
    from retinue.channels.services import SERVICES
    from retinue.core.errors import UsageError

    if channel is None:
        if not ask_is_possible():
            raise UsageError(f"Name the service: {', '.join(SERVICES)}.")
        channel = click.prompt("Service", type=click.Choice(list(SERVICES)), err=True)
    if channel not in SERVICES:
        known = ", ".join(SERVICES)
        raise UsageError(f"'{channel}' is not a built-in service ({known}). Configure others under channels.{channel}.")
    home = invocation.load_home()
    facts = SERVICES[channel]
    given = _ask_credentials(invocation, home, facts, values, dict(_read_pairs(pairs)))
    identity = None if no_test else _check(home, channel, account, given)
    _write(invocation, channel, account, given)
    data = {"channel": channel, "account": account or "default", "added": True}
    text = f"Added {channel}/{account or 'default'}."
    if identity is not None:
        data |= {"id": identity.id, "name": identity.name, "address": identity.address}
        where = f" {facts.invitation} {identity.address}" if identity.address else ""
        text = f"{identity.name} is connected.{where}"
    steps = (
        "Start the gateway if it does not run: `retinue gateway start`.\n"
        "The first message is answered with a pairing code. If it is yours: "
        "`retinue channels pairing approve CODE --owner`."
    )
    invocation.show(data, f"{text}\n{steps}")
    return 0


@channels.command("remove")
@click.argument("channel")
@_ACCOUNT
@pass_invocation
def remove(invocation: Invocation, channel: str, account: str | None) -> None:
    """Remove an account from the configuration, with its position."""
    from retinue.config.edit import unset_value
    from retinue.dispatch.channel_accounts import ChannelAccountStore
    from retinue.runtime.inspect.channels import pick_account

    home = invocation.load_home()
    found = pick_account(home, channel, account)
    is_whole = found.name not in found.channel.accounts or len(found.channel.accounts) == 1
    path = f"channels.{channel}" if is_whole else f"channels.{channel}.accounts.{found.name}"
    unset_value(invocation.home, path, os.environ)
    with open_state(home) as database:
        ChannelAccountStore(database, home.clock).forget(channel, found.name)
    data = {"channel": channel, "account": found.name, "removed": True}
    invocation.show(data, f"Removed {channel}/{found.name}.")


@channels.command("test")
@click.argument("channel")
@_ACCOUNT
@pass_invocation
def test(invocation: Invocation, channel: str, account: str | None) -> int:
    """Check the credentials of an account with its service."""
    from retinue.runtime.inspect.channels import pick_account

    home = invocation.load_home()
    return _show_identity(invocation, home, pick_account(home, channel, account))


@channels.command("login")
@click.argument("channel")
@_ACCOUNT
@click.option("--token", "values", multiple=True, help="A new credential; without it, it is asked for.")
@pass_invocation
def login(invocation: Invocation, channel: str, account: str | None, values: tuple[str, ...]) -> int:
    """Replace the credentials of an account, and check them."""
    from retinue.channels.services import SERVICES
    from retinue.core.errors import UsageError
    from retinue.runtime.inspect.channels import pick_account

    home = invocation.load_home()
    found = pick_account(home, channel, account)
    if channel not in SERVICES:
        raise UsageError(f"The credentials of '{channel}' are under channels.{channel} of the configuration.")
    given: dict[str, Any] = {}
    for place, key in enumerate(SERVICES[channel].credentials):
        if place < len(values):
            given[key] = values[place]
        elif ask_is_possible():
            given[key] = click.prompt(f"{SERVICES[channel].title} {key}", hide_input=True, err=True).strip()
        else:
            raise UsageError(f"Give the new `{key}` with --token.")
        invocation.keep_quiet(given[key])
    named = found.name if found.name in found.channel.accounts else None
    identity = _check(home, channel, named, given)
    _write(invocation, channel, named, given)
    invocation.show(_identity_data(channel, found.name, identity), f"{channel}/{found.name} is {identity.name}.")
    return 0


@channels.command("send")
@click.argument("channel")
@click.argument("text")
@click.option("--to", "peer", required=True, metavar="ID", help="Id of the person, group or channel.")
@click.option(
    "--kind",
    type=click.Choice(["direct", "group", "channel"]),
    default="direct",
    show_default=True,
    help="Kind of chat.",
)
@_ACCOUNT
@pass_invocation
def send(invocation: Invocation, channel: str, text: str, peer: str, kind: str, account: str | None) -> int:
    """Send a text, through the running gateway. It waits for the next start if none runs."""
    import anyio

    from retinue.core.errors import UsageError
    from retinue.dispatch.outbox import Outbox
    from retinue.runtime.inspect.channels import pick_account, queue_message, wait_until_sent
    from retinue.storage.process_locks import find_instance

    home = invocation.load_home()
    found = pick_account(home, channel, account)
    if not text.strip():
        raise UsageError("The text is empty.")
    with open_state(home) as database:
        outbox = Outbox(database, home.clock, home.paths.sent_log)
        keys = queue_message(outbox, found, kind, peer, text)
        runs = find_instance(home.paths) is not None
        result = anyio.run(wait_until_sent, database, keys, 20.0 if runs else 0.0)
    told = {
        "sent": f"Sent to {peer}.",
        "failed": f"Not sent: {result['error']}",
        "waiting": "The message waits; it is sent when the gateway runs and the service takes it."
        + (f" Last error: {result['error']}" if result["error"] else ""),
    }
    invocation.show({"channel": channel, "account": found.name, **result}, told[result["state"]])
    return 1 if result["state"] == "failed" else 0


@channels.command("logs")
@click.argument("channel", required=False)
@click.option("--lines", "-n", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Maximum number.")
@pass_invocation
def logs(invocation: Invocation, channel: str | None, lines: int) -> None:
    """Show the log records of channels, or of one."""
    from retinue.audit.log_reader import LogRecord, read_last
    from retinue.tools.shell.explanation import show_exactly

    def wanted(record: LogRecord) -> bool:
        is_channel = record.logger.startswith(("retinue.channels", "retinue.runtime.channels"))
        return is_channel and (channel is None or channel in record.logger or f"{channel}/" in record.message)

    path = invocation.load_home().log_file
    found = read_last(path, lines, wanted)
    data = [{"time": each.time, "level": each.level, "message": each.message} for each in found]
    shown = "\n".join(show_exactly(each.raw.replace("\t", "    ")) for each in found)
    invocation.show(data, shown or "There are no records of channels yet.")


def _ask_credentials(
    invocation: Invocation, home: Home, facts: ServiceFacts, values: tuple[str, ...], given: dict[str, Any]
) -> dict[str, Any]:
    """Return the keys of a new account with its credentials: given, asked for, or from the environment."""
    from retinue.core.errors import UsageError

    for place, (key, variable) in enumerate(facts.credentials.items()):
        if place < len(values):
            given[key] = values[place]
        elif key not in given and facts.replaced_by.get(key) not in given and not home.environment.get(variable):
            if not ask_is_possible():
                raise UsageError(f"{facts.title} needs `{key}`: give --token, or set {variable}. {facts.help}")
            invocation.note(facts.help if place == 0 else "")
            given[key] = click.prompt(f"{facts.title} {key}", hide_input=True, err=True).strip()
        if key in given:
            invocation.keep_quiet(str(given[key]))
    return given


def _check(home: Home, channel: str, account: str | None, given: dict[str, Any]) -> AccountIdentity:
    """Check credentials with the service before they are stored."""
    import anyio
    from msgspec.structs import replace

    from retinue.channels.channel import ChannelAccount
    from retinue.config.sections.routing import ChannelSettings
    from retinue.runtime.agents.chats import AccountSettings
    from retinue.runtime.inspect.channels import identify_account

    before = home.config.channels.get(channel) or ChannelSettings()
    extension = home.registry.channels[channel]
    common = before.accounts.get(account or "") or ChannelAccount()
    tried = AccountSettings(
        account or "default",
        before,
        replace(common, other_keys={**common.other_keys, **given}),
        extension.capabilities,
        extension,
    )
    return anyio.run(identify_account, home, tried)


def _show_identity(invocation: Invocation, home: Home, found: AccountSettings) -> int:
    import anyio

    from retinue.runtime.inspect.channels import identify_account

    identity = anyio.run(identify_account, home, found)
    assert found.extension is not None
    name = f"{found.extension.name}/{found.name}"
    where = f", {identity.address}" if identity.address else ""
    data = _identity_data(found.extension.name, found.name, identity)
    invocation.show(data, f"{name} works: {identity.name} ({identity.id}{where}).")
    return 0


def _identity_data(channel: str, account: str, identity: AccountIdentity) -> dict[str, Any]:
    facts = {"id": identity.id, "name": identity.name, "address": identity.address}
    return {"channel": channel, "account": account, "ok": True, **facts}


def _write(invocation: Invocation, channel: str, account: str | None, given: dict[str, Any]) -> None:
    from retinue.config.edit import Change, change_values

    below = f"channels.{channel}" + (f".accounts.{account}" if account else "")
    values = {"enabled": True, **given}
    changes = [Change(f"{below}.{key}", json.dumps(value)) for key, value in values.items()]
    for edited in change_values(invocation.home, changes, os.environ):
        for problem in edited.problems:
            invocation.note(f"warning: {problem}")


def _read_pairs(pairs: tuple[str, ...]) -> dict[str, Any]:
    from retinue.core.errors import UsageError

    found: dict[str, Any] = {}
    for text in pairs:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise UsageError(f"'{text}' is not KEY=VALUE.")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found
