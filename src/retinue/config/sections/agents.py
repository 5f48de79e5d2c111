"""The `agents` section: the defaults, the agents, and the effective settings of one agent."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from msgspec.structs import replace

from retinue.config.sections.automation import HeartbeatSettings
from retinue.config.sections.tools import AgentTools
from retinue.context.settings import CompactionSettings, ContextPruningSettings
from retinue.core.errors import UsageError
from retinue.core.keys import DEFAULT_AGENT, AgentId, parse_agent_id
from retinue.dispatch.settings import GroupChatSettings, HumanDelay
from retinue.memory.settings import MemorySearchSettings
from retinue.sandbox.settings import SandboxSettings
from retinue.sessions.settings import BudgetSettings, Limit
from retinue.settings import Settings, key
from retinue.structs.declare import Parsed, set_attributes
from retinue.workspace.settings import ContextInjection, WorkspaceSettings

S = TypeVar("S", bound=Settings)
Thinking = Literal["off", "minimal", "low", "medium", "high", "xhigh"]


class ContextLimits(Settings):
    """Size limits of single items in the context."""

    memory_get_max_chars: int = key(12_000, ge=1)
    """Maximum characters of one read of a memory file."""
    memory_get_default_lines: int = key(120, ge=1)
    """Default number of lines of one read of a memory file."""
    tool_result_max_chars: int | None = key(None, ge=1)
    """Maximum characters of one tool result. Default: a share of the context window."""
    post_compaction_max_chars: int = key(1_800, ge=0)
    """Maximum characters of AGENTS.md that are repeated after a compaction."""


class Identity(Settings):
    """How the agent presents itself; missing keys are taken from IDENTITY.md."""

    name: str | None = key(None)
    """Display name."""
    emoji: str | None = key(None)
    """An emoji for the agent."""
    creature: str | None = key(None)
    """The character of the agent."""
    vibe: str | None = key(None)
    """The agent's style."""
    theme: str | None = key(None)
    """The colours that the control page uses."""
    avatar: str | None = key(None)
    """A picture: a path in the workspace or a URL."""


class ModelChoice(Settings):
    """A model and its fallbacks; a plain text is the model."""

    text_is_enough: ClassVar[bool] = True
    """Accept a text as an object with only `primary`."""
    replaces_defaults: ClassVar[bool] = True
    """An agent's own model does not inherit the fallbacks of the default model."""

    primary: str | None = key(None)
    """The model, as `provider/model` or alias; a text instead of the object means this key."""
    fallbacks: list[str] = key([])
    """Fallback models, tried in order."""

    @classmethod
    def _prepare(cls, data: Any) -> Any:
        return {"primary": data} if isinstance(data, str) else data


class RequestParams(Settings):
    """Parameters of model requests. Those of a model override the defaults; those of an agent override both."""

    temperature: float | None = key(None, ge=0, le=2)
    """Sampling temperature. Not sent to models that refuse it, such as reasoning models."""
    top_p: float | None = key(None, gt=0, le=1)
    """Nucleus sampling (top-p). Not sent to models that refuse it."""
    max_tokens: int | None = key(None, ge=1)
    """Maximum number of output tokens, within the limit of the model."""
    cache_retention: Literal["none", "short", "long"] | None = key(None)
    """How long the provider caches the prompt: not at all, minutes, or an hour and more. Default: `short`."""


class ModelEntry(Settings):
    """Settings of one model."""

    alias: str | None = key(None)
    """A short name for the model."""
    params: RequestParams = key(RequestParams)
    """Parameters of its requests."""
    streaming: bool = key(True)
    """Whether answers are streamed. Set `false` for servers that cannot stream."""


class AgentSubagents(Settings):
    """Sub-agents of an agent."""

    allow_agents: list[str] = key([])
    """Agents that it may start in addition to itself; `*` means all."""
    model: ModelChoice | None = key(None)
    """The model that the agent uses as a sub-agent. Default: the model of its parent."""
    budget: Limit = key(Limit)
    """Budget of one sub-agent; it is stopped when the budget is spent."""
    delegation_mode: Literal["suggest", "prefer"] = key("suggest")
    """Whether the prompt says that the agent can delegate (`suggest`) or should (`prefer`)."""
    require_agent_id: bool = key(False)
    """Whether `agentId` is required to start a sub-agent."""


