"""The prompt as layers of a request to Codex, whose harness runs the turn instead of Retinue's own loop.

Codex reads AGENTS.md itself and has its own instructions, tools and permissions. Retinue's text goes to the layer with
the same lifetime: developer instructions of the thread, instructions of the collaboration mode of the turn, or the
input of the turn. Everything here is a pure function of a prompt that was built for the same session.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from retinue.context.prompt.build import SectionRecord, SystemPrompt, TurnBlock
from retinue.core.errors import UsageError
from retinue.core.model import ModelRef, ToolSpec
from retinue.core.text import estimate_tokens

PROJECT_DOC = "AGENTS.md"
DEVELOPER_FILES = frozenset({"SOUL.md", "IDENTITY.md", "TOOLS.md", "USER.md"})
MEMORY_FILES = frozenset({"MEMORY.md", "memory.md"})
MEMORY_TOOLS = frozenset({"memory_search", "memory_get"})
FIRST_RUN_FILE = "BOOTSTRAP.md"
HEARTBEAT_FILE = "HEARTBEAT.md"

OWNED_BY_CODEX = frozenset(
    {
        "tooling",
        "interaction_style",
        "tool_call_style",
        "execution_bias",
        "stable_prefix",
        "skills",
        "memory_recall",
        "sandbox",
        "workspace_files",
        "bootstrap_pending",
        "reasoning_format",
        "project_context",
        "dynamic_suffix",
    }
)
"""Sections that Codex's own instructions replace, or that have another layer here."""

ApprovalPolicy = Literal["never", "on-request", "untrusted"]
SandboxMode = Literal["read-only", "workspace-write", "danger-full-access"]
_HASH_DIGITS = 16


class TurnKind(StrEnum):
    """Why a turn runs; a light cron turn consists of exactly its scheduled text."""

    MESSAGE = "message"
    HEARTBEAT = "heartbeat"
    CRON = "cron"
    CRON_LIGHT = "cron-light"


class ModelPrompt(Struct, frozen=True, rename="camel"):
    """The pinned instructions of a model of Codex: their hash and length. The text is not part of Retinue."""

    model: str
    sha256: str = ""
    chars: int = 0

    @property
    def placeholder(self) -> str:
        if not self.sha256:
            return f"[Codex's instructions for {self.model}; not pinned: run `retinue prompt sync-codex-model`]"
        return f"[Codex's instructions for {self.model}: {self.chars} characters, sha256 {self.sha256}]"


class CodexTurn(Struct, frozen=True):
    """What a layered request needs besides the prompt: the turn, the permissions of commands, and the model."""

    session: str
    cwd: str
    model: ModelRef
    model_prompt: ModelPrompt
    kind: TurnKind = TurnKind.MESSAGE
    message: str = ""
    effort: str = "off"
    approval: ApprovalPolicy = "on-request"
    sandbox: SandboxMode = "workspace-write"
    tools: tuple[ToolSpec, ...] = ()
    tool_names: frozenset[str] = frozenset()
    """All tools of the session, including deferred ones."""


class CodexLayer(Struct, frozen=True):
    """A layer in the order in which the model reads it. A layer of Codex has a reference instead of its text."""

    name: str
    role: Literal["system", "developer", "user"]
    owner: Literal["codex", "retinue"]
    lifetime: Literal["model", "thread", "turn"]
    text: str
    sections: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        digest = hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]
        facts = {"chars": len(self.text), "tokens": estimate_tokens(self.text), "hash": digest}
        return {**msgspec.structs.asdict(self), "sections": list(self.sections), **facts}


class CodexRequest(Struct, frozen=True):
    """A request to Codex: the parameters of its methods, and the layers that the model reads."""

    thread: Mapping[str, Any]
    turn: Mapping[str, Any]
    layers: tuple[CodexLayer, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "harness": "codex",
            "requests": {"thread/start": dict(self.thread), "turn/start": dict(self.turn)},
            "layers": [layer.to_json() for layer in self.layers],
        }


