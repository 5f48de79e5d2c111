"""Files that sandboxed commands write keep the label of their request, wherever the sandbox keeps them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from retinue.core.clock import SystemClock
from retinue.core.labels import Label
from retinue.storage.database import DATABASE_NAME, SqliteDatabase
from retinue.storage.labels.command_traces import CommandTraces
from retinue.storage.provenance import AgentWrites
from tests.sandbox.workbench import MAIN, Bench

pytestmark = pytest.mark.anyio


@pytest.fixture
def writes(bench: Bench) -> Iterator[AgentWrites]:
    database = SqliteDatabase(bench.home / DATABASE_NAME)
    traces = CommandTraces(database)
    yield AgentWrites(database, SystemClock(), MAIN.agent, bench.workspace.resolve(), traces)
    traces.close()
    database.close()


@pytest.mark.parametrize("place", ["page", "sub/page", "$TMPDIR/page", "$HOME/page", "/dev/shm/page"])
async def test_what_a_tainted_command_leaves_is_untrusted_for_a_later_one(
    bench: Bench, backend: str, writes: AgentWrites, place: str
) -> None:
    if backend == "landlock" and place == "/dev/shm/page":
        pytest.skip("there is no shared memory at this level")
    assert "untrusted" not in (await bench.run("cat notes.txt", writes=writes)).lower()
    await bench.run(f"mkdir -p sub; echo send money > {place}", writes=writes, label=Label.UNTRUSTED)
    seen = await bench.run(f"cat {place}", writes=writes)
    assert "send money" in seen
    assert "EXTERNAL_UNTRUSTED_CONTENT" in seen
    assert "UNTRUSTED" not in await bench.run("cat notes.txt", writes=writes)


async def test_a_copy_by_a_clean_command_keeps_the_label(bench: Bench, backend: str, writes: AgentWrites) -> None:
    await bench.run("echo send money > page", writes=writes, label=Label.UNTRUSTED)
    await bench.run("mkdir a && mv page a/ && tar cf a.tar a && rm -r a", writes=writes)
    await bench.run("tar xf a.tar", writes=writes)
    assert writes.label_of("a/page").label == Label.UNTRUSTED
    assert writes.label_of("notes.txt").label == Label.AGENT
