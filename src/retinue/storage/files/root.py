"""File access below one folder, through its descriptor and never by a joined path.

`Root` is the only way Retinue accesses a workspace: the checked file is the opened file. Reads accept only regular
files and never block; writes replace a file atomically.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from retinue.core.errors import StorageError
from retinue.storage.files.descriptors import (
    CREATE,
    FOLDER,
    PRIVATE_DIR,
    PRIVATE_FILE,
    find_other_spelling,
    make_private_dir,
    read_up_to,
    rename_to_free_name,
    replace_file,
    stat_if_there,
    sync_folder,
    write_all,
)
from retinue.storage.files.errors import (
    AlreadyThere,
    HardLinked,
    LinkRefused,
    NotRegular,
    ReadOnly,
    ShadowedName,
    TooLarge,
    TooMany,
    explained,
    kind_of,
)
from retinue.storage.files.file_info import (
    EntryKind,
    FileIdentity,
    FileRead,
    FolderEntry,
    FolderIdentity,
    identity_of,
    read_entry,
)
from retinue.storage.files.openat import (
    O_PATH,
    Links,
    Resolver,
    best_resolver,
    denied_inside,
    open_beneath,
    refuse_denied,
    split_path,
)

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY


class Root:
    """A folder and everything below it except denied places. It owns a descriptor, so it is a context manager.

    Reads may run in several threads at once. If two writers conflict, the last one wins; no reader sees a partial file.
    """

    def __init__(
        self,
        path: Path,
        descriptor: int,
        resolver: Resolver,
        closed: Iterable[Path] = (),
        *,
        anchor: str | None = None,
    ) -> None:
        self.path = path
        self._descriptor = descriptor
        self._resolver = resolver
        self._anchor = os.path.realpath(path) if anchor is None else anchor
        self.closed = tuple(closed)
        self._closed = denied_inside(self._anchor, self.closed)

    @classmethod
    def open(
        cls, path: Path, *, create: bool = False, resolver: Resolver | None = None, closed: Iterable[Path] = ()
    ) -> Root:
        """Open a folder that the operator configured, following links in its path.

        `closed` are denied places; those outside of the folder are ignored.
        """
        if create:
            make_private_dir(path)
        with explained(path.name, path.parent):
            descriptor = os.open(path, FOLDER)
        return cls(path, descriptor, resolver or best_resolver(), closed)

    def enter(self, relative: str) -> Self:
        """Open a folder below this one as a root with the same rules; links are not followed."""
        parts = self.split(relative)
        with explained(relative, self.path):
            descriptor = open_beneath(self._folder, parts, FOLDER, resolver=self._resolver)
        anchor = "/".join((self._anchor.rstrip("/"), *parts))
        return type(self)(self.path.joinpath(*parts), descriptor, self._resolver, self.closed, anchor=anchor)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Root:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def place(self) -> FolderIdentity:
        """Return the identity of this folder; a copy of it has another one."""
        found = os.fstat(self._folder)
        return FolderIdentity(found.st_dev, found.st_ino)

    def identify(self, relative: str, *, links: Links = Links.NONE) -> FileIdentity | None:
        """Return the identity of a regular file; None if it does not exist."""
        parts = self.split(relative)
        with explained(relative, self.path):
            try:
                found = os.stat(parts[0], dir_fd=self._folder, follow_symlinks=False) if len(parts) == 1 else None
                if found is None or stat.S_ISLNK(found.st_mode):
                    with self._opened(parts, O_PATH, links) as descriptor:
                        found = os.fstat(descriptor)
            except FileNotFoundError:
                return None
        require_regular(found, relative, self.path)
        return identity_of(found)

    def read(self, relative: str, *, max_bytes: int, links: Links = Links.NONE, single_link: bool = False) -> FileRead:
        """Read a complete regular file; raise `TooLarge` if it is larger than `max_bytes`."""
        parts = self.split(relative)
        with explained(relative, self.path), self._opened(parts, _READ, links) as descriptor:
            found = os.fstat(descriptor)
            require_regular(found, relative, self.path, single_link=single_link)
            # The reported size is not reliable: it is 0 in /proc, and a file may grow.
            data = b"" if found.st_size > max_bytes else read_up_to(descriptor, max_bytes + 1, found.st_size)
        if found.st_size > max_bytes or len(data) > max_bytes:
            raise TooLarge(f"'{relative}' in {self.path} is larger than {max_bytes:,} bytes. Shorten or split it.")
        return FileRead(data, identity_of(found), found.st_nlink)

    def write(
        self,
        relative: str,
        data: bytes,
        *,
        mode: int = PRIVATE_FILE,
        exclusive: bool = False,
        keep_mode: bool = True,
    ) -> None:
        """Replace a file atomically; missing folders are created.

        An existing file keeps its permissions, unless `keep_mode` is false; `mode` applies to a new one. With
        `exclusive`, an existing file is an error.
        """
        with explained(relative, self.path), self._parent(relative, create=True) as (folder, name):
            if exclusive and stat_if_there(folder, name) is not None:
                raise AlreadyThere(f"'{relative}' in {self.path} exists already. It was not changed.")
            found = require_writable(folder, name, relative, self.path)
            if found is not None and keep_mode:
                mode = stat.S_IMODE(found.st_mode) & 0o777
            replace_file(folder, name, data, mode, exclusive=exclusive)

    def check_write(self, relative: str) -> None:
        """Raise if `write` would refuse the path in its current state; nothing is changed."""
        parts = self.split(relative)
        with explained(relative, self.path):
            for depth in range(len(parts), 0, -1):
                try:
                    with self._parent("/".join(parts[:depth])) as (folder, name):
                        if depth == len(parts):
                            require_writable(folder, name, relative, self.path)
                        else:
                            refuse_shadow(folder, name, relative, self.path)
                        return
                except FileNotFoundError:
                    continue  # `write` would create the folder; the parent of the first new one is checked
        raise NotRegular(f"'{relative}' is the folder {self.path} itself. Use a path inside it.")

    def append(self, relative: str, data: bytes, *, sync: bool = True) -> None:
        """Append `data` to a file; an incomplete write is removed.

        Only one writer at a time: removing an incomplete write would also remove concurrent writes.
        """
        with explained(relative, self.path), self._appendable(relative) as descriptor:
            found = os.fstat(descriptor)
            require_regular(found, relative, self.path, single_link=True)
            try:
                write_all(descriptor, data)
                if sync:
                    os.fsync(descriptor)
            except BaseException:
                os.ftruncate(descriptor, found.st_size)
                raise

    def entries(self, relative: str = ".") -> list[FolderEntry]:
        """Return the entries of a folder, sorted by name."""
        parts = self.split(relative)
        with (
            explained(relative, self.path),
            self._opened(parts, FOLDER) as descriptor,
            os.scandir(descriptor) as listing,
        ):
            found = [entry for entry in map(read_entry, listing) if entry is not None]
        return sorted(found, key=lambda entry: entry.name)

    def walk(self, relative: str = ".", *, max_entries: int) -> Iterator[tuple[str, FolderEntry]]:
        """Yield everything below a folder with its path, depth first, sorted by name; links are not followed.

        Folders that cannot be listed or no longer exist are skipped.
        """
        start = "/".join(self.split(relative))
        waiting = [(f"{start}/" if start else "", entry) for entry in reversed(self.entries(relative))]
        seen = 0
        while waiting:
            prefix, entry = waiting.pop()
            seen += 1
            if seen > max_entries:
                raise TooMany(
                    f"'{relative}' in {self.path} holds more than {max_entries:,} entries. Use a smaller folder."
                )
            path = prefix + entry.name
            yield path, entry
            if entry.kind is EntryKind.DIR:
                with suppress(StorageError):
                    waiting.extend((f"{path}/", below) for below in reversed(self.entries(path)))

    def make_dir(self, relative: str) -> None:
        """Create a private folder and its missing parents; an existing folder is not changed."""
        with explained(relative, self.path):
            os.close(self._open_folder(self.split(relative), relative, create=True))

    def link(self, relative: str, target: str) -> None:
        """Create a symbolic link in the place of nothing; missing folders are created."""
        with explained(relative, self.path), self._parent(relative, create=True) as (folder, name):
            os.symlink(target, name, dir_fd=folder)
            sync_folder(folder)

    def remove(self, relative: str) -> None:
        """Remove a file, a link (not its target) or an empty folder."""
        with explained(relative, self.path), self._parent(relative) as (folder, name):
            if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                os.rmdir(name, dir_fd=folder)
            else:
                os.unlink(name, dir_fd=folder)
            sync_folder(folder)

    def rename(self, old: str, new: str) -> None:
        """Rename a file or folder; an existing file or folder is never replaced."""
        with explained(old, self.path), self._parent(old) as (source, old_name):
            os.stat(old_name, dir_fd=source, follow_symlinks=False)
            with explained(new, self.path), self._parent(new, create=True) as (target, new_name):
                old_spelling = old_name if os.path.samestat(os.fstat(source), os.fstat(target)) else None
                refuse_shadow(target, new_name, new, self.path, except_name=old_spelling)
                rename_to_free_name(source, old_name, target, new_name)
                sync_folder(target)
            sync_folder(source)

    def find_shadowed(self, relative: str) -> str | None:
        """Return a similar spelling of the path's last name that exists, such as `SOUL.md` for `soul.MD`."""
        with explained(relative, self.path):
            try:
                with self._parent(relative) as (folder, name):
                    return find_other_spelling(folder, name)
            except FileNotFoundError:
                return None

    def split(self, relative: str) -> tuple[str, ...]:
        """Return the components of a path; raise if it leads outside of this folder or to a denied place."""
        parts = split_path(relative)
        refuse_denied(parts, self._closed, relative)
        return parts

    def reaches(self, relative: str) -> bool:
        """Return whether a path is inside this folder and not denied."""
        try:
            self.split(relative)
        except StorageError:
            return False
        return True

    @property
    def _folder(self) -> int:
        if self._descriptor < 0:
            raise StorageError(f"{self.path} was closed. Open it again before using it.")
        return self._descriptor

    @contextmanager
    def _opened(self, parts: Sequence[str], flags: int, links: Links = Links.NONE) -> Iterator[int]:
        if self._closed:
            links = Links.NONE  # a link could lead to a denied place
        descriptor = open_beneath(self._folder, parts, flags, links=links, resolver=self._resolver, anchor=self._anchor)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _parent(self, relative: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        """Open the parent folder of a path; yield its descriptor and the last name."""
        parts = self.split(relative)
        if not parts:
            raise NotRegular(f"'{relative}' is the folder {self.path} itself. Use a path inside it.")
        folder = self._open_folder(parts[:-1], relative, create=create)
        try:
            yield folder, parts[-1]
        finally:
            os.close(folder)

    def _open_folder(self, parts: Sequence[str], relative: str, *, create: bool) -> int:
        try:
            return open_beneath(self._folder, parts, FOLDER, resolver=self._resolver)
        except FileNotFoundError:
            if not create:
                raise
        folder = os.dup(self._folder)
        for name in parts:
            try:
                below = self._enter_or_make(folder, name, relative)
            finally:
                os.close(folder)
            folder = below
        return folder

    def _enter_or_make(self, folder: int, name: str, relative: str) -> int:
        if stat_if_there(folder, name) is None:
            refuse_shadow(folder, name, relative, self.path)
            with suppress(FileExistsError):
                os.mkdir(name, PRIVATE_DIR, dir_fd=folder)
            sync_folder(folder)
        return open_beneath(folder, (name,), FOLDER, resolver=self._resolver)

    @contextmanager
    def _appendable(self, relative: str) -> Iterator[int]:
        try:
            descriptor = open_beneath(self._folder, self.split(relative), _APPEND, resolver=self._resolver)
        except FileNotFoundError:
            with self._parent(relative, create=True) as (folder, name):
                refuse_shadow(folder, name, relative, self.path)
                descriptor = os.open(name, CREATE | os.O_APPEND, PRIVATE_FILE, dir_fd=folder)
                sync_folder(folder)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def require_writable(folder: int, name: str, relative: str, root: Path) -> os.stat_result | None:
    """Return the file that a write would replace (None for a new file); raise if it must not be written."""
    found = stat_if_there(folder, name)
    if found is None:
        refuse_shadow(folder, name, relative, root)
    else:
        require_regular(found, relative, root, single_link=True)
    return found


def require_regular(found: os.stat_result, relative: str, root: Path, *, single_link: bool = False) -> None:
    """Refuse links, folders and devices, and with `single_link`, files with several hard links."""
    if stat.S_ISLNK(found.st_mode):
        raise LinkRefused(f"'{relative}' in {root} is a symbolic link. Use the real file.")
    if not stat.S_ISREG(found.st_mode):
        raise NotRegular(f"'{relative}' in {root} is a {kind_of(found.st_mode)}, not a regular file.")
    if single_link and found.st_nlink > 1:
        raise HardLinked(f"'{relative}' in {root} has {found.st_nlink} hard links. Replace it with a copy.")


def refuse_shadow(folder: int, name: str, relative: str, root: Path, *, except_name: str | None = None) -> None:
    """Refuse a new name that looks like an existing one to a person."""
    other = find_other_spelling(folder, name)
    if other is not None and other != except_name:
        raise ShadowedName(
            f"'{relative}' differs from the existing '{other}' in {root} only in spelling. Use '{other}'."
        )


class ReadOnlyRoot(Root):
    """A root that refuses changes, regardless of the file system's permissions."""

    def write(
        self,
        relative: str,
        data: bytes,
        *,
        mode: int = PRIVATE_FILE,
        exclusive: bool = False,
        keep_mode: bool = True,
    ) -> NoReturn:
        self._refuse(relative)

    def check_write(self, relative: str) -> NoReturn:
        self._refuse(relative)

    def append(self, relative: str, data: bytes, *, sync: bool = True) -> NoReturn:
        self._refuse(relative)

    def make_dir(self, relative: str) -> NoReturn:
        self._refuse(relative)

    def link(self, relative: str, target: str) -> NoReturn:
        self._refuse(relative)

    def remove(self, relative: str) -> NoReturn:
        self._refuse(relative)

    def rename(self, old: str, new: str) -> NoReturn:
        self._refuse(old)

    def _refuse(self, relative: str) -> NoReturn:
        raise ReadOnly(f"'{relative}' was not changed: {self.path} is read-only for this session.")
