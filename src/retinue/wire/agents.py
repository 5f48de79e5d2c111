"""Agents: their skills, notes, models, usage and prompts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from retinue.core.messages import Usage
from retinue.wire.frames import Method, Name, Nothing, Params, Wire
from retinue.wire.messages import OfSession
from retinue.wire.protocol import Scope


class AgentRow(Wire, frozen=True):
    """An agent, with the facts of its IDENTITY.md."""

    id: str
    name: str
    emoji: str
    is_default: bool
    workspace: str
    model: str | None
    creature: str | None = None
    vibe: str | None = None
    theme: str | None = None
    avatar: str | None = None


class AgentList(Wire, frozen=True):
    """The agents in the order of the configuration."""

    agents: list[AgentRow]


class OfAgent(Params, frozen=True):
    """An agent; without one the default agent."""

    agent: Name | None = None


class SkillRow(Wire, frozen=True):
    """A skill; `reasons` explain why it is not eligible."""

    name: str
    description: str
    location: str
    tier: str
    eligible: bool
    reasons: list[str]
    emoji: str = ""
    key: str = ""
    """The name under which `skills.entries` configures it."""


class SkillList(Wire, frozen=True):
    """All skills that were found, eligible or not."""

    skills: list[SkillRow]


class SearchMemory(OfAgent, frozen=True, kw_only=True):
    """The query."""

    query: Annotated[str, Meta(min_length=1, max_length=2_000)]
    max_results: Annotated[int, Meta(ge=1, le=50)] | None = None
    min_score: Annotated[float, Meta(ge=0, le=1)] | None = None


class ScoreShares(Wire, frozen=True):
    """What a score consists of, each between 0 and 1: the same words, the same meaning, the exact text, and its age.

    `recency` is 1 for new notes and falls with their age.
    """

    words: float
    meaning: float
    exact: float
    recency: float


class MemoryHit(Wire, frozen=True):
    """A passage that was found. `origin` says whose text it is, such as `agent` or `untrusted`.

    `matched` are the words of the query that it contains.
    """

    path: str
    start_line: int
    end_line: int
    score: float
    snippet: str
    source: str
    origin: str = "agent"
    parts: ScoreShares | None = None
    matched: tuple[str, ...] = ()


class MemoryHits(Wire, frozen=True):
    """Best first. If only words were compared, `reason` explains why."""

    hits: list[MemoryHit]
    reason: str | None = None


class GetMemory(OfAgent, frozen=True, kw_only=True):
    """A path as `memory.search` gives it, the first line and how many lines."""

    path: Annotated[str, Meta(min_length=1, max_length=1_000)]
    start: Annotated[int, Meta(ge=1)] = 1
    lines: Annotated[int, Meta(ge=1, le=2_000)] | None = None


class MemoryExcerpt(Wire, frozen=True):
    """Lines of a note. `origin` says whose text it is; `nextLine` is null at the end of the file."""

    path: str
    text: str
    start_line: int
    lines: int
    origin: str
    next_line: int | None = None


class MemoryStatus(Wire, frozen=True):
    """What is indexed."""

    enabled: bool
    files: int = 0
    chunks: int = 0
    embedded: int = 0
    provider: str | None = None
    model: str | None = None
    last_sync: str | None = None


class ModelRow(Wire, frozen=True):
    """A model that can be chosen."""

    ref: str
    window: int
    tools: bool
    reasoning: bool
    is_chosen: bool


class ModelList(Wire, frozen=True):
    """Models and their aliases."""

    models: list[ModelRow]
    aliases: dict[str, str]


class AskUsage(OfAgent, frozen=True):
    """The number of days to sum up, how to group them, and how to divide each group again.

    The groups of jobs are named by agent and id; what no job used is in the group without a name.
    """

    days: Annotated[int, Meta(ge=1, le=3_660)] = 30
    by: Literal["day", "model", "source", "session", "agent", "job"] = "day"
    then_by: Literal["day", "model", "source", "session", "agent", "job"] | None = None


class UsageSums(Wire, frozen=True):
    """The usage in total and per group; with `thenBy` also the parts of each group."""

    total: Usage
    groups: dict[str, Usage]
    parts: dict[str, dict[str, Usage]] = field(default_factory=dict)


class BudgetRow(Wire, frozen=True):
    """A budget of an agent and how much of it is used; a limit that is null does not apply.

    `name` is `perDay`, `background`, `perSession` or `perSource.<source>`. Of `perSession` it is the session that used
    most today. Days end at midnight in the owner's time zone.
    """

    agent: str
    name: str
    usd: float
    tokens: int
    usd_limit: float | None = None
    token_limit: int | None = None
    session_key: str | None = None


class BudgetList(Wire, frozen=True):
    """The budgets that have a limit."""

    budgets: list[BudgetRow]


class ShowPrompt(OfSession, frozen=True):
    """The session and the prompt mode."""

    mode: Literal["full", "minimal", "none"] = "full"


class PromptSection(Wire, frozen=True):
    """One section of the prompt, as the model reads it."""

    name: str
    part: str
    source: str
    hash: str
    chars: int
    tokens: int
    text: str


class PromptChanges(Wire, frozen=True):
    """The names of the sections that differ.

    `moved` is the first section that a provider does not find in its cache any more, empty if the cache is still valid.
    """

    added: list[str]
    removed: list[str]
    changed: list[str]
    moved: str = ""
    because: str = ""


class Prompt(Wire, frozen=True):
    """The prompt of the next turn, and the sizes of its parts."""

    sections: list[PromptSection]
    report: dict[str, Any]
    since: PromptChanges | None = None
    """What differs from the prompt of the last turn; null if no turn was recorded."""


AGENTS_LIST = Method("agents.list", Scope.READ, Nothing, AgentList, "List the agents.")
SKILLS_LIST = Method("skills.list", Scope.READ, OfAgent, SkillList, "List an agent's skills.")
MEMORY_SEARCH = Method("memory.search", Scope.READ, SearchMemory, MemoryHits, "Search an agent's notes.")
MEMORY_GET = Method("memory.get", Scope.READ, GetMemory, MemoryExcerpt, "Return lines of an agent's note.")
MEMORY_STATUS = Method(
    "memory.status", Scope.READ, OfAgent, MemoryStatus, "Report what is indexed of an agent's notes."
)
MODELS_LIST = Method("models.list", Scope.READ, OfAgent, ModelList, "List the models that an agent can use.")
USAGE = Method("usage", Scope.READ, AskUsage, UsageSums, "Sum up tokens and costs.")
USAGE_BUDGETS = Method("usage.budgets", Scope.READ, OfAgent, BudgetList, "List budgets and how much of them is used.")
PROMPT_SHOW = Method("prompt.show", Scope.READ, ShowPrompt, Prompt, "Return the exact prompt of a session.")

METHODS = (
    *(AGENTS_LIST, SKILLS_LIST, MEMORY_SEARCH, MEMORY_GET, MEMORY_STATUS),
    *(MODELS_LIST, USAGE, USAGE_BUDGETS, PROMPT_SHOW),
)
