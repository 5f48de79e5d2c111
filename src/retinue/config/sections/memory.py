"""Settings of memory, declared by the package `memory`."""

from __future__ import annotations

from retinue.memory.settings import MemorySearchSettings, MemorySettings

__all__ = ["MemorySearchSettings", "MemorySettings"]
