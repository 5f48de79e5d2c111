"""Proposals of new and changed skills: text files with a reason and their provenance, until the owner decides."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from retinue.core.errors import SkillError, UsageError
from retinue.skills.integrity.contents import SkillContent, digest_of, hash_files, read_folder
from retinue.skills.integrity.differences import compare
from retinue.skills.integrity.unpack import check_names
from retinue.skills.scan import SkillFinding, scan_files
from retinue.skills.skill import SkillTier, parse_skill
from retinue.storage.files.descriptors import write_atomic

FOLDER = "skill-proposals"
MAX_OPEN = 50
MAX_CHARS = 200_000
SKILL_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_ID = re.compile(r"[0-9a-f]{8}")


class SkillTestResult(Struct, frozen=True, rename="camel"):
    """How the test of a proposed skill ended."""

    passed: bool
    code: int
    output: str
    sandboxed: bool


class SkillProposal(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A proposed skill. `files` are new contents by name, None for a file to remove; `base` is what they change.

    `label` is the origin of the texts that the request contained; `test` is a command that must end with 0.
    """

    id: str
    agent: str
    name: str
    reason: str
    files: dict[str, str | None]
    created_at: str
    session: str
    run: str
    label: str
    untrusted: bool = False
    private: bool = False
    base: str = ""
    test: str = ""
    state: Literal["pending", "accepted", "rejected"] = "pending"
    decided_by: str = ""
    decided_at: str = ""
    because: str = ""
    digest: str = ""
    """The content that was accepted."""
    tested: SkillTestResult | None = None

    @property
    def kind(self) -> Literal["new", "change"]:
        return "change" if self.base else "new"


class ProposalReview(Struct, frozen=True):
    """What the owner decides about: the complete new content, the differences, and what the scan found."""

    proposal: SkillProposal
    folder: Path
    files: dict[str, SkillContent]
    diff: str
    findings: tuple[SkillFinding, ...]


class ProposalStore(Struct, frozen=True):
    """The proposals of a home, one file each."""

    home: Path

    def list(self) -> list[SkillProposal]:
        """Return all proposals, the oldest first."""
        found = [self._read(path) for path in (self.home / FOLDER).glob("*.json")]
        return sorted(found, key=lambda each: (each.created_at, each.id))

    def find(self, text: str) -> SkillProposal:
        """Return a proposal by its id or the beginning of it; raise `UsageError` if there is none."""
        matching = [each for each in self.list() if len(text) >= 4 and each.id.startswith(text.lower())]
        if len(matching) != 1:
            raise UsageError(f"There is no proposal '{text}'. `retinue skills proposals list` shows them all.")
        return matching[0]

    def add(self, proposal: SkillProposal) -> None:
        """Store a proposal; raise `SkillError` if too many wait for a decision."""
        waiting = sum(each.state == "pending" for each in self.list())
        if waiting >= MAX_OPEN:
            raise SkillError(f"{waiting} proposals wait for the owner's decision. Propose more when some are decided.")
        self.write(proposal)

    def write(self, proposal: SkillProposal) -> None:
        assert _ID.fullmatch(proposal.id)
        data = msgspec.json.format(msgspec.json.encode(proposal), indent=2)
        write_atomic(self.home / FOLDER / f"{proposal.id}.json", data + b"\n")

    def _read(self, path: Path) -> SkillProposal:
        try:
            return msgspec.json.decode(path.read_bytes(), type=SkillProposal)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SkillError(f"{path} cannot be read: {error}. Remove it.") from None


def read_base(folder: Path) -> tuple[dict[str, SkillContent], str]:
    """Return the present content of a skill and its digest; both are empty if there is none."""
    if not (folder / "SKILL.md").is_file():
        return {}, ""
    files = read_folder(folder)
    return files, digest_of(hash_files(files))


def review(proposal: SkillProposal, folder: Path) -> ProposalReview:
    """Return what accepting a proposal would do; raise `SkillError` if the skill changed since or would be invalid."""
    before, digest = read_base(folder)
    if digest != proposal.base:
        raise SkillError(
            f"The skill '{proposal.name}' changed after the change was proposed. Reject the proposal, and have the "
            "agent propose it again."
        )
    files = apply_changes(before, proposal.files)
    declared = parse_skill(files["SKILL.md"].data, folder / "SKILL.md", SkillTier.WORKSPACE)
    if declared.name != proposal.name:
        raise SkillError(f"Its SKILL.md has the name '{declared.name}', not '{proposal.name}'.")
    return ProposalReview(proposal, folder, files, compare(before, files), scan_files(files))


def apply_changes(before: Mapping[str, SkillContent], changes: Mapping[str, str | None]) -> dict[str, SkillContent]:
    """Return the files after a change; raise `SkillError` if the result is not a skill."""
    if sum(len(text or "") for text in changes.values()) > MAX_CHARS:
        raise SkillError(f"A proposal contains at most {MAX_CHARS:,} characters.")
    files = dict(before)
    for name, text in changes.items():
        if text is None:
            files.pop(name, None)
        else:
            # Nothing that an agent wrote becomes executable: a skill names the interpreter of its scripts.
            files[name] = SkillContent(text.encode())
    check_names(files)
    if "SKILL.md" not in files:
        raise SkillError("It has no SKILL.md, so it is not a skill.")
    return files
