"""Writing to a registry: sign-in, publishing and withdrawing, each with a publisher's token."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Any

import anyio.to_thread
import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from retinue.gateway.skill_registry.requests import MAX_JSON_BYTES, decode_body, make_answer, read_body
from retinue.skills.integrity.contents import MAX_FILE_BYTES, MAX_TOTAL_BYTES, SkillContent, describe_limits
from retinue.skills.registry.answers import (
    Account,
    AccountAnswer,
    Publication,
    PublishedAnswer,
    StoredUpload,
    UploadPlace,
)
from retinue.skills.registry.folder import PublishedSkill, RegistryFolder


class RegistryWriting:
    """The handlers that need a publisher's token; a publisher changes only its own skills."""

    def __init__(self, folder: RegistryFolder) -> None:
        self._folder = folder

    async def whoami(self, request: Request) -> Response:
        handle = self._publisher(request)
        return make_answer(AccountAnswer(Account(handle, handle)))

    async def upload_url(self, request: Request) -> Response:
        self._publisher(request)
        base = str(request.base_url).rstrip("/")
        return make_answer(UploadPlace(f"{base}/api/v1/skills/-/upload", "none"))

    async def upload(self, request: Request) -> Response:
        self._publisher(request)
        data = await read_body(request, MAX_FILE_BYTES)
        return make_answer(StoredUpload(await anyio.to_thread.run_sync(self._folder.store_upload, data)))

    async def publish(self, request: Request) -> Response:
        handle = self._publisher(request)
        plan = await decode_body(request, Publication)
        owner = (plan.owner_handle or handle).lower().lstrip("@")
        if owner != handle:
            raise HTTPException(403, f"The token is of '{handle}', which cannot publish as '{owner}'")
        files: dict[str, SkillContent] = {}
        left = MAX_TOTAL_BYTES
        for each in plan.files:
            data = self._folder.uploaded(each.storage_id)
            left -= len(data)
            if left < 0:
                raise HTTPException(413, describe_limits())
            if hashlib.sha256(data).hexdigest() != each.sha256.lower():
                raise HTTPException(400, f"The content of {each.path} is not what its hash says")
            files[each.path] = SkillContent(data)
        store = partial(
            self._folder.publish,
            version=plan.version,
            display_name=plan.display_name,
            changelog=plan.changelog,
            tags=plan.tags or ("latest",),
        )
        made = await anyio.to_thread.run_sync(store, owner, plan.slug, files)
        skill_id = f"{owner}/{plan.slug}"
        return make_answer(PublishedAnswer(True, skill_id, f"{skill_id}/{made.version}", "published", "published"))

    async def withdraw(self, request: Request, *, undo: bool) -> Response:
        skill = await self._own_skill(request)
        version = request.path_params["version"]
        if skill.find(version) is None:
            raise HTTPException(404, "Version not found")
        self._folder.withdraw(skill, version, "" if undo else "withdrawn by its publisher")
        return make_answer({"ok": True})

    async def withdraw_all(self, request: Request, *, undo: bool) -> Response:
        skill = await self._own_skill(request)
        self._folder.delete(skill, undo=undo)
        return make_answer({"ok": True})

    async def _own_skill(self, request: Request) -> PublishedSkill:
        """Return the skill that a publisher changes, if it is its own."""
        handle = self._publisher(request)
        body = await read_body(request, MAX_JSON_BYTES)
        named = msgspec.json.decode(body, type=dict[str, Any]).get("ownerHandle") if body else None
        owner = str(named or request.query_params.get("ownerHandle") or handle).lower().lstrip("@")
        if owner != handle:
            raise HTTPException(403, f"The token is of '{handle}', and the skill belongs to '{owner}'")
        found = self._folder.find(request.path_params["slug"], owner)
        if not found:
            raise HTTPException(404, "Skill not found")
        return found[0]

    def _publisher(self, request: Request) -> str:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        handle = self._folder.handle_of(token) if scheme.lower() == "bearer" and token else None
        if handle is None:
            raise HTTPException(401, "Unauthorized")
        return handle
