"""Files reached through folder descriptors, private state files, and the errors they raise."""

from retinue.storage.files.descriptors import create_atomic, make_private_dir, write_atomic
from retinue.storage.files.errors import (
    AlreadyThere,
    DiskFull,
    HardLinked,
    InputOutputError,
    LinkRefused,
    NoPermission,
    NotRegular,
    NotThere,
    QuotaExceeded,
    ReadOnly,
    ShadowedName,
    TooLarge,
    TooMany,
)
from retinue.storage.files.file_info import EntryKind, FileIdentity, FileRead, FolderEntry, FolderIdentity
from retinue.storage.files.openat import Links, Resolver
from retinue.storage.files.root import ReadOnlyRoot, Root

__all__ = [
    "AlreadyThere",
    "DiskFull",
    "EntryKind",
    "FileIdentity",
    "FileRead",
    "FolderEntry",
    "FolderIdentity",
    "HardLinked",
    "InputOutputError",
    "LinkRefused",
    "Links",
    "NoPermission",
    "NotRegular",
    "NotThere",
    "QuotaExceeded",
    "ReadOnly",
    "ReadOnlyRoot",
    "Resolver",
    "Root",
    "ShadowedName",
    "TooLarge",
    "TooMany",
    "create_atomic",
    "make_private_dir",
    "write_atomic",
]
