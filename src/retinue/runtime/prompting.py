"""Gathering what an agent's prompt is made from, and building it."""

from __future__ import annotations

import platform
import secrets
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, assert_never

from msgspec import Struct, field
from msgspec.structs import replace

from retinue.context.prompt.build import SystemPrompt, TurnBlock, build_system_prompt, build_turn_block
from retinue.context.prompt.contributions import contribution_for
from retinue.context.prompt.inputs import (
    ChannelFacts,
    ChatKind,
    Citations,
    ContextFile,
    Contribution,
    Delegation,
    HeartbeatFacts,
    Mode,
    ModelAlias,
    Occasion,
    OwnerFacts,
    RuntimeFacts,
    SessionInputs,
    StableInputs,
    ToolLine,
    TurnInputs,
)
from retinue.context.prompt.owners import OwnerDisplay, show_owners
from retinue.core.errors import StorageError
from retinue.core.keys import SessionKey, SessionKind
from retinue.core.model import ModelInfo
from retinue.hooks.bus import Bus
from retinue.runtime.confinement import describe_sandbox
from retinue.runtime.foundation import Foundation
from retinue.runtime.rooms import AgentRoom, docs_folder
from retinue.security.untrusted_text import sanitise
from retinue.skills.catalog import SkillCatalog
from retinue.storage.files import make_private_dir, write_atomic
from retinue.tools.tool import Tool
from retinue.workspace.bootstrap import Audience, audience_of
from retinue.workspace.budget import InjectedFile, fit_files
from retinue.workspace.continuation import Injection
from retinue.workspace.points import BOOTSTRAP, BootstrapFiles
from retinue.workspace.ritual import RitualState, ritual_state

HEARTBEAT_PROMPT = (
    "A wake-up by the clock. Do what HEARTBEAT.md, shown above, asks for; leave what earlier talk was about alone. "
    "If nobody has to know anything, reply HEARTBEAT_OK."
)


class PromptOrder(Struct, frozen=True):
    """Which prompt is wanted: for which session, in which mode, with which tools and model."""

    session: SessionKey
    mode: Mode = Mode.FULL
    tools: tuple[Tool[Any], ...] = ()
    model: ModelInfo | None = None
    channel: str = "terminal"
    session_id: str = ""
    thinking: str = "off"
    reasoning: str = "off"
    injection: Injection = Injection.FULL
    below: str = ""
    """The folder of the workspace that the session is kept to."""
    is_beat: bool = False
    """Whether the turn answers a heartbeat, which brings HEARTBEAT.md whatever session it is in."""
    turn: TurnInputs = field(default_factory=TurnInputs)


class AgentPrompt(Struct, frozen=True):
    """A prompt as it is sent, with what it was made from."""

    system: SystemPrompt
    turn: TurnBlock
    files: tuple[InjectedFile, ...]
    catalog: SkillCatalog


async def build_prompt(room: AgentRoom, order: PromptOrder, bus: Bus) -> AgentPrompt:
    """The prompt of a session of this agent, from what is on disk now."""
    files = await _read_files(room, order, bus)
    catalog = room.skill_catalog()
    stable = _stable_inputs(room, order, files, catalog)
    session = _session_inputs(room, order)
    return AgentPrompt(
        build_system_prompt(stable, session, order.mode),
        build_turn_block(_turn_inputs(room, order)),
        files,
        catalog,
    )


async def _read_files(room: AgentRoom, order: PromptOrder, bus: Bus) -> tuple[InjectedFile, ...]:
    if order.mode is Mode.NONE:
        return ()
    audience = audience_of(order.session.kind, minimal=order.mode is Mode.MINIMAL)
    pending = ritual_state(room.root) is RitualState.PENDING
    files = room.reader.stable_files(audience, room.settings, ritual_pending=pending, injection=order.injection)
    event, _ = await bus.fire(BOOTSTRAP, BootstrapFiles(order.session, files))
    known = {file.name for file in event.files}
    extra = tuple(path for path in event.extra if path not in known)
    more = room.reader.extra_files(audience, room.settings, extra, order.injection) if extra else ()
    return fit_files(
        [file for file in (*event.files, *more) if file.text],
        room.settings.bootstrap_max_chars,
        room.settings.bootstrap_total_max_chars,
    )


def _stable_inputs(
    room: AgentRoom, order: PromptOrder, files: Sequence[InjectedFile], catalog: SkillCatalog
) -> StableInputs:
    settings, config = room.settings, room.foundation.config
    can_read = order.model is None or any(tool.name == "read" for tool in order.tools)
    folder, sandbox = describe_sandbox(room, order.session, order.below)
    return StableInputs(
        workspace=folder,
        sandbox=sandbox,
        tools=tuple(ToolLine(tool.name, tool.summary, tool.deferred) for tool in order.tools),
        skills=catalog.text if can_read else "",
        files=tuple(
            ContextFile(file.name, _as_said(room, file.text), file.name, file.raw_chars, file.truncated)
            for file in files
        ),
        workspace_trusted=room.trusted,
        timezone=settings.user_timezone or machine_timezone(room.foundation),
        docs=str(docs_folder() or ""),
        owners=_owners(room.foundation),
        delegation=Delegation(settings.subagents.delegation_mode),
        citations=Citations(config.memory.citations),
        model_aliases=tuple(ModelAlias(entry.alias, name) for name, entry in settings.models.items() if entry.alias),
        bootstrap_pending=room.trusted and any(file.name == "BOOTSTRAP.md" for file in files),
        warn_truncation=settings.bootstrap_prompt_truncation_warning == "always",
        silent_replies=order.session.kind.is_shared or order.session.kind in _BACKGROUND,
        contribution=_contribution(order),
    )


