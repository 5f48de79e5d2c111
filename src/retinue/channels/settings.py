"""Settings of one account of a channel."""

from __future__ import annotations

from retinue.security.secret_value import SecretValue
from retinue.settings import OpenSettings, key


class ChannelAccount(OpenSettings):
    """One account of a channel; a channel may have more keys of its own."""

    enabled: bool = key(True)
    """Whether the account is enabled."""
    token: SecretValue | None = key(None)
    """Token of the listener that passes messages to the gateway; without it, a gateway token is required."""
    webhook_url: str | None = key(None)
    """URL that answers are sent to; without it they stay in the inbox."""
    webhook_secret: SecretValue | None = key(None)
    """Key that signs the requests with answers."""
    reactions: bool = key(True)
    """Whether the service can show reactions."""
    buttons: bool = key(False)
    """Whether the service can show buttons."""
    media: bool = key(True)
    """Whether the service accepts files."""
    threads: bool = key(True)
    """Whether the service has threads."""
    typing: bool = key(False)
    """Whether the service can show a typing indicator."""
