"""What is known and what was done: models, costs, the prompt, the audit log."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from retinue.wire.agent import OfSession
from retinue.wire.agents import OfAgent
from retinue.wire.frames import Params, Wire
from retinue.wire.method import Method
from retinue.wire.protocol import Scope
from retinue.wire.values import WireUsage


class ModelRow(Wire):
    """A model that can be chosen."""

    ref: str
    window: int
    tools: bool
    reasoning: bool
    is_chosen: bool


class ModelList(Wire):
    """Models and short names for them."""

    models: list[ModelRow]
    aliases: dict[str, str]


class AskUsage(OfAgent):
    """Since when, and summed by what."""

    days: int = Field(default=30, ge=1, le=3_660)
    by: Literal["day", "model", "source", "session", "agent"] = "day"


class UsageSums(Wire):
    """What was spent, per group and together."""

    total: WireUsage
    groups: dict[str, WireUsage]


class ShowPrompt(OfSession):
    """Which prompt."""

    mode: Literal["full", "minimal", "none"] = "full"


class PromptSection(Wire):
    """One section of the prompt, as the model reads it."""

    name: str
    part: str
    source: str
    hash: str
    chars: int
    tokens: int
    text: str


class Prompt(Wire):
    """The prompt of the next turn, and the sizes of everything in it."""

    sections: list[PromptSection]
    report: dict[str, Any]


class ReadAudit(Params):
    """How many lines, and of which kind."""

    limit: int = Field(default=100, ge=1, le=1_000)
    kind: str | None = Field(default=None, max_length=100)


class AuditLines(Wire):
    """Oldest first. `damage` says which lines were changed or taken away."""

    entries: list[dict[str, Any]]
    damage: list[str]


MODELS_LIST = Method("models.list", Scope.READ, OfAgent, ModelList, "Models that an agent can use.")
USAGE = Method("usage", Scope.READ, AskUsage, UsageSums, "What was spent.")
PROMPT_SHOW = Method("prompt.show", Scope.READ, ShowPrompt, Prompt, "The exact prompt of a session.")
AUDIT_LOG = Method("audit.log", Scope.ADMIN, ReadAudit, AuditLines, "What was done that somebody may ask about.")

METHODS = (MODELS_LIST, USAGE, PROMPT_SHOW, AUDIT_LOG)
