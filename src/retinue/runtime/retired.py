"""What a new configuration replaced, until the turns that began with it are over."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from retinue.providers.registry import Providers
from retinue.runtime.conversation import Conversation
from retinue.runtime.memories import Memories
from retinue.runtime.plan import AgentParts


class Retired(Struct, frozen=True, eq=False):
    """Parts of an earlier configuration, which turns that began with them may still use."""

    agents: tuple[AgentParts, ...]
    conversations: tuple[Conversation, ...]
    providers: Providers
    memories: Memories
    forget: Callable[[Retired], None]
    """Tells whoever keeps track of them that they were closed."""

    @property
    def in_use(self) -> bool:
        return any(conversation.busy for conversation in self.conversations)

    async def close(self) -> None:
        """Let go of everything; no turn may use it any more."""
        self.forget(self)
        for parts in self.agents:
            parts.store.settle_all()
            parts.room.close()
        await self.memories.aclose()
        await self.providers.aclose()
