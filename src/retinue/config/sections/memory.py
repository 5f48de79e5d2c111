"""Settings of memory, which its own package declares."""

from __future__ import annotations

from retinue.memory.settings import MemorySearchSettings, MemorySettings

__all__ = ["MemorySearchSettings", "MemorySettings"]
