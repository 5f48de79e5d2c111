"""The interface of a channel, which delivers outgoing messages to people, and the settings of an account."""

from __future__ import annotations

from typing import Protocol

from retinue.core.envelope import Capabilities, Origin, OutgoingMessage
from retinue.core.errors import RetinueError
from retinue.security.secrets import SecretValue
from retinue.settings import Settings, key


class DeliveryFailed(RetinueError):
    """A message was not delivered; if `final` is true, a retry is pointless."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class Channel(Protocol):
    """One account of a chat service.

    A channel only sends: the listener of the service passes incoming messages to the gateway.
    """

    @property
    def capabilities(self) -> Capabilities: ...

    async def send(self, outgoing: OutgoingMessage) -> None:
        """Send a message and return when the receiver has confirmed it; raise `DeliveryFailed` otherwise."""
        ...

    async def show_typing(self, to: Origin) -> None:
        """Show a typing indicator in a chat for some seconds; raise `DeliveryFailed` if that failed."""
        ...


class ChannelAccount(Settings):
    """One account of a channel."""

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
    voice: bool = key(False)
    """Whether the service reads answers aloud; the prompt then asks for text that can be spoken."""
    typing: bool = key(False)
    """Whether the service can show a typing indicator."""
