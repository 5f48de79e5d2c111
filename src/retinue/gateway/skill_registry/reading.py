"""Reading a registry: search, versions, downloads, and what is known about their safety."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import anyio.to_thread
import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from retinue.gateway.skill_registry.requests import (
    choose_version,
    decode_body,
    find_available,
    find_skill,
    make_answer,
    read_limit,
    read_number,
)
from retinue.skills.registry.answers import (
    VERDICTS_SCHEMA,
    VERIFY_SCHEMA,
    ArchiveInstall,
    FoundSkill,
    InstallAnswer,
    Moderation,
    NamedVersion,
    Publisher,
    ResolveAnswer,
    SearchAnswer,
    SkillAnswer,
    SkillList,
    SkillSummary,
    VersionAnswer,
    VersionList,
    VersionSummary,
)
from retinue.skills.registry.folder import PublishedSkill, PublishedVersion, RegistryFolder

LICENCE = "MIT-0"


class RegistryReading:
    """The handlers that everyone may use."""

    def __init__(self, folder: RegistryFolder) -> None:
        self._folder = folder

    async def well_known(self, request: Request) -> Response:
        base = str(request.base_url).rstrip("/")
        return make_answer({"apiBase": base, "authBase": base})

    async def search(self, request: Request) -> Response:
        words = request.query_params.get("q", "").lower().split()
        exact = request.query_params.get("mode") == "exact"
        found = []
        for skill in self._folder.all():
            score = _score(skill, words, exact=exact)
            latest = skill.latest
            if score and latest is not None and not skill.blocked:
                found.append(
                    FoundSkill(
                        score,
                        skill.slug,
                        skill.owner,
                        skill.display_name,
                        skill.summary,
                        latest.version,
                        skill.downloads,
                        skill.updated_at,
                        Publisher(skill.owner, skill.owner),
                    )
                )
        found.sort(key=lambda each: (-each.score, each.slug or "", each.owner_handle or ""))
        return make_answer(SearchAnswer(tuple(found[: read_limit(request, 25)])))

    async def list_skills(self, request: Request) -> Response:
        prefix = request.query_params.get("prefix", "").lower()
        start = read_number(request, "cursor", 0)
        skills = [each for each in self._folder.all() if each.slug.startswith(prefix)]
        limit = read_limit(request, 50)
        items = tuple(
            msgspec.to_builtins(_summarise(each))
            | {"latestVersion": msgspec.to_builtins(_describe(each.latest)) if each.latest else None}
            for each in skills[start : start + limit]
        )
        cursor = str(start + limit) if start + limit < len(skills) else None
        return make_answer(SkillList(items, cursor))

    async def skill(self, request: Request) -> Response:
        skill = find_skill(self._folder, request)
        latest = skill.latest
        return make_answer(
            SkillAnswer(
                _summarise(skill),
                _describe(latest) if latest else None,
                Publisher(skill.owner, skill.owner),
                _moderate(skill, latest),
            )
        )

    async def moderation(self, request: Request) -> Response:
        skill = find_skill(self._folder, request)
        return make_answer({"moderation": _moderate(skill, skill.latest)})

    async def versions(self, request: Request) -> Response:
        available = find_skill(self._folder, request).available
        start, limit = read_number(request, "cursor", 0), read_limit(request, 50)
        cursor = str(start + limit) if start + limit < len(available) else None
        return make_answer(VersionList(tuple(map(_describe, available[start : start + limit])), cursor))

    async def version(self, request: Request) -> Response:
        skill = find_skill(self._folder, request)
        version = find_available(skill, request.path_params["version"])
        about = {"slug": skill.slug, "displayName": skill.display_name}
        return make_answer(VersionAnswer(_describe(version, with_files=True), about))

    async def install(self, request: Request) -> Response:
        skill = find_skill(self._folder, request)
        latest = skill.latest
        if skill.blocked or latest is None:
            reason = skill.blocked or "All versions were withdrawn."
            return make_answer(
                InstallAnswer(False, skill.slug, reason="unavailable", message=reason), 403 if latest else 410
            )
        url = f"{str(request.base_url).rstrip('/')}/api/v1/download?slug={skill.slug}&ownerHandle={skill.owner}"
        archive = ArchiveInstall(latest.version, f"{url}&version={latest.version}")
        return make_answer(InstallAnswer(True, skill.slug, "archive", archive))

    async def download(self, request: Request) -> Response:
        skill = find_skill(self._folder, request)
        if skill.blocked:
            raise HTTPException(403, skill.blocked)
        version = choose_version(skill, request)
        data = await anyio.to_thread.run_sync(self._folder.archive, skill, version)
        tag = f'"{hashlib.sha256(data).hexdigest()}"'
        headers = {"etag": tag, "accept-ranges": "bytes"}
        start = _range_start(request.headers, tag, len(data))
        if start:
            headers["content-range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
            return Response(data[start:], 206, headers, "application/zip")
        await anyio.to_thread.run_sync(self._folder.count_download, skill)
        return Response(data, 200, headers, "application/zip")

    async def file(self, request: Request) -> Response:
        skill = find_skill(self._folder, request)
        version = choose_version(skill, request)
        path = request.query_params.get("path", "")
        listed = next((each for each in version.files if each.path == path), None)
        if listed is None:
            raise HTTPException(404, "File not found")
        data = self._folder.content(listed)
        try:
            return PlainTextResponse(data.decode())
        except UnicodeDecodeError:
            raise HTTPException(415, "Binary file") from None

    async def resolve(self, request: Request) -> Response:
        skill = find_skill(self._folder, request)
        wanted = request.query_params.get("hash", "")
        match = next((each for each in skill.versions if self._has_fingerprint(skill, each, wanted)), None)
        latest = skill.latest
        return make_answer(
            ResolveAnswer(
                NamedVersion(match.version) if match else None, NamedVersion(latest.version) if latest else None
            )
        )

    def _has_fingerprint(self, skill: PublishedSkill, version: PublishedVersion, wanted: str) -> bool:
        return wanted == version.fingerprint or wanted == self._folder.bundle_fingerprint(skill, version)

    async def verify(self, request: Request) -> Response:
        skill = find_skill(self._folder, request)
        query = request.query_params
        version = choose_version(skill, request)
        reasons = _reasons(skill, version)
        base = str(request.base_url).rstrip("/")
        return make_answer(
            {
                "schema": VERIFY_SCHEMA,
                "ok": not reasons,
                "decision": "fail" if reasons else "pass",
                "reasons": reasons,
                "slug": skill.slug,
                "displayName": skill.display_name,
                "pageUrl": f"{base}/{skill.owner}/{skill.slug}",
                "publisherHandle": skill.owner,
                "publisherDisplayName": skill.owner,
                "publisherProfileUrl": None,
                "version": version.version,
                "resolvedFrom": "version" if query.get("version") else "tag" if query.get("tag") else "latest",
                "tag": query.get("tag"),
                "createdAt": version.created_at,
                "card": None,
                "artifact": {
                    "sourceFingerprint": version.fingerprint,
                    "bundleFingerprints": [self._folder.bundle_fingerprint(skill, version)],
                    "files": version.files,
                },
                "provenance": None,
                "security": _summarise_safety(reasons),
                "signature": {"status": "unsigned"},
            }
        )

    async def verdicts(self, request: Request) -> Response:
        body = await decode_body(request, dict[str, list[dict[str, Any]]])
        items = body.get("items", [])
        if not 1 <= len(items) <= 100:
            raise HTTPException(400, "Send 1 to 100 items")
        return make_answer({"schema": VERDICTS_SCHEMA, "items": [self._verdict(each) for each in items]})

    def _verdict(self, item: dict[str, Any]) -> dict[str, Any]:
        slug, owner, version = (str(item.get(key) or "") for key in ("slug", "ownerHandle", "version"))
        answer: dict[str, Any] = {"requestedSlug": slug, "requestedVersion": version}
        found = self._folder.find(slug, owner.lower().lstrip("@"))
        chosen = found[0].find(version) if len(found) == 1 else None
        if chosen is None:
            return answer | {"ok": False, "decision": "fail", "reasons": [], "error": {"code": "NOT_FOUND"}}
        reasons = _reasons(found[0], chosen)
        security = _summarise_safety(reasons)
        decision = "fail" if reasons else "pass"
        return answer | {"ok": not reasons, "decision": decision, "reasons": reasons, "security": security}


def _score(skill: PublishedSkill, words: list[str], *, exact: bool) -> float:
    """Return how well a skill matches; 0 if a word is missing."""
    if exact:
        return 1.0 if words == [skill.slug] else 0.0
    text = f"{skill.slug} {skill.display_name} {skill.summary} {skill.owner}".lower()
    if not all(word in text for word in words):
        return 0.0
    in_name = sum(word in f"{skill.slug} {skill.display_name}".lower() for word in words)
    return 1.0 + in_name + (1.0 if words == [skill.slug] else 0.0)


def _summarise(skill: PublishedSkill) -> SkillSummary:
    stats = {"downloads": skill.downloads, "versions": len(skill.versions)}
    return SkillSummary(
        skill.slug, skill.display_name, skill.created_at, skill.updated_at, skill.summary, skill.tags, stats
    )


def _describe(version: PublishedVersion, *, with_files: bool = False) -> VersionSummary:
    files = version.files if with_files else None
    return VersionSummary(version.version, version.created_at, version.changelog, LICENCE, files)


def _moderate(skill: PublishedSkill, version: PublishedVersion | None) -> Moderation | None:
    if skill.blocked:
        return Moderation(is_malware_blocked=True, verdict="malicious", summary=skill.blocked)
    if version is None or not version.findings:
        return None
    summary = f"The scan found: {', '.join(version.findings)}."
    return Moderation(is_suspicious=True, verdict="suspicious", reason_codes=version.findings, summary=summary)


def _reasons(skill: PublishedSkill, version: PublishedVersion) -> tuple[str, ...]:
    blocked = ("blocked",) if skill.blocked else ()
    withdrawn = ("withdrawn",) if version.withdrawn else ()
    return (*blocked, *withdrawn, *version.findings)


def _summarise_safety(reasons: tuple[str, ...]) -> dict[str, Any]:
    return {"status": "suspicious" if reasons else "clean", "passed": not reasons, "signals": []}


def _range_start(headers: Mapping[str, str], tag: str, size: int) -> int:
    """Return where a continued download begins; 0 for a complete one."""
    wanted = headers.get("range", "")
    if not (wanted.startswith("bytes=") and wanted.endswith("-")) or headers.get("if-range", tag) != tag:
        return 0
    start = wanted[len("bytes=") : -1]
    return int(start) if start.isdecimal() and len(start) < 12 and int(start) < size else 0
