"""The built-in chat services: what each can show, and how its text is split. Nothing of a service is imported here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from retinue.core.envelope import Capabilities
from retinue.core.extension import Lazy
from retinue.core.styled_text import StyledText, split_styled


class ServiceFacts(Struct, frozen=True):
    """What is known of a service before it is used."""

    name: str
    title: str
    capabilities: Capabilities
    credentials: Mapping[str, str]
    """The keys with the credentials of an account, each with the environment variable that replaces it."""
    help: str
    """Where a person gets the credentials."""
    invitation: str = "Write to it:"
    """What to do with the address of an account."""
    replaced_by: Mapping[str, str] = {}
    """Keys with which a credential is not needed, by its key."""

    @property
    def make(self) -> str:
        """The target of the function that makes the channel."""
        return f"{_PACKAGE}.{self.name}.channel:make_channel"

    @property
    def settings(self) -> str:
        """The target of the class of its settings."""
        return f"{_PACKAGE}.{self.name}.settings:{self.title}Settings"


_PACKAGE = "retinue.channels"


def _capabilities(name: str, renderer: str, max_text: int, **more: bool) -> Capabilities:
    """Return what all services can show, and what one can besides; its module `renderer` says what fits a message."""
    fits = f"{_PACKAGE}.{name}.{renderer}:fits"
    common = {"media": True, "reactions": True, "buttons": True, "threads": True, "edits": True}
    return Capabilities(max_text=max_text, fits=fits, **common, **more)


_SERVICES = (
    ServiceFacts(
        "telegram",
        "Telegram",
        _capabilities("telegram", "entities", 4_096, typing=True, files_apart=True),
        {"botToken": "TELEGRAM_BOT_TOKEN"},
        "Write /newbot to @BotFather in Telegram; it answers with the token.",
    ),
    ServiceFacts(
        "slack",
        "Slack",
        _capabilities("slack", "blocks", 3_000, files_apart=True),
        {"botToken": "SLACK_BOT_TOKEN", "appToken": "SLACK_APP_TOKEN"},
        "Create an app at https://api.slack.com/apps with the manifest of docs/channels.md, and install it.",
        "Write to the app in the workspace:",
        {"appToken": "signingSecret"},
    ),
    ServiceFacts(
        "discord",
        "Discord",
        _capabilities("discord", "markup", 2_000, typing=True),
        {"token": "DISCORD_BOT_TOKEN"},
        "Create an application at https://discord.com/developers/applications, and reset the token of its bot.",
        "Add it to a server, so that you can write to it:",
    ),
)
SERVICES: Mapping[str, ServiceFacts] = {each.name: each for each in _SERVICES}


def split_for(text: str, able: Capabilities) -> tuple[StyledText, ...]:
    """Return a Markdown text as pieces that a service shows; `able.fits` must be set."""
    from retinue.channels.markdown import parse_markdown

    fits_service: Callable[[StyledText], bool] = Lazy(able.fits).load()

    def fits(piece: StyledText) -> bool:
        return len(piece.text) <= able.max_text and fits_service(piece)

    return split_styled(parse_markdown(text), fits)
