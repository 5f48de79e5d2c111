"""No generated request breaks the gateway."""

from __future__ import annotations

from pathlib import Path

import anyio.to_thread
import pytest

from tests.gateway.conftest import gateway_process, open_hall

pytestmark = pytest.mark.anyio

EXAMPLES = 6


@pytest.mark.slow
async def test_made_up_requests_are_answered_or_refused_and_never_a_server_error(tmp_path: Path) -> None:
    from tests.gateway.fuzzing import fuzz

    async with open_hall(tmp_path) as hall:
        hall.write_config()
        async with gateway_process(hall) as process:
            found = await anyio.to_thread.run_sync(fuzz, hall.url, hall.local_token, EXAMPLES)
            assert found.broken == []
            assert found.operations > 40
            assert found.statuses[200] > 20
            assert found.statuses[400] > 20
            assert process.process.poll() is None
    log = (tmp_path / "gateway.out").read_text(errors="replace")
    assert "Traceback" not in log, log[-3000:]
