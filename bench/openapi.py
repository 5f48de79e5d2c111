"""Requests made up from the OpenAPI document against a gateway; one server error is an error."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import anyio
from tests.gateway.conftest import gateway_process, open_hall
from tests.gateway.fuzzing import Findings, fuzz

from bench.measure import Sheet

EXAMPLES, SHORT_EXAMPLES = 300, 6


async def fuzz_gateway(examples: int, seed: int) -> Findings:
    with tempfile.TemporaryDirectory() as folder:
        async with open_hall(Path(folder)) as hall:
            hall.write_config()
            async with gateway_process(hall):
                return await anyio.to_thread.run_sync(lambda: fuzz(hall.url, hall.local_token, examples, chance=seed))


def run(*, full: bool) -> None:
    sheet = Sheet("openapi")
    seed = int(time.time())
    found = anyio.run(fuzz_gateway, EXAMPLES if full else SHORT_EXAMPLES, seed)
    if found.broken:
        raise AssertionError(f"seed {seed}: {found.broken[:5]}")
    asked = sum(found.statuses.values())
    told = ", ".join(f"{count:,} × {status}" for status, count in sorted(found.statuses.items()))
    sheet.row("server errors", 0, "", f"{asked:,} requests to {found.operations} operations: {told}")
    sheet.save()
