"""How the owner's ids appear in the prompt: as they are, or as tags that cannot be traced back."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from enum import StrEnum

from retinue.context.prompt.inputs import OwnerFacts
from retinue.core.errors import ConfigError

_TAG_DIGITS = 12


class OwnerDisplay(StrEnum):
    """How an id is shown."""

    RAW = "raw"
    HASH = "hash"


def show_owners(ids: Iterable[str], display: OwnerDisplay, secret: str = "") -> OwnerFacts:
    """The ids as the prompt shows them, each once, in their order.

    A hash needs a secret: phone numbers are few enough to try them all, so a plain hash would hide nothing.
    """
    unique = tuple(dict.fromkeys(trimmed for each in ids if (trimmed := each.strip())))
    if display is OwnerDisplay.RAW:
        return OwnerFacts(unique)
    if not secret:
        raise ConfigError("Owners cannot be shown as hashes without a secret. Set `commands.ownerDisplaySecret`.")
    return OwnerFacts(tuple(tag_sender(each, secret) for each in unique))


def tag_sender(sender: str, secret: str) -> str:
    """The tag that stands for a sender's id, in the prompt and on that sender's messages alike."""
    return hmac.new(secret.encode(), sender.encode(), hashlib.sha256).hexdigest()[:_TAG_DIGITS]
