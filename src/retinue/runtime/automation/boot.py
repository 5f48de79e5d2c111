"""BOOT.md: instructions that agents follow in a new session when the gateway starts."""

from __future__ import annotations

import logging

from retinue.automation.heartbeat import is_empty_checklist
from retinue.core.envelope import Inbound, Source
from retinue.core.errors import RetinueError
from retinue.core.keys import AgentId, SessionKey
from retinue.runtime.channels.notify_owner import find_chat, notify
from retinue.runtime.dispatcher.dispatcher import Dispatcher
from retinue.runtime.turns.sessions import Sessions
from retinue.storage.files import NotThere

log = logging.getLogger(__name__)

MAX_BOOT_SECONDS = 600.0
MAX_BYTES = 64 * 1024
BOOT_PROMPT = (
    "The gateway has started. Follow BOOT.md, shown above, and nothing else. "
    "When it is done and nobody has to be told anything, reply NO_REPLY."
)


async def boot_agents(sessions: Sessions, dispatcher: Dispatcher) -> None:
    """Run BOOT.md of every agent that has one; a failure is logged and does not affect the others."""
    for agent in sessions.home.config.agents.ids:
        try:
            if not is_empty_checklist(_instructions(sessions, agent)):
                await _boot(sessions, dispatcher, agent)
        except RetinueError as error:
            log.warning("BOOT.md of %s failed: %s", agent, error)


async def _boot(sessions: Sessions, dispatcher: Dispatcher, agent: AgentId) -> None:
    session = SessionKey.parse(f"agent:{agent}:boot")
    store = sessions.agent(agent).store
    if store.find(session) is not None:
        store.reset(session)
    inbound = Inbound(BOOT_PROMPT, session, channel="boot", source=Source.BOOT)
    accepted = await dispatcher.submit(inbound)
    answer = await dispatcher.wait(accepted.run, MAX_BOOT_SECONDS)
    if answer is None:
        dispatcher.stop(session)
        log.warning("BOOT.md of %s took longer than %g s and was stopped", agent, MAX_BOOT_SECONDS)
        return
    sessions.services.inbox.delivered(accepted.run)
    if answer.error:
        log.warning("BOOT.md of %s failed: %s", agent, answer.error)
    elif not answer.silent and answer.text.strip():
        notify(sessions, find_chat(sessions, agent), answer, "[Start of the gateway]", Source.BOOT)


def _instructions(sessions: Sessions, agent: AgentId) -> str:
    """Return the text of BOOT.md; empty if there is none or the workspace is not trusted."""
    workspace = sessions.agent(agent).workspace
    try:
        return (
            ""
            if not workspace.trusted
            else workspace.root.read("BOOT.md", max_bytes=MAX_BYTES).data.decode("utf-8", "replace")
        )
    except NotThere:
        return ""
