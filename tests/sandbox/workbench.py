"""An agent whose commands are sandboxed."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from retinue.core.approval import ApprovalDecision, ApprovalRequest, Verdict
from retinue.core.clock import SystemClock
from retinue.core.keys import AgentId, RunId, SessionKey
from retinue.sandbox.sandboxes import Sandboxes
from retinue.sandbox.settings import SandboxSettings
from retinue.security.network import MODEL_CHOSEN, Policy
from retinue.storage.files import Root
from retinue.structs.decode import decode
from retinue.toolkit.processes.command_table import CommandTable
from retinue.toolkit.processes.tools import exec_tool
from retinue.toolkit.settings import ExecSettings
from retinue.tools.shell.allowlist import AskWhen, CommandRules, FixedCommandRules
from retinue.tools.tool import ToolContext

MAIN = SessionKey.main(AgentId("main"))
PATIENCE_MS = 60_000
ASKS_ALWAYS = CommandRules(ask=AskWhen.ALWAYS)


@dataclass
class Bench:
    """An agent whose commands are sandboxed, and a person who agrees to everything."""

    home: Path
    table: CommandTable
    settings: dict[str, Any]
    policy: Policy = MODEL_CHOSEN
    rules: CommandRules = field(default_factory=CommandRules)
    asked: list[ApprovalRequest] = field(default_factory=list)

    @property
    def workspace(self) -> Path:
        return self.home / "workspace"

    @property
    def sandboxes(self) -> Sandboxes:
        chosen = decode(SandboxSettings, {"mode": "all", "workspaceAccess": "rw", **self.settings})
        clock = SystemClock()
        return Sandboxes(self.home, lambda agent: chosen, lambda agent: self.workspace, clock.now, policy=self.policy)

    async def ask(self, request: ApprovalRequest) -> ApprovalDecision:
        self.asked.append(request)
        return ApprovalDecision(Verdict.ALLOW_ONCE, "the user said so", "tester")

    def context(self, root: Root, **changes: Any) -> ToolContext:
        return replace(ToolContext(MAIN.agent, MAIN, RunId("r"), "c", root, ask=self.ask), **changes)

    async def run(
        self, command: str, *, root: Path | None = None, below: str = "", arguments: Any = None, **changes: Any
    ) -> str:
        """What a command prints; `below` is the folder of the workspace that the session is kept to."""
        numbers = count(1)
        tool = exec_tool(
            self.table,
            ExecSettings(yield_ms=PATIENCE_MS),
            lambda: f"{next(numbers):08x}00000000",
            {"LANG": "C.UTF-8", "HOME": "/outside", "USER": "ada", "TMPDIR": "/outside/tmp"},
            FixedCommandRules(self.rules),
            sandboxes=self.sandboxes,
        )
        with ExitStack() as stack:
            opened = stack.enter_context(Root.open(root or self.workspace))
            if below:
                changes["whole"], opened = opened, stack.enter_context(opened.enter(below))
            parsed = tool.parse({"command": command, **(arguments or {})})
            output = await tool.run(parsed, self.context(opened, **changes))
        return "".join(part.text for part in output.content if hasattr(part, "text"))
