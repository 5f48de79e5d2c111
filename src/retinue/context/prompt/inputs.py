"""Everything a prompt is made from, sorted by how long it stays the same.

`StableInputs` knows no clock, no channel and no message, so a section that needs one of these cannot be a stable
section. All values are frozen and hashable: equal inputs are the same prompt.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from msgspec import Struct


class Mode(StrEnum):
    """How much of the prompt an agent gets: all of it, what a sub-agent needs, or the first line."""

    FULL = "full"
    MINIMAL = "minimal"
    NONE = "none"


class Delegation(StrEnum):
    """How strongly the agent is told to hand work to sub-agents."""

    SUGGEST = "suggest"
    PREFER = "prefer"


class Citations(StrEnum):
    """Whether answers from memory name their source; `auto` means in direct chats."""

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
    """Why a session runs, where it is not simply a person chatting."""

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
    """A file as it is injected; `raw_chars` is its whole size, where only a part was taken.

    `path` is what the agent would give to `read`: relative for a file inside the workspace, which is also the cheapest.
    """

    path: str
    text: str
    name: str
    raw_chars: int | None = None
    truncated: bool = False

    @property
    def raw(self) -> int:
        return len(self.text) if self.raw_chars is None else self.raw_chars


class SandboxFacts(Struct, frozen=True):
    """The confinement of commands: where they see the workspace, how, and whether a sender may lift it."""

    workspace: str
    access: Literal["none", "ro", "rw"]
    network: bool = False
    elevated: bool = False


class OwnerFacts(Struct, frozen=True):
    """The senders who may command the agent, as they are shown."""

    labels: tuple[str, ...]


class ModelAlias(Struct, frozen=True):
    """A short name for a model."""

    alias: str
    model: str


class Contribution(Struct, frozen=True):
    """What the provider of a model changes in the prompt.

    The three `…_style` and `…_bias` texts are whole sections with their heading; an empty text changes nothing. `omit`
    names sections that are left out, for models that cannot afford them.
    """

    source: str
    interaction_style: str = ""
    tool_call_style: str = ""
    execution_bias: str = ""
    stable_prefix: str = ""
    dynamic_suffix: str = ""
    omit: frozenset[str] = frozenset()


class StableInputs(Struct, frozen=True):
    """What changes only with the workspace, the skills, the tools and the configuration.

    `skills` is the catalogue as text, escaped. `workspace_trusted` is false for a folder that somebody else made: its
    files are then given as quoted data, and the prompt says so.
    """

    workspace: str
    tools: tuple[ToolLine, ...] = ()
    skills: str = ""
    files: tuple[ContextFile, ...] = ()
    timezone: str = ""
    docs: str = ""
    workspace_notes: tuple[str, ...] = ()
    workspace_only: bool = False
    workspace_trusted: bool = True
    sandbox: SandboxFacts | None = None
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
        """Whether the agent can call `tool`, listed or deferred."""
        return any(line.name == tool for line in self.tools)

    def has_file(self, name: str) -> bool:
        return any(file.name == name for file in self.files)


class ChannelFacts(Struct, frozen=True):
    """Where the session's replies go and what can be shown there.

    `message_tool` is true where only the `message` tool reaches people, so that a plain reply stays unseen.
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
    """The wake-up message that the agent must recognise."""

    prompt: str


class RuntimeFacts(Struct, frozen=True):
    """The facts of the last line; an empty one is left out."""

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
    """What stays the same within a session.

    `context` is text about the occasion: a group's own rules, a sub-agent's task. `tools` are the names the agent can
    call. `contribution` is the same as in the stable inputs; only its suffix is read here.
    """

    runtime: RuntimeFacts
    channel: ChannelFacts | None = None
    tools: frozenset[str] = frozenset()
    occasion: Occasion | None = None
    context: str = ""
    heartbeat: HeartbeatFacts | None = None
    contribution: Contribution | None = None


class Recollection(Struct, frozen=True):
    """A passage found in memory and where it stands, as in `memory/2026-01-02.md#L3-L9`."""

    source: str
    text: str


class BackgroundCommand(Struct, frozen=True):
    """A command that is still running."""

    id: str
    status: str
    command: str
    cwd: str = ""


class TurnInputs(Struct, frozen=True):
    """What belongs to one message: it stands in front of that message, after all history."""

    heartbeat_file: ContextFile | None = None
    """The list that a wake-up brings: HEARTBEAT.md, or at a start of the gateway BOOT.md."""
    recollections: tuple[Recollection, ...] = ()
    background: tuple[BackgroundCommand, ...] = ()
    notices: tuple[str, ...] = ()
