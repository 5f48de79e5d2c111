"""Settings of a Telegram account."""

from __future__ import annotations

from typing import Any, Literal

from retinue.channels.channel import MenuCommand
from retinue.security.secrets import SecretValue
from retinue.settings import OpenSettings, key


class TelegramSettings(OpenSettings):
    """The keys of `channels.telegram` and its accounts that the client reads."""

    bot_token: SecretValue | None = key(None)
    """Token of the bot, from @BotFather. Default: the environment variable TELEGRAM_BOT_TOKEN."""
    token_file: str | None = key(None)
    """A file that contains the token."""
    api_root: str = key("https://api.telegram.org")
    """Address of the Bot API server."""
    webhook_url: str | None = key(None)
    """Public address at which Telegram delivers updates; without it they are fetched."""
    webhook_secret: SecretValue | None = key(None)
    """Secret that Telegram sends with each update; required with `webhookUrl`."""
    custom_commands: list[dict[str, Any]] = key([])
    """Additional entries of the menu, each with `command` and `description`."""
    link_preview: bool = key(True)
    """Whether Telegram shows previews of links."""
    reaction_notifications: Literal["off", "own", "all", "allowlist"] = key("own")
    """Which reactions of people the agent is told about: those to its own messages, or all."""
    reaction_allowlist: list[str] = key([])
    """People whose reactions count with `allowlist`."""

    @property
    def menu(self) -> list[MenuCommand]:
        """The additional entries of the menu that are complete."""
        entries = ((str(each.get("command", "")), str(each.get("description", ""))) for each in self.custom_commands)
        return [MenuCommand(name.lstrip("/"), text) for name, text in entries if name and text]
