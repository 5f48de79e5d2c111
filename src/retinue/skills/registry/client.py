"""The client of a registry: search, versions, verified downloads, publishing and sign-in. It sends no telemetry."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import anyio
import msgspec
from msgspec import Struct

from retinue.core.errors import SkillError
from retinue.security.untrusted_text import literal
from retinue.skills.integrity.contents import SkillContent
from retinue.skills.integrity.lock import SkillOrigin
from retinue.skills.integrity.unpack import unzip
from retinue.skills.registry.address import WELL_KNOWN, WellKnown
from retinue.skills.registry.answers import (
    Account,
    AccountAnswer,
    FoundSkill,
    InstallAnswer,
    Publication,
    PublicSource,
    PublishedAnswer,
    RegistryVerdict,
    ResolveAnswer,
    SearchAnswer,
    SkillAnswer,
    StoredUpload,
    UploadedFile,
    UploadPlace,
    VerdictList,
    VerifyAnswer,
    VersionAnswer,
    VersionList,
    VersionSummary,
)
from retinue.skills.registry.compatible_files import name_of
from retinue.skills.registry.connection import (
    Progress,
    RegistryConnection,
    RegistryRefused,
    Wait,
    forget_part,
)
from retinue.skills.registry.fingerprint import GENERATED, content_type, folder_hash, hash_contents
from retinue.skills.registry.sign_in import RegistryDeviceCode, sign_in_by_device

MAX_VERDICTS = 100
_SKILLS = "/api/v1/skills"


class SkillReference(Struct, frozen=True):
    """The name of a skill in a registry; `owner` is empty if only one publisher has it."""

    slug: str
    owner: str = ""

    @property
    def name(self) -> str:
        return name_of(self.owner, self.slug)


class FetchedSkill(Struct, frozen=True):
    """A downloaded version, and what the registry says about it."""

    files: dict[str, SkillContent]
    origin: SkillOrigin
    warning: str = ""


def parse_reference(text: str) -> SkillReference:
    """Parse `slug` or `@owner/slug`."""
    owner, slash, slug = text.strip().rpartition("/")
    owner = owner.removeprefix("@").lower()
    parts = (owner, slug) if slash else (slug,)
    if not all(
        part
        and part[0].isalnum()
        and part.replace("-", "").replace("_", "").replace(".", "").isalnum()
        and len(part) <= 100
        and ".." not in part
        for part in parts
    ):
        raise SkillError(f"'{literal(text, 100)}' is not the name of a skill. Use NAME or @OWNER/NAME.")
    return SkillReference(slug, owner)


@asynccontextmanager
async def connect(site: str, token: str | None = None, *, wait: Wait = anyio.sleep) -> AsyncIterator[RegistryClient]:
    """Find the registry of a site, which may be the registry itself, and connect to it."""
    connection = RegistryConnection(await discover(site, wait=wait), token, wait=wait)
    try:
        yield RegistryClient(connection)
    finally:
        await connection.aclose()


async def discover(site: str, *, wait: Wait = anyio.sleep) -> str:
    """Return the address of a site's registry, which its well-known file names; the site itself if it has none."""
    connection = RegistryConnection(site, None, wait=wait)
    try:
        for path in WELL_KNOWN:
            try:
                found = msgspec.json.decode(await connection.send("GET", path), type=WellKnown)
            except (RegistryRefused, msgspec.DecodeError, UnicodeDecodeError):
                continue
            return (found.address or site).rstrip("/")
    finally:
        await connection.aclose()
    return site.rstrip("/")


