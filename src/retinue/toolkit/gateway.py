"""The gateway tool: reads the configuration, changes the part that agents may edit, and restarts the gateway."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, Protocol

from retinue.core.approval import ApprovalRequest
from retinue.core.errors import RetinueError, ToolFailed
from retinue.core.keys import AgentId
from retinue.core.sinks import Sink
from retinue.toolkit.parts import ToolParts
from retinue.toolkit.taint import require_approval_if_tainted
from retinue.tools.tool import Arguments, Tool, ToolContext, ToolOutput, argument, reported_to_model


class GatewayArguments(Arguments):
    action: Literal["get", "schema", "patch", "apply", "restart", "update.run"]
    key: str | None = argument(None, description="e.g. agents.defaults.model; default: everything")
    changes: dict[str, Any] = argument({}, description="for patch: key to value; null unsets")
    base_hash: str | None = argument(None, description="for patch: the hash that `get` gave")
    reason: str = ""


class ConfigService(Protocol):
    """The configuration for agents; raises `UsageError` for a change that an agent may not make."""

    def get(self, key: str | None) -> dict[str, Any]:
        """Return a value without secrets, and the hash of the file."""
        ...

    def schema(self, key: str) -> dict[str, Any]: ...

    def check(self, changes: Mapping[str, Any], base_hash: str | None) -> None:
        """Raise `UsageError` if the changes are not allowed."""
        ...

    async def patch(self, changes: Mapping[str, Any], base_hash: str | None, agent: AgentId) -> dict[str, Any]: ...

    async def apply(self) -> dict[str, Any]: ...

    async def restart(self, reason: str) -> dict[str, Any]: ...

    async def update(self) -> dict[str, Any]:
        """Start an update in the background; return where its progress is written."""
        ...


def make_tools(parts: ToolParts) -> tuple[Tool[Any], ...]:
    """Make the gateway tool if a gateway runs in this process."""
    if not parts.services.controls_gateway:
        return ()

    async def run(arguments: GatewayArguments, context: ToolContext) -> ToolOutput:
        with reported_to_model(RetinueError):
            found = await _run_action(parts.services.config_service(), arguments, context)
        return ToolOutput.of(json.dumps(found, ensure_ascii=False, indent=1, default=str))

    tool = Tool(
        name="gateway",
        summary="Read or change settings",
        description="Read the configuration (`get`, `schema`), change it (`patch` with the hash from `get`), "
        "reload a changed file (`apply`), `restart`, `update.run` only if the owner asks for it. "
        "Only the owner changes permissions, secrets, plugins and hooks.",
        arguments=GatewayArguments,
        run=run,
        deferred=True,
        parallel=False,
        owner_only=True,
    )
    return (tool,)


async def _run_action(config: ConfigService, arguments: GatewayArguments, context: ToolContext) -> dict[str, Any]:
    match arguments.action:
        case "get":
            return config.get(arguments.key)
        case "schema":
            if arguments.key is None:
                raise ToolFailed("`schema` needs `key`.")
            return config.schema(arguments.key)
        case "patch":
            if not arguments.changes:
                raise ToolFailed('`patch` needs `changes`, as in {"agents.defaults.thinkingDefault": "low"}.')
            config.check(arguments.changes, arguments.base_hash)
            title = "Change the configuration"
            await require_approval_if_tainted(Sink.CONFIGURATION, "gateway", title, arguments.changes, context)
            return await config.patch(arguments.changes, arguments.base_hash, context.agent)
        case "apply":
            return await config.apply()
        case "restart":
            facts = {"reason": arguments.reason}
            await require_approval_if_tainted(Sink.CONFIGURATION, "gateway", "Restart the gateway", facts, context)
            return await config.restart(arguments.reason)
        case "update.run":
            await _ask_to_update(context)
            return await config.update()


async def _ask_to_update(context: ToolContext) -> None:
    """Ask the owner, also in a conversation without untrusted text: an update is never the agent's own idea."""
    request = ApprovalRequest(
        id=context.call_id,
        tool="gateway",
        title="Update Retinue and restart the gateway",
        detail="retinue update --yes",
        agent=context.agent,
        session=context.session,
        explanation=("Updates are made only if the owner agrees to each.",),
    )
    answer = await context.ask(request)
    if not answer.allowed:
        raise ToolFailed(f"The update was not started: {answer.because}.")
