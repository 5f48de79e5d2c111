"""The names of agents, sessions and runs, and the turn that the current task belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from typing import NewType

from msgspec import Struct

from retinue.core.errors import UsageError

AgentId = NewType("AgentId", str)
RunId = NewType("RunId", str)
SessionId = NewType("SessionId", str)

DEFAULT_AGENT = AgentId("main")

_AGENT_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_PART = re.compile(r"[^\s:\x00-\x1f\x7f]{1,200}")


def parse_agent_id(text: str) -> AgentId:
    """Parse an agent id and convert it to lower case; raise `UsageError` if it is not valid."""
    lowered = text.strip().lower()
    if not _AGENT_ID.fullmatch(lowered):
        raise UsageError(
            f"'{text}' is not an agent id. Use letters, digits, '-' and '_', starting with a letter or digit."
        )
    return AgentId(lowered)


class SessionKind(StrEnum):
    """The kind of a session; it determines the audience of files, the prompt mode and the reset rules."""

    MAIN = "main"
    DIRECT = "direct"
    GROUP = "group"
    CHANNEL = "channel"
    SUBAGENT = "subagent"
    CRON = "cron"
    HEARTBEAT = "heartbeat"
    BOOT = "boot"
    HOOK = "hook"
    EXPLICIT = "explicit"

    @property
    def is_shared(self) -> bool:
        """Whether people other than the owner can read it."""
        return self in (SessionKind.GROUP, SessionKind.CHANNEL)


_PEER_KINDS = {
    "direct": SessionKind.DIRECT,
    "dm": SessionKind.DIRECT,
    "group": SessionKind.GROUP,
    "channel": SessionKind.CHANNEL,
}
_SINGLE_KINDS = {
    "main": SessionKind.MAIN,
    "heartbeat": SessionKind.HEARTBEAT,
    "boot": SessionKind.BOOT,
}


class SessionKey(Struct, frozen=True, eq=False):
    """Identifies a conversation, as in `agent:main:main`.

    `text` is the canonical form, which alone decides equality. The other fields are derived from it:
    `peer` is the last name (a person, a group, a job, a sub-agent), `thread` a conversation inside the chat.
    """

    text: str
    agent: AgentId
    kind: SessionKind
    channel: str | None = None
    account: str | None = None
    peer: str | None = None
    thread: str | None = None

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, SessionKey) else NotImplemented

    def __ne__(self, other: object) -> bool:
        # `Struct.__ne__` does not call `__eq__`.
        return not self == other

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text

    @classmethod
    def main(cls, agent: AgentId) -> SessionKey:
        return cls(f"agent:{agent}:main", agent, SessionKind.MAIN)

    @classmethod
    def parse(cls, text: str, *, default_agent: AgentId = DEFAULT_AGENT) -> SessionKey:
        """Parse a key; a plain name such as `ideas` means the default agent's session of that name."""
        parts = text.strip().lower().split(":")
        if not all(_PART.fullmatch(part) and part.isprintable() for part in parts):
            raise UsageError(
                f"'{text}' is not a session key. Use a name such as 'ideas', or a full key such as 'agent:main:main'."
            )
        match parts:
            case [name]:
                return cls._of_agent(default_agent, [name])
            case ["hook", name]:
                return cls(f"hook:{name}", default_agent, SessionKind.HOOK, peer=name)
            case ["agent", agent, *rest] if rest:
                return cls._of_agent(parse_agent_id(agent), rest)
        raise UsageError(f"'{text}' is not a session key. A full key looks like 'agent:<agent>:<name>'.")

    @classmethod
    def _of_agent(cls, agent: AgentId, rest: list[str]) -> SessionKey:
        rest, thread = _split_thread(rest)
        channel = account = None
        peer: str | None = None
        match rest:
            case [single] if single in _SINGLE_KINDS:
                kind = _SINGLE_KINDS[single]
            case ["subagent", *_, peer]:
                kind = SessionKind.SUBAGENT
            case ["cron", peer, *_]:
                kind = SessionKind.CRON
            case ["hook", peer]:
                kind = SessionKind.HOOK
            case _:
                at = _peer_marker(rest)
                if at is not None:
                    kind = _PEER_KINDS[rest[at]]
                    rest[at] = kind
                    channel = rest[0] if at > 0 else None
                    account = rest[1] if at > 1 else None
                    peer = ":".join(rest[at + 1 :])
                else:
                    kind = SessionKind.HEARTBEAT if rest[-1] == "heartbeat" else SessionKind.EXPLICIT
                    peer = rest[-1]
        suffix = ["thread", thread] if thread else []
        return cls(":".join(["agent", agent, *rest, *suffix]), agent, kind, channel, account, peer, thread)


def _peer_marker(rest: list[str]) -> int | None:
    """Return the position of `direct`, `group` or `channel` in `[channel[:account]:]kind:peer`.

    A peer may contain colons (`!room:example.org`). Such a key must not be parsed as an explicit session: a
    group that counts as private would see what only the owner may read.
    """
    return next((at for at, part in enumerate(rest[:3]) if part in _PEER_KINDS and at + 1 < len(rest)), None)


def _split_thread(rest: list[str]) -> tuple[list[str], str | None]:
    """Split off the last `:thread:<id>` (or `:topic:<id>`); the id may contain colons."""
    for at in range(len(rest) - 2, 0, -1):
        if rest[at] in ("thread", "topic"):
            return rest[:at], ":".join(rest[at + 1 :])
    return rest, None


class RunContext(Struct, frozen=True):
    """A turn, identified by its session and run."""

    session: SessionKey
    run: RunId


_CURRENT: ContextVar[RunContext | None] = ContextVar("retinue_run_context", default=None)


def current_run() -> RunContext | None:
    """Return the turn that the current task belongs to, or None."""
    return _CURRENT.get()


@contextmanager
def enter_run(session: SessionKey, run: RunId) -> Iterator[None]:
    """Set the current turn for the block and for every task and thread that it starts."""
    token = _CURRENT.set(RunContext(session, run))
    try:
        yield
    finally:
        _CURRENT.reset(token)