class SubagentDefaults(AgentSubagents):
    """Sub-agents and their limits."""

    thinking: Thinking | None = key(None)
    """Reasoning effort of sub-agents."""
    max_concurrent: int = key(8, reload="restart", ge=1)
    """Maximum number of concurrent sub-agents."""
    max_spawn_depth: int = key(1, ge=1, le=5)
    """Maximum nesting of sub-agents; 1 means that sub-agents cannot start sub-agents."""
    max_children_per_agent: int = key(5, ge=1, le=20)
    """Maximum number of sub-agents per session."""
    archive_after_minutes: int = key(60, ge=0)
    """Minutes after which a finished sub-agent is archived; 0 means never."""
    run_timeout_seconds: int = key(0, ge=0)
    """Time limit of a run in seconds; 0 means no limit."""
    announce_timeout_ms: int = key(120_000, ge=1)
    """How long a result may wait for its parent, in milliseconds, before the user is notified."""


class AgentDefaults(WorkspaceSettings):
    """Defaults for all agents."""

    user_timezone: str | None = key(None)
    """The user's time zone, such as `Europe/Berlin`. Default: the time zone of the machine."""
    time_format: Literal["auto", "12", "24"] = key("auto")
    """Time format in the prompt: 12 or 24 hours, or `auto` for the format of the locale."""
    model: ModelChoice = key(ModelChoice)
    """The model that answers."""
    image_model: ModelChoice = key(ModelChoice)
    """The model for messages with images, if the usual model does not accept images."""
    utility_model: ModelChoice = key(ModelChoice)
    """The model for summaries and memory flushes, unless they set their own."""
    models: dict[str, ModelEntry] = key({})
    """Aliases and parameters per model, under `provider/model`."""
    params: RequestParams = key(RequestParams)
    """Parameters of every request."""
    skills: list[str] | None = key(None)
    """The skills that agents may use. Default: all."""
    skill_learning: Literal["off", "review", "auto"] = key("review")
    """Whether agents may propose skills: `review` asks the owner, `auto` applies proposals of conversations without
    untrusted text at once."""
    thinking_default: Thinking | None = key(None)
    """Reasoning effort."""
    reasoning_default: Literal["off", "on", "stream"] = key("off")
    """Whether reasoning is shown in the chat."""
    verbose_default: Literal["off", "on", "full"] = key("off")
    """How much of tool results the chat shows."""
    elevated_default: Literal["off", "on", "ask", "full"] = key("off")
    """Whether sessions start with commands outside the sandbox."""
    context_tokens: int | None = key(None, ge=1024)
    """Limit of the context window in tokens. Default: that of the model. Less is cheaper and is compacted sooner."""
    timeout_seconds: int = key(172_800, ge=1)
    """Time limit of a turn."""
    max_concurrent: int | None = key(None, reload="restart", ge=1)
    """Maximum number of concurrent turns. From 4 on, one is kept for clients that have none."""
    media_max_mb: float | None = key(None, gt=0)
    """Maximum size of a file sent or received in a chat, in MB, unless the channel sets its own. Default: 5."""
    repo_root: str | None = key(None)
    """The repository named in the prompt. Default: the repository that contains the workspace."""
    budget: BudgetSettings = key(BudgetSettings)
    """Budget; turns are refused when it is spent."""
    context_limits: ContextLimits = key(ContextLimits)
    """Size limits of single items in the context."""
    context_pruning: ContextPruningSettings = key(ContextPruningSettings)
    """How old tool results are shortened in what the model sees."""
    compaction: CompactionSettings = key(CompactionSettings)
    """Compaction: how old history is replaced by a summary."""
    memory_search: MemorySearchSettings = key(MemorySearchSettings)
    """How memory is indexed and searched."""
    heartbeat: HeartbeatSettings = key(HeartbeatSettings)
    """Heartbeat: periodic turns without a message."""
    subagents: SubagentDefaults = key(SubagentDefaults)
    """Sub-agents and their limits."""
    sandbox: SandboxSettings = key(SandboxSettings)
    """Sandbox for commands."""
    human_delay: HumanDelay = key(HumanDelay)
    """Delay between the parts of an answer."""
    block_streaming_default: Literal["off", "on"] = key(
        "off", pending="`streaming` of a channel says how answers appear"
    )
    """Whether answers are sent to channels in blocks while they are generated."""
    typing_mode: Literal["never", "instant", "thinking", "message"] | None = key(None)
    """When channels show a typing indicator. Default: `session.typingMode`."""