class RegistryClient:
    """The API of one registry."""

    def __init__(self, connection: RegistryConnection) -> None:
        self._connection = connection

    @property
    def address(self) -> str:
        return self._connection.base

    def use_token(self, token: str | None) -> None:
        self._connection.token = token

    async def search(self, query: str, limit: int) -> tuple[FoundSkill, ...]:
        found = await self._connection.get("/api/v1/search", SearchAnswer, q=query, limit=limit)
        return found.results

    async def skill(self, named: SkillReference) -> SkillAnswer:
        """Return a skill; raise `SkillError` if there is none, or if several publishers have one."""
        answer = await self._connection.get(_path(named), SkillAnswer, ownerHandle=named.owner)
        if answer.skill is None:
            raise SkillError(f"The registry {self.address} has no skill '{named.name}'. Search for it first.")
        return answer

    async def versions(self, named: SkillReference) -> tuple[VersionSummary, ...]:
        """Return the versions of a skill, the newest first."""
        found: list[VersionSummary] = []
        cursor: str | None = None
        for _ in range(50):
            page = await self._connection.get(
                f"{_path(named)}/versions", VersionList, ownerHandle=named.owner, limit=100, cursor=cursor
            )
            found += page.items
            cursor = page.next_cursor
            if not cursor:
                break
        return tuple(found)

    async def fetch(
        self, named: SkillReference, version: str, downloads: Path, progress: Progress, *, force: bool = False
    ) -> FetchedSkill:
        """Download a version, or the latest one, and verify it; raise `SkillError` if it is blocked or differs."""
        about = await self.skill(named)
        assert about.skill is not None
        warning = _judge(about, named, force=force)
        owner = (named.owner or (about.owner.handle if about.owner else None) or "").lower()
        exact = SkillReference(parse_reference(about.skill.slug).slug, owner)
        chosen = version or (about.latest_version.version if about.latest_version else "")
        if not chosen:
            chosen = await self._latest(exact)
        files, version = await self._download(exact, chosen, downloads, progress)
        origin = SkillOrigin("registry", named.name, version, self.address, exact.slug, owner)
        return FetchedSkill(files, origin, warning)

    async def _latest(self, named: SkillReference) -> str:
        """Return the version that the registry installs; empty for a skill on GitHub, which has commits instead."""
        try:
            plan = await self._connection.get(f"{_path(named)}/install", InstallAnswer, ownerHandle=named.owner)
        except RegistryRefused as error:
            try:
                plan = msgspec.json.decode(error.body, type=InstallAnswer)
            except msgspec.DecodeError:
                raise error from None
        if not plan.ok:
            raise SkillError(f"The registry does not install '{named.name}': {literal(plan.message or '', 300)}")
        return plan.archive.version if plan.archive else ""

    async def _download(
        self, named: SkillReference, version: str, downloads: Path, progress: Progress
    ) -> tuple[dict[str, SkillContent], str]:
        key = hashlib.sha256(f"{self.address}\n{named.name}\n{version}".encode()).hexdigest()[:24]
        place = downloads / f"{named.slug}-{key}.zip"
        listed = None
        if version:
            answer = await self._connection.get(
                f"{_path(named)}/versions/{quote(version, safe='')}", VersionAnswer, ownerHandle=named.owner
            )
            if answer.version is None:
                raise SkillError(f"'{named.name}' has no version {literal(version, 100)}.")
            listed = answer.version.files
        data, media_type = await self._connection.download(
            "/api/v1/download",
            place,
            progress,
            slug=named.slug,
            ownerHandle=named.owner,
            version=version,
        )
        # A complete file is not needed again, and a damaged one must not be continued.
        forget_part(place)
        if media_type == "application/json":
            return await self._download_source(msgspec.json.decode(data, type=PublicSource), place, progress)
        files = {name: file for name, file in unzip(data).items() if name.lower() not in GENERATED}
        if listed is not None:
            _compare(files, {each.path: each.sha256 for each in listed if each.path.lower() not in GENERATED})
        return files, version

    async def _download_source(
        self, source: PublicSource, place: Path, progress: Progress
    ) -> tuple[dict[str, SkillContent], str]:
        data, _ = await self._connection.download(source.archive_url, place, progress)
        forget_part(place)
        files = unzip(data, source.path, inside_top=True)
        if folder_hash(files) != source.content_hash.lower():
            raise SkillError("The files on GitHub are not those that the registry checked. Nothing was installed.")
        return files, source.commit

    async def resolve(self, named: SkillReference, fingerprint: str) -> ResolveAnswer:
        """Return the version with a fingerprint, and the latest one; neither if the skill does not exist."""
        try:
            return await self._connection.get(
                "/api/v1/resolve", ResolveAnswer, slug=named.slug, ownerHandle=named.owner, hash=fingerprint
            )
        except RegistryRefused as error:
            if error.status == 404:
                return ResolveAnswer()
            raise

    async def verify(self, named: SkillReference, version: str) -> VerifyAnswer:
        return await self._connection.get(
            f"{_path(named)}/verify", VerifyAnswer, ownerHandle=named.owner, version=version
        )

    async def verdicts(self, installed: Mapping[SkillReference, str]) -> tuple[RegistryVerdict, ...]:
        """Return what the registry says about installed versions, in their order."""
        wanted = [
            {"slug": named.slug, "version": version} | ({"ownerHandle": named.owner} if named.owner else {})
            for named, version in installed.items()
        ]
        found: list[RegistryVerdict] = []
        for start in range(0, len(wanted), MAX_VERDICTS):
            body = {"items": wanted[start : start + MAX_VERDICTS]}
            found += (await self._connection.post(f"{_SKILLS}/-/security-verdicts", body, VerdictList)).items
        return tuple(found)

    async def sign_in(self, site: str, show: Callable[[RegistryDeviceCode], None], label: str) -> str:
        """Return a token for a code that `show` presents and the owner confirms in a browser."""
        return await sign_in_by_device(self._connection, site, show, label=label)

    async def whoami(self) -> Account:
        return (await self._connection.get("/api/v1/whoami", AccountAnswer)).user

    async def publish(
        self, plan: Publication, files: Mapping[str, SkillContent], progress: Progress
    ) -> PublishedAnswer:
        """Upload the files and publish the version; `plan` has no files yet."""
        uploaded = []
        for number, (path, file) in enumerate(files.items(), 1):
            uploaded.append(await self._upload(path, file.data))
            progress(plan.slug, number, len(files))
        return await self._connection.post(
            _SKILLS, msgspec.structs.replace(plan, files=tuple(uploaded)), PublishedAnswer
        )

    async def _upload(self, path: str, data: bytes) -> UploadedFile:
        sha256, media_type = hashlib.sha256(data).hexdigest(), content_type(path)
        about = {"path": path, "size": len(data), "sha256": sha256, "contentType": media_type}
        place = await self._connection.post(f"{_SKILLS}/-/upload-url", about, UploadPlace)
        answer = await self._connection.send("POST", place.upload_url, data, {"content-type": media_type})
        stored = msgspec.json.decode(answer, type=StoredUpload)
        return UploadedFile(path, len(data), stored.storage_id, sha256, place.upload_ticket, media_type)

    async def withdraw(self, named: SkillReference, version: str, *, undo: bool = False) -> None:
        """Withdraw a version, so that nobody installs it any more, or undo that."""
        body = msgspec.json.encode({"ownerHandle": named.owner} if named.owner else {})
        path = f"{_path(named)}/versions/{quote(version, safe='')}"
        headers = {"content-type": "application/json"}
        await self._connection.send(*(("POST", f"{path}/restore") if undo else ("DELETE", path)), body, headers)


