"""A folder that may be read and not changed."""

from __future__ import annotations

from typing import NoReturn

from retinue.storage.descriptors import PRIVATE_FILE
from retinue.storage.file_errors import ReadOnly
from retinue.storage.files import Root


class ReadOnlyRoot(Root):
    """A root whose files nobody changes through it, whatever the file system would allow."""

    def write(self, relative: str, data: bytes, *, mode: int = PRIVATE_FILE, exclusive: bool = False) -> NoReturn:
        self._refuse(relative)

    def check_write(self, relative: str) -> NoReturn:
        self._refuse(relative)

    def append(self, relative: str, data: bytes, *, sync: bool = True) -> NoReturn:
        self._refuse(relative)

    def make_dir(self, relative: str) -> NoReturn:
        self._refuse(relative)

    def remove(self, relative: str) -> NoReturn:
        self._refuse(relative)

    def rename(self, old: str, new: str) -> NoReturn:
        self._refuse(old)

    def _refuse(self, relative: str) -> NoReturn:
        raise ReadOnly(f"'{relative}' was not changed: {self.path} is read-only for this session.")
