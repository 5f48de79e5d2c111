"""The generic channel: sends answers as signed HTTP requests to one configured address."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

from msgspec import Struct

from retinue.channels.channel import ChannelParts, DeliveryFailed
from retinue.core.clock import Clock, random_id
from retinue.core.envelope import Capabilities, Origin, OutgoingMessage
from retinue.core.errors import ConfigError
from retinue.security.fetch import Outgoing, fetch
from retinue.security.network import OPERATOR, AddressRefused, NetworkFailed, parse_url

NAME = "http"
TIMEOUT_SECONDS = 20.0
MAX_ANSWER_BYTES = 65_536
FINAL_STATUS = frozenset({400, 410, 413, 422})
"""Status codes with which a receiver rejects a message permanently; a retry is pointless."""

SIGNATURE, TIMESTAMP, KEY = "x-retinue-signature", "x-retinue-timestamp", "idempotency-key"


class HttpChannel(Struct, frozen=True):
    """Sends to a webhook. Without a secret the requests are not signed."""

    url: str
    secret: str | None
    clock: Clock
    capabilities: Capabilities

    async def send(self, outgoing: OutgoingMessage) -> None:
        await self._post(outgoing.key, encode_outgoing(outgoing))

    async def show_typing(self, to: Origin) -> None:
        key = f"typing:{random_id()}"
        await self._post(key, _without_nothing({"key": key, "type": "typing", **_encode_chat(to)}))

    async def _post(self, key: str, facts: dict[str, Any]) -> None:
        body = json.dumps(facts, ensure_ascii=True).encode()
        stamp = str(int(self.clock.now().timestamp()))
        headers = {"content-type": "application/json", KEY: key, TIMESTAMP: stamp}
        if self.secret is not None:
            headers[SIGNATURE] = sign(self.secret, stamp, body)
        try:
            answer = await fetch(
                self.url,
                policy=OPERATOR,
                max_bytes=MAX_ANSWER_BYTES,
                timeout=TIMEOUT_SECONDS,
                send=Outgoing("POST", headers, body),
            )
        except AddressRefused as error:
            raise DeliveryFailed(str(error), final=True) from error
        except NetworkFailed as error:
            raise DeliveryFailed(str(error)) from error
        if answer.url != str(parse_url(self.url)):
            # The receiver of a redirected request gets a different one, so its answer confirms nothing.
            raise DeliveryFailed(f"{self.url} redirects to {answer.url}. Configure the final address.")
        if not 200 <= answer.status < 300:
            raise DeliveryFailed(f"{self.url} answered {answer.status}.", final=answer.status in FINAL_STATUS)


def make_channel(parts: ChannelParts) -> HttpChannel:
    """Return the channel of an account; it must have a webhook."""
    if parts.common.webhook_url is None:
        raise ConfigError(f"channels.{NAME}.accounts.{parts.account} has no webhookUrl, so it cannot send.")
    secret = parts.common.webhook_secret
    return HttpChannel(
        parts.common.webhook_url,
        parts.resolve(secret) if secret is not None else None,
        parts.clock,
        parts.capabilities,
    )


def sign(secret: str, stamp: str, body: bytes) -> str:
    """Return the signature over the time and the body; the receiver computes the same."""
    digest = hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256)
    return f"sha256={digest.hexdigest()}"


def encode_outgoing(outgoing: OutgoingMessage) -> dict[str, Any]:
    """Return an outgoing message as the webhook receives it, without empty fields."""
    facts: dict[str, Any] = {
        "key": outgoing.key,
        "type": "reaction" if outgoing.reaction is not None else "message",
        **_encode_chat(outgoing.to),
        "text": outgoing.text,
        "media": [
            {"url": each.url} if each.url else {"name": each.name, "mimeType": each.media_type, "data": each.data}
            for each in outgoing.media
        ],
        "replyTo": None if outgoing.reaction is not None else outgoing.reply_to,
        "buttons": [list(row) for row in outgoing.buttons],
        "voice": outgoing.voice,
        "sessionKey": outgoing.session,
        "runId": outgoing.run,
    }
    if outgoing.reaction is not None:
        facts["reaction"] = {"emoji": outgoing.reaction, "messageId": outgoing.reply_to}
        if outgoing.removes:
            facts["reaction"]["removed"] = True
    return _without_nothing(facts)


def _encode_chat(to: Origin) -> dict[str, Any]:
    return {
        "account": to.account,
        "peer": {"kind": to.kind.value, "id": to.peer},
        "guild": to.guild,
        "team": to.team,
        "thread": to.thread,
    }


def _without_nothing(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if value}
