"""Adjustments of the prompt for families of models.

A contribution changes or adds sections and never replaces the prompt. Texts are whole sections with their heading.
"""

from __future__ import annotations

import re

from retinue.context.prompt.inputs import Contribution
from retinue.core.model import ModelInfo

SMALL_WINDOW = 16_384
LOCAL_PROVIDERS = frozenset({"local", "ollama", "lmstudio", "llamacpp", "vllm"})

_GPT5 = re.compile(r"(?:^|/)gpt-5(?!\d)", re.IGNORECASE)

_GPT5_INTERACTION = """\
## Interaction Style
Be the assistant that SOUL.md and IDENTITY.md describe, also in long technical work. Write like a person who knows \
the subject: warm, direct, brief. Lead with the answer. No recap of the question, no closing offers, no lists where \
a sentence will do."""

_GPT5_BIAS = """\
## Execution Bias
Asked to act, act now; a plan or a promise is not a result. Go on until every part of the request is delivered or \
you are truly blocked, then say which part and why. If a fact is missing, look for it before you ask; if you must \
assume, say what. Check the result by running, reading or counting before you call it done."""

_GPT5_CONTRACT = """\
## Working Contract
- Make independent lookups in parallel; wait only for what the next step needs.
- Prefer a dedicated tool to a shell command, and one precise call to many vague ones.
- In the terminal: no interactive programs, bounded output, no command left running by accident.
- Stop searching when the answer is certain; more evidence is not more help."""

_LOCAL_STYLE = """\
## Tool Call Style
Call one tool at a time, with exactly the argument names of its schema, and wait for the result. Never write a call \
as text and never invent a result. If a call waits for approval, wait too."""

_LOCAL_BIAS = """\
## Execution Bias
Do what was asked, one step after the other, and say when it is done. If a step fails twice, say what failed."""

_LOCAL_SUFFIX = """\
## Now
Answer the last message, in its language, briefly. Use a tool only when the answer needs one."""

_TINY_SUFFIX = """\
## Now
Answer the last message in its language, in a few plain sentences."""

_TINY_OMIT = frozenset({"tool_call_style", "execution_bias", "workspace", "workspace_files", "bootstrap_pending"})

_LOCAL_OMIT = frozenset(
    {
        "control",
        "self_update",
        "model_aliases",
        "documentation",
        "output_directives",
        "delegation",
        "page_embeds",
        "reactions",
    }
)


def contribute_for_gpt5(model: ModelInfo) -> Contribution | None:
    """Return the adjustments of the prompt for models of the GPT-5 family; None for others."""
    if not _GPT5.search(model.ref.model):
        return None
    source = f"provider:{model.ref.provider}"
    return Contribution(
        source, interaction_style=_GPT5_INTERACTION, execution_bias=_GPT5_BIAS, stable_prefix=_GPT5_CONTRACT
    )


def contribute_for_small_models(model: ModelInfo) -> Contribution | None:
    """Return the adjustments of the prompt for local models and short context windows; None for others."""
    source = f"provider:{model.ref.provider}"
    if model.window > SMALL_WINDOW and model.ref.provider not in LOCAL_PROVIDERS:
        return None
    if not model.tools:  # it needs little more than its identity
        return Contribution(source, dynamic_suffix=_TINY_SUFFIX, omit=_LOCAL_OMIT | _TINY_OMIT)
    return Contribution(
        source,
        tool_call_style=_LOCAL_STYLE,
        execution_bias=_LOCAL_BIAS,
        dynamic_suffix=_LOCAL_SUFFIX,
        omit=_LOCAL_OMIT,
    )
