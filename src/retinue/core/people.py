"""People other than the owner who write to an agent, and the part of the workspace that is theirs."""

from __future__ import annotations

import hashlib
import re
from enum import StrEnum

from msgspec import Struct

PEOPLE_FOLDER = "people"
"""The folder of a workspace with a folder for each person and each group."""
_READABLE_CHARS = 40
_MEMBER = "team/member"
"""In place of a channel; no channel has such a name."""


class Role(StrEnum):
    """What a person other than the owner is to an agent."""

    CONTACT = "contact"
    """Somebody whom the owner paired or listed in `allowFrom`."""
    GUEST = "guest"
    """Somebody whom only an open policy admits."""
    MEMBER = "member"
    """Somebody who writes in a group."""


class Person(Struct, frozen=True):
    """A person other than the owner; all members of a group count as one.

    `address` is `channel:id`, with the id that the channel verified: of the person, or of the group.
    """

    role: Role
    address: str

    def __str__(self) -> str:
        return f"{self.role}:{self.address}"

    @classmethod
    def parse(cls, text: str) -> Person | None:
        """Return the person with this text form; None if it is none."""
        if not text:  # of the owner's sessions, several times in each turn
            return None
        role, _, address = text.partition(":")
        return cls(Role(role), address) if role in tuple(Role) and address else None

    @classmethod
    def of_member(cls, member: str) -> Person:
        """Return the person who is a member of the team."""
        return cls(Role.CONTACT, f"{_MEMBER}:{member}")

    @property
    def is_member(self) -> bool:
        """Whether the person is a member of the team, in a conversation of their own."""
        return self.address.startswith(f"{_MEMBER}:")

    @property
    def folder(self) -> str:
        """The folder of the workspace that is the person's; no two addresses have the same."""
        readable = re.sub(r"[^a-z0-9]+", "-", self.address.lower())[:_READABLE_CHARS].strip("-")
        return f"{PEOPLE_FOLDER}/{readable}-{hashlib.sha256(self.address.encode()).hexdigest()[:12]}"
