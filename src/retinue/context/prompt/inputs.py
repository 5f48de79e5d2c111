"""The inputs of a prompt, grouped by how long they stay the same.

`StableInputs` contains no clock, channel or message, so a section that needs one of these cannot be a stable section.
All values are frozen and hashable: equal inputs give the same prompt.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from enum import StrEnum
from typing import Literal

from msgspec import Struct

from retinue.core.errors import ConfigError
from retinue.core.labels import Label


class PromptMode(StrEnum):
    """How much of the prompt an agent gets: all of it, the part for a sub-agent, or the first line."""

    FULL = "full"
    MINIMAL = "minimal"
    NONE = "none"


class Delegation(StrEnum):
    """How strongly the prompt recommends delegating work to sub-agents."""

    SUGGEST = "suggest"
    PREFER = "prefer"


class Citations(StrEnum):
    """Whether answers from memory cite their source; `auto` means in direct chats."""

    ON = "on"
    OFF = "off"
    AUTO = "auto"


class Reactions(StrEnum):
    """How freely the agent may react with an emoji."""

    OFF = "off"
    MINIMAL = "minimal"
    EXTENSIVE = "extensive"


class ChatKind(StrEnum):
    """Who reads a chat."""

    DIRECT = "direct"
    GROUP = "group"


class Occasion(StrEnum):
    """Why a session runs, if it is not a direct chat."""

    GROUP = "group"
    SUBAGENT = "subagent"
    CRON = "cron"
    BOOT = "boot"
    HOOK = "hook"


class ToolLine(Struct, frozen=True):
    """A tool as the prompt lists it; a deferred one is listed by name alone."""

    name: str
    summary: str = ""
    deferred: bool = False


class ContextFile(Struct, frozen=True):
    """An injected file; `raw_chars` is its full size, if it was truncated.

    `path` is what the agent would pass to `read`: relative for a file inside the workspace.
    """

    path: str
    text: str
    name: str
    raw_chars: int | None = None
    truncated: bool = False

    @property
    def raw(self) -> int:
        return len(self.text) if self.raw_chars is None else self.raw_chars


class PromptSandbox(Struct, frozen=True):
    """The sandbox of commands: path and access of the workspace in it, and whether a sender may leave it."""

    workspace: str
    access: Literal["none", "ro", "rw"]
    network: bool = False
    elevated: bool = False


class OwnerFacts(Struct, frozen=True):
    """The authorised senders, as they are shown."""

    labels: tuple[str, ...]


class ModelAlias(Struct, frozen=True):
    """A short name for a model."""

    alias: str
    model: str


class DocsFacts(Struct, frozen=True):
    """Where the documentation is: the local folder, the source, and addresses that others can open."""

    folder: str
    source: str = ""
    mirror: str = ""
    registry: str = ""


class Contribution(Struct, frozen=True):
    """Adjustments of the prompt for a model.

    The three `…_style` and `…_bias` texts are whole sections with their heading; an empty text changes nothing. `omit`
    are the names of omitted sections, for models with a small window.
    """

    source: str
    interaction_style: str = ""
    tool_call_style: str = ""
    execution_bias: str = ""
    stable_prefix: str = ""
    dynamic_suffix: str = ""
    omit: frozenset[str] = frozenset()


class StableInputs(Struct, frozen=True):
    """The inputs that change only with the workspace, the skills, the tools and the configuration.

    `skills` is the escaped text of the catalogue. `workspace_trusted` is false for a folder that Retinue did not create
    and the owner did not trust: its files are quoted as data, and the prompt says so.
    """

    workspace: str
    tools: tuple[ToolLine, ...] = ()
    skills: str = ""
    files: tuple[ContextFile, ...] = ()
    timezone: str = ""
    docs: DocsFacts | None = None
    workspace_notes: tuple[str, ...] = ()
    workspace_only: bool = False
    workspace_trusted: bool = True
    sandbox: PromptSandbox | None = None
    owners: OwnerFacts | None = None
    delegation: Delegation = Delegation.SUGGEST
    citations: Citations = Citations.AUTO
    model_aliases: tuple[ModelAlias, ...] = ()
    bootstrap_pending: bool = False
    warn_truncation: bool = True
    reasoning_tags: bool = False
    silent_replies: bool = False
    contribution: Contribution | None = None

    def has(self, tool: str) -> bool:
        """Return whether the agent can call `tool`, listed or deferred."""
        return any(line.name == tool for line in self.tools)

    def has_file(self, name: str) -> bool:
        return any(file.name == name for file in self.files)


class ChannelFacts(Struct, frozen=True):
    """The channel of a session and its capabilities.

    `message_tool` is true if only the `message` tool reaches people and a plain reply is not delivered.
    """

    name: str
    kind: ChatKind = ChatKind.DIRECT
    capabilities: tuple[str, ...] = ()
    reactions: Reactions = Reactions.OFF
    voice_hint: str = ""
    inline_buttons: bool = False
    embeds: bool = False
    message_tool: bool = False


class HeartbeatFacts(Struct, frozen=True):
    """The configured message of a heartbeat, which the agent must recognise; empty if it is the usual one."""

    prompt: str = ""


class RuntimeFacts(Struct, frozen=True):
    """The facts of the last line; empty ones are omitted."""

    agent: str
    session: str = ""
    session_id: str = ""
    host: str = ""
    repo: str = ""
    os: str = ""
    arch: str = ""
    python: str = ""
    model: str = ""
    default_model: str = ""
    shell: str = ""
    thinking: str = "off"
    reasoning: str = "off"


class SessionInputs(Struct, frozen=True):
    """The inputs that stay the same within a session.

    `context` is text about the occasion: the rules of a group, the task of a sub-agent. `tools` are the names of the
    available tools. `contribution` is the same as in the stable inputs; only its suffix is used here.
    """

    runtime: RuntimeFacts
    channel: ChannelFacts | None = None
    tools: frozenset[str] = frozenset()
    occasion: Occasion | None = None
    context: str = ""
    heartbeat: HeartbeatFacts | None = None
    contribution: Contribution | None = None


class RecalledPassage(Struct, frozen=True):
    """A passage found in memory and its source, such as `memory/2026-01-02.md#L3-L9`.

    The text of another person is marked as untrusted.
    """

    source: str
    text: str
    label: Label = Label.AGENT
    is_standing: bool = False
    """Whether it is an instruction or preference of the owner that governs the message."""


class BackgroundCommand(Struct, frozen=True):
    """A command that is still running."""

    id: str
    status: str
    command: str
    cwd: str = ""


class TurnInputs(Struct, frozen=True):
    """The inputs of one message: rendered before that message, after the history."""

    heartbeat_file: ContextFile | None = None
    """The list for a heartbeat (HEARTBEAT.md) or a gateway start (BOOT.md)."""
    recollections: tuple[RecalledPassage, ...] = ()
    background: tuple[BackgroundCommand, ...] = ()
    notices: tuple[str, ...] = ()


_TAG_DIGITS = 12


class OwnerDisplay(StrEnum):
    """How an owner's id is shown."""

    RAW = "raw"
    HASH = "hash"


def show_owners(ids: Iterable[str], display: OwnerDisplay, secret: str = "") -> OwnerFacts:
    """Return the ids as the prompt shows them, without duplicates, in order.

    A hash needs a secret, because an unkeyed hash of a phone number can be found by trying all numbers.
    """
    unique = tuple(dict.fromkeys(trimmed for each in ids if (trimmed := each.strip())))
    if display is OwnerDisplay.RAW:
        return OwnerFacts(unique)
    if not secret:
        raise ConfigError("Showing owners as hashes needs a secret. Set `commands.ownerDisplaySecret`.")
    return OwnerFacts(tuple(tag_sender(each, secret) for each in unique))


def tag_sender(sender: str, secret: str) -> str:
    """Return the tag of a sender's id, used in the prompt and on that sender's messages."""
    return hmac.new(secret.encode(), sender.encode(), hashlib.sha256).hexdigest()[:_TAG_DIGITS]
