"""The files of an agent's workspace, for its owner."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from retinue.wire.agents import OfAgent
from retinue.wire.frames import Method, Time, Wire
from retinue.wire.protocol import Scope

MAX_FILE_CHARS = 1_000_000

FilePath = Annotated[str, Meta(min_length=1, max_length=1_000)]


class WorkspaceFile(Wire, frozen=True):
    """A file of the workspace; `in_prompt` means that prompts contain it.

    `origin` says whose text it is: `owner`, `agent`, `contact:<address>`, `guest:<address>` or `untrusted`; `via` how
    it got that label. With `lines` only some of its lines have it.
    """

    path: str
    size: int
    modified_at: Time
    in_prompt: bool
    origin: str = "agent"
    private: bool = False
    via: str = ""
    lines: bool = False


class WorkspaceFiles(Wire, frozen=True):
    """The text files of the workspace. There are more if `complete` is false."""

    folder: str
    files: list[WorkspaceFile]
    complete: bool


class FileOrigin(Wire, frozen=True):
    """The label of a file, as in `workspace.list`."""

    path: str
    origin: str
    private: bool


class OfFile(OfAgent, frozen=True, kw_only=True):
    """A path relative to the workspace."""

    path: FilePath


class FileText(Wire, frozen=True):
    """A file's text. `hash` names exactly what was read; a change must carry it."""

    path: str
    text: str
    hash: str


class WriteFile(OfFile, frozen=True, kw_only=True):
    """The new text; refused if the file's hash is not `baseHash` any more. Null means that the file is new."""

    text: Annotated[str, Meta(max_length=MAX_FILE_CHARS)]
    base_hash: Annotated[str, Meta(min_length=64, max_length=64)] | None = None


class Written(Wire, frozen=True):
    """The hash of the file now."""

    path: str
    hash: str


WORKSPACE_LIST = Method("workspace.list", Scope.ADMIN, OfAgent, WorkspaceFiles, "List the files of a workspace.")
WORKSPACE_READ = Method("workspace.read", Scope.ADMIN, OfFile, FileText, "Return a text file of a workspace.")
WORKSPACE_WRITE = Method("workspace.write", Scope.ADMIN, WriteFile, Written, "Replace or create a text file.", True)

WORKSPACE_VOUCH = Method(
    "workspace.vouch", Scope.ADMIN, OfFile, FileOrigin, "Accept the present content of a file as the owner's.", True
)

METHODS = (WORKSPACE_LIST, WORKSPACE_READ, WORKSPACE_WRITE, WORKSPACE_VOUCH)
