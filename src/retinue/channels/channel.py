"""The interface of a channel, which connects a chat service to the agents, and the settings of an account."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from msgspec import Struct

from retinue.core.clock import Clock
from retinue.core.envelope import Capabilities, Origin, OutgoingMessage
from retinue.core.errors import RetinueError
from retinue.core.keys import RunId
from retinue.core.messages import Image
from retinue.security.secrets import Secret, SecretValue
from retinue.settings import Settings, key
from retinue.structs.declare import UnknownKeys


class DeliveryFailed(RetinueError):
    """A message was not delivered; if `final` is true, a retry is pointless."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class Arrival(Struct, frozen=True):
    """A message as a channel passes it.

    `verified` means that the channel may name the sender; `mentioned`, that it detected a mention of the agent.
    """

    origin: Origin
    text: str
    images: tuple[Image, ...] = ()
    mentioned: bool = False
    verified: bool = False


class Receipt(Struct, frozen=True):
    """What became of an arrival: the run that answers it, or why it is not for the agents."""

    run: RunId | None = None
    reason: str = ""


class ChannelInbox(Protocol):
    """Takes the messages that a channel receives."""

    async def receive(self, arrival: Arrival) -> Receipt:
        """Accept a message. It is stored when this returns; its answer is sent with `Channel.send` later.

        A message whose `Origin.message_id` was accepted before is not answered again.
        """
        ...


class Channel(Protocol):
    """One account of a chat service. A channel that receives messages by itself is a `Listener` as well."""

    @property
    def capabilities(self) -> Capabilities: ...

    async def send(self, outgoing: OutgoingMessage) -> None:
        """Send a message and return when the receiver has confirmed it; raise `DeliveryFailed` otherwise."""
        ...

    async def show_typing(self, to: Origin) -> None:
        """Show a typing indicator in a chat for some seconds; raise `DeliveryFailed` if that failed."""
        ...


@runtime_checkable
class Listener(Protocol):
    """A channel with a connection or a loop of its own; others receive messages through an HTTP route."""

    async def listen(self, inbox: ChannelInbox) -> None:
        """Pass on messages until cancelled. If it raises or returns, it is called again after a pause."""
        ...


class ChannelParts(Struct, frozen=True):
    """What a channel is made of: its account in the configuration, and means to use it."""

    name: str
    account: str
    common: ChannelAccount
    """The keys that all channels have."""
    settings: Any
    """The channel's own keys, those of the account before those of the channel: a value of the settings class with
    which it was registered, otherwise a mapping in which references to secrets are replaced by the secrets."""
    capabilities: Capabilities
    """The capabilities with which it was registered, as changed by the configuration."""
    max_media_bytes: int
    """The maximum size of one file."""
    data: Path
    """A folder for files of the account; the channel creates it."""
    clock: Clock
    resolve: Callable[[Secret], str]
    """Fetches a secret; raises `ConfigError` if it is not available. May block."""


class ChannelAccount(Settings):
    """One account of a channel; each kind of channel has additional keys."""

    unknown_keys: ClassVar[UnknownKeys] = "keep"

    other_keys: dict[str, Any] = key({})
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
