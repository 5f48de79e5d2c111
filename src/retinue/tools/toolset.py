"""The tools an agent has, by name, and which of them a session may use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from retinue.core.errors import RetinueError
from retinue.core.messages import ToolCall
from retinue.core.model import ToolSpec
from retinue.tools.tool import Tool

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

PROFILES: dict[str, tuple[str, ...]] = {
    "minimal": ("group:memory", "session_status"),
    "coding": (
        *("group:fs", "group:runtime", "group:web", "group:memory", "group:sessions", "group:automation"),
        *("image", "update_plan"),
    ),
    "messaging": ("group:memory", "group:messaging", "group:sessions"),
    "full": ("*",),
}

SEARCH, CALL = "tool_search", "tool_call"
"""The two tools that lead to deferred ones; they are no permission of their own."""


def expand(names: Iterable[str]) -> tuple[str, ...]:
    """Names as patterns over tool names: groups opened, aliases replaced, lower case."""
    out: list[str] = []
    for name in names:
        lowered = name.strip().lower()
        out += GROUPS.get(lowered) or (ALIASES.get(lowered, lowered),)
    return tuple(dict.fromkeys(out))


def is_named(tool: str, patterns: Sequence[str]) -> bool:
    """Whether one of the expanded names stands for a tool."""
    return any(fnmatchcase(tool, pattern) for pattern in patterns)


class Toolset(Mapping[str, Tool[Any]]):
    """Tools by name, in the order they were given."""

    def __init__(self, tools: Iterable[Tool[Any]]) -> None:
        self._tools: dict[str, Tool[Any]] = {}
        for tool in tools:
            if tool.name in self._tools:
                raise RetinueError(f"Two tools are called `{tool.name}`. Rename one or disable its plugin.")
            self._tools[tool.name] = tool

    def __getitem__(self, name: str) -> Tool[Any]:
        return self._tools[ALIASES.get(name, name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What the model is given with every request."""
        return tuple(tool.spec for tool in self._tools.values() if not tool.deferred)

    @property
    def deferred(self) -> tuple[Tool[Any], ...]:
        """Tools that the model finds by `tool_search`."""
        return tuple(tool for tool in self._tools.values() if tool.deferred)

    def select(self, *, profile: str = "full", allow: Sequence[str] = (), deny: Sequence[str] = ()) -> Toolset:
        """The tools that a profile and two lists leave; deny wins, an empty `allow` allows all of the profile."""
        base, allowed, denied = expand(PROFILES[profile]), expand(allow), expand(deny)
        if "write" in allowed:
            allowed = (*allowed, "apply_patch")
        return Toolset(
            tool
            for name, tool in self._tools.items()
            if is_named(name, base) and (not allowed or is_named(name, allowed)) and not is_named(name, denied)
        )


def unwrap_call(call: ToolCall) -> ToolCall:
    """The call that a `tool_call` stands for, with the same id; any other call as it is."""
    name, arguments = call.arguments.get("name"), call.arguments.get("arguments", {})
    if call.name != CALL or not isinstance(name, str) or not isinstance(arguments, Mapping):
        return call
    return ToolCall(call.id, name, arguments, call.signature)


_CHARS_PER_TOKEN = 4
_WINDOW_SHARE = 0.3
_LEAST_CHARS = 2_000
_HEAD_SHARE = 0.7


def result_room(window: int, override: int | None = None) -> int:
    """How many characters of one result a model with this window gets."""
    if window >= 200_000:
        ceiling = 64_000
    elif window >= 100_000:
        ceiling = 32_000
    else:
        ceiling = 16_000
    share = int(window * _CHARS_PER_TOKEN * _WINDOW_SHARE)
    return max(_LEAST_CHARS, min(share, override or ceiling))


def cap_output(text: str, window: int, override: int | None = None) -> str:
    """A result that fits: of a longer one the beginning and the end, with a note on what is missing."""
    room = result_room(window, override)
    if len(text) <= room:
        return text
    head = int(room * _HEAD_SHARE)
    dropped = len(text) - room
    return f"{text[:head]}\n[… {dropped:,} characters left out; ask for a part of it …]\n{text[-(room - head) :]}"
