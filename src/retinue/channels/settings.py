"""Settings of one account of a channel."""

from __future__ import annotations

from retinue.security.secret_value import SecretValue
from retinue.settings import OpenSettings, key


class ChannelAccount(OpenSettings):
    """One account of a channel; a channel may have more keys of its own."""

    enabled: bool = key(True)
    """Whether the account is used."""
    token: SecretValue | None = key(None)
    """Token of the sender of messages; without it, a gateway token is needed."""
    webhook_url: str | None = key(None)
    """Where answers are sent; without it they stay in the inbox."""
    webhook_secret: SecretValue | None = key(None)
    """The key that answers are signed with."""
    reactions: bool = key(True)
    """Whether the other side can show reactions."""
    buttons: bool = key(False)
    """Whether the other side can show buttons."""
    media: bool = key(True)
    """Whether the other side takes files."""
    threads: bool = key(True)
    """Whether the other side has threads."""
    typing: bool = key(False)
    """Whether the other side can show a typing indicator."""
