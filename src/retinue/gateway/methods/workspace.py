"""The files of an agent's workspace: list, read, and write what was not changed meanwhile."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

import anyio.to_thread
from msgspec.structs import replace

from retinue.core.errors import UsageError
from retinue.core.keys import AgentId
from retinue.gateway.errors import RequestRefused
from retinue.gateway.gateway import Call
from retinue.gateway.methods.registry import MethodRegistry
from retinue.runtime.agents.workspace import locate_workspace
from retinue.runtime.inspect.file_labels import labels_of_files, vouch_for
from retinue.storage.files import EntryKind, NotThere, Root, TooMany
from retinue.storage.labels.file_labels import FileLabel
from retinue.wire import workspace as wire
from retinue.wire.agents import OfAgent
from retinue.wire.protocol import ErrorCode
from retinue.workspace.bootstrap import BOOTSTRAP_FILES

MAX_FILES = 1_000
MAX_ENTRIES = 20_000
MAX_BYTES = 4 * wire.MAX_FILE_CHARS
TEXT_SUFFIXES = (
    ".md",
    ".txt",
    ".json",
    ".json5",
    ".yaml",
    ".yml",
    ".toml",
    ".csv",
    ".py",
    ".sh",
    ".js",
    ".ts",
    ".html",
)
CHANGED = "The file was changed by another program. Read it again with workspace.read."

registry = MethodRegistry()


def _agent(call: Call, params: OfAgent) -> AgentId:
    return call.runtime.home.agent_id(params.agent)


def _open(call: Call, agent: AgentId) -> Root:
    return Root.open(locate_workspace(call.runtime.home, agent), create=True)


def _check_path(path: str) -> None:
    """Raise if a part of the path is hidden: hidden folders hold plugins and state, not notes."""
    if any(part.startswith(".") for part in path.split("/")):
        raise UsageError(f"'{path[:200]}' is hidden or not inside the workspace. Use a path such as memory/notes.md.")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@registry.implements(wire.WORKSPACE_LIST)
async def list_files(call: Call, params: OfAgent) -> wire.WorkspaceFiles:
    agent = _agent(call, params)
    in_prompt = {row.name for row in BOOTSTRAP_FILES}

    def look() -> wire.WorkspaceFiles:
        listed = walk()
        labels = labels_of_files(call.runtime.home, agent, [file.path for file in listed.files])
        return replace(listed, files=[_with_label(file, labels[file.path]) for file in listed.files])

    def walk() -> wire.WorkspaceFiles:
        found: list[wire.WorkspaceFile] = []
        with _open(call, agent) as root:
            try:
                for path, entry in root.walk(max_entries=MAX_ENTRIES):
                    if entry.kind is not EntryKind.FILE or any(part.startswith(".") for part in path.split("/")):
                        continue
                    if not path.lower().endswith(TEXT_SUFFIXES):
                        continue
                    modified = datetime.fromtimestamp(entry.mtime_ns / 1e9, UTC)
                    found.append(wire.WorkspaceFile(path, entry.size, modified, path in in_prompt))
                    if len(found) == MAX_FILES:
                        return wire.WorkspaceFiles(str(root.path), found, complete=False)
            except TooMany:
                return wire.WorkspaceFiles(str(root.path), found, complete=False)
            return wire.WorkspaceFiles(str(root.path), found, complete=True)

    return await anyio.to_thread.run_sync(look)


def _with_label(file: wire.WorkspaceFile, found: FileLabel) -> wire.WorkspaceFile:
    label, via = found.label, str(found.via) if found.via else ""
    return replace(file, origin=label.origin, private=label.private, via=via, lines=found.lines)


@registry.implements(wire.WORKSPACE_VOUCH)
async def vouch(call: Call, params: wire.OfFile) -> wire.FileOrigin:
    _check_path(params.path)
    home, agent = call.runtime.home, _agent(call, params)
    place = locate_workspace(home, agent) / params.path
    label = (await anyio.to_thread.run_sync(vouch_for, home, agent, str(place), call.principal.audited_as)).label
    return wire.FileOrigin(params.path, label.origin, label.private)


@registry.implements(wire.WORKSPACE_READ)
async def read_file(call: Call, params: wire.OfFile) -> wire.FileText:
    _check_path(params.path)
    agent = _agent(call, params)

    def read() -> bytes:
        with _open(call, agent) as root:
            return root.read(params.path, max_bytes=MAX_BYTES).data

    try:
        data = await anyio.to_thread.run_sync(read)
        text = data.decode()
    except NotThere:
        raise RequestRefused(ErrorCode.NOT_FOUND, f"There is no file '{params.path[:200]}' in the workspace.") from None
    except UnicodeDecodeError:
        raise UsageError(f"'{params.path[:200]}' is not a UTF-8 text. Open it with a program for its type.") from None
    return wire.FileText(params.path, text, _digest(data))


@registry.implements(wire.WORKSPACE_WRITE)
async def write_file(call: Call, params: wire.WriteFile) -> wire.Written:
    _check_path(params.path)
    agent, data = _agent(call, params), params.text.encode()

    def write() -> bool:
        with _open(call, agent) as root:
            try:
                present: str | None = _digest(root.read(params.path, max_bytes=MAX_BYTES).data)
            except NotThere:
                present = None
            if present != params.base_hash:
                return False
            root.write(params.path, data, exclusive=present is None)
            return True

    if not await anyio.to_thread.run_sync(write):
        raise RequestRefused(ErrorCode.CONFLICT, CHANGED)
    details = {"agent": agent, "path": params.path}
    call.runtime.home.audit.record("workspace_file_written", call.principal.audited_as, details)
    return wire.Written(params.path, _digest(data))
