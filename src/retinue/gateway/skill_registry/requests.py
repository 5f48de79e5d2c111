"""What the handlers of the registry share: reading requests, finding skills, and answers."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from retinue.skills.registry.answers import AMBIGUOUS, AmbiguousName, SkillMatch
from retinue.skills.registry.folder import PublishedSkill, PublishedVersion, RegistryFolder

T = TypeVar("T")
MAX_JSON_BYTES = 2_000_000
MAX_RESULTS = 200


def make_answer(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


async def read_body(request: Request, limit: int) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise HTTPException(413, f"At most {limit:,} bytes are accepted")
    return bytes(body)


async def decode_body(request: Request, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(await read_body(request, MAX_JSON_BYTES), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HTTPException(400, f"The request is not valid: {error}") from None


def read_number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name, "")
    if text and not (text.isdecimal() and text.isascii() and len(text) < 8):
        raise HTTPException(400, f"'{name}' must be a number")
    return int(text or default)


def read_limit(request: Request, default: int) -> int:
    return max(1, min(read_number(request, "limit", default), MAX_RESULTS))


def find_skill(folder: RegistryFolder, request: Request) -> PublishedSkill:
    """Return the skill that a request names; an error lists the publishers if there are several."""
    slug = str(request.path_params.get("slug") or request.query_params.get("slug", "")).lower()
    owner = request.query_params.get("ownerHandle", "").lower().lstrip("@")
    found = folder.find(slug, owner)
    if not found:
        raise HTTPException(404, "Skill not found")
    if len(found) > 1:
        base = str(request.base_url).rstrip("/")
        matches = tuple(
            SkillMatch(each.owner, slug, f"@{each.owner}/{slug}", f"{base}/{each.owner}/{slug}") for each in found
        )
        raise HTTPException(
            409, msgspec.json.encode(AmbiguousName(AMBIGUOUS, f'Several publishers have "{slug}".', matches)).decode()
        )
    return found[0]


def choose_version(skill: PublishedSkill, request: Request) -> PublishedVersion:
    query = request.query_params
    version = query.get("version") or skill.tags.get(query.get("tag", ""), "")
    if not version and skill.latest is not None:
        return skill.latest
    return find_available(skill, version)


def find_available(skill: PublishedSkill, version: str) -> PublishedVersion:
    found = skill.find(version)
    if found is None:
        raise HTTPException(404, "Version not found")
    if found.withdrawn:
        raise HTTPException(410, f"Version {version} was withdrawn: {found.withdrawn}")
    return found