class AgentSkillsLimits(Settings):
    """Prompt limits of an agent's skills."""

    max_skills_prompt_chars: int | None = key(None, ge=0)
    """Maximum characters of the list of skills."""


def _read_agent_id(value: object) -> object:
    try:
        return parse_agent_id(value) if isinstance(value, str) else value
    except UsageError as error:
        raise ValueError(str(error)) from None


class AgentEntry(Settings):
    """One agent; missing keys are taken from `agents.defaults`."""

    id: Annotated[str, Parsed(_read_agent_id)] = key()
    """The agent's id in sessions, folders and bindings."""
    default: bool = key(False)
    """Whether messages without a matching binding go to this agent."""
    name: str | None = key(None)
    """Display name."""
    workspace: str | None = key(None, reload="restart")
    """The agent's folder."""
    agent_dir: str | None = key(None, reload="restart")
    """Directory of the agent's credentials, absolute or relative to the home. Default: `agents/<id>/agent`."""
    model: ModelChoice | None = key(None)
    """The model that answers."""
    params: RequestParams | None = key(None)
    """Parameters of the agent's requests."""
    skills: list[str] | None = key(None)
    """The skills that the agent may use; overrides the default list; `[]` means none."""
    skill_learning: Literal["off", "review", "auto"] | None = key(None)
    """Whether the agent may propose skills."""
    skills_limits: AgentSkillsLimits | None = key(None)
    """Prompt limits of the agent's skills."""
    identity: Identity | None = key(None)
    """How the agent presents itself."""
    group_chat: GroupChatSettings | None = key(None)
    """When the agent answers in groups."""
    tools: AgentTools | None = key(None)
    """The tools of the agent."""
    bootstrap_max_chars: int | None = key(None, ge=1)
    """Maximum characters of one workspace file in the prompt."""
    bootstrap_total_max_chars: int | None = key(None, ge=1)
    """Maximum characters of all workspace files together in the prompt."""
    context_injection: ContextInjection | None = key(None)
    """Which prompts include the workspace files."""
    budget: BudgetSettings | None = key(None)
    """Budget of the agent; its turns are refused when it is spent."""
    context_limits: ContextLimits | None = key(None)
    """Size limits of single items in the context."""
    memory_search: MemorySearchSettings | None = key(None)
    """How the agent's memory is indexed and searched."""
    heartbeat: HeartbeatSettings | None = key(None)
    """Heartbeat of the agent."""
    subagents: AgentSubagents | None = key(None)
    """What the agent may delegate."""
    sandbox: SandboxSettings | None = key(None)
    """Sandbox of the agent's commands."""
    human_delay: HumanDelay | None = key(None)
    """Delay between the parts of an answer."""


class AgentSettings(AgentDefaults):
    """The effective settings of one agent: its own settings override the defaults."""

    id: AgentId = key(DEFAULT_AGENT)
    """The agent's id in sessions, folders and bindings."""
    is_default: bool = key(True)
    """Whether messages without a matching binding go to this agent."""
    name: str | None = key(None)
    """Display name."""
    agent_dir: str | None = key(None)
    """Directory of the agent's credentials."""
    skills_limits: AgentSkillsLimits = key(AgentSkillsLimits)
    """Prompt limits of the agent's skills."""
    identity: Identity = key(Identity)
    """How the agent presents itself."""
    group_chat: GroupChatSettings | None = key(None)
    """When the agent answers in groups."""
    tools: AgentTools = key(AgentTools)
    """The tools of the agent."""
    own_params: RequestParams = key(RequestParams)
    """Parameters of the agent's requests, without the defaults, which the parameters of a model override first."""

    def params_for(self, model: str) -> RequestParams:
        """Return the parameters of requests to one model, `provider/model`."""
        of_model = self.models[model].params if model in self.models else RequestParams()
        return merge_settings(merge_settings(self.params, of_model), self.own_params)


