"""The situations whose prompts are committed as snapshots; every value is fixed."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from retinue.context.prompt.build import SystemPrompt, TurnBlock, build_system_prompt, build_turn_block
from retinue.context.prompt.contributions import contribute_for_gpt5, contribute_for_small_models
from retinue.context.prompt.inputs import (
    BackgroundCommand,
    ChannelFacts,
    ChatKind,
    ContextFile,
    Delegation,
    DocsFacts,
    HeartbeatFacts,
    ModelAlias,
    Occasion,
    OwnerDisplay,
    PromptMode,
    PromptSandbox,
    Reactions,
    RecalledPassage,
    RuntimeFacts,
    SessionInputs,
    StableInputs,
    ToolLine,
    TurnInputs,
    show_owners,
)
from retinue.core.model import ModelInfo, ModelRef

HOME = "/home/ada/.retinue"
WORKSPACE = f"{HOME}/workspace"

TOOLS = (
    ToolLine("read", "Read a file"),
    ToolLine("write", "Create or replace a file"),
    ToolLine("edit", "Change exact text in a file"),
    ToolLine("apply_patch", "Change several files at once"),
    ToolLine("grep", "Search file contents"),
    ToolLine("find", "Find files by name"),
    ToolLine("ls", "List a folder"),
    ToolLine("exec", "Run a command"),
    ToolLine("process", "Manage background commands"),
    ToolLine("web_search", "Search the web"),
    ToolLine("web_fetch", "Read a web page"),
    ToolLine("cron", "Schedule work and reminders"),
    ToolLine("memory_search", "Search notes and past sessions"),
    ToolLine("memory_get", "Read lines of a note"),
    ToolLine("sessions_spawn", "Start a sub-agent"),
    ToolLine("session_status", "Time, model and usage"),
    ToolLine("update_plan", "Keep a visible plan"),
    ToolLine("tool_search", "Find more tools"),
    ToolLine("tool_call", "Run a tool found so"),
    ToolLine("message", deferred=True),
    ToolLine("gateway", deferred=True),
    ToolLine("sessions_send", deferred=True),
    ToolLine("subagents", deferred=True),
    ToolLine("image", deferred=True),
)
SUBAGENT_TOOLS = tuple(
    tool
    for tool in TOOLS
    if tool.name not in ("cron", "session_status", "message", "gateway", "sessions_spawn", "sessions_send", "subagents")
)


def names(tools: tuple[ToolLine, ...]) -> frozenset[str]:
    return frozenset(tool.name for tool in tools)


SKILLS = """\
<available_skills>
<skill>
<name>weather</name>
<description>Current weather and forecasts for any place.</description>
<location>~/.retinue/skills/weather/SKILL.md</location>
<version>sha256:1f0c9a7be2d34c55</version>
</skill>
<skill>
<name>meeting-notes</name>
<description>Turn a transcript into decisions, tasks &amp; open questions.</description>
<location>~/.retinue/workspace/skills/meeting-notes/SKILL.md</location>
<version>sha256:9be1d02c77a0f1e6</version>
</skill>
</available_skills>"""

FILES = tuple(
    ContextFile(name, text, name)
    for name, text in {
        "AGENTS.md": "# Working here\n\nWrite notes to `memory/`. Ask before you send anything to other people.\n",
        "SOUL.md": "# Soul\n\nDry, kind, curious. Short sentences.\n",
        "IDENTITY.md": "# Identity\n\nName: Ada\n",
        "USER.md": "# User\n\nTea, not coffee. Lives in Lisbon.\n",
        "TOOLS.md": "# Tools\n\nThe printer is called `krake`.\n",
        "MEMORY.md": "# Memory\n\n- The boat is registered as PT-4711.\n",
    }.items()
)
AGENT_FILES = tuple(file for file in FILES if file.name in ("AGENTS.md", "TOOLS.md"))
GROUP_FILES = tuple(file for file in FILES if file.name not in ("USER.md", "MEMORY.md"))

STABLE = StableInputs(
    workspace=WORKSPACE,
    tools=TOOLS,
    skills=SKILLS,
    files=FILES,
    timezone="Europe/Lisbon",
    docs=DocsFacts("/usr/lib/retinue/docs", "/usr/lib/retinue"),
)

RUNTIME = RuntimeFacts(
    agent="main",
    session="agent:main:main",
    host="harbour",
    os="Linux",
    arch="x86_64",
    model="anthropic/claude-sonnet",
    shell="bash",
)

HEARTBEAT = HeartbeatFacts()

SESSION = SessionInputs(RUNTIME, ChannelFacts("terminal"), names(TOOLS), heartbeat=HEARTBEAT)

NO_TURN = TurnInputs()
CHECKLIST = TurnInputs(heartbeat_file=ContextFile("HEARTBEAT.md", "- Is the weather warning gone?\n", "HEARTBEAT.md"))
OWNERS = show_owners(["http:ada", "+351 900 000 000"], OwnerDisplay.HASH, "a fixed secret for the snapshots")


@dataclass(frozen=True)
class Scenario:
    """A turn in a particular situation."""

    title: str
    stable: StableInputs = STABLE
    session: SessionInputs = SESSION
    turn: TurnInputs = NO_TURN
    mode: PromptMode = PromptMode.FULL

    @property
    def prompt(self) -> SystemPrompt:
        return build_system_prompt(self.stable, self.session, self.mode)

    @property
    def turn_block(self) -> TurnBlock:
        return build_turn_block(self.turn)


def _in_session(key: str) -> SessionInputs:
    return replace(SESSION, runtime=replace(RUNTIME, session=key), channel=None, heartbeat=None)


def _with_model(info: ModelInfo) -> Scenario:
    contribution = contribute_for_gpt5(info) or contribute_for_small_models(info)
    return Scenario(
        f"A chat with {info.ref}",
        stable=replace(STABLE, contribution=contribution),
        session=replace(SESSION, runtime=replace(RUNTIME, model=str(info.ref)), contribution=contribution),
    )


SCENARIOS = {
    "terminal-chat": Scenario(
        "A chat in the terminal",
        turn=TurnInputs(
            recollections=(
                RecalledPassage("memory/2026-01-02.md#L3-L4", "The boat goes to Peniche in May.\nBook a berth."),
            )
        ),
    ),
    "web-chat": Scenario(
        "A chat in the control page",
        stable=replace(STABLE, owners=OWNERS, model_aliases=(ModelAlias("fast", "openai/gpt-5-mini"),)),
        session=replace(
            SESSION,
            channel=ChannelFacts(
                "web", capabilities=("markdown", "buttons", "images"), inline_buttons=True, embeds=True
            ),
        ),
        turn=TurnInputs(
            background=(BackgroundCommand("calm-otter", "running", "make test", "/home/ada/code"),),
            notices=("2 messages arrived while you were busy; they follow in one.",),
        ),
    ),
    "group-chat": Scenario(
        "A group chat on the generic channel",
        stable=replace(STABLE, files=GROUP_FILES, silent_replies=True, owners=OWNERS),
        session=replace(
            SESSION,
            runtime=replace(RUNTIME, session="agent:main:http:group:harbour-crew"),
            channel=ChannelFacts(
                "http",
                ChatKind.GROUP,
                ("reactions", "voice"),
                Reactions.MINIMAL,
                voice_hint="Replies to voice notes are read aloud: short sentences, no tables.",
            ),
            occasion=Occasion.GROUP,
            heartbeat=None,
            context="The crew of the boat. Portuguese or English, as the question comes.",
        ),
    ),
    "sub-agent": Scenario(
        "A sub-agent, whose task is its first message",
        stable=replace(STABLE, files=AGENT_FILES, tools=SUBAGENT_TOOLS),
        session=replace(
            _in_session("agent:main:subagent:5e0f3c1a"),
            tools=names(SUBAGENT_TOOLS),
            occasion=Occasion.SUBAGENT,
        ),
        mode=PromptMode.MINIMAL,
    ),
    "delegating-agent": Scenario(
        "A chat whose agent is told to hand work on",
        stable=replace(STABLE, delegation=Delegation.PREFER),
    ),
    "heartbeat-turn": Scenario(
        "A wake-up in the main session: its system prompt is that of every turn there", turn=CHECKLIST
    ),
    "heartbeat-isolated": Scenario(
        "A wake-up in a session of its own",
        session=replace(_in_session("agent:main:heartbeat"), heartbeat=HEARTBEAT),
        turn=CHECKLIST,
    ),
    "heartbeat-light": Scenario(
        "A wake-up in a session of its own, with HEARTBEAT.md alone",
        stable=replace(STABLE, files=()),
        session=replace(_in_session("agent:main:heartbeat"), heartbeat=HEARTBEAT),
        turn=CHECKLIST,
    ),
    "cron-turn": Scenario(
        "A scheduled run in its own session",
        stable=replace(STABLE, files=AGENT_FILES, silent_replies=True),
        session=replace(_in_session("agent:main:cron:tide-table:run:7c2d"), occasion=Occasion.CRON),
    ),
    "boot-turn": Scenario(
        "The run at gateway start",
        stable=replace(STABLE, silent_replies=True),
        session=replace(_in_session("agent:main:boot"), occasion=Occasion.BOOT),
        turn=TurnInputs(heartbeat_file=ContextFile("BOOT.md", "- Is the disk full?\n", "BOOT.md")),
    ),
    "sandboxed-agent": Scenario(
        "An agent whose commands are confined, in a new workspace with one long file",
        stable=replace(
            STABLE,
            sandbox=PromptSandbox("/workspace", "rw", elevated=True),
            workspace_only=True,
            workspace_notes=("A Git repository; commit what should last.",),
            bootstrap_pending=True,
            reasoning_tags=True,
            files=(
                *FILES[:-1],
                ContextFile("BOOTSTRAP.md", "# Hello\n\nFind out who you are.\n", "BOOTSTRAP.md"),
                replace(FILES[-1], raw_chars=24_310, truncated=True),
            ),
        ),
    ),
    "gpt-5": _with_model(ModelInfo(ModelRef("openai", "gpt-5.2"), window=400_000)),
    "small-local": _with_model(ModelInfo(ModelRef("local", "qwen3-4b"), window=8_192)),
}
