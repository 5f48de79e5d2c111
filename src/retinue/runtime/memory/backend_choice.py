"""The choice of the memory backend: the slot of the plugins, or `memory.backend`."""

from __future__ import annotations

from retinue.runtime.home import Home

NO_MEMORY = "none"
BUILT_IN_MEMORY = ("builtin", "built-in", "default")


def memory_backend(home: Home) -> str:
    """Return the name of the configured memory backend; `none` means that agents have no memory search."""
    return home.config.plugins.slots.memory or home.config.memory.backend