class AgentsSettings(Settings):
    """The agents and their defaults."""

    defaults: AgentDefaults = key(AgentDefaults)
    """Defaults for all agents."""
    entries: tuple[AgentEntry, ...] = key((), name="list")
    """The agents. Default: one agent, `main`."""

    def _check(self) -> None:
        ids = [entry.id for entry in self.entries]
        twins = sorted({each for each in ids if ids.count(each) > 1})
        if twins:
            raise ValueError(f"agents.list has more than one agent with the id '{twins[0]}'")

    @property
    def ids(self) -> tuple[AgentId, ...]:
        """Return all agents, in the order of the file."""
        return tuple(AgentId(entry.id) for entry in self.entries) or (DEFAULT_AGENT,)

    @property
    def default_id(self) -> AgentId:
        """Return the agent for messages without a matching binding: the one marked as default, else the first."""
        return next((AgentId(entry.id) for entry in self.entries if entry.default), self.ids[0])

    @property
    def beating(self) -> tuple[AgentId, ...]:
        """Return the agents with a heartbeat: those that configure one, else the default agent."""
        own = tuple(AgentId(entry.id) for entry in self.entries if entry.heartbeat is not None)
        return own or (self.default_id,)

    @cached_property
    def _resolved(self) -> dict[AgentId, AgentSettings]:
        return {}

    def resolve(self, agent: str) -> AgentSettings:
        """Return the effective settings of one agent; raise `UsageError` if it does not exist."""
        wanted = parse_agent_id(agent)
        found = self._resolved.get(wanted)
        if found is None:
            found = self._resolved[wanted] = self._resolve(wanted)
        return found

    def _resolve(self, wanted: AgentId) -> AgentSettings:
        if wanted not in self.ids:
            known = ", ".join(self.ids)
            raise UsageError(f"There is no agent '{wanted}'. Known: {known}. Add it to agents.list.")
        is_default = wanted == self.default_id
        values: dict[str, Any] = {name: getattr(self.defaults, name) for name in AgentDefaults.__struct_fields__}
        if not is_default:
            values["workspace"] = None  # two agents with one folder would share identity and memory
        for entry in self.entries:
            if entry.id == wanted:
                values = _overlay(values, entry) | {"params": self.defaults.params}
                values["own_params"] = entry.params or RequestParams()
        return AgentSettings(**values | {"id": wanted, "is_default": is_default})


def _overlay(base: dict[str, Any], entry: AgentEntry) -> dict[str, Any]:
    own = {name: getattr(entry, name) for name in set_attributes(entry) if name in AgentSettings.__struct_fields__}
    return base | {name: _merge(base.get(name), value) for name, value in own.items() if value is not None}


def merge_settings(base: S, own: S | None) -> S:
    """Merge two sections; the agent's own value overrides the default."""
    merged: S = _merge(base, own) if own is not None else base
    return merged


def _merge(base: Any, own: Any) -> Any:
    """Merge an agent's value with the default: objects key by key; any other value replaces the default."""
    if isinstance(base, dict) and isinstance(own, dict):
        return {name: _merge(base.get(name), own.get(name, base.get(name))) for name in {**base, **own}}
    if not isinstance(base, Settings) or not isinstance(own, Settings) or getattr(own, "replaces_defaults", False):
        return own
    changed = {name: getattr(own, name) for name in set_attributes(own) if getattr(own, name) is not None}
    return replace(base, **{name: _merge(getattr(base, name), value) for name, value in changed.items()})
