"""The built-in chat services: what each can show, and how its text is split. Nothing of a service is imported here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from retinue.core.envelope import Capabilities
from retinue.core.extension import Lazy
from retinue.core.styled_text import StyledText, split_styled


class ServiceFacts(Struct, frozen=True):
    """What is known of a service before it is used."""

    title: str
    make: str
    """The target of the function that makes the channel."""
    settings: str
    """The target of the class of its settings."""
    capabilities: Capabilities
    credentials: Mapping[str, str]
    """The keys with the credentials of an account, each with the environment variable that replaces it."""
    help: str
    """Where a person gets the credentials."""


SERVICES: Mapping[str, ServiceFacts] = {
    "telegram": ServiceFacts(
        "Telegram",
        "retinue.channels.telegram.channel:make_channel",
        "retinue.channels.telegram.settings:TelegramSettings",
        Capabilities(
            max_text=4_096,
            media=True,
            reactions=True,
            buttons=True,
            threads=True,
            edits=True,
            typing=True,
            files_apart=True,
            fits="retinue.channels.telegram.entities:fits",
        ),
        {"botToken": "TELEGRAM_BOT_TOKEN"},
        "Write /newbot to @BotFather in Telegram; it answers with the token.",
    ),
    "slack": ServiceFacts(
        "Slack",
        "retinue.channels.slack.channel:make_channel",
        "retinue.channels.slack.settings:SlackSettings",
        Capabilities(
            max_text=3_000,
            media=True,
            reactions=True,
            buttons=True,
            threads=True,
            edits=True,
            files_apart=True,
            fits="retinue.channels.slack.blocks:fits",
        ),
        {"botToken": "SLACK_BOT_TOKEN", "appToken": "SLACK_APP_TOKEN"},
        "Create an app at https://api.slack.com/apps with the manifest of docs/channels.md, and install it.",
    ),
    "discord": ServiceFacts(
        "Discord",
        "retinue.channels.discord.channel:make_channel",
        "retinue.channels.discord.settings:DiscordSettings",
        Capabilities(
            max_text=2_000,
            media=True,
            reactions=True,
            buttons=True,
            threads=True,
            edits=True,
            typing=True,
            fits="retinue.channels.discord.markup:fits",
        ),
        {"token": "DISCORD_BOT_TOKEN"},
        "Create an application at https://discord.com/developers/applications, and reset the token of its bot.",
    ),
}


def split_for(text: str, able: Capabilities) -> tuple[StyledText, ...]:
    """Return a Markdown text as pieces that a service shows; `able.fits` must be set."""
    from retinue.channels.markdown import parse_markdown

    fits_service: Callable[[StyledText], bool] = Lazy(able.fits).load()

    def fits(piece: StyledText) -> bool:
        return len(piece.text) <= able.max_text and fits_service(piece)

    return split_styled(parse_markdown(text), fits)