_BACKGROUND = (SessionKind.CRON, SessionKind.BOOT, SessionKind.HOOK)


def _contribution(order: PromptOrder) -> Contribution | None:
    return contribution_for(order.model) if order.model else None


def _session_inputs(room: AgentRoom, order: PromptOrder) -> SessionInputs:
    return SessionInputs(
        runtime=_runtime_facts(room, order),
        channel=ChannelFacts(
            order.session.channel or order.channel,
            ChatKind.GROUP if order.session.kind.is_shared else ChatKind.DIRECT,
        ),
        tools=frozenset(tool.name for tool in order.tools),
        occasion=_occasion(order),
        heartbeat=_heartbeat_facts(room, order.session),
        contribution=_contribution(order),
    )


def _heartbeat_facts(room: AgentRoom, session: SessionKey) -> HeartbeatFacts | None:
    """The wake-up message, in a session that is for heartbeats alone.

    In one that people use too, every one of their turns would pay for it; there the message itself says enough.
    """
    heartbeat = room.settings.heartbeat
    if session.kind is not SessionKind.HEARTBEAT or not heartbeat.every or not heartbeat.include_system_prompt_section:
        return None
    return HeartbeatFacts(heartbeat.prompt or HEARTBEAT_PROMPT)


def _occasion(order: PromptOrder) -> Occasion | None:
    if order.mode is Mode.MINIMAL:
        return Occasion.SUBAGENT
    match order.session.kind:
        case SessionKind.GROUP | SessionKind.CHANNEL:
            return Occasion.GROUP
        case SessionKind.SUBAGENT:
            return Occasion.SUBAGENT
        case SessionKind.CRON:
            return Occasion.CRON
        case SessionKind.BOOT:
            return Occasion.BOOT
        case SessionKind.HOOK:
            return Occasion.HOOK
        case SessionKind.MAIN | SessionKind.DIRECT | SessionKind.EXPLICIT | SessionKind.HEARTBEAT:
            return None
        case _:
            assert_never(order.session.kind)


def _runtime_facts(room: AgentRoom, order: PromptOrder) -> RuntimeFacts:
    default_model = room.settings.model.primary or ""
    return RuntimeFacts(
        agent=room.id,
        session=str(order.session),
        session_id=order.session_id,
        host=platform.node(),
        repo=str(_find_repository(room) or ""),
        os=platform.system(),
        arch=platform.machine(),
        python=platform.python_version(),
        model=str(order.model.ref) if order.model else default_model,
        default_model=default_model,
        shell=Path(room.foundation.environment.get("SHELL", "")).name,
        thinking=order.thinking,
        reasoning=order.reasoning,
    )


def _find_repository(room: AgentRoom) -> Path | None:
    """The repository that the agent works in: the configured one, else the one around its workspace."""
    if room.settings.repo_root:
        return room.foundation.locate(room.settings.repo_root)
    return next((folder for folder in room.root.path.parents if (folder / ".git").exists()), None)


def _turn_inputs(room: AgentRoom, order: PromptOrder) -> TurnInputs:
    audience = audience_of(order.session.kind, minimal=order.mode is Mode.MINIMAL)
    file = room.reader.turn_file(Audience.HEARTBEAT if order.is_beat else audience, room.settings)
    if file is None or not room.trusted:  # it asks for something to be done, which a stranger's must not
        return order.turn
    shown = ContextFile(file.name, file.text, file.name)
    return replace(order.turn, heartbeat_file=shown)


def _as_said(room: AgentRoom, text: str) -> str:
    """The text of a workspace's file; in a folder of somebody else every line of it is quoted."""
    return text if room.trusted else "\n".join(f"> {line}" for line in sanitise(text).split("\n"))


def _owners(foundation: Foundation) -> OwnerFacts | None:
    commands = foundation.config.commands
    if not commands.owner_allow_from:
        return None
    display = OwnerDisplay(commands.owner_display)
    secret = display_secret(foundation) if display is OwnerDisplay.HASH else ""
    return show_owners(commands.owner_allow_from, display, secret)


def display_secret(foundation: Foundation) -> str:
    """The configured secret, or one that is made once and kept with the credentials."""
    configured = foundation.config.commands.owner_display_secret
    if configured:
        return str(configured)
    kept = foundation.home.credentials / "owner-display-secret"
    try:
        return kept.read_text("utf-8").strip()
    except FileNotFoundError:
        return _make_secret(kept)


def _make_secret(kept: Path) -> str:
    fresh = secrets.token_hex(32)
    make_private_dir(kept.parent)
    try:
        write_atomic(kept, fresh.encode() + b"\n")
    except StorageError as error:
        raise StorageError(
            f"Owners are to be shown as hashes, and the secret for that cannot be stored: {error} "
            "Set commands.ownerDisplaySecret, or commands.ownerDisplay to raw."
        ) from error
    return fresh


def machine_timezone(foundation: Foundation) -> str:
    """The machine's zone by name, or "" where it does not say."""
    named = foundation.environment.get("TZ", "").lstrip(":")
    return named if "/" in named or named == "UTC" else _zone_of_link()


@cache
def _zone_of_link() -> str:
    try:
        target = str(Path("/etc/localtime").readlink())
    except OSError:
        return ""
    _, found, zone = target.partition("zoneinfo/")
    return zone if found else ""