def _path(named: SkillReference) -> str:
    return f"{_SKILLS}/{quote(named.slug, safe='')}"


def _judge(about: SkillAnswer, named: SkillReference, *, force: bool) -> str:
    """Return a warning of the registry; raise `SkillError` if it blocks the skill."""
    found = about.moderation
    if found is None:
        return ""
    summary = literal(found.summary or ", ".join(found.reason_codes), 300)
    if found.is_malware_blocked:
        raise SkillError(f"The registry blocks '{named.name}' as malicious. {summary} Nothing was installed.")
    if found.is_suspicious and not force:
        raise SkillError(
            f"The registry marks '{named.name}' as suspicious. {summary} Nothing was installed. Look at its files; "
            "--force installs it."
        )
    return f"The registry marks it as suspicious. {summary}" if found.is_suspicious else ""


def _compare(files: Mapping[str, SkillContent], listed: Mapping[str, str]) -> None:
    """Raise `SkillError` if the files differ from the list of the registry."""
    received = hash_contents(files)
    if received == listed:
        return
    wrong = sorted(name for name in {*received, *listed} if received.get(name) != listed.get(name))
    raise SkillError(
        f"The downloaded files are not those that the registry lists: {literal(', '.join(wrong), 300)}. Nothing was "
        "installed. Repeat the command; if it fails again, report it to the registry."
    )
