"""Trust labels: where a text comes from."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Trust(StrEnum):
    """A label that is passed on with a text from its source to its use."""

    OWNER = "owner"
    AGENT = "agent"
    UNTRUSTED = "untrusted"


_ORDER = (Trust.OWNER, Trust.AGENT, Trust.UNTRUSTED)


def least(labels: Iterable[Trust]) -> Trust:
    """Return the trust of a combined text: that of its least trusted part."""
    return max(labels, key=_ORDER.index, default=Trust.OWNER)
