"""Settings of the tool policy, in addition to the settings of the tools themselves."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from retinue.dispatch.settings import SenderId
from retinue.security.secrets import SecretValue
from retinue.settings import OpenSettings, Settings, key
from retinue.toolkit.settings import ExecPolicy, ExecSettings, Profile, ToolsSettings


class AllowRules(Settings):
    """Tool rules: one layer of the policy."""

    allow: list[str] = key([])
    """Only these tools, by name, `*` pattern or `group:…`; empty means all."""
    also_allow: list[str] = key([])
    """Tools in addition to those of the profile; cannot be combined with `allow`."""
    deny: list[str] = key([])
    """Never these tools; overrides everything else."""

    def _check(self) -> None:
        refuse_both(self.allow, self.also_allow)


def refuse_both(allow: list[str], also_allow: list[str]) -> None:
    """Refuse `allow` together with `alsoAllow`: the first replaces the profile, the second extends it."""
    if allow and also_allow:
        raise ValueError("set either allow (only these tools) or alsoAllow (these on top of the profile), not both")


class ProviderRules(AllowRules):
    """Tool rules for one provider or model."""

    profile: Profile | None = key(None)
    """The profile of tools."""


class ExecSection(ExecSettings):
    """Which commands may run, and how."""

    ask_fallback: Literal["deny", "allowlist", "full"] = key("deny")
    """What happens if an approval request is not answered."""
    approval_timeout_ms: int = key(1_800_000, ge=1)
    """How long to wait for an approval, in milliseconds."""


class FilesPolicy(Settings):
    """Which files the file tools may access."""

    workspace_only: bool = key(True)
    """Whether they are restricted to the workspace and the folders of skills; `false` allows all files."""
    people_max_mb: int = key(200, ge=1)
    """How many megabytes the folder of another person or of a group may hold. When it is full, their files can only be
    deleted; each file counts at least 4 KB."""


class LoopDetectors(Settings):
    """Kinds of repetition to detect."""

    generic_repeat: bool = key(True)
    """The same call with the same result."""
    known_poll_no_progress: bool = key(True)
    """The same polling call, such as that of a background command, with the same result."""
    ping_pong: bool = key(True)
    """Two alternating calls with unchanged results."""


class LoopDetection(Settings):
    """Loop detection."""

    enabled: bool = key(True)
    """Whether an agent that makes the same call with the same result is warned, then stopped."""
    history_size: int = key(30, ge=1)
    """The number of recent calls that are compared."""
    warning_threshold: int = key(10, ge=1)
    """Repetitions after which the agent is warned."""
    critical_threshold: int = key(20, ge=1)
    """Repetitions after which the turn ends."""
    global_circuit_breaker_threshold: int = key(30, ge=1)
    """Number of consecutive calls without any new result after which the turn ends."""
    detectors: LoopDetectors = key(LoopDetectors)
    """Kinds of repetition to detect."""


class ElevatedSettings(Settings):
    """Elevated mode: who may run commands of a sandboxed agent outside the sandbox."""

    enabled: bool = key(True)
    """Whether anybody may."""
    allow_from: dict[str, list[SenderId]] = key({})
    """Which clients of the gateway may use it besides the owner, per channel; `*` means every channel, or every client.

    People other than the owner who write in chats never may.
    """


class LayerTools(Settings):
    """The tools of one kind of session."""

    tools: AllowRules = key(AllowRules)
    """Tool rules."""


class AgentToAgentTools(Settings):
    """Whether agents may send messages to each other."""

    enabled: bool = key(False)
    """Whether they may."""
    allow: list[str] = key([])
    """Which agents may."""


class SessionTools(Settings):
    """Which sessions the session tools can access."""

    visibility: Literal["self", "tree", "agent", "all"] = key("tree")
    """Only its own session, also those of its sub-agents, all sessions of the agent, or all."""


class TaintedSinks(Settings):
    """Where approval is required after untrusted text was read; `true` instead of the object means everywhere."""

    boolean_is_enough: ClassVar[bool] = True
    """Accept true and false, which both mean everywhere; validation reports false."""

    fetch: bool = key(True)
    """To fetch addresses that the model composed, or that only untrusted text names."""
    search: bool = key(True)
    """To search the web for text of your files and notes."""
    messages: bool = key(True)
    """To send messages to anybody but the person who asked."""
    instruction_files: bool = key(True)
    """To change files that later conversations follow, such as AGENTS.md, MEMORY.md and skills."""
    files_outside: bool = key(True)
    """To write files outside the workspace."""
    commands: bool = key(True)
    """To run commands outside the sandbox, or with access to the network, other folders, services or devices."""
    plugin_tools: bool = key(True)
    """To call tools of plugins and MCP servers that are not declared as read-only."""
    automation: bool = key(True)
    """To change scheduled jobs."""
    configuration: bool = key(True)
    """To change the configuration or restart the gateway."""

    @classmethod
    def _prepare(cls, data: Any) -> Any:
        return {} if isinstance(data, bool) else data


class Transcriber(OpenSettings):
    """A program, or an endpoint with OpenAI's interface, that writes down what is said in a recording."""

    command: str = key("")
    """A local program; its output is the text. Without it, the endpoint is used."""
    args: list[str] = key([])
    """Arguments of the program; `{{MediaPath}}` is the path of the recording, which otherwise comes last."""
    base_url: str = key("https://api.openai.com/v1")
    """Address of the endpoint."""
    model: str = key("whisper-1")
    """Model of the endpoint."""
    api_key: SecretValue | None = key(None)
    """Key of the endpoint."""


