"""Where a message from a channel goes under the configuration of a home, and why."""

from __future__ import annotations

from msgspec import Struct

from retinue.config.schema import Config
from retinue.config.sections.routing import ChannelSettings
from retinue.core.keys import SessionKey
from retinue.core.origin import Origin
from retinue.dispatch.admission import (
    CommandRights,
    history_limit,
    is_named,
    is_owner,
    mentions,
    needs_mention,
    refuse_writer,
)
from retinue.dispatch.router import AgentRoute, SessionRules, choose_agent, session_of
from retinue.sessions.settings import DmScope

STRANGERS_SCOPE: DmScope = "per-account-channel-peer"


class Destination(Struct, frozen=True):
    """Where a message goes, whose it is, and whether it is for the agents at all."""

    route: AgentRoute
    session: SessionKey
    owner: bool
    refused: str | None
    """Why its writer may not write there; None where they may."""
    may_command: bool
    needs_mention: bool
    """Whether an agent answers there only when it is called."""
    history_limit: int
    """How many messages that called nobody are told with the next that does."""


def find_destination(config: Config, origin: Origin, *, vouched: bool = True) -> Destination:
    """Where a message goes. Only where the channel is `vouched` for can its writer be the owner."""
    channel = config.channels.get(origin.channel) or ChannelSettings()
    owner = vouched and is_owner(origin, config.commands.owner_allow_from)
    route = choose_agent(origin, config.bindings, config.agents.ids, config.agents.default_id)
    agent = config.agents.resolve(route.agent)
    commands = config.commands
    rights = CommandRights(commands.allow_from, commands.use_access_groups)
    return Destination(
        route=route,
        session=session_of(route.agent, origin, _session_rules(config, channel, origin, owner=owner)),
        owner=owner,
        refused=refuse_writer(origin, channel, owner=owner),
        may_command=commands.text and (owner or rights.may_command(origin, channel)),
        needs_mention=needs_mention(origin, channel, agent.group_chat, config.messages.group_chat),
        history_limit=history_limit(channel.history_limit, agent.group_chat, config.messages.group_chat),
    )


def is_called(config: Config, destination: Destination, text: str, *, known_as: str | None) -> bool:
    """Whether a text calls the agent it goes to; `known_as` is the name in its workspace."""
    agent = config.agents.resolve(destination.route.agent)
    own = agent.group_chat.mention_patterns if agent.group_chat else []
    names = filter(None, (known_as, agent.identity.name, agent.name, agent.id))
    return mentions(text, own or config.messages.group_chat.mention_patterns, list(dict.fromkeys(names)))


def _session_rules(config: Config, channel: ChannelSettings, origin: Origin, *, owner: bool) -> SessionRules:
    """The rules for one writer: somebody whom no list names does not read along in the owner's main session."""
    settings = config.session
    if owner or is_named(origin, channel.allow_from):
        return SessionRules(
            settings.dm_scope, settings.identity_links, settings.group_scope, one_for_all=settings.scope == "global"
        )
    return SessionRules(STRANGERS_SCOPE if settings.dm_scope == "main" else settings.dm_scope, settings.identity_links)


def reachable(config: Config) -> list[tuple[str, str]]:
    """The channels and accounts that something can be sent through, the default account of each channel first."""
    return [
        (name, account)
        for name, channel in config.channels.items()
        if channel.enabled
        for account, settings in sorted(channel.accounts.items(), key=lambda item: item[0] != channel.default_account)
        if settings.enabled and settings.webhook_url is not None
    ]
