"""A hook that counts calls."""

from __future__ import annotations

from typing import Any

CALLS: list[str] = []


async def count_call(event: Any) -> None:
    CALLS.append(event.call.name)
