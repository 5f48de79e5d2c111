"""Hook programs of bundles: programs that Claude Code would run, with JSON on standard input, for our events.

They run only if the owner allows it (`plugins.entries.<id>.hooks.allowPrograms`). A program may stop a tool call or a
message; it can neither approve a call nor change a prompt.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from retinue.agent.calls import AFTER_TOOL, BEFORE_TOOL, ToolCallDone, ToolCallPending
from retinue.automation.external_program import ExternalProgram, ProgramFailed, run_json_program
from retinue.config.sections.gateway import PluginEntry
from retinue.context.points import BEFORE_COMPACTION, Compacting
from retinue.core.envelope import Inbound
from retinue.core.keys import SessionKey
from retinue.dispatch.hook_points import (
    MESSAGE_RECEIVED,
    SESSION_END,
    SESSION_START,
    TURN_END,
    MessageArrived,
    SessionChange,
    TurnEnded,
)
from retinue.hooks import HookBus, Subscriber, Vetoed
from retinue.plugins.bundles import plugin_variables
from retinue.plugins.manifest import BundleProgram
from retinue.plugins.registry import PluginProgram
from retinue.runtime.agents.workspace import locate_workspace
from retinue.runtime.home import Home
from retinue.security.redaction import redact_data
from retinue.security.untrusted_text import sanitise
from retinue.toolkit.processes.environment import base_environment

log = logging.getLogger(__name__)

BLOCKS = 2
"""The exit code with which a program stops what it was asked about."""
MAX_REASON_CHARS = 500
TOOL_NAMES = {
    "exec": "Bash",
    "read": "Read",
    "write": "Write",
    "edit": "Edit",
    "apply_patch": "Edit",
    "grep": "Grep",
    "find": "Glob",
    "web_fetch": "WebFetch",
    "web_search": "WebSearch",
}
"""The names by which the matchers of bundles know our tools; they may use our names as well."""


class BundleHooks(Struct, frozen=True, eq=False):
    """The hook programs of one bundle that may run."""

    home: Home
    plugin: str
    programs: tuple[BundleProgram, ...]

    def listen(self, bus: HookBus) -> None:
        """Subscribe to the events for which the bundle has programs."""
        events = {program.event for program in self.programs}
        subscriber = Subscriber(self.plugin, timeout=sum(program.seconds for program in self.programs))
        if "PreToolUse" in events:
            bus.subscribe(BEFORE_TOOL, self._before_tool, subscriber)
        if "PostToolUse" in events:
            bus.subscribe(AFTER_TOOL, self._after_tool, subscriber)
        if "UserPromptSubmit" in events:
            bus.subscribe(MESSAGE_RECEIVED, self._received, subscriber)
        if "SessionStart" in events:
            bus.subscribe(SESSION_START, self._started, subscriber)
        if "SessionEnd" in events:
            bus.subscribe(SESSION_END, self._ended, subscriber)
        if "Stop" in events:
            bus.subscribe(TURN_END, self._stopped, subscriber)
        if "PreCompact" in events:
            bus.subscribe(BEFORE_COMPACTION, self._compacting, subscriber)

    async def _before_tool(self, event: ToolCallPending) -> ToolCallPending | None:
        data = {"tool_name": _name(event.call.name), "tool_input": dict(event.call.arguments)}
        reason = await self._run("PreToolUse", event.session, event.session_id, data, event.call.name)
        if reason is not None:
            raise Vetoed(f"The bundle '{self.plugin}' refused the call: {reason}")
        return None

    async def _after_tool(self, event: ToolCallDone) -> None:
        data = {
            "tool_name": _name(event.call.name),
            "tool_input": dict(event.call.arguments),
            "tool_response": {"content": event.result.text, "is_error": event.result.is_error},
        }
        await self._run("PostToolUse", event.session, event.session_id, data, event.call.name)

    async def _received(self, event: Inbound) -> None:
        session_id = event.session_id if isinstance(event, MessageArrived) else ""
        reason = await self._run("UserPromptSubmit", event.session, session_id, {"prompt": event.text})
        if reason is not None:
            raise Vetoed(f"The bundle '{self.plugin}' refused the message: {reason}")

    async def _started(self, event: SessionChange) -> None:
        await self._run("SessionStart", event.session, event.session_id, {"source": "startup"})

    async def _ended(self, event: SessionChange) -> None:
        await self._run("SessionEnd", event.session, event.session_id, {"reason": str(event.reason)})

    async def _stopped(self, event: TurnEnded) -> None:
        await self._run("Stop", event.session, "", {"stop_hook_active": False})

    async def _compacting(self, event: Compacting) -> None:
        await self._run("PreCompact", event.session, "", {"trigger": "auto", "custom_instructions": ""})

    async def _run(
        self, event: str, session: SessionKey, session_id: str, data: Mapping[str, Any], tool: str = ""
    ) -> str | None:
        """Run the programs of an event; return why one of them refuses it, None if none does."""
        workspace = str(locate_workspace(self.home, session.agent))
        head = {"hook_event_name": event, "session_id": session_id or session.text, "cwd": workspace}
        for program in self.programs:
            if program.event != event or not _matches(program.matcher, tool):
                continue
            try:
                refusal = await self._ask(program, redact_data({**head, **data}, self.home.redactor.redact), workspace)
            except ProgramFailed as error:
                log.warning("the hook program %s of '%s' failed: %s", event, self.plugin, error)
                continue
            if refusal is not None:
                return refusal
        return None

    async def _ask(self, program: BundleProgram, data: Mapping[str, Any], workspace: str) -> str | None:
        data_folder = self.home.paths.plugin_data(self.plugin)
        data_folder.mkdir(0o700, parents=True, exist_ok=True)
        variables = {**plugin_variables(program.folder, data_folder), "CLAUDE_PROJECT_DIR": workspace}
        environment = {**base_environment(self.home.environment), **variables}
        name = f"The hook program {program.event} of '{self.plugin}'"
        command = ("/bin/sh", "-c", program.command)
        try:
            printed = await run_json_program(
                ExternalProgram(name, command, program.folder, environment, program.seconds), data
            )
        except ProgramFailed as error:
            if error.code != BLOCKS:
                raise
            return _shorten(error.output)
        return _read_refusal(printed)


def listen_to_bundles(home: Home, bus: HookBus) -> None:
    """Subscribe the hook programs of the bundles that may run them."""
    by_plugin: dict[str, list[PluginProgram]] = {}
    for each in home.registry.programs:
        by_plugin.setdefault(each.plugin, []).append(each)
    for plugin, programs in by_plugin.items():
        entry = home.config.plugins.entries.get(plugin) or PluginEntry()
        if not entry.hooks.allow_programs:
            log.info("the hook programs of '%s' are not run (plugins.entries.%s.hooks.allowPrograms)", plugin, plugin)
            continue
        BundleHooks(home, plugin, tuple(each.program for each in programs)).listen(bus)


def _name(tool: str) -> str:
    return TOOL_NAMES.get(tool, tool)


def _matches(pattern: str, tool: str) -> bool:
    return not pattern or any(re.fullmatch(pattern, name) for name in (tool, _name(tool)))


def _read_refusal(printed: str) -> str | None:
    """Return the reason of a printed decision to refuse; other output is ignored."""
    try:
        found = json.loads(printed)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    given = found.get("hookSpecificOutput")
    specific = given if isinstance(given, dict) else {}
    if specific.get("permissionDecision") in ("deny", "ask"):
        return _shorten(str(specific.get("permissionDecisionReason") or "no reason given"))
    if found.get("decision") in ("block", "deny") or found.get("continue") is False:
        return _shorten(str(found.get("reason") or found.get("stopReason") or "no reason given"))
    return None


def _shorten(text: str) -> str:
    return sanitise(text).strip()[:MAX_REASON_CHARS] or "no reason given"