def render_codex(prompt: SystemPrompt, block: TurnBlock, skills: str, turn: CodexTurn) -> CodexRequest:
    """Return the layered request for a turn whose prompt was built for Retinue's own loop."""
    files = {record.file.name: record for record in prompt.records if record.file is not None}
    has_memory_tools = bool(MEMORY_TOOLS & turn.tool_names)
    developer = [record for record in prompt.records if _is_developer(record)]
    mode = _collaboration(turn, block, skills, has_memory_tools=has_memory_tools and bool(MEMORY_FILES & set(files)))
    given = _turn_input(turn, block, files, has_memory_tools=has_memory_tools)
    instructions, mode_text = (_join(record.text for record in part) for part in (developer, mode))
    text = _join(record.text for record in given)
    layers = (
        CodexLayer("model_instructions", "system", "codex", "model", turn.model_prompt.placeholder),
        CodexLayer("permissions", "developer", "codex", "thread", describe_permissions(turn)),
        CodexLayer("developer_instructions", "developer", "retinue", "thread", instructions, _names(developer)),
        CodexLayer("collaboration_mode", "developer", "retinue", "turn", mode_text, _names(mode)),
        CodexLayer("project_doc", "user", "codex", "thread", _refer_to(files.get(PROJECT_DOC), turn)),
        CodexLayer("environment", "user", "codex", "turn", "[Codex adds the directory, the shell and the date]"),
        CodexLayer("turn_input", "user", "retinue", "turn", text, _names(given)),
    )
    read = tuple(layer for layer in layers if layer.text)
    return CodexRequest(_thread_request(turn, instructions), _turn_request(turn, mode_text, text), read)


def _is_developer(record: SectionRecord) -> bool:
    """Return whether a section is part of the thread's developer instructions; extra files are, known ones by table."""
    if record.file is None:
        return record.name not in OWNED_BY_CODEX
    elsewhere = {PROJECT_DOC, FIRST_RUN_FILE, HEARTBEAT_FILE, *MEMORY_FILES}
    return record.file.name in DEVELOPER_FILES or record.file.name not in elsewhere


class _Text(Struct, frozen=True):
    name: str
    text: str


def _collaboration(turn: CodexTurn, block: TurnBlock, skills: str, *, has_memory_tools: bool) -> list[_Text]:
    """Return the instructions of the turn's collaboration mode."""
    if turn.kind is TurnKind.CRON_LIGHT:
        return []
    found = []
    if skills.strip():
        rule = "If one description clearly fits, read that SKILL.md and follow it; else none."
        found.append(_Text("skills", f"## Skills\n{rule}\n{skills}"))
    if has_memory_tools:
        note = "Lasting facts are in MEMORY.md of the workspace: when they matter, use `memory_search` or `memory_get`."
        found.append(_Text("memory_note", f"## Memory\n{note}"))
    if turn.kind is TurnKind.HEARTBEAT and any(record.name == f"file:{HEARTBEAT_FILE}" for record in block.records):
        note = f"This turn is a heartbeat. Read {HEARTBEAT_FILE} in the workspace and follow it."
        found.append(_Text("heartbeat_note", f"## Heartbeat\n{note}"))
    return found


def _turn_input(
    turn: CodexTurn, block: TurnBlock, files: Mapping[str, SectionRecord], *, has_memory_tools: bool
) -> list[_Text]:
    """Return the input of the turn: BOOTSTRAP.md, MEMORY.md if no tool reads it, the turn's context, the message."""
    message = [_Text("message", turn.message)] if turn.message else []
    if turn.kind is TurnKind.CRON_LIGHT:
        return message
    found = [_Text(files[FIRST_RUN_FILE].name, files[FIRST_RUN_FILE].text)] if FIRST_RUN_FILE in files else []
    if not has_memory_tools:
        found += [_Text(files[name].name, files[name].text) for name in sorted(MEMORY_FILES & set(files))]
    context = [record for record in block.records if record.name not in ("heartbeat", f"file:{HEARTBEAT_FILE}")]
    if [record.name for record in context] != ["preamble"]:
        found += [_Text(record.name, record.text) for record in context]
    return [*found, *message]


def describe_permissions(turn: CodexTurn) -> str:
    """Return what commands of the turn may do, as Codex tells its model in its own words."""
    sandbox = {
        "read-only": "Commands read files and change nothing.",
        "workspace-write": "Commands change files in the working directory only; the network is off.",
        "danger-full-access": "Commands are not confined.",
    }
    approval = {
        "never": "No approval can be requested: a command that is refused stays refused.",
        "on-request": "What the sandbox does not allow needs the person's approval.",
        "untrusted": "Every command that is not known as harmless needs the person's approval.",
    }
    return f"## Permissions\n{sandbox[turn.sandbox]} {approval[turn.approval]}"


