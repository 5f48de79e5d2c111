"""Models, usage, prompts and the audit log."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from retinue.core.messages import Usage
from retinue.wire.agent import OfSession
from retinue.wire.agents import OfAgent
from retinue.wire.frames import Params, Wire
from retinue.wire.method import Method
from retinue.wire.protocol import Scope


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
    """The number of days to sum up, and how to group them."""

    days: Annotated[int, Meta(ge=1, le=3_660)] = 30
    by: Literal["day", "model", "source", "session", "agent"] = "day"


class UsageSums(Wire, frozen=True):
    """The usage in total and per group."""

    total: Usage
    groups: dict[str, Usage]


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


class Prompt(Wire, frozen=True):
    """The prompt of the next turn, and the sizes of its parts."""

    sections: list[PromptSection]
    report: dict[str, Any]


class ReadAudit(Params, frozen=True):
    """How many lines to return, and of which kind."""

    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100
    kind: Annotated[str, Meta(max_length=100)] | None = None


class AuditLines(Wire, frozen=True):
    """Oldest first. `damage` lists lines that were changed or removed."""

    entries: list[dict[str, Any]]
    damage: list[str]


MODELS_LIST = Method("models.list", Scope.READ, OfAgent, ModelList, "List the models that an agent can use.")
USAGE = Method("usage", Scope.READ, AskUsage, UsageSums, "Sum up tokens and costs.")
PROMPT_SHOW = Method("prompt.show", Scope.READ, ShowPrompt, Prompt, "Return the exact prompt of a session.")
AUDIT_LOG = Method("audit.log", Scope.ADMIN, ReadAudit, AuditLines, "Read the audit log.")

METHODS = (MODELS_LIST, USAGE, PROMPT_SHOW, AUDIT_LOG)
