#!/usr/bin/env python3
"""Make, verify, compare and restore .tar.gz snapshots of a folder."""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import io
import json
import os
import re
import stat
import sys
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import IO

MANIFEST = "MANIFEST.sha256"
STAMP = "%Y%m%d-%H%M%S"
CHUNK = 1 << 20
Record = dict[str, object]


class BackupError(Exception):
    """The request cannot be carried out; the message says why."""


class HashingReader(io.RawIOBase):
    """Passes a file through and hashes exactly the bytes that went into the archive."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.hash = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self.hash.update(data)
        return data


def hash_stream(file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while data := file.read(CHUNK):
        digest.update(data)
    return digest.hexdigest()


def is_excluded(relative: str, patterns: list[str]) -> bool:
    name = PurePosixPath(relative).name
    return any(fnmatch.fnmatch(relative, pattern) or fnmatch.fnmatch(name, pattern) for pattern in patterns)


def walk(source: Path, skip: Path | None, patterns: list[str]) -> Iterator[tuple[Path, str]]:
    """Everything below `source` in a fixed order, folders before their content."""
    for entry in sorted(source.iterdir(), key=lambda path: path.name):
        yield from walk_entry(entry, "", skip, patterns)


def walk_entry(path: Path, parent: str, skip: Path | None, patterns: list[str]) -> Iterator[tuple[Path, str]]:
    relative = f"{parent}{path.name}"
    if is_excluded(relative, patterns) or (not parent and path.name == MANIFEST):
        return
    if path.is_symlink() or not path.is_dir():
        yield path, relative
        return
    if skip is not None and path.resolve() == skip:
        return
    yield path, relative
    for child in sorted(path.iterdir(), key=lambda item: item.name):
        yield from walk_entry(child, f"{relative}/", skip, patterns)


def write_archive(target: Path, source: Path, skip: Path | None, patterns: list[str]) -> tuple[int, int]:
    """Write files, folders and links, then the manifest; return the number of files and their bytes."""
    lines: list[str] = []
    total = 0
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with (
        os.fdopen(descriptor, "wb") as raw,
        tarfile.open(fileobj=raw, mode="w:gz", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path, relative in walk(source, skip, patterns):
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode) or stat.S_ISLNK(mode):
                archive.add(path, relative, recursive=False)
            elif stat.S_ISREG(mode):
                with path.open("rb") as file:
                    member = archive.gettarinfo(arcname=relative, fileobj=file)
                    member.type, member.linkname = tarfile.REGTYPE, ""
                    member.size = os.fstat(file.fileno()).st_size
                    reader = HashingReader(file)
                    archive.addfile(member, reader)
                lines.append(f"{reader.hash.hexdigest()}  {quote(relative)}\n")
                total += member.size
            else:
                print(f"warning: skipped {path}: not a file, folder or link", file=sys.stderr)
        content = "".join(lines).encode()
        member = tarfile.TarInfo(MANIFEST)
        member.size, member.mode, member.mtime = len(content), 0o600, int(source.stat().st_mtime)
        archive.addfile(member, io.BytesIO(content))
    return len(lines), total


def quote(name: str) -> str:
    """A name on one line, however odd it is."""
    return json.dumps(name) if re.search(r"[\x00-\x1f\x7f\"\\\ud800-\udfff]", name) else name


def unquote(name: str) -> str:
    return str(json.loads(name)) if name.startswith('"') else name


def read_checksums(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The checksums that the manifest promises and those of the archive's files."""
    promised: dict[str, str] | None = None
    found: dict[str, str] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                if not member.isreg():
                    continue
                file = archive.extractfile(member)
                assert file is not None
                if member.name == MANIFEST:
                    entries = [line.split("  ", 1) for line in file.read().decode().splitlines()]
                    promised = {unquote(name): digest for digest, name in entries}
                else:
                    found[member.name] = hash_stream(file)
    except FileNotFoundError:
        raise BackupError(f"there is no archive at {path}") from None
    except (OSError, tarfile.TarError, EOFError, zlib.error, ValueError) as failure:
        raise BackupError(f"{path} is damaged or not a .tar.gz archive: {failure}") from failure
    if promised is None:
        raise BackupError(f"{path} has no {MANIFEST}: it was cut off, or made by another program")
    return promised, found


def verify_archive(path: Path) -> int:
    """Compare every file with its checksum; return how many there are."""
    promised, found = read_checksums(path)
    wrong = sorted(name for name in promised.keys() | found.keys() if promised.get(name) != found.get(name))
    if wrong:
        raise BackupError(f"{path} does not match its checksums: {', '.join(wrong[:5])}")
    return len(found)


def archives_named(dest: Path, name: str) -> list[Path]:
    """Archives of that name, oldest first; the stamp in the name orders them."""
    shape = re.compile(rf"{re.escape(name)}-\d{{8}}-\d{{6}}\.tar\.gz")
    return sorted(path for path in dest.iterdir() if shape.fullmatch(path.name)) if dest.is_dir() else []


def require_folder(path: Path) -> Path:
    if not path.is_dir():
        raise BackupError(f"there is no folder {path}")
    return path.resolve()


