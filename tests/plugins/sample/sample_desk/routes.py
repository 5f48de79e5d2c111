"""An HTTP route and a gateway method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


async def greet(request: Any) -> dict[str, str]:
    return {"greeting": f"hello {request.query_params.get('name', 'nobody')}"}


async def add(params: Mapping[str, Any]) -> int:
    return sum(params["numbers"])
