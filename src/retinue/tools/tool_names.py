"""Names in tool rules: groups, aliases, profiles and patterns."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache

from msgspec import Struct

GROUPS: dict[str, tuple[str, ...]] = {
    "group:fs": ("read", "write", "edit", "apply_patch", "grep", "find", "ls"),
    "group:runtime": ("exec", "process"),
    "group:web": ("web_search", "web_fetch"),
    "group:memory": ("memory_*",),
    "group:sessions": ("sessions_*", "subagents", "agents_list", "session_status"),
    "group:automation": ("cron",),
    "group:messaging": ("message",),
    "group:ui": ("browser", "canvas"),
    "group:nodes": ("nodes",),
}
"""Groups of tools; members may be patterns, so that new tools join their group."""

ALIASES = {
    "bash": "exec",
    "shell": "exec",
    "code_run": "exec",
    "apply-patch": "apply_patch",
    "file_read": "read",
    "file_write": "write",
    "file_delete": "apply_patch",
    "web_browse": "browser",
    "cron_create": "cron",
    "webhook_create": "cron",
    "channel_send": "message",
    "dm_send": "message",
    "node_list": "nodes",
    "node_command": "nodes",
}
"""Other names for our tools, as used in configurations written for OpenClaw."""

SANDBOXED = "sandboxed"
PROFILES: dict[str, tuple[str, ...]] = {
    "minimal": ("group:memory", "session_status"),
    "coding": (
        *("group:fs", "group:runtime", "group:web", "group:memory", "group:sessions", "group:automation"),
        *("image", "update_plan"),
    ),
    "messaging": ("group:memory", "group:messaging", "group:sessions"),
    "full": ("*",),
    SANDBOXED: ("group:fs", "group:runtime", "sessions_*", "subagents", "session_status", "image", "update_plan"),
}
"""Sets of tools to start from; `sandboxed` is the default of a sandboxed session."""

TOOL_SEARCH, TOOL_CALL = "tool_search", "tool_call"
"""The two tools that give access to deferred tools; the policy judges the deferred tool instead."""


def canonical_name(name: str) -> str:
    """Return the canonical name of a tool for a name in any case or an alias."""
    lowered = name.strip().lower()
    return ALIASES.get(lowered, lowered)


def expand_names(names: Iterable[str]) -> tuple[str, ...]:
    """Expand groups and replace aliases; the result is patterns over tool names in lower case."""
    out: list[str] = []
    for name in names:
        out += GROUPS.get(name.strip().lower()) or (canonical_name(name),)
    return tuple(dict.fromkeys(out))


class ToolNameSet(Struct, frozen=True):
    """A set of tool names and patterns that supports `in`."""

    exact: frozenset[str]
    patterns: tuple[str, ...]

    def __contains__(self, tool: str) -> bool:
        return tool in self.exact or any(fnmatchcase(tool, pattern) for pattern in self.patterns)


@lru_cache(maxsize=1024)
def parse_tool_names(names: tuple[str, ...]) -> ToolNameSet:
    """Parse a list of names from the configuration."""
    expanded = expand_names(names)
    exact = frozenset(name for name in expanded if not _is_pattern(name))
    return ToolNameSet(exact, tuple(name for name in expanded if _is_pattern(name)))


def _is_pattern(name: str) -> bool:
    return any(mark in name for mark in "*?[")
