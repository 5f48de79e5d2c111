"""The contract of a channel, which connects a chat service to the agents, and the settings of an account.

A channel is one account of a service, and keeps nothing itself. A message counts as received when
`ChannelInbox.receive` returns, because then it is stored; only after that it is acknowledged to the service. A message
counts as sent when `send` returns. If it is unknown whether it was sent, `find_sent` looks for it first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from msgspec import Struct

from retinue.core.clock import Clock
from retinue.core.envelope import Capabilities, Origin, OutgoingMessage
from retinue.core.errors import ConfigError, RetinueError
from retinue.core.keys import RunId
from retinue.core.messages import Image
from retinue.security.secrets import EnvSecret, Secret, SecretValue
from retinue.settings import Settings, key
from retinue.structs.declare import UnknownKeys


class DeliveryFailed(RetinueError):
    """A message was not delivered.

    If `final` is true, a retry is pointless. `retry_after` is how long the service wants to be left alone, in seconds.
    `uncertain` means that the service may have taken the message although it did not confirm it.
    """

    def __init__(
        self, message: str, *, final: bool = False, retry_after: float | None = None, uncertain: bool = False
    ) -> None:
        super().__init__(message)
        self.final = final
        self.retry_after = retry_after
        self.uncertain = uncertain


class AccountRefused(RetinueError):
    """The service does not accept the account: its token is not valid, or another program uses it."""


class IncomingFile(Struct, frozen=True):
    """A file of a message, which is read with `fetch_file` unless it came with the message.

    `media_type` is what the service says.
    """

    reference: str
    name: str = ""
    media_type: str = ""
    size: int = 0
    is_voice: bool = False
    data: bytes | None = None


class QuotedText(Struct, frozen=True):
    """Text that the sender of a message did not write: a forwarded message, or the one that it answers."""

    who: str
    text: str


class Arrival(Struct, frozen=True):
    """A message as a channel passes it.

    `verified` means that the channel may name the sender; `mentioned`, that it detected a mention of the agent, or an
    answer to one of its messages. `sent_at` is the service's time of the message, in seconds.
    """

    origin: Origin
    text: str
    images: tuple[Image, ...] = ()
    mentioned: bool = False
    verified: bool = False
    files: tuple[IncomingFile, ...] = ()
    quoted: tuple[QuotedText, ...] = ()
    sent_at: float | None = None


class ButtonPress(Struct, frozen=True):
    """A press of a button below a message of the agent; `origin` has the id of that message and who pressed."""

    origin: Origin
    value: str
    id: str = ""
    """The service's id of the press."""


class ChatReaction(Struct, frozen=True):
    """A reaction to a message; `origin` has the id of that message and who reacted."""

    origin: Origin
    emoji: str


class Receipt(Struct, frozen=True):
    """What became of an arrival: the run that answers it, or why it is not for the agents."""

    run: RunId | None = None
    reason: str = ""


class ChannelInbox(Protocol):
    """Takes what a channel receives, and keeps how far it got."""

    @property
    def position(self) -> str | None:
        """The last position of the account that was stored; None if there is none."""
        ...

    def advance(self, position: str) -> None:
        """Store a position in the service's updates; everything before it was received."""
        ...

    def connected(self) -> None:
        """Report that the service answers."""
        ...

    def failed(self, why: str) -> None:
        """Report that the service cannot be reached, and that the channel tries again."""
        ...

    async def receive(self, arrival: Arrival) -> Receipt:
        """Accept a message. It is stored when this returns; its answer is sent with `Channel.send` later.

        A message whose `Origin.message_id` was accepted before is not answered again.
        """
        ...

    async def press(self, press: ButtonPress) -> str:
        """Take a press of a button; returns a text for the person, if there is something to say."""
        ...

    async def react(self, reaction: ChatReaction) -> None:
        """Take a reaction; the agent reads it with the next message of the chat."""
        ...


class Channel(Protocol):
    """One account of a chat service. A channel that receives messages by itself is a `Listener` as well."""

    @property
    def capabilities(self) -> Capabilities: ...

    async def send(self, outgoing: OutgoingMessage) -> str | None:
        """Send a message and return its id, if the service has ids, when the service has confirmed it.

        Raises `DeliveryFailed` otherwise.
        """
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


class AccountIdentity(Struct, frozen=True):
    """The account as the service knows it; `address` is where people find it, such as a link."""

    id: str
    name: str
    address: str = ""


class ServiceRequest(Struct, frozen=True):
    """A request of a service to the gateway; header names are in lower case."""

    headers: Mapping[str, str]
    body: bytes


class ServiceAnswer(Struct, frozen=True):
    """The answer to a request of a service."""

    status: int = 200
    body: bytes = b""
    media_type: str = "text/plain"


@runtime_checkable
class ServiceChannel(Listener, Protocol):
    """A channel of a service that can check its account, look for messages, and read files."""

    @property
    def capabilities(self) -> Capabilities: ...

    async def send(self, outgoing: OutgoingMessage) -> str | None: ...

    async def show_typing(self, to: Origin) -> None: ...

    async def identify(self) -> AccountIdentity:
        """Check the credentials; raise `AccountRefused` or `DeliveryFailed`."""
        ...

    async def find_sent(self, outgoing: OutgoingMessage, after: str | None) -> str | None:
        """Return the id of a message that may have been sent; None if it was not. Not called for reactions and edits.

        `after` is the id of the last message that is known to be in that chat.
        """
        ...

    async def fetch_file(self, file: IncomingFile, max_bytes: int) -> bytes:
        """Return the content of a file; raise `DeliveryFailed` if it is larger or cannot be read."""
        ...

    async def answer_request(self, request: ServiceRequest, inbox: ChannelInbox) -> ServiceAnswer:
        """Check the signature of a request of the service, and take the updates in it."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class MenuCommand(Struct, frozen=True):
    """A command for the menu of a service."""

    name: str
    summary: str


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
    menu: tuple[MenuCommand, ...] = ()
    """The slash commands of agents, for a service with a menu."""

    def credential(self, value: Secret | None, variable: str, name: str) -> str:
        """Return a secret of the settings, else of an environment variable; raise `ConfigError` if there is neither."""
        if value is not None:
            return self.resolve(value)
        with suppress(ConfigError):
            return self.resolve(EnvSecret("env", variable))
        raise ConfigError(
            f"channels.{self.name} (account {self.account}) has no `{name}`. Add it with `retinue channels add "
            f"{self.name}`, or set the environment variable {variable}."
        )


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
