"""The values of ClawHub's HTTP API, which the client reads and the own registry writes, and the order of versions."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

VERIFY_SCHEMA = "clawhub.skill.verify.v1"
VERDICTS_SCHEMA = "clawhub.skill.security-verdicts.v1"
_SEMVER = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:-([0-9A-Za-z.-]{1,100}))?(?:\+[0-9A-Za-z.-]{1,100})?")


class _Answer(Struct, frozen=True, rename="camel"):
    """Part of an answer; unknown fields are ignored."""


class Publisher(_Answer, frozen=True):
    """Who published a skill."""

    handle: str | None = None
    display_name: str | None = None
    image: str | None = None


class FoundSkill(_Answer, frozen=True, omit_defaults=True):
    """One result of a search."""

    score: float
    slug: str | None = None
    owner_handle: str | None = None
    display_name: str | None = None
    summary: str | None = None
    version: str | None = None
    downloads: float | None = None
    updated_at: float | None = None
    owner: Publisher | None = None


class SearchAnswer(_Answer, frozen=True):
    """The results of a search, the best first."""

    results: tuple[FoundSkill, ...]


class SkillSummary(_Answer, frozen=True):
    """A skill, without its versions."""

    slug: str
    display_name: str
    created_at: float = 0
    updated_at: float = 0
    summary: str | None = None
    tags: dict[str, Any] | list[Any] | None = None
    stats: dict[str, Any] | None = None


class ListedFile(_Answer, frozen=True):
    """A file of a version, as the registry stored it."""

    path: str
    size: int
    sha256: str
    content_type: str | None = None


class VersionSummary(_Answer, frozen=True, omit_defaults=True):
    """A version; `files` is None if the answer does not list them."""

    version: str
    created_at: float
    changelog: str
    license: str | None = None
    files: tuple[ListedFile, ...] | None = None


class Moderation(_Answer, frozen=True):
    """What the registry says about the safety of a skill."""

    is_suspicious: bool = False
    is_malware_blocked: bool = False
    verdict: str = "clean"
    reason_codes: tuple[str, ...] = ()
    summary: str | None = None
    engine_version: str | None = None
    updated_at: float | None = None


class SkillAnswer(_Answer, frozen=True):
    """A skill with its latest version and its publisher."""

    skill: SkillSummary | None
    latest_version: VersionSummary | None = None
    owner: Publisher | None = None
    moderation: Moderation | None = None
    metadata: dict[str, Any] | None = None


class SkillList(_Answer, frozen=True):
    """A page of all skills."""

    items: tuple[dict[str, Any], ...]
    next_cursor: str | None = None


class VersionList(_Answer, frozen=True):
    """A page of the versions of a skill, the newest first."""

    items: tuple[VersionSummary, ...]
    next_cursor: str | None = None


class VersionAnswer(_Answer, frozen=True):
    """One version of a skill."""

    version: VersionSummary | None
    skill: dict[str, Any] | None = None


class ArchiveInstall(_Answer, frozen=True):
    """The archive to install."""

    version: str
    download_url: str


class GitHubInstall(_Answer, frozen=True):
    """The folder of a GitHub repository to install; `content_hash` is over its files."""

    repo: str
    path: str
    commit: str
    content_hash: str
    source_url: str | None = None


class InstallAnswer(_Answer, frozen=True, omit_defaults=True):
    """How to install the latest version of a skill, or why that is not possible."""

    ok: bool
    slug: str
    install_kind: str | None = None
    archive: ArchiveInstall | None = None
    github: GitHubInstall | None = None
    reason: str | None = None
    message: str | None = None


class PublicSource(_Answer, frozen=True):
    """What `download` answers for a skill whose files are on GitHub."""

    repo: str
    commit: str
    path: str
    content_hash: str
    archive_url: str


class NamedVersion(_Answer, frozen=True):
    version: str


class ResolveAnswer(_Answer, frozen=True):
    """The version that has a fingerprint, and the latest one."""

    match: NamedVersion | None = None
    latest_version: NamedVersion | None = None


class VerifyAnswer(_Answer, frozen=True):
    """What the registry says about one version, with the hashes of its files."""

    ok: bool
    decision: str
    reasons: tuple[str, ...]
    version: str
    artifact: dict[str, Any] | None = None
    security: dict[str, Any] | None = None


class RegistryVerdict(_Answer, frozen=True):
    """What the registry says about an installed version."""

    ok: bool
    decision: str | None = None
    reasons: tuple[str, ...] = ()
    requested_slug: str | None = None
    requested_version: str | None = None
    error: Any = None


class VerdictList(_Answer, frozen=True):
    items: tuple[RegistryVerdict, ...]


class Account(_Answer, frozen=True):
    """The owner of a token."""

    handle: str | None = None
    display_name: str | None = None


class AccountAnswer(_Answer, frozen=True):
    user: Account


class UploadPlace(_Answer, frozen=True):
    """Where the bytes of a file are sent."""

    upload_url: str
    upload_ticket: str


class StoredUpload(_Answer, frozen=True):
    storage_id: str


class UploadedFile(_Answer, frozen=True):
    """A file that was uploaded and belongs to a version to publish."""

    path: str
    size: int
    storage_id: str
    sha256: str
    upload_ticket: str | None = None
    content_type: str | None = None


class Publication(_Answer, frozen=True, omit_defaults=True):
    """A version to publish."""

    slug: str
    display_name: str
    version: str
    changelog: str
    files: tuple[UploadedFile, ...]
    owner_handle: str | None = None
    accept_license_terms: bool = False
    tags: tuple[str, ...] = ()


class PublishedAnswer(_Answer, frozen=True, omit_defaults=True):
    """A version that was published, or that waits for the registry's checks."""

    ok: bool
    skill_id: str
    version_id: str
    status: str | None = None
    publication_status: str | None = None


class SkillMatch(_Answer, frozen=True):
    """One of several skills with the same name."""

    owner_handle: str
    slug: str
    ref: str
    url: str


class AmbiguousName(_Answer, frozen=True):
    """The error for a name that several publishers use."""

    code: str
    message: str
    matches: tuple[SkillMatch, ...]


AMBIGUOUS = "AMBIGUOUS_SKILL_SLUG"


def version_key(version: str) -> tuple[Any, ...]:
    """Return a key that sorts versions as Semantic Versioning does; other texts sort first."""
    found = _SEMVER.fullmatch(version)
    if found is None:
        return (0, 0, 0, 0, (), version)
    parts = tuple((0, int(each), "") if each.isdigit() else (1, 0, each) for each in (found[4] or "").split("."))
    return (1, int(found[1]), int(found[2]), int(found[3]), (not found[4], parts), version)


def is_semver(version: str) -> bool:
    """Return whether a text is a version of Semantic Versioning."""
    return _SEMVER.fullmatch(version) is not None


def next_patch(version: str | None) -> str:
    """Return the version after this one, or the first one."""
    found = _SEMVER.fullmatch(version or "")
    if found is None:
        return "1.0.0"
    return f"{found[1]}.{found[2]}.{int(found[3]) + (0 if found[4] else 1)}"
