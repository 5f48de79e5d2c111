"""Environment variables of skills, for the commands of a run only."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from anyio import to_thread

from retinue.core.errors import ConfigError, ToolFailed
from retinue.runtime.agents.agent import AgentWorkspace
from retinue.security.secrets import Secret, Secrets
from retinue.toolkit.processes.environment import check_variables

log = logging.getLogger(__name__)


async def skill_variables(workspace: AgentWorkspace, secrets: Secrets) -> dict[str, str]:
    """Return the variables of the skills that an agent may use, with their secrets resolved.

    A variable that would change what programs load, run or connect to is refused; one with an unavailable secret is
    omitted.
    """
    wanted = dict(_configured(workspace))
    if not wanted:
        return {}
    return await to_thread.run_sync(_fetch, wanted, secrets)


def _configured(workspace: AgentWorkspace) -> Iterator[tuple[str, Secret]]:
    entries = workspace.home.config.skills.entries
    if not any(entry.env or entry.api_key for entry in entries.values()):
        return
    for judged in workspace.skills():
        entry = entries.get(judged.skill.key) or entries.get(judged.skill.name)
        if entry is None or not judged.gate.eligible:
            continue
        yield from entry.env.items()
        if entry.api_key and judged.skill.primary_env:
            yield judged.skill.primary_env, entry.api_key


def _fetch(wanted: dict[str, Secret], secrets: Secrets) -> dict[str, str]:
    variables: dict[str, str] = {}
    for name, secret in wanted.items():
        try:
            check_variables({name: secret if isinstance(secret, str) else ""})
            variables[name] = secrets.resolve(secret)
        except (ToolFailed, ConfigError) as error:
            log.warning("the variable %s of a skill is omitted: %s", name, error)
    return variables
