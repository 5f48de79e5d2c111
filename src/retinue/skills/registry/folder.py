"""The folder of a registry of your own: published versions, the content of their files, tokens and uploads.

```
DIR/registry/skills/<owner>/<slug>.json   what was published
DIR/registry/files/<sha256>               the content of files, each once
DIR/registry/tokens.json                  the hashes of tokens
DIR/<slug>/SKILL.md                       skills that are published when the server starts
```
"""

from __future__ import annotations

import hashlib
import hmac
import io
import re
import secrets
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from retinue.core.clock import Clock
from retinue.core.errors import SkillError
from retinue.security.injection_rules import RiskLevel
from retinue.skills.integrity.contents import (
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_TOTAL_BYTES,
    SkillContent,
    describe_limits,
)
from retinue.skills.integrity.unpack import check_names
from retinue.skills.registry.answers import ListedFile, is_semver, next_patch, version_key
from retinue.skills.registry.fingerprint import content_type, fingerprint, hash_contents, is_published, read_publishable
from retinue.skills.scan import scan_files
from retinue.skills.skill import SkillTier, parse_skill
from retinue.storage.files.descriptors import make_private_dir, write_atomic

SLUG = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
HANDLE = re.compile(r"[a-z0-9][a-z0-9_-]{0,38}")
OWN_HANDLE = "local"
"""The publisher of the skills that are folders in the folder of the registry."""
DELETED = "the skill was deleted"
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ZIP_DATE = (1980, 1, 1, 0, 0, 0)


