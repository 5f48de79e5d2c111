"""The names that rules about tools use: groups, aliases, profiles, patterns."""

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
"""Names that stand for several tools; members may be patterns, so that a group grows with its tools."""

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
"""Other names for our tools, as configurations written for OpenClaw use them."""

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
"""Sets of tools to start from; `sandboxed` is what a sandboxed session has unless it is told otherwise."""

SEARCH, CALL = "tool_search", "tool_call"
"""The two tools that lead to deferred ones; they are no permission of their own."""


def canonical(name: str) -> str:
    """A tool's own name, whatever case or alias it was called by."""
    lowered = name.strip().lower()
    return ALIASES.get(lowered, lowered)


def expand(names: Iterable[str]) -> tuple[str, ...]:
    """Names as patterns over tool names: groups opened, aliases replaced, lower case."""
    out: list[str] = []
    for name in names:
        out += GROUPS.get(name.strip().lower()) or (canonical(name),)
    return tuple(dict.fromkeys(out))


class Names(Struct, frozen=True):
    """Expanded names, ready to be asked whether one of them stands for a tool."""

    exact: frozenset[str]
    patterns: tuple[str, ...]

    def __contains__(self, tool: str) -> bool:
        return tool in self.exact or any(fnmatchcase(tool, pattern) for pattern in self.patterns)


@lru_cache(maxsize=1024)
def read_names(names: tuple[str, ...]) -> Names:
    """What a list of the configuration stands for."""
    expanded = expand(names)
    exact = frozenset(name for name in expanded if not _is_pattern(name))
    return Names(exact, tuple(name for name in expanded if _is_pattern(name)))


def _is_pattern(name: str) -> bool:
    return any(mark in name for mark in "*?[")
