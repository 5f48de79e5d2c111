"""Hook folders of a home, told of what happens in it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retinue.agent.points import TURN_END, TurnEnd
from retinue.automation.hook_folders import HookFolder, find_folders, read_folder, tell_hook
from retinue.context.points import AFTER_COMPACTION, BEFORE_COMPACTION, Compacting
from retinue.core.background import run_logged
from retinue.core.envelope import Inbound, Outbound
from retinue.core.errors import RetinueError
from retinue.core.keys import SessionKey
from retinue.dispatch.points import MESSAGE_RECEIVED, MESSAGE_SENDING, SESSION_END, SESSION_START, SessionChange
from retinue.hooks.bus import Bus, Registrant
from retinue.runtime.foundation import Foundation
from retinue.runtime.rooms import locate_workspace
from retinue.toolkit.environment import base_environment, check_variables

log = logging.getLogger(__name__)

SELF = Registrant("hook-folders", timeout=60.0)
_BY_COMMAND = frozenset({"new", "reset"})


@dataclass(frozen=True, slots=True)
class HookFolders:
    """The hooks that are on, with the environment each gets."""

    hooks: tuple[tuple[HookFolder, Mapping[str, str]], ...]
    foundation: Foundation

    async def tell(self, event: str, session: SessionKey | None = None, **context: Any) -> None:
        """Tell every hook that wants to know; one after the other, so that they see things in order."""
        told = {
            "type": event.partition(":")[0],
            "action": event.partition(":")[2],
            "sessionKey": str(session) if session else None,
            "timestamp": self.foundation.clock.now().isoformat(),
            "context": {name: _hide(self.foundation, value) for name, value in context.items()},
        }
        for hook, environment in self.hooks:
            if hook.wants(event):
                await run_logged(f"the hook {hook.name}", tell_hook, hook, told, environment)

    def listen(self, bus: Bus) -> None:
        """Hear of what happens in sessions."""

        async def received(event: Inbound) -> None:
            await self.tell("message:received", event.session, text=event.text, source=event.source.value)

        async def sent(event: Outbound) -> None:
            await self.tell("message:sent", event.session, text=event.text, status=event.status.value)

        async def started(event: SessionChange) -> None:
            kind = f"command:{event.reason}" if event.reason in _BY_COMMAND else "session:start"
            await self.tell(kind, event.session, sessionId=event.session_id, reason=event.reason)

        async def ended(event: SessionChange) -> None:
            await self.tell("session:end", event.session, sessionId=event.session_id, reason=event.reason)

        async def turn_over(event: TurnEnd) -> None:
            await self.tell("agent:turn-end", event.session, status=event.finished.status.value)

        def compacting(name: str) -> Callable[[Compacting], Awaitable[None]]:
            async def heard(event: Compacting) -> None:
                await self.tell(name, event.session, tokensBefore=event.tokens_before, tokensAfter=event.tokens_after)

            return heard

        bus.subscribe(MESSAGE_RECEIVED, received, SELF)
        bus.subscribe(MESSAGE_SENDING, sent, SELF)
        bus.subscribe(SESSION_START, started, SELF)
        bus.subscribe(SESSION_END, ended, SELF)
        bus.subscribe(TURN_END, turn_over, SELF)
        bus.subscribe(BEFORE_COMPACTION, compacting("session:compact:before"), SELF)
        bus.subscribe(AFTER_COMPACTION, compacting("session:compact:after"), SELF)


def load_hook_folders(foundation: Foundation) -> HookFolders:
    """The hooks of a home: its own and configured folders, and those of workspaces that were switched on by name."""
    found: dict[str, tuple[HookFolder, Mapping[str, str]]] = {}
    for folder, trusted in _folders(foundation):
        entry = foundation.config.hooks.internal.entries.get(folder.name)
        if (entry is None and not trusted) or (entry is not None and not entry.enabled) or folder.name in found:
            continue
        try:
            variables = entry.env if entry else {}
            check_variables(variables)
            found[folder.name] = (read_folder(folder), {**base_environment(foundation.environment), **variables})
        except RetinueError as error:
            log.warning("the hook %s is not used: %s", folder.name, error)
    return HookFolders(tuple(found.values()), foundation)


def _folders(foundation: Foundation) -> Iterator[tuple[Path, bool]]:
    """Folders that declare hooks, and whether they are on unless somebody says otherwise."""
    settings = foundation.config.hooks.internal
    if not settings.enabled:
        return
    for root in (foundation.home.path / "hooks", *(Path(path).expanduser() for path in settings.load.extra_dirs)):
        yield from ((folder, True) for folder in find_folders(root))
    for agent in foundation.config.agents.ids:
        yield from ((folder, False) for folder in find_folders(locate_workspace(foundation, agent) / "hooks"))


def _hide(foundation: Foundation, value: Any) -> Any:
    return foundation.redactor.redact(value) if isinstance(value, str) else value
