"""Who sees what a session asks: the processes in which a person has the session before them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from retinue.core.errors import StorageError
from retinue.core.keys import SessionKey
from retinue.storage.presence import Presence
from retinue.tools.approvals.store import ApprovalStore


class Watchers:
    """The processes that watch sessions, as one of them sees it; those that died count no more."""

    def __init__(self, store: ApprovalStore, presence: Presence) -> None:
        self._store = store
        self._presence = presence
        self._watched: Counter[SessionKey] = Counter()

    @contextmanager
    def watch(self, session: SessionKey) -> Iterator[None]:
        """While inside, other processes know that a person here sees what the session asks."""
        self._presence.show()
        self._store.watch(self._presence.name, session)
        self._watched[session] += 1
        try:
            yield
        finally:
            self._watched[session] -= 1
            if not self._watched[session]:
                with suppress(StorageError):
                    self._store.unwatch(self._presence.name, session)

    def watch_elsewhere(self, session: SessionKey) -> bool:
        """Whether a person sees in another process what the session asks."""
        for holder in self._store.watchers(session):
            if holder == self._presence.name:
                continue
            if self._presence.is_present(holder):
                return True
            self._store.forget_watcher(holder)
        return False

    def forget_dead(self) -> None:
        """Forget whoever watched and died."""
        for holder in self._store.watchers():
            if not self._presence.is_present(holder):
                self._store.forget_watcher(holder)
