"""Labels: where a text, file or note comes from, and whether it is private.

The label of a request is the mixture of everything in it: `ToolContext.label` during a tool call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum
from functools import lru_cache
from typing import ClassVar

from msgspec import Struct

from retinue.core.people import Person, Role


class Distance(IntEnum):
    """How far an origin is from the owner; a mixture has the greatest distance of its parts."""

    OWNER = 0
    AGENT = 1
    CONTACT = 2
    GUEST = 3
    UNTRUSTED = 4


_DISTANCES = {distance.name.lower(): distance for distance in Distance}


class Label(Struct, frozen=True):
    """The origin of a text, and whether it is private: from the owner's notes, memory or secrets.

    `origin` is `owner`, `agent`, `contact:<address>`, `guest:<address>` or `untrusted`. Unknown origins count as
    untrusted. The address is that of a `Person`; members of a group are guests.
    """

    OWNER: ClassVar[Label]
    AGENT: ClassVar[Label]
    UNTRUSTED: ClassVar[Label]

    origin: str
    private: bool = False

    @classmethod
    def parse(cls, origin: object, *, private: bool = False) -> Label:
        """Return the label of a stored origin; one that is not valid must not make a text more trusted."""
        name, _, address = origin.partition(":") if isinstance(origin, str) else ("", "", "")
        is_person = name in (Role.CONTACT, Role.GUEST)
        valid = name in _DISTANCES and bool(address) == is_person
        return cls(str(origin) if valid else "untrusted", private)

    @classmethod
    def of_person(cls, person: Person) -> Label:
        """Return the label of what a person other than the owner writes."""
        role = Role.CONTACT if person.role is Role.CONTACT else Role.GUEST
        return cls(f"{role}:{person.address}")

    @property
    def distance(self) -> Distance:
        """How far the origin is from the owner."""
        return _DISTANCES.get(self.origin.partition(":")[0], Distance.UNTRUSTED)

    @property
    def is_foreign(self) -> bool:
        """Whether it is less trusted than the agent's own text: of other people, or untrusted."""
        return self.origin not in ("owner", "agent")

    @property
    def is_owners(self) -> bool:
        """Whether the owner wrote all of it."""
        return self.origin == "owner"

    @property
    def address(self) -> str:
        """The address of the person whose text it is; empty if it is of no single person."""
        return self.origin.partition(":")[2]

    @property
    def as_private(self) -> Label:
        """The label of the same text if it is private."""
        return self if self.private else Label(self.origin, private=True)


Label.OWNER, Label.AGENT, Label.UNTRUSTED = Label("owner"), Label("agent"), Label("untrusted")


_INSTRUCTION_FILES = frozenset(
    f"{name}.md" for name in ("agents", "soul", "identity", "user", "tools", "heartbeat", "boot", "bootstrap", "memory")
)
_INSTRUCTION_FOLDERS = frozenset({"skills", "hooks", "plugins", ".retinue", ".agents"})
_PRIVATE_FILES = frozenset({"memory.md", "user.md"})
_PRIVATE_FOLDERS = ("memory/",)
_SECRET_NAME = re.compile(
    r"\.env(\..+)?|.*\.(pem|key|p12|pfx|kdbx)|id_(rsa|dsa|ecdsa|ed25519)|\.netrc|\.npmrc|\.pypirc"
)


def is_instruction_file(path: str) -> bool:
    """Return whether later turns follow a file of the workspace as instructions, or take it for what the owner said."""
    first, _, rest = path.casefold().partition("/")
    return first in _INSTRUCTION_FOLDERS if rest else first in _INSTRUCTION_FILES


@lru_cache(maxsize=4096)
def is_private_file(path: str) -> bool:
    """Return whether a file, by its path in the workspace, holds the owner's notes or secrets."""
    folded = path.casefold()
    if folded in _PRIVATE_FILES or folded.startswith(_PRIVATE_FOLDERS):
        return True
    return _SECRET_NAME.fullmatch(folded.rpartition("/")[2]) is not None


def mix(labels: Iterable[Label]) -> Label:
    """Return the label of a mixture: the least trusted origin, and private if any part is.

    Texts of two people with the same distance belong to neither of them, so they are untrusted together.
    """
    parts = set(labels)
    if len(parts) <= 1:
        return next(iter(parts), Label.OWNER)
    least = max(part.distance for part in parts)
    origins = {part.origin for part in parts if part.distance is least}
    return Label(origins.pop() if len(origins) == 1 else "untrusted", any(part.private for part in parts))
