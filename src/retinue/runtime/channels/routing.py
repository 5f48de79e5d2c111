"""Routing of channel messages under the configuration of a home."""

from __future__ import annotations

from msgspec import Struct

from retinue.channels.http import NAME as HTTP
from retinue.config.schema import Config
from retinue.config.sections.routing import ChannelSettings
from retinue.core.envelope import Origin, PeerKind
from retinue.core.keys import SessionKey
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
from retinue.runtime.agents.chats import find_account, list_accounts
from retinue.runtime.home import Home
from retinue.sessions.settings import DmScope

OTHERS_SCOPE: DmScope = "per-account-channel-peer"


class Destination(Struct, frozen=True):
    """The agent and session of a message, its owner flag, and whether it is admitted."""

    route: AgentRoute
    session: SessionKey
    owner: bool
    contact: bool
    """Whether the owner paired or listed the sender, who is not the owner."""
    may_pair: bool
    """Whether a refused sender gets a pairing code."""
    refused: str | None
    """Why its sender may not write there; None if it may."""
    may_command: bool
    needs_mention: bool
    """Whether an agent answers there only when mentioned."""
    history_limit: int
    """How many messages without a mention are added to the next one with a mention."""


def find_destination(config: Config, origin: Origin, *, verified: bool = True, paired: bool = False) -> Destination:
    """Return the destination of a message.

    Its sender can be the owner only if the channel is `verified`; `paired` means that the owner approved the sender.
    """
    channel = (config.channels.get(origin.channel) or ChannelSettings()).for_account(origin.account)
    owner = verified and is_owner(origin, config.commands.owner_allow_from)
    route = choose_agent(origin, config.bindings, config.agents.ids, config.agents.default_id)
    agent = config.agents.resolve(route.agent)
    commands = config.commands
    rights = CommandRights(commands.allow_from, commands.use_access_groups)
    return Destination(
        route=route,
        session=session_of(route.agent, origin, _session_rules(config, owner=owner)),
        owner=owner,
        contact=not owner and (is_named(origin, channel.allow_from) or (paired and not origin.kind.is_shared)),
        may_pair=origin.kind is PeerKind.DIRECT and channel.dm_policy == "pairing" and origin.channel != HTTP,
        refused=refuse_writer(origin, channel, owner=owner, paired=paired),
        may_command=commands.text and (owner or rights.may_command(origin, channel)),
        needs_mention=needs_mention(origin, channel, agent.group_chat, config.messages.group_chat),
        history_limit=history_limit(channel.history_limit, agent.group_chat, config.messages.group_chat),
    )


def is_called(config: Config, destination: Destination, text: str, *, known_as: str | None) -> bool:
    """Return whether a text mentions the agent of its destination; `known_as` is the name in its workspace."""
    agent = config.agents.resolve(destination.route.agent)
    own = agent.group_chat.mention_patterns if agent.group_chat else []
    names = filter(None, (known_as, agent.identity.name, agent.name, agent.id))
    return mentions(text, own or config.messages.group_chat.mention_patterns, list(dict.fromkeys(names)))


def _session_rules(config: Config, *, owner: bool) -> SessionRules:
    """Return the rules for one sender: only the owner reaches the main session, because it has the owner's rights.

    Others have a session for each channel at least: the same id on another channel may be another person.
    """
    settings = config.session
    if not owner:
        apart = settings.dm_scope in ("per-channel-peer", "per-account-channel-peer")
        return SessionRules(settings.dm_scope if apart else OTHERS_SCOPE, settings.identity_links)
    return SessionRules(
        settings.dm_scope, settings.identity_links, settings.group_scope, one_for_all=settings.scope == "global"
    )


def reachable(home: Home) -> list[tuple[str, str]]:
    """Return the channels and accounts that can send, the default account of each channel first."""
    found = (find_account(home, channel, account) for channel, account in list_accounts(home))
    return [(each.extension.name, each.name) for each in found if each is not None and each.extension and each.can_send]
