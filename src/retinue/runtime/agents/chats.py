"""The chat of a session as its prompt describes it: the channel, what it can show, and the rules of a group."""

from __future__ import annotations

from msgspec import Struct

from retinue.channels.channel import ChannelAccount
from retinue.config.schema import Config
from retinue.config.sections.agents import AgentSettings
from retinue.config.sections.routing import ChannelSettings
from retinue.context.prompt.inputs import ChannelFacts, ChatKind, Reactions
from retinue.core.envelope import Capabilities, Inbound, Source
from retinue.core.keys import SessionKey, SessionKind

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


def place_of(session: SessionKey, inbound: Inbound) -> ChatPlace | None:
    """Return the chat of a message; None if nobody wrote it and its session belongs to no chat."""
    origin = inbound.origin
    if origin is not None:
        return ChatPlace(origin.channel, origin.account, origin.peer, origin.kind.is_shared)
    if session.channel:
        return ChatPlace(session.channel, session.account or "", session.peer or "", session.kind.is_shared)
    return ChatPlace(inbound.channel) if inbound.source is Source.CHAT else None


def has_chat(session: SessionKey) -> bool:
    """Return whether people usually write in a session, so that a turn without a message belongs to their chat."""
    return session.kind not in _WITHOUT_CHAT


def find_account(config: Config, channel: str, account: str) -> tuple[ChannelSettings, ChannelAccount] | None:
    """Return the settings of an account; None if it is unknown or disabled."""
    settings = config.channels.get(channel)
    found = settings.accounts.get(account) if settings else None
    if settings is None or found is None or not settings.enabled or not found.enabled:
        return None
    return settings, found


def capabilities_of(channel: ChannelSettings, account: ChannelAccount) -> Capabilities:
    """Return what the service of an account can show."""
    return Capabilities(
        max_text=channel.text_chunk_limit or Capabilities().max_text,
        media=account.media,
        reactions=account.reactions,
        buttons=account.buttons,
        threads=account.threads,
    )


def describe_chat(config: Config, agent: AgentSettings, place: ChatPlace) -> ChannelFacts:
    """Return what the prompt says about a chat, from the configuration of its account."""
    kind = ChatKind.GROUP if place.is_shared else ChatKind.DIRECT
    if place.channel == PAGE:
        return ChannelFacts(PAGE, kind, ("embeds", "images", "markdown"), embeds=True)
    found = _find_settings(config, place)
    if found is None:
        return ChannelFacts(place.channel, kind)
    channel, account = found
    able = capabilities_of(channel, account)
    more = (name for name, has in (("typing", account.typing), ("voice", account.voice)) if has)
    return ChannelFacts(
        place.channel,
        kind,
        (*able.names, *more),
        reactions=_GUIDANCE.get(channel.reaction_level, Reactions.OFF) if able.reactions else Reactions.OFF,
        voice_hint=VOICE_HINT if account.voice else "",
        inline_buttons=able.buttons,
        message_tool=_visible_replies(config, agent, shared=place.is_shared) == "message_tool",
    )


def group_context(config: Config, place: ChatPlace) -> str:
    """Return the configured text about a group; empty if there is none."""
    channel = config.channels.get(place.channel)
    if channel is None or not place.is_shared:
        return ""
    rules = channel.groups.get(place.peer) or channel.groups.get("*")
    return rules.system_prompt or "" if rules else ""


def _find_settings(config: Config, place: ChatPlace) -> tuple[ChannelSettings, ChannelAccount] | None:
    """Return the settings of a chat's account; a session without an account uses that of its channel."""
    channel = config.channels.get(place.channel)
    if channel is None:
        return None
    usual = channel.default_account or next(iter(channel.accounts), "")
    return find_account(config, place.channel, place.account or usual)


def _visible_replies(config: Config, agent: AgentSettings, *, shared: bool) -> str:
    own = agent.group_chat.visible_replies if shared and agent.group_chat else None
    of_groups = config.messages.group_chat.visible_replies if shared else None
    return own or of_groups or config.messages.visible_replies