class PublishedVersion(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A version that was published; `withdrawn` says why it is not installed any more."""

    version: str
    created_at: int
    changelog: str
    files: tuple[ListedFile, ...]
    fingerprint: str
    withdrawn: str = ""
    findings: tuple[str, ...] = ()
    """The rules of the scan that its files match."""


class PublishedSkill(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A skill of one publisher, with all its versions."""

    slug: str
    owner: str
    display_name: str
    summary: str
    created_at: int
    updated_at: int
    versions: tuple[PublishedVersion, ...]
    tags: dict[str, str] = field(default_factory=dict)
    downloads: int = 0
    blocked: str = ""
    """Why nobody may install it, if an operator blocked it."""

    @property
    def available(self) -> tuple[PublishedVersion, ...]:
        """The versions that can be installed, the newest first."""
        found = [each for each in self.versions if not each.withdrawn]
        return tuple(sorted(found, key=lambda each: version_key(each.version), reverse=True))

    @property
    def latest(self) -> PublishedVersion | None:
        named = self.find(self.tags.get("latest", ""))
        if named is not None and not named.withdrawn:
            return named
        return next(iter(self.available), None)

    def find(self, version: str) -> PublishedVersion | None:
        return next((each for each in self.versions if each.version == version), None)


class RegistryFolder:
    """Reads and writes the folder of a registry. One process uses it at a time."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder = folder
        self._state = folder / "registry"
        self._clock = clock
        self._changing = threading.Lock()  # handlers read, then write, in several threads

    def all(self) -> Iterator[PublishedSkill]:
        """Return all skills that have a version to install."""
        for path in sorted((self._state / "skills").glob("*/*.json")):
            skill = self._read(path)
            if skill is not None and skill.available:
                yield skill

    def find(self, slug: str, owner: str = "") -> list[PublishedSkill]:
        """Return the skills with a name; more than one if several publishers use it."""
        if not SLUG.fullmatch(slug) or (owner and not HANDLE.fullmatch(owner)):
            return []
        paths = (self._state / "skills").glob(f"{owner or '*'}/{slug}.json")
        return [skill for path in sorted(paths) if (skill := self._read(path)) is not None]

    def _read(self, path: Path) -> PublishedSkill | None:
        try:
            return msgspec.json.decode(path.read_bytes(), type=PublishedSkill)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            raise SkillError(f"{path} cannot be read: {error}. Restore it from a backup.") from None

    def write(self, skill: PublishedSkill) -> None:
        data = msgspec.json.format(msgspec.json.encode(skill), indent=2)
        write_atomic(self._state / "skills" / skill.owner / f"{skill.slug}.json", data + b"\n")

    def publish(
        self,
        owner: str,
        slug: str,
        files: Mapping[str, SkillContent],
        *,
        version: str = "",
        display_name: str = "",
        changelog: str = "",
        tags: tuple[str, ...] = ("latest",),
    ) -> PublishedVersion:
        """Store a version; raise `SkillError` if it is not valid or exists already with other content."""
        if not SLUG.fullmatch(slug) or not HANDLE.fullmatch(owner):
            raise SkillError(f"'{owner}/{slug}' is not a valid name: use small letters, digits and '-'.")
        with self._changing:
            return self._publish(owner, slug, files, version, display_name, changelog, tags)

    def _publish(
        self,
        owner: str,
        slug: str,
        files: Mapping[str, SkillContent],
        version: str,
        display_name: str,
        changelog: str,
        tags: tuple[str, ...],
    ) -> PublishedVersion:
        known = next(iter(self.find(slug, owner)), None)
        version = version or next_patch(known.latest.version if known and known.latest else None)
        if not is_semver(version):
            raise SkillError(f"'{version}' is not a version. Use three numbers, such as 1.2.3.")
        if known is not None and known.find(version) is not None:
            raise SkillError(f"Version {version} of {slug} exists already. Publish it under a higher number.")
        _check_files(files)
        declared = parse_skill(files["SKILL.md"].data, Path(slug, "SKILL.md"), SkillTier.MANAGED)
        hashes = hash_contents(files)
        for name, file in files.items():
            self._store(hashes[name], file.data)
        now = int(self._clock.now().timestamp() * 1000)
        made = PublishedVersion(
            version,
            now,
            changelog,
            tuple(ListedFile(name, len(files[name].data), hashes[name], content_type(name)) for name in sorted(files)),
            fingerprint(hashes),
            findings=_scan(files),
        )
        name = display_name or (known.display_name if known else declared.name)
        base = known or PublishedSkill(slug, owner, name, "", now, now, ())
        self.write(
            replace(
                base,
                display_name=name,
                summary=declared.description,
                updated_at=now,
                versions=(*base.versions, made),
                tags=base.tags | dict.fromkeys(tags, version),
            )
        )
        return made

    def withdraw(self, skill: PublishedSkill, version: str, reason: str) -> None:
        """Withdraw a version; an empty reason makes it available again."""
        self._change(skill, lambda each: replace(each, withdrawn=reason) if each.version == version else each)

    def count_download(self, skill: PublishedSkill) -> None:
        """Count one more download of a skill."""
        self._change(skill, lambda each: each, downloads=1)

    def _change(
        self, skill: PublishedSkill, change: Callable[[PublishedVersion], PublishedVersion], downloads: int = 0
    ) -> None:
        with self._changing:
            (now,) = self.find(skill.slug, skill.owner)
            versions = tuple(change(each) for each in now.versions)
            self.write(replace(now, versions=versions, downloads=now.downloads + downloads))

    def delete(self, skill: PublishedSkill, *, undo: bool) -> None:
        """Withdraw all versions, or undo that; versions that were withdrawn one by one stay so."""
        before, after = (DELETED, "") if undo else ("", DELETED)
        self._change(skill, lambda each: replace(each, withdrawn=after) if each.withdrawn == before else each)

    def content(self, file: ListedFile) -> bytes:
        """Return the content of a published file; raise `SkillError` if it is damaged."""
        try:
            data = (self._state / "files" / file.sha256).read_bytes()
        except OSError as error:
            raise SkillError(f"The content of {file.path} cannot be read: {error.strerror}.") from None
        if hashlib.sha256(data).hexdigest() != file.sha256:
            raise SkillError(f"The stored content of {file.path} is damaged. Restore it from a backup.")
        return data

    def archive(self, skill: PublishedSkill, version: PublishedVersion) -> bytes:
        """Return the ZIP archive of a version; the same bytes each time."""
        about = {"ownerId": skill.owner, "slug": skill.slug, "version": version.version}
        entries = {file.path: self.content(file) for file in version.files}
        entries["_meta.json"] = msgspec.json.encode(about | {"publishedAt": version.created_at})
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in sorted(entries):
                entry = zipfile.ZipInfo(name, _ZIP_DATE)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o100644 << 16
                archive.writestr(entry, entries[name])
        return packed.getvalue()

    def bundle_fingerprint(self, skill: PublishedSkill, version: PublishedVersion) -> str:
        """Return the fingerprint of the archive's files, which clients that keep all of them compute."""
        with zipfile.ZipFile(io.BytesIO(self.archive(skill, version))) as archive:
            return fingerprint({name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist()})

    def _store(self, sha256: str, data: bytes) -> None:
        path = self._state / "files" / sha256
        if not path.exists():
            write_atomic(path, data)

    def store_upload(self, data: bytes) -> str:
        """Store the content of a file to publish, and return its name."""
        sha256 = hashlib.sha256(data).hexdigest()
        self._store(sha256, data)
        return sha256

    def uploaded(self, name: str) -> bytes:
        """Return content that was uploaded."""
        if not _SHA256.fullmatch(name):
            raise SkillError("There is no upload with this name. Send the file again.")
        try:
            return (self._state / "files" / name).read_bytes()
        except OSError:
            raise SkillError("There is no upload with this name. Send the file again.") from None

    def add_token(self, handle: str) -> str:
        """Create a token with which a publisher may publish, and return it; only its hash is stored."""
        if not HANDLE.fullmatch(handle):
            raise SkillError(f"'{handle}' is not a valid name of a publisher: use small letters, digits, '-' and '_'.")
        token = f"clh_{secrets.token_urlsafe(32)}"
        tokens = self._tokens() | {_hash(token): handle}
        write_atomic(self._state / "tokens.json", msgspec.json.encode(tokens))
        return token

    def handle_of(self, token: str) -> str | None:
        """Return the publisher whose token this is."""
        wanted = _hash(token)
        return next((handle for each, handle in self._tokens().items() if hmac.compare_digest(each, wanted)), None)

    def _tokens(self) -> dict[str, str]:
        try:
            return msgspec.json.decode((self._state / "tokens.json").read_bytes(), type=dict[str, str])
        except FileNotFoundError:
            return {}

    def publish_folders(self) -> tuple[list[str], list[str]]:
        """Publish the skills in the folder that are new or changed; return what was published, and the problems."""
        make_private_dir(self._state)
        published, problems = [], []
        for path in sorted(self.folder.glob("*/SKILL.md")):
            slug = path.parent.name.lower()
            try:
                files = read_publishable(path.parent)
                now = fingerprint(hash_contents(files))
                known = self.find(slug, OWN_HANDLE)
                if not any(each.fingerprint == now for skill in known for each in skill.versions):
                    published.append(f"{slug} {self.publish(OWN_HANDLE, slug, files).version}")
            except SkillError as error:
                problems.append(f"{path.parent.name}: {error}")
        return published, problems


def _check_files(files: Mapping[str, SkillContent]) -> None:
    check_names(files)
    if "SKILL.md" not in files:
        raise SkillError("It contains no SKILL.md at its top, so it is not a skill.")
    hidden = [name for name in files if not is_published(name)]
    if hidden:
        raise SkillError(f"{hidden[0]} cannot be published: hidden files and generated files are left out.")
    sizes = [len(file.data) for file in files.values()]
    if len(sizes) > MAX_FILES or max(sizes) > MAX_FILE_BYTES or sum(sizes) > MAX_TOTAL_BYTES:
        raise SkillError(describe_limits())


def _scan(files: Mapping[str, SkillContent]) -> tuple[str, ...]:
    found = (each.rule for each in scan_files(files) if each.severity is RiskLevel.HIGH)
    return tuple(dict.fromkeys(found))


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
