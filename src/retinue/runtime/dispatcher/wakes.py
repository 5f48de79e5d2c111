"""Why agents were woken, where neither a person nor their heartbeat did it."""

from __future__ import annotations

from retinue.automation.heartbeat import WakeReason
from retinue.automation.wake_log import WOKEN, WakeLog, WakeRecord
from retinue.core.envelope import Inbound, Source
from retinue.runtime.open import Runtime

MOST_CHARS = 200

_WAKES = {
    Source.BACKGROUND: WakeReason.COMMAND,
    Source.CRON: WakeReason.CRON,
    Source.HOOK: WakeReason.HOOK,
    Source.BOOT: WakeReason.BOOT,
    Source.SUBAGENT: WakeReason.SUBAGENT,
}


def record_wake(runtime: Runtime, inbound: Inbound) -> None:
    """Keep the reason for a turn that happens by itself, beside the heartbeats."""
    wake = _WAKES.get(inbound.source)
    if wake is None:
        return
    home = runtime.home
    first = inbound.text.lstrip().partition("\n")[0][:MOST_CHARS]
    detail = home.redactor.redact(f"{inbound.session}: {first}")
    beat = WakeRecord(inbound.session.agent, home.clock.now(), wake, WOKEN, detail)
    WakeLog(runtime.database, home.clock).record(beat)
