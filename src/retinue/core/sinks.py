"""The ways in which a request can act beyond its own conversation; each may need approval after untrusted text."""

from __future__ import annotations

from enum import StrEnum


class Sink(StrEnum):
    """A way out of a conversation, by its key under `tools.askWhenTainted`."""

    FETCH = "fetch"
    SEARCH = "search"
    MESSAGES = "messages"
    INSTRUCTION_FILES = "instructionFiles"
    FILES_OUTSIDE = "filesOutside"
    COMMANDS = "commands"
    PLUGIN_TOOLS = "pluginTools"
    AUTOMATION = "automation"
    CONFIGURATION = "configuration"


ALL_SINKS = frozenset(Sink)