def _refer_to(record: SectionRecord | None, turn: CodexTurn) -> str:
    if turn.kind is TurnKind.CRON_LIGHT:  # Codex reads it although Retinue's prompt of such a turn has no files
        return f"[Codex reads {PROJECT_DOC} in the working directory, if there is one]"
    if record is None or record.file is None:
        return ""
    return f"[Codex reads {PROJECT_DOC} in the working directory: {record.file.raw} characters]"


def _thread_request(turn: CodexTurn, instructions: str) -> dict[str, Any]:
    return {
        "model": turn.model.model,
        "cwd": turn.cwd,
        "approvalPolicy": turn.approval,
        "sandbox": turn.sandbox,
        "developerInstructions": instructions,
        "dynamicTools": [
            {"name": tool.name, "description": tool.description, "inputSchema": dict(tool.parameters)}
            for tool in turn.tools
        ],
    }


def _turn_request(turn: CodexTurn, mode_text: str, text: str) -> dict[str, Any]:
    effort = None if turn.effort == "off" else turn.effort
    settings = {"model": turn.model.model, "reasoning_effort": effort, "developer_instructions": mode_text or None}
    return {
        "input": [{"type": "text", "text": text}],
        "cwd": turn.cwd,
        "approvalPolicy": turn.approval,
        "model": turn.model.model,
        "effort": effort,
        "collaborationMode": {"mode": "default", "settings": settings},
    }


def _join(texts: Iterable[str]) -> str:
    return "\n\n".join(texts)


def _names(parts: Iterable[SectionRecord | _Text]) -> tuple[str, ...]:
    return tuple(part.name for part in parts)


PINNED_MODEL = ModelPrompt(
    "gpt-5.5", sha256="2351631dfc5644dc5a45eaaca4139475bd02810ee6cb792d058b551559b3242e", chars=21_459
)
"""The model whose instructions are pinned unless a home has its own pin; these are the ones of Codex 0.163.0."""


def load_pin(path: Path) -> ModelPrompt:
    """Return the pinned model prompt of a home, or the built-in one."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ModelPrompt)
    except FileNotFoundError:
        return PINNED_MODEL
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(
            f"{path} cannot be used ({error}). Delete it, or run `retinue prompt sync-codex-model`."
        ) from error


def find_catalog(named: Path | None, environment: Mapping[str, str], user_home: Path) -> Path | None:
    """Return the catalogue of Codex's models: the named file, else Codex's cache; None if there is none."""
    if named is not None:
        return named
    folders = [Path(environment["CODEX_HOME"])] if environment.get("CODEX_HOME") else []
    caches = (folder / "models_cache.json" for folder in (*folders, user_home / ".codex"))
    return next((cache for cache in caches if cache.is_file()), None)


_PERSONALITY = "{{ personality }}"


class _TemplateVariables(Struct):
    personality_default: str | None = None


class _ModelMessages(Struct):
    instructions_template: str | None = None
    instructions_variables: _TemplateVariables | None = None


class _CatalogModel(Struct):
    """A model of a catalogue. Older catalogues have `base_instructions`, newer ones a template of them."""

    slug: str = ""
    base_instructions: str | None = None
    model_messages: _ModelMessages | None = None

    @property
    def instructions(self) -> str:
        messages = self.model_messages
        if messages is None or not messages.instructions_template:
            return self.base_instructions or ""
        if messages.instructions_variables is None:
            return messages.instructions_template
        return messages.instructions_template.replace(
            _PERSONALITY, messages.instructions_variables.personality_default or ""
        )


class _Catalog(Struct):
    models: list[_CatalogModel] = []


def read_model_prompt(catalog: Path, model: str) -> ModelPrompt:
    """Return the hash and length of a model's instructions in a catalogue; the text itself is not kept."""
    try:
        listed = msgspec.json.decode(catalog.read_bytes(), type=_Catalog).models
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"{catalog} is not a catalogue of Codex's models: {error}") from error
    found = next((each for each in listed if each.slug == model and each.instructions), None)
    if found is None:
        known = ", ".join(sorted(each.slug for each in listed if each.slug and each.instructions)) or "none"
        raise UsageError(f"{catalog} has no instructions for {model}. Models with instructions: {known}. Use --model.")
    text = found.instructions
    return ModelPrompt(model, hashlib.sha256(text.encode()).hexdigest(), len(text))
