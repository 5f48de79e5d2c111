"""Settings of a Slack account."""

from __future__ import annotations

from retinue.security.secrets import SecretValue
from retinue.settings import OpenSettings, key


class SlashCommandSettings(OpenSettings):
    """The slash command of the app."""

    enabled: bool = key(True)
    """Whether the slash command is answered."""
    name: str = key("retinue")
    """Its name, as in the app's configuration."""


class SlackSettings(OpenSettings):
    """The keys of `channels.slack` and its accounts that the client reads."""

    bot_token: SecretValue | None = key(None)
    """Bot token, `xoxb-…`. Default: the environment variable SLACK_BOT_TOKEN."""
    app_token: SecretValue | None = key(None)
    """App-level token for socket mode, `xapp-…`. Default: the environment variable SLACK_APP_TOKEN."""
    signing_secret: SecretValue | None = key(None)
    """Signing secret of the app; with it, Slack sends requests to the gateway instead of using socket mode."""
    api_root: str = key("https://slack.com/api")
    """Address of the Web API."""
    allow_bots: bool = key(False)
    """Whether messages of other bots are read."""
    unfurl_links: bool = key(False)
    """Whether Slack shows previews of links."""
    unfurl_media: bool = key(False)
    """Whether Slack shows previews of media."""
    slash_command: SlashCommandSettings = key(SlashCommandSettings)
    """The slash command of the app."""
