"""Where a text came from, and so how far it may be believed."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Trust(StrEnum):
    """A label that travels with a text from where it entered to where it is used."""

    OWNER = "owner"
    AGENT = "agent"
    UNTRUSTED = "untrusted"


_ORDER = (Trust.OWNER, Trust.AGENT, Trust.UNTRUSTED)


def least(labels: Iterable[Trust]) -> Trust:
    """The trust of a text made from several: that of its least trusted part."""
    return max(labels, key=_ORDER.index, default=Trust.OWNER)
