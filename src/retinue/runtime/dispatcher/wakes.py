"""Why agents were woken, where neither a person nor their heartbeat did it."""

from __future__ import annotations

from retinue.automation.heartbeat import Wake
from retinue.automation.wake_log import WOKEN, Beat, WakeLog
from retinue.core.envelope import Inbound, Source
from retinue.runtime.open import Runtime

MOST_CHARS = 200

_WAKES = {
    Source.BACKGROUND: Wake.COMMAND,
    Source.CRON: Wake.CRON,
    Source.HOOK: Wake.HOOK,
    Source.BOOT: Wake.BOOT,
    Source.SUBAGENT: Wake.SUBAGENT,
}


def record_wake(runtime: Runtime, inbound: Inbound) -> None:
    """Keep the reason for a turn that happens by itself, beside the heartbeats."""
    wake = _WAKES.get(inbound.source)
    if wake is None:
        return
    home = runtime.home
    first = inbound.text.lstrip().partition("\n")[0][:MOST_CHARS]
    detail = home.redactor.redact(f"{inbound.session}: {first}")
    beat = Beat(inbound.session.agent, home.clock.now(), wake, WOKEN, detail)
    WakeLog(runtime.database, home.clock).record(beat)
