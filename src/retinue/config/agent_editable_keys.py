"""The configuration keys that an agent may edit.

This is an allowlist, because a denylist would miss new keys. It contains neither permissions, sandboxes, credentials,
endpoints, plugins, hooks, routing and access to the gateway, nor sections that contain them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from retinue.config.keypath import Segment, parse_path
from retinue.config.keys import require_key
from retinue.config.schema import Config
from retinue.core.errors import UsageError

_OF_EVERY_AGENT = ("model", "heartbeat.every", "heartbeat.activeHours", "humanDelay")
_OF_DEFAULTS = (
    *("models", "thinkingDefault", "reasoningDefault", "verboseDefault", "userTimezone", "timeFormat"),
    *("blockStreamingDefault", "typingMode"),
)
_OF_ONE_AGENT = ("name", "identity", "groupChat")

ALLOWED: tuple[str, ...] = (
    *(f"agents.defaults.{name}" for name in (*_OF_EVERY_AGENT, *_OF_DEFAULTS)),
    *(f"agents.list[0].{name}" for name in (*_OF_EVERY_AGENT, *_OF_ONE_AGENT)),
    "messages",
    "session.reset",
    "session.resetByType",
    "session.resetByChannel",
    "session.idleMinutes",
    "session.maintenance",
    "logging.level",
    "logging.consoleLevel",
    "logging.consoleStyle",
)
"""Keys that an agent may edit, including everything below them; `[0]` means any item."""

_PATTERNS = tuple(parse_path(key) for key in ALLOWED)


def check_change(key: str, value: Any) -> None:
    """Raise `UsageError` if an agent may not set a key to this value."""
    path = parse_path(key)
    require_key(Config, path)
    if not any(_is_within(path, pattern) for pattern in _PATTERNS):
        raise UsageError(f"Only the owner can change '{key}', with `retinue config set {key} …`.")
    if any(text.lstrip().startswith("$") or "${" in text for text in _texts(value)):
        raise UsageError(f"The value for '{key}' contains a reference with '$', which only the owner may write.")


def _is_within(path: Sequence[Segment], pattern: Sequence[Segment]) -> bool:
    if len(path) < len(pattern):
        return False
    return all(_fits(step, wanted) for step, wanted in zip(path, pattern, strict=False))


def _fits(step: Segment, wanted: Segment) -> bool:
    return not isinstance(step, str) if isinstance(wanted, int) else step == wanted


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, below in value.items():
            yield from (str(name), *_texts(below))
    elif isinstance(value, (list, tuple)):
        for below in value:
            yield from _texts(below)
