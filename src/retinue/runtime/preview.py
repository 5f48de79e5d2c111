"""A session's prompt as its next turn would send it."""

from __future__ import annotations

from retinue.context.prompt.inputs import PromptMode
from retinue.core.keys import SessionKey
from retinue.core.model import ToolSpec
from retinue.runtime.foundation import Foundation
from retinue.runtime.prompting import AgentPrompt
from retinue.runtime.rooms import open_room
from retinue.runtime.runtime import open_runtime


async def preview_prompt(
    foundation: Foundation, session: SessionKey, mode: PromptMode
) -> tuple[AgentPrompt, tuple[ToolSpec, ...]]:
    """Build the prompt and tool schemas of a session; raises `WorkspaceError` where there is no workspace yet."""
    with open_room(foundation, session.agent):
        pass
    async with open_runtime(foundation) as runtime:
        return await runtime.conversation(session, seed=False).planner.preview(mode)