class AudioSettings(OpenSettings):
    """Voice notes."""

    enabled: bool = key(True)
    """Whether voice notes are transcribed, if `models` names a way."""
    models: list[Transcriber] = key([])
    """Ways to transcribe; the first one that works is used."""
    max_bytes: int = key(20_000_000, gt=0)
    """The largest recording that is transcribed."""


class DocumentSettings(OpenSettings):
    """Documents in messages: PDF, Office, OpenDocument, web pages and plain text."""

    enabled: bool = key(True)
    """Whether the agent gets their text with the message."""
    max_chars: int = key(20_000, ge=0)
    """How many characters of the documents of a message come with it; the agent can read the rest."""


class MediaSettings(OpenSettings):
    """Processing of files in messages."""

    audio: AudioSettings = key(AudioSettings)
    """Voice notes."""
    documents: DocumentSettings = key(DocumentSettings)
    """The text of documents that come with messages."""
    keep_days: int = key(90, ge=0)
    """After how many days files of messages are deleted from `media/`; 0 keeps them."""


class ToolsSection(ToolsSettings):
    """Tool policy and settings of the tools."""

    also_allow: list[str] = key([])
    """Tools in addition to those of the profile; cannot be combined with `allow`."""
    by_provider: dict[str, ProviderRules] = key({})
    """Tool rules per provider or model, such as `openai` or `openai/gpt-5`."""
    exec: ExecSection = key(ExecSection)
    """Which commands may run, and how."""
    fs: FilesPolicy = key(FilesPolicy)
    """Which files the file tools may access."""
    ask_when_tainted: TaintedSinks = key(TaintedSinks)
    """Where approval is required after untrusted text was read: `true` (everywhere), or true or false for each."""
    loop_detection: LoopDetection = key(LoopDetection)
    """Loop detection."""
    elevated: ElevatedSettings = key(ElevatedSettings)
    """Elevated mode: who may run commands of a sandboxed agent outside the sandbox."""
    sandbox: LayerTools = key(LayerTools)
    """The tools of sandboxed sessions."""
    subagents: LayerTools = key(LayerTools)
    """The tools of sub-agents."""
    agent_to_agent: AgentToAgentTools = key(AgentToAgentTools)
    """Whether agents may send messages to each other."""
    sessions: SessionTools = key(SessionTools)
    """Which sessions the session tools can access."""
    media: MediaSettings = key(MediaSettings)
    """Processing of files in messages."""

    def _check(self) -> None:
        refuse_both(self.allow, self.also_allow)


class AgentExec(ExecPolicy):
    """Which commands one agent may run; missing keys are taken from `tools.exec`."""


class AgentTools(AllowRules):
    """The tools of one agent."""

    profile: Profile | None = key(None)
    """The profile of tools; overrides `tools.profile`."""
    by_provider: dict[str, ProviderRules] = key({})
    """Tool rules per provider or model."""
    exec: AgentExec = key(AgentExec)
    """Which commands the agent may run."""
    fs: FilesPolicy | None = key(None)
    """Which files the agent's file tools may access."""
    elevated: ElevatedSettings | None = key(None)
    """Who may use elevated mode with this agent."""
    loop_detection: LoopDetection | None = key(None)
    """Whether the agent is stopped when it repeats itself."""
    sandbox: LayerTools | None = key(None)
    """The tools of the agent's sandboxed sessions."""
