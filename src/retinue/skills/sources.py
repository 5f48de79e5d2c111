"""Where skills are installed from: a folder, a ZIP file, a Git repository, or a registry."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.clock import Clock
from retinue.core.errors import SkillError, UsageError
from retinue.skills.integrity.contents import MAX_TOTAL_BYTES, SkillContent, read_folder
from retinue.skills.integrity.lock import SkillOrigin
from retinue.skills.integrity.unpack import fetch_git, unzip
from retinue.skills.registry.address import read_token
from retinue.skills.registry.client import FetchedSkill, SkillReference, connect, parse_reference
from retinue.skills.registry.compatible_files import ORIGIN_FILE, OriginFile, encode_origin
from retinue.skills.registry.connection import Progress
from retinue.skills.registry.fingerprint import fingerprint, hash_contents
from retinue.storage.home_paths import HomePaths

DOWNLOADS = "skill-downloads"
_GITHUB_PAGE = re.compile(
    r"(?:git:)?(https://github\.com/[\w.-]+/[\w.-]+?)(?:\.git)?"
    r"(?:/(?:tree|blob)/([^/?#]+)(?:/(?!SKILL\.md)([^?#]+?))?(?:/SKILL\.md)?)?/?"
)
"""The address of a page of GitHub, as people copy it from the browser: a repository, or a folder of one."""


class RegistryAccess(Struct, frozen=True):
    """How the registry is reached: its site, and where tokens and unfinished downloads are stored."""

    site: str
    paths: HomePaths
    environment: dict[str, str]
    clock: Clock
    progress: Progress = lambda what, done, total: None

    @property
    def downloads(self) -> Path:
        return self.paths.path / DOWNLOADS

    def token(self, address: str) -> str | None:
        return read_token(self.paths.credentials, address, self.environment)


def fetch_local(source: str, below: str = "") -> FetchedSkill | None:
    """Read a skill from a folder, a ZIP file or a Git repository; None if the text names a skill of a registry."""
    path = Path(source).expanduser()
    separate = source.startswith((".", "/", "~")) or os.sep in source.removeprefix("@") or source.endswith(".zip")
    if separate and path.is_dir() and not (path / "HEAD").is_file():
        return FetchedSkill(read_folder(path / below), SkillOrigin("folder", str(path.absolute()), path=below))
    if separate and path.is_file():
        if path.stat().st_size > MAX_TOTAL_BYTES:
            raise UsageError(f"{path} is larger than {MAX_TOTAL_BYTES:,} bytes. A skill cannot be that large.")
        return FetchedSkill(unzip(path.read_bytes(), below), SkillOrigin("zip", str(path.absolute()), path=below))
    found = git_address(source, is_folder=separate and path.is_dir())
    if found is not None:
        below = below or found.path
        files, commit = fetch_git(found.address, found.reference, below)
        return FetchedSkill(files, SkillOrigin("git", source, commit, path=below))
    if source.startswith((".", "/", "~")) or source.endswith(".zip"):
        raise UsageError(
            f"'{source}' is not a folder, a ZIP file or a Git address. Use git:owner/repo[@ref], for example."
        )
    return None


class GitAddress(Struct, frozen=True):
    """A repository, the branch, tag or commit of it, and the folder of the skill in it."""

    address: str
    reference: str = ""
    path: str = ""


def git_address(source: str, *, is_folder: bool = False) -> GitAddress | None:
    """Return the repository that a text names; None if it names none."""
    page = _GITHUB_PAGE.fullmatch(source)
    if page is not None:
        return GitAddress(f"{page[1]}.git", unquote(page[2] or ""), unquote(page[3] or ""))
    short = source.removeprefix("git:")
    address, at, reference = short.rpartition("@")
    if not at or "/" in reference or ":" in reference:
        address, reference = short, ""
    if source.startswith("git:") and "://" not in address and address.count("/") == 1 and ":" not in address:
        return GitAddress(f"https://github.com/{address}.git", reference)
    if "://" in address or address.endswith(".git") or source.startswith("git:") or is_folder:
        return GitAddress(address, reference)
    return None


async def fetch_from_registry(
    access: RegistryAccess, reference: SkillReference, version: str = "", *, force: bool = False
) -> FetchedSkill:
    """Download a version of a skill and verify it; adds the file that tells other clients where it is from."""
    async with connect(access.site) as client:
        client.use_token(access.token(client.address))
        fetched = await client.fetch(reference, version, access.downloads, access.progress, force=force)
    return mark_origin(fetched, access.clock)


def mark_origin(fetched: FetchedSkill, clock: Clock) -> FetchedSkill:
    """Add `.clawhub/origin.json` to the files of a skill of a registry."""
    origin = fetched.origin
    mark = OriginFile(
        origin.registry,
        origin.slug,
        origin.version,
        int(clock.now().timestamp() * 1000),
        owner_handle=origin.owner or None,
        fingerprint=fingerprint(hash_contents(fetched.files)),
    )
    files = {name: file for name, file in fetched.files.items() if not name.startswith(".clawhub/")}
    return FetchedSkill(files | {ORIGIN_FILE: SkillContent(encode_origin(mark))}, origin, fetched.warning)


async def fetch_again(
    access: RegistryAccess, origin: SkillOrigin, version: str = "", *, force: bool = False
) -> FetchedSkill:
    """Fetch a skill from where it was installed from."""
    if origin.kind == "registry":
        reference = SkillReference(origin.slug, origin.owner)
        there = replace(access, site=origin.registry or access.site)
        newer = await fetch_from_registry(there, reference, version, force=force)
        return replace(newer, origin=replace(newer.origin, reference=origin.reference))
    fetched = fetch_local(origin.reference, origin.path) if origin.kind in ("git", "folder", "zip") else None
    if fetched is None:
        raise SkillError("It was not installed from a registry, a Git repository, a folder or a ZIP file.")
    return fetched


def fetch_source_reference(source: str) -> SkillReference:
    """Parse the name of a skill of a registry; the error lists what else could be meant."""
    try:
        return parse_reference(source)
    except SkillError as error:
        raise UsageError(
            f"{error} A folder, a ZIP file (./path) and a Git address (git:owner/repo[@ref]) are possible, too."
        ) from None