def create(options: argparse.Namespace) -> list[Record]:
    source = require_folder(options.source)
    name = options.name or source.name or "root"
    if not re.fullmatch(r"[\w.-]+", name):
        raise BackupError(f"the name {name!r} does not fit into a file name; choose one with --name")
    dest: Path = options.dest
    dest.mkdir(parents=True, exist_ok=True, mode=0o700)
    target = dest / f"{name}-{options.now.strftime(STAMP)}.tar.gz"
    if target.exists():
        raise BackupError(f"{target} exists already; wait a second and try again")
    unfinished = target.with_name(f".{target.name}.part")
    try:
        files, total = write_archive(unfinished, source, dest.resolve(), options.exclude)
        verify_archive(unfinished)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    removed = archives_named(dest, name)[: -options.keep] if options.keep else []
    for old in removed:
        old.unlink()
    size = target.stat().st_size
    return [
        {
            "archive": str(target),
            "files": files,
            "bytes": total,
            "archive_bytes": size,
            "removed": [str(path) for path in removed],
        }
    ]


def verify(options: argparse.Namespace) -> list[Record]:
    return [{"archive": str(options.archive), "files": verify_archive(options.archive), "verified": True}]


def list_archives(options: argparse.Namespace) -> list[Record]:
    dest = require_folder(options.dest)
    return [
        {"archive": str(options.dest / path.name), "archive_bytes": path.stat().st_size}
        for path in sorted(dest.iterdir())
        if re.fullmatch(r".+-\d{8}-\d{6}\.tar\.gz", path.name)
    ]


def diff(options: argparse.Namespace) -> list[Record]:
    """What changed in the folder since the snapshot."""
    source = require_folder(options.source)
    promised, _ = read_checksums(options.archive)
    current: dict[str, str] = {}
    for path, relative in walk(source, options.archive.resolve().parent, options.exclude):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                current[relative] = hash_stream(file)
    changes: list[Record] = []
    for name in sorted(promised.keys() | current.keys()):
        if promised.get(name) != current.get(name):
            change = "added" if name not in promised else "deleted" if name not in current else "changed"
            changes.append({"change": change, "file": name})
    return changes


def restore(options: argparse.Namespace) -> list[Record]:
    if not hasattr(tarfile, "data_filter"):
        raise BackupError("this Python cannot restore archives safely; use 3.11.4 or newer")
    target: Path = options.to
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BackupError(f"{target} is not empty; restore into a new folder")
    files = verify_archive(options.archive)
    target.mkdir(parents=True, exist_ok=True)
    skipped: list[str] = []
    with tarfile.open(options.archive, "r:gz") as archive:
        for member in archive:
            if member.name == MANIFEST:
                continue
            try:
                archive.extract(member, target, filter="data")
            except tarfile.FilterError as refusal:
                skipped.append(member.name)
                print(f"warning: not restored: {refusal}", file=sys.stderr)
    return [{"restored": str(target), "files": files, "skipped": skipped}]


def show(record: Record) -> str:
    match record:
        case {"change": change, "file": name}:
            return f"{change:<8} {name}"
        case {"restored": target, "files": files}:
            return f"restored {files} files to {target}"
        case {"verified": True, "archive": archive, "files": files}:
            return f"{archive}: {files} files, all checksums match"
        case {"archive": archive, "files": files, "removed": list(removed)}:
            tail = f"; removed {len(removed)} old" if removed else ""
            return f"{archive}: {files} files, {record['bytes']} bytes in {record['archive_bytes']}, verified{tail}"
        case _:
            return f"{record['archive']}  {record['archive_bytes']} bytes"


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--json", action="store_true", help="print JSON")
    excluding = argparse.ArgumentParser(add_help=False)
    excluding.add_argument("--exclude", action="append", default=[], metavar="GLOB")
    excluding.add_argument("--source", type=Path, default=Path(), help="default: the current folder")
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    make = commands.add_parser("create", parents=[shared, excluding], help="make and verify a snapshot")
    make.add_argument("--dest", type=Path, default=Path("backups"), help="default: backups")
    make.add_argument("--name", help="default: the folder's name")
    make.add_argument("--keep", type=positive, metavar="N", help="delete older snapshots beyond N")
    make.add_argument("--now", type=datetime.fromisoformat, default=datetime.now(), help="time to name it after")
    make.set_defaults(run=create)

    listing = commands.add_parser("list", parents=[shared], help="list snapshots")
    listing.add_argument("--dest", type=Path, default=Path("backups"))
    listing.set_defaults(run=list_archives)

    check = commands.add_parser("verify", parents=[shared], help="check every checksum")
    check.add_argument("archive", type=Path)
    check.set_defaults(run=verify)

    compare = commands.add_parser("diff", parents=[shared, excluding], help="what changed since a snapshot")
    compare.add_argument("archive", type=Path)
    compare.set_defaults(run=diff)

    unpack = commands.add_parser("restore", parents=[shared], help="unpack into a new folder")
    unpack.add_argument("archive", type=Path)
    unpack.add_argument("--to", type=Path, required=True)
    unpack.set_defaults(run=restore)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    options = parse_arguments(argv)
    try:
        records: list[Record] = options.run(options)
    except (BackupError, OSError) as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(records, ensure_ascii=False, indent=2))
    else:
        print("\n".join(map(show, records)) or "Nothing found.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
