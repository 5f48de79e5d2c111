"""The files of the terminal chat: what was typed before, and what was typed but not sent."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from retinue.core.codec import dump_json, load_json
from retinue.storage.files import write_atomic

if TYPE_CHECKING:
    from pathlib import Path

    from prompt_toolkit.history import History

    from retinue.core.keys import SessionKey
    from retinue.runtime.home import Home

log = logging.getLogger(__name__)
UNSENT_FILE = "chat-unsent.json"


def open_history(home: Home) -> History:
    """Return the input history: a private file, or memory only if the file cannot be created."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    hide = home.redactor.hide_exact

    class QuietHistory(FileHistory):
        """Stores the typed lines without secrets."""

        def store_string(self, string: str) -> None:
            super().store_string(hide(string))

    path = home.paths.path / "chat-history"
    try:
        with path.open("ab"):
            path.chmod(0o600)
    except OSError:
        return InMemoryHistory()
    return QuietHistory(str(path))


class UnsentMessages:
    """The messages of one session that were queued when the chat was closed, for its next chat."""

    def __init__(self, folder: Path, session: SessionKey) -> None:
        self._path = folder / UNSENT_FILE
        self._session = str(session)

    def keep(self, messages: list[str]) -> bool:
        """Keep messages; returns False if the file cannot be written."""
        return self._replace([*self._load().get(self._session, ()), *messages])

    def take(self) -> list[str]:
        """Return what was kept, which is then no longer kept."""
        kept = self._load().get(self._session, [])
        return kept if kept and self._replace([]) else []

    def _load(self) -> dict[str, list[str]]:
        try:
            found = load_json(self._path.read_bytes())
        except (OSError, ValueError):
            return {}
        return {key: list(map(str, texts)) for key, texts in found.items() if isinstance(texts, list)}

    def _replace(self, messages: list[str]) -> bool:
        kept = {**self._load(), self._session: messages}
        try:
            write_atomic(self._path, dump_json({key: texts for key, texts in kept.items() if texts}).encode())
        except OSError:
            log.warning("messages that were not sent cannot be stored", exc_info=True)
            return False
        return True
