"""The sections of a prompt, their order, and the modes that include them.

Each section is in the list of its lifetime and is rendered by a pure function. To reorder, add or remove a section,
change the lists here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from msgspec import Struct

from retinue.context.prompt import session as s
from retinue.context.prompt import stable as b
from retinue.context.prompt import turn as t
from retinue.context.prompt.inputs import ContextFile, PromptMode, SessionInputs, StableInputs, TurnInputs

I = TypeVar("I", StableInputs, SessionInputs, TurnInputs)  # noqa: E741

FULL_ONLY = frozenset({PromptMode.FULL})
FULL_AND_MINIMAL = frozenset({PromptMode.FULL, PromptMode.MINIMAL})
EVERY_MODE = frozenset(PromptMode)


def _from_retinue(inputs: StableInputs | SessionInputs | TurnInputs) -> str:
    return "retinue"


def _from_skills(inputs: StableInputs) -> str:
    return "skills"


def _no_files(inputs: StableInputs | SessionInputs | TurnInputs) -> tuple[ContextFile, ...]:
    return ()


class Section(Struct, Generic[I], frozen=True):
    """One section of the prompt. `render` returns its text with its heading; None or an empty text omits it.

    `files` are the files after the section; each becomes a separate record, so that its size is known.
    """

    name: str
    render: Callable[[I], str | None]
    modes: frozenset[PromptMode] = FULL_ONLY
    source: Callable[[I], str] = _from_retinue
    files: Callable[[I], tuple[ContextFile, ...]] = _no_files


STABLE: tuple[Section[StableInputs], ...] = (
    Section("identity", b.identity, EVERY_MODE),
    Section("tooling", b.tooling, FULL_AND_MINIMAL),
    Section("interaction_style", b.interaction_style, source=b.source_of_contribution),
    Section("tool_call_style", b.tool_call_style, source=b.source_of_tool_call_style),
    Section("execution_bias", b.execution_bias, source=b.source_of_execution_bias),
    Section("delegation", b.delegation),
    Section("stable_prefix", b.stable_prefix, source=b.source_of_contribution),
    Section("safety", b.safety, FULL_AND_MINIMAL),
    Section("control", b.control),
    Section("skills", b.skills, FULL_AND_MINIMAL, _from_skills),
    Section("memory_recall", b.memory_recall),
    Section("self_update", b.self_update),
    Section("model_aliases", b.model_aliases),
    Section("workspace", b.workspace, FULL_AND_MINIMAL),
    Section("documentation", b.documentation),
    Section("sandbox", b.sandbox, FULL_AND_MINIMAL),
    Section("authorised_senders", b.authorised_senders),
    Section("time_zone", b.time_zone, FULL_AND_MINIMAL),
    Section("workspace_files", b.workspace_files),
    Section("bootstrap_pending", b.bootstrap_pending),
    Section("output_directives", b.output_directives),
    Section("reasoning_format", b.reasoning_format),
    Section("project_context", b.project_context, FULL_AND_MINIMAL, files=b.project_files),
    Section("silent_replies", b.silent_replies),
)

SESSION: tuple[Section[SessionInputs], ...] = (
    Section("messaging", s.messaging),
    Section("page_embeds", s.page_embeds),
    Section("voice", s.voice),
    Section("occasion", s.occasion, FULL_AND_MINIMAL),
    Section("reactions", s.reactions),
    Section("heartbeats", s.heartbeats),
    Section("dynamic_suffix", s.dynamic_suffix, source=s.source_of_suffix),
    Section("runtime", s.runtime, FULL_AND_MINIMAL),
)

TURN: tuple[Section[TurnInputs], ...] = (
    Section("preamble", t.preamble),
    Section("heartbeat", t.heartbeat, files=t.heartbeat_files),
    Section("memories", t.memories),
    Section("background_commands", t.background_commands),
    Section("notices", t.notices),
)
