"""A session's prompt as its next turn would send it."""

from __future__ import annotations

from retinue.context.prompt.inputs import PromptMode
from retinue.core.keys import SessionKey
from retinue.core.model import ToolSpec
from retinue.runtime.agents.agent import open_workspace
from retinue.runtime.agents.prompting import AgentPrompt
from retinue.runtime.home import Home
from retinue.runtime.open import open_runtime


async def preview_prompt(home: Home, session: SessionKey, mode: PromptMode) -> tuple[AgentPrompt, tuple[ToolSpec, ...]]:
    """Build the prompt and tool schemas of a session; raises `WorkspaceError` where there is no workspace yet."""
    with open_workspace(home, session.agent):
        pass
    async with open_runtime(home) as runtime:
        return await runtime.conversation(session, seed=False).planner.preview(mode)
