"""The transcripts in a folder, active and archived, as files to read, to add and to remove."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from retinue.core.keys import SessionId
from retinue.sessions.entries import Header, TranscriptEntry
from retinue.sessions.jsonl.codec import decode_line, encode_line, format_time
from retinue.sessions.jsonl.lines import create_lines, open_regular, read_forward
from retinue.sessions.protocol import Archive
from retinue.sessions.transcript import add_lines, decode_lines, read_tail, read_whole
from retinue.sessions.tree import TranscriptTree
from retinue.storage.files import make_private_dir
from retinue.storage.files.errors import explained

SUFFIX = ".jsonl"

_ARCHIVE = re.compile(r".+\.jsonl\.(?P<why>reset|deleted)\.(?P<day>\d{4}-\d\d-\d\d)T(?P<time>[\d.-]+)Z")


class TranscriptFolder:
    """The part of a session store that needs neither the index nor a lock."""

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        self.folder = folder
        self._durable = durable

    @property
    def exists(self) -> bool:
        return self.folder.is_dir()

    def path_of(self, session: SessionId) -> Path:
        """Return the path of the transcript of a session that is not archived."""
        return self.folder / f"{session}{SUFFIX}"

    def locate(self, session: SessionId) -> str:
        return str(self.path_of(session))

    def read(self, session: SessionId) -> tuple[Header | None, TranscriptTree]:
        return read_whole(self.path_of(session))

    def read_end(self, session: SessionId, size: int) -> tuple[TranscriptTree, bool]:
        with open_regular(self.path_of(session)) as descriptor:
            length = os.fstat(descriptor).st_size
            if length > size:
                return read_tail(descriptor, size).tree, False
            data = os.pread(descriptor, length, 0)
        tree = TranscriptTree(whole=True)
        add_lines(tree, list(decode_lines(data[: data.rfind(b"\n") + 1], 0)))
        return tree, True

    def entries(self, session: SessionId) -> Iterator[TranscriptEntry]:
        return read_entries(self.path_of(session))

    def archived_entries(self, session: SessionId) -> Iterator[Iterator[TranscriptEntry]]:
        for path in self.folder.glob(f"{session}{SUFFIX}.*"):
            if ".torn." not in path.name:
                yield read_entries(path)

    def matcher(self, words: Sequence[str]) -> Callable[[SessionId], bool]:
        return partial(self._may_contain, words)

    def _may_contain(self, words: Sequence[str], session: SessionId) -> bool:
        """Look for the words in the raw file, which is much faster than decoding it. Escapes make this uncertain."""
        text = self.path_of(session).read_bytes().decode("utf-8", "replace").casefold()
        return all(word in text or '"' in word or "\\" in word for word in words)

    def archives(self) -> tuple[Archive, ...]:
        found = []
        with explained(self.folder.name, self.folder.parent):
            for path in self.folder.iterdir() if self.exists else ():
                match = _ARCHIVE.fullmatch(path.name)
                if match is None or path.is_symlink() or not path.is_file():
                    continue
                status = path.stat()
                at = _parse_stamp(match) or datetime.fromtimestamp(status.st_mtime, UTC)
                found.append(Archive(path.name, match["why"], at, status.st_size, str(path)))
        return tuple(sorted(found, key=lambda archive: (archive.at, archive.name)))

    def read_archive(self, archive: Archive) -> tuple[Header | None, Iterator[TranscriptEntry]]:
        path = self.folder / archive.name
        return read_header(path), read_entries(path)

    def remove(self, archive: Archive) -> None:
        with explained(archive.name, self.folder):
            (self.folder / archive.name).unlink(missing_ok=True)

    def adopt(self, header: Header, entries: Iterable[TranscriptEntry], archive: Archive | None = None) -> None:
        make_private_dir(self.folder)
        path = self.path_of(header.id)
        if archive is not None:
            path = path.with_name(archive_name(header.id, archive.why, archive.at))
        lines = [encode_line(header), *map(encode_line, entries)]
        create_lines(path, b"".join(lines), durable=self._durable)


def archive_name(session: SessionId, why: str, at: datetime) -> str:
    """Return the name of an archived transcript."""
    return f"{session}{SUFFIX}.{why}.{format_time(at).replace(':', '-')}"


def read_header(path: Path) -> Header | None:
    """Return the header of a transcript, or None if it has none."""
    for _, line in read_forward(path):
        value = decode_line(line)
        return value if isinstance(value, Header) else None
    return None


def read_entries(path: Path) -> Iterator[TranscriptEntry]:
    """Read all entries of a file that may be too large to hold in memory."""
    for _, line in read_forward(path):
        value = decode_line(line)
        if isinstance(value, TranscriptEntry):
            yield value


def _parse_stamp(match: re.Match[str]) -> datetime | None:
    """Return the time of archiving from the file name, because the modification time is that of the last message."""
    try:
        return datetime.fromisoformat(f"{match['day']}T{match['time'].replace('-', ':')}+00:00")
    except ValueError:
        return None
