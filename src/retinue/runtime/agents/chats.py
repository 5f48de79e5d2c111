"""The chat of a session as its prompt describes it: the channel, what it can show, and the rules of a group."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from retinue.channels.channel import ChannelAccount
from retinue.channels.http import NAME as HTTP
from retinue.config.schema import Config
from retinue.config.sections.agents import AgentDefaults, AgentSettings
from retinue.config.sections.routing import AccountRules, ChannelSettings
from retinue.context.prompt.inputs import ChannelFacts, ChatKind, Reactions
from retinue.core.envelope import Capabilities, Inbound, Source
from retinue.core.extension import ChannelExtension
from retinue.core.keys import AgentId, SessionKey, SessionKind
from retinue.dispatch.admission import find_rules, tools_for
from retinue.dispatch.settings import GroupTools, TopicRules
from retinue.runtime.home import Home
from retinue.structs.declare import set_attributes

DEFAULT_ACCOUNT = "default"
"""The account of a channel whose configuration names none."""
MEDIA_MB = 5.0
PAGE = "web"
"""The channel of the control page, which shows Markdown, images and embedded pages."""

VOICE_HINT = (
    "Answers here are read aloud: short sentences, no tables, lists, links or code, and the main point first. "
    "What must be read goes into a file."
)

_WITHOUT_CHAT = frozenset(
    {SessionKind.SUBAGENT, SessionKind.CRON, SessionKind.BOOT, SessionKind.HOOK, SessionKind.HEARTBEAT}
)
_GUIDANCE = {"minimal": Reactions.MINIMAL, "extensive": Reactions.EXTENSIVE}


class ChatPlace(Struct, frozen=True):
    """The chat that a message came from; a message of a terminal or the page has only a channel."""

    channel: str
    account: str = ""
    peer: str = ""
    is_shared: bool = False
    thread: str | None = None
    guild: str | None = None
    names: tuple[str | None, str | None] = (None, None)
    """The names of the group and of its server."""


def place_of(session: SessionKey, inbound: Inbound) -> ChatPlace | None:
    """Return the chat of a message; None if nobody wrote it and its session belongs to no chat."""
    origin = inbound.origin
    if origin is not None:
        names = origin.peer_name, origin.guild_name
        shared = origin.kind.is_shared
        return ChatPlace(origin.channel, origin.account, origin.peer, shared, origin.thread, origin.guild, names)
    if session.channel:
        shared = session.kind.is_shared
        return ChatPlace(session.channel, session.account or "", session.peer or "", shared, session.thread)
    return ChatPlace(inbound.channel) if inbound.source is Source.CHAT else None


def has_chat(session: SessionKey) -> bool:
    """Return whether people usually write in a session, so that a turn without a message belongs to their chat."""
    return session.kind not in _WITHOUT_CHAT


class AccountSettings(Struct, frozen=True):
    """An enabled account of a channel: its settings, and what its service can show."""

    name: str
    channel: ChannelSettings
    common: ChannelAccount
    capabilities: Capabilities
    extension: ChannelExtension | None
    """The channel as its plugin registered it; None if no enabled plugin has it."""

    @property
    def can_send(self) -> bool:
        """Return whether messages can be sent through it."""
        return self.extension is not None and (self.extension.name != HTTP or self.common.webhook_url is not None)


def list_accounts(home: Home, *, disabled: bool = False) -> list[tuple[str, str]]:
    """Return the channels and accounts that are enabled, or all, the default account of each channel first."""
    return [
        (name, account)
        for name, channel in home.config.channels.items()
        if channel.enabled or disabled
        for account, settings in sorted(
            _accounts_of(name, channel).items(), key=lambda item: item[0] != channel.default_account
        )
        if settings.enabled or disabled
    ]


def find_account(home: Home, channel: str, account: str) -> AccountSettings | None:
    """Return the settings of an account; None if it is unknown or disabled."""
    settings = home.config.channels.get(channel)
    found = _accounts_of(channel, settings).get(account) if settings else None
    if settings is None or found is None or not settings.enabled or not found.enabled:
        return None
    extension = home.registry.channels.get(channel)
    settings = settings.for_account(account)
    return AccountSettings(account, settings, found, _capabilities_of(settings, found, extension), extension)


def max_media_bytes(channel: ChannelSettings, agents: AgentDefaults) -> int:
    """Return the maximum size of one file from or for a channel."""
    return round((channel.media_max_mb or agents.media_max_mb or MEDIA_MB) * 1_000_000)


def _accounts_of(name: str, channel: ChannelSettings) -> Mapping[str, ChannelAccount]:
    """Return the accounts of a channel; a chat service without accounts has one, with the keys of the channel."""
    return channel.accounts or ({} if name == HTTP else {DEFAULT_ACCOUNT: AccountRules()})


def _capabilities_of(
    channel: ChannelSettings, account: ChannelAccount, extension: ChannelExtension | None
) -> Capabilities:
    """Return what the service of an account can show: as its plugin says, or as the configuration says instead."""
    declared = extension.capabilities if extension is not None else Capabilities()
    own = {
        "media": account.media,
        "reactions": account.reactions,
        "buttons": account.buttons,
        "threads": account.threads,
        "typing": account.typing,
    }
    knows_itself = extension is not None and extension.name != HTTP
    configured = {name: own[name] for name in own if not knows_itself or name in set_attributes(account)}
    return replace(
        declared,
        max_text=channel.text_chunk_limit or declared.max_text,
        by_paragraph=channel.streaming.chunk_mode == "newline",
        **configured,
    )


def describe_chat(home: Home, agent: AgentSettings, place: ChatPlace) -> ChannelFacts:
    """Return what the prompt says about a chat, from the configuration of its account."""
    kind = ChatKind.GROUP if place.is_shared else ChatKind.DIRECT
    if place.channel == PAGE:
        return ChannelFacts(PAGE, kind, ("embeds", "images", "markdown"), embeds=True)
    found = _find_settings(home, place)
    if found is None:
        return ChannelFacts(place.channel, kind)
    account, able = found.common, found.capabilities
    return ChannelFacts(
        place.channel,
        kind,
        (*able.names, *(("voice",) if account.voice else ())),
        reactions=_GUIDANCE.get(found.channel.reaction_level, Reactions.OFF) if able.reactions else Reactions.OFF,
        voice_hint=VOICE_HINT if account.voice else "",
        inline_buttons=able.buttons,
        message_tool=_visible_replies(home.config, agent, shared=place.is_shared) == "message_tool",
    )


def rules_of(config: Config, place: ChatPlace | None) -> TopicRules | None:
    """Return the settings of a group; None for other chats, and if nothing is configured."""
    channel = config.channels.get(place.channel) if place is not None and place.is_shared else None
    if channel is None or place is None:
        return None
    return find_rules(channel.for_account(place.account), place.peer, place.thread, place.guild, place.names)


def group_context(config: Config, place: ChatPlace) -> str:
    """Return the configured text about a group; empty if there is none."""
    rules = rules_of(config, place)
    return rules.system_prompt or "" if rules else ""


def tools_of_group(config: Config, session: SessionKey, inbound: Inbound) -> GroupTools | None:
    """Return which tools the sender of a message may use in its group; None if nothing is set."""
    rules = rules_of(config, place_of(session, inbound))
    return tools_for(rules, inbound.origin) if rules is not None else None


def _find_settings(home: Home, place: ChatPlace) -> AccountSettings | None:
    """Return the settings of a chat's account; a session without an account uses that of its channel."""
    usual = next((account for channel, account in list_accounts(home) if channel == place.channel), "")
    return find_account(home, place.channel, place.account or usual)


def replies_by_tool(home: Home, agent: AgentId, place: ChatPlace) -> bool:
    """Return whether people in a chat get only what the agent sends with the `message` tool."""
    return _visible_replies(home.config, home.config.agents.resolve(agent), shared=place.is_shared) == "message_tool"


def _visible_replies(config: Config, agent: AgentSettings, *, shared: bool) -> str:
    own = agent.group_chat.visible_replies if shared and agent.group_chat else None
    of_groups = config.messages.group_chat.visible_replies if shared else None
    return own or of_groups or config.messages.visible_replies
