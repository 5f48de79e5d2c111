"""Settings of a Discord account."""

from __future__ import annotations

from retinue.security.secrets import SecretValue
from retinue.settings import OpenSettings, key


class IntentSettings(OpenSettings):
    """Privileged intents, which the application's page must allow."""

    message_content: bool = key(True)
    """Whether the text of messages in servers is requested that do not mention the bot."""


class DiscordSettings(OpenSettings):
    """The keys of `channels.discord` and its accounts that the client reads."""

    token: SecretValue | None = key(None)
    """Token of the bot. Default: the environment variable DISCORD_BOT_TOKEN."""
    api_root: str = key("https://discord.com/api/v10")
    """Address of the REST API."""
    allow_bots: bool = key(False)
    """Whether messages of other bots are read."""
    suppress_embeds: bool = key(True)
    """Whether previews of links are hidden."""
    intents: IntentSettings = key(IntentSettings)
    """What the bot asks to receive."""
